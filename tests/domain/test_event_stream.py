"""The fields of an event by the Elastic Common Schema."""

import pytest

from watchword.journal.events import ECS_VERSION, Action, KeptEvent, ecs_fields

ANN = "urn:li:corpuser:ann"
# From the ECS reference: the types that each category allows.
ALLOWED = {
    "api": {"access", "admin", "allowed", "change", "creation", "deletion", "denied", "end", "info", "start", "user"},
    "authentication": {"start", "end", "info"},
    "configuration": {"access", "change", "creation", "deletion", "info"},
    "database": {"access", "change", "info", "error"},
    "iam": {"admin", "change", "creation", "deletion", "group", "info", "user"},
    "session": {"start", "end", "info"},
}


def event(action: str, target: str = "x", peer: str = "10.0.0.1", **detail: object) -> KeptEvent:
    return KeptEvent(1_767_225_600_007, ANN, "token-1", action, target, peer, "request-1", detail, 42)


@pytest.mark.parametrize("action", [action.value for action in Action])
def test_every_action_has_a_category_and_types_that_it_allows(action: str) -> None:
    found = ecs_fields(event(action))["event"]
    assert found["category"]
    assert found["type"]
    for category in found["category"]:
        assert set(found["type"]) <= ALLOWED[category]


def test_fields_of_an_event() -> None:
    assert ecs_fields(event("token.created", "token-2", actorUrn="urn:li:corpuser:bob")) == {
        "@timestamp": "2026-01-01T00:00:00.007Z",
        "ecs": {"version": ECS_VERSION},
        "event": {
            "kind": "event",
            "module": "watchword",
            "dataset": "watchword.audit",
            "id": "42",
            "sequence": 42,
            "action": "token.created",
            "category": ["iam"],
            "type": ["user", "creation"],
            "outcome": "success",
        },
        "user": {"id": ANN, "target": {"id": "urn:li:corpuser:bob"}},
        "source": {"ip": "10.0.0.1"},
        "http": {"request": {"id": "request-1"}},
        "watchword": {
            "schema": 1,
            "target": "token-2",
            "token": {"id": "token-1"},
            "detail": {"actorUrn": "urn:li:corpuser:bob"},
        },
    }


def test_failures_and_sources_that_are_no_address() -> None:
    failed = ecs_fields(event("authentication.failed", peer="unix", reason="token_expired"))
    assert (failed["event"]["outcome"], failed["event"]["reason"]) == ("failure", "token_expired")
    assert failed["watchword"]["peer"] == "unix"
    assert "source" not in failed
    assert ecs_fields(event("group.deleted", "urn:li:corpGroup:a"))["group"] == {"id": "urn:li:corpGroup:a"}
    assert ecs_fields(event("actor.suspended", "urn:li:corpuser:b"))["user"]["target"] == {"id": "urn:li:corpuser:b"}

"""The audit log over HTTP: changes, denials and failed authentications, for actors with the privilege."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server
from tests.support.store_file import assert_sound, change_store, look
from tests.support.waiting import SECONDS, until

Make = Callable[..., Server]

EVENTS = """query ($input: ListEventsInput) { listEvents(input: $input) { count cursor events {
  id at action actorUrn tokenId target peer requestId detail } } }"""
UNKNOWN = "urn:li:corpuser:__unknown"


def page(server: Server, actor: str = ADMIN, **wanted: Any) -> Any:
    return server.ask(EVENTS, {"input": wanted}, actor=actor)["listEvents"]


def events(server: Server, **wanted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page(server, **{"count": 1000, **wanted})["events"]
    return found


def fail_authentication(server: Server, token: str, times: int = 1) -> None:
    for _ in range(times):
        assert server.verify(token).status_code == 401


class TestReading:
    def test_reading_events_needs_the_privilege(self, server: Server, actor: str) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            page(server, actor=actor, actions=["no such action"])
        assert (refusal.value.code, refusal.value.errors[0]["extensions"]["privilege"]) == (403, "VIEW_AUDIT_LOG")
        server.grant(actor, privileges=("VIEW_AUDIT_LOG",))
        assert page(server, actor=actor)["events"]

    def test_event_has_actor_action_target_time_token_and_peer(self, server: Server, actor: str) -> None:
        bearer = server.create(ADMIN)
        answer = server.post(
            "mutation ($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }",
            {"urn": actor},
            token=bearer["accessToken"],
        )
        (event,) = events(server, targets=[actor])
        assert event["action"] == "actor.suspended"
        assert event["actorUrn"] == ADMIN
        assert event["tokenId"] == bearer["metadata"]["id"]
        assert event["peer"] == "127.0.0.1"
        assert event["requestId"] == answer.headers["x-request-id"]
        assert event["at"] > 1_700_000_000_000

    def test_events_are_filtered_by_actor_action_target_and_time(self, server: Server, actor: str) -> None:
        server.grant(actor)
        made = [server.create(actor)["metadata"]["id"] for _ in range(3)]
        server.revoke(made[0], actor=actor)
        all_of_it = events(server, actorUrns=[actor])
        assert [(e["action"], e["target"]) for e in all_of_it] == [
            ("token.revoked", made[0]),
            *(("token.created", token) for token in reversed(made)),
        ]
        assert events(server, actorUrns=[actor], actions=["token.revoked"]) == all_of_it[:1]
        assert events(server, targets=made[:1]) == [all_of_it[0], all_of_it[3]]
        moment = all_of_it[1]["at"]
        assert events(server, actorUrns=[actor], until=moment) == [e for e in all_of_it if e["at"] < moment]
        assert events(server, actorUrns=[actor], since=moment) == [e for e in all_of_it if e["at"] >= moment]

    def test_events_are_paged_to_the_end(self, server: Server, actor: str) -> None:
        server.grant(actor)
        for _ in range(7):
            server.create(actor)
        whole = events(server, actorUrns=[actor])
        found: list[Any] = []
        cursor = None
        while True:
            got = page(server, actorUrns=[actor], count=3, cursor=cursor)
            assert got["count"] == 3
            found += got["events"]
            cursor = got["cursor"]
            if cursor is None:
                break
        assert found == whole
        assert len(whole) == 7

    @pytest.mark.parametrize(
        ("wanted", "field"),
        [
            ({"count": 0}, "count"),
            ({"count": 1001}, "count"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": "1-2-3"}, "cursor"),
            ({"actions": ["token.eaten"]}, "actions"),
            ({"actorUrns": ["x"] * 101}, "actorUrns"),
            ({"targets": ["x" * 501]}, "targets"),
            ({"targets": ["\u0000"]}, "targets"),
        ],
    )
    def test_invalid_event_input_names_the_field(self, server: Server, wanted: dict[str, Any], field: str) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            page(server, **wanted)
        assert refusal.value.code == 400
        assert refusal.value.errors[0]["extensions"]["field"] == field


class TestDenials:
    def test_denial_event_names_operation_and_privilege(self, server: Server, actor: str) -> None:
        answer = server.post("{ mine: listAccessTokens { total } }", actor=actor)
        (event,) = events(server, actorUrns=[actor])
        assert (event["action"], event["target"]) == ("access.denied", "listAccessTokens")
        assert event["detail"] == {"privilege": GENERATE}
        assert event["requestId"] == answer.headers["x-request-id"]

    def test_denial_event_says_that_the_scopes_of_the_token_exclude_the_privilege(
        self, server: Server, actor: str
    ) -> None:
        server.grant(actor, privileges=(MANAGE_ALL, GENERATE))
        limited = server.create(actor, scopes=[GENERATE])["accessToken"]
        server.post("{ listAccessTokens { total } }", token=limited)
        server.http.get("/auth?watchword.privilege=VIEW_AUDIT_LOG", headers={"Authorization": f"Bearer {limited}"})
        whole = server.create(actor)["accessToken"]
        server.http.get("/auth?watchword.privilege=VIEW_AUDIT_LOG", headers={"Authorization": f"Bearer {whole}"})
        found = events(server, actorUrns=[actor], actions=["access.denied"])
        assert [(event["target"], event["detail"]) for event in reversed(found)] == [
            ("listAccessTokens", {"privilege": MANAGE_ALL, "cause": "token_scopes"}),
            ("/auth", {"privilege": "VIEW_AUDIT_LOG", "cause": "token_scopes"}),
            ("/auth", {"privilege": "VIEW_AUDIT_LOG"}),
        ]

    def test_each_denied_field_writes_an_event(self, server: Server, actor: str) -> None:
        server.post("{ a: listAccessTokens { total } b: listPolicies(input: {}) { total } }", actor=actor)
        told = {event["target"] for event in events(server, actorUrns=[actor])}
        assert told == {"listAccessTokens", "listPolicies"}


class TestFailedAuthentication:
    def test_event_of_an_invalid_token_does_not_contain_it(self, make_server: Make) -> None:
        server = make_server()
        nonsense = "hunter2-hunter2-hunter2"
        fail_authentication(server, nonsense)
        server.http.get(
            f"/api/graphql/eyJhbGciOiJFZERTQSJ9.{nonsense}.{nonsense}", headers={"Authorization": "Bearer x"}
        )
        found = events(server, actions=["authentication.failed"])
        assert [(e["actorUrn"], e["tokenId"], e["detail"]) for e in found] == [
            (UNKNOWN, None, {"reason": "invalid_token"})
        ] * 2
        assert found[1]["target"] == "/auth"
        assert nonsense not in str(found)

    def test_event_of_a_revoked_token_names_token_and_actor(self, make_server: Make, actor: str) -> None:
        server = make_server()
        made = server.create(ADMIN, of=actor)
        server.revoke(made["metadata"]["id"])
        fail_authentication(server, made["accessToken"])
        (event,) = events(server, actorUrns=[actor])
        assert event["tokenId"] == made["metadata"]["id"]
        assert event["detail"] == {"reason": "token_revoked"}
        assert made["accessToken"] not in str(event)

    def test_event_names_the_suspended_actor(self, make_server: Make, actor: str) -> None:
        server = make_server()
        made = server.create(ADMIN, of=actor)
        server.set_status(actor, "SUSPENDED")
        fail_authentication(server, made["accessToken"])
        server.post("{ me { corpUser { urn } } }", actor=actor)
        found = events(server, actorUrns=[actor], actions=["authentication.failed"])
        assert [event["tokenId"] for event in found] == [None, made["metadata"]["id"]]
        assert {str(event["detail"]) for event in found} == {
            str({"reason": "invalid_token", "cause": "actor_suspended"})
        }

    def test_missing_credential_writes_no_event(self, make_server: Make) -> None:
        server = make_server()
        assert httpx.get(f"{server.url}/auth", timeout=SECONDS).status_code == 401
        asked = {"query": "{ me { corpUser { urn } } }"}
        assert httpx.post(f"{server.url}/api/graphql", json=asked, timeout=SECONDS).status_code == 401
        assert events(server, actions=["authentication.failed"]) == []

    def test_1000_failures_are_combined_into_few_events(self, make_server: Make) -> None:
        server = make_server()
        fail_authentication(server, "nonsense", times=1_000)
        # Twice the number that is kept per hour, because the hour may change meanwhile.
        assert len(events(server, actions=["authentication.failed"])) < 60
        server.stop()
        server.start()
        found = events(server, actions=["authentication.failed"])
        assert len(found) < 60
        assert sum(1 + event["detail"].get("leftOut", 0) for event in found) == 1_000

    def test_events_are_written_without_a_reader(self, make_server: Make) -> None:
        server = make_server()
        fail_authentication(server, "nonsense")
        until(
            lambda: look(server, "SELECT 1 FROM events WHERE action = 'authentication.failed'") == [(1,)],
            "it is written",
        )


class TestRetention:
    def test_old_events_are_removed_and_the_store_stays_sound(self, make_server: Make) -> None:
        server = make_server("--event-days", "30")
        made = [server.create(ADMIN)["metadata"]["id"] for _ in range(3)]
        server.revoke(made[0])
        kept = len(events(server))
        # More than one batch.
        change_store(
            server,
            "INSERT INTO events (at, actor, action, target, peer, request_id, detail) "
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1700) "
            "SELECT 1000 + x, 'urn:li:corpuser:old', 'access.denied', 'x', 'x', 'x', '{}' FROM n",
        )
        server.stop()
        server.start()
        until(lambda: look(server, "SELECT count(*) FROM events WHERE at < 1000000") == [(0,)], "they are gone")
        assert len(events(server)) == kept
        assert_sound(server)

    def test_changed_setting_writes_an_event(self, make_server: Make) -> None:
        server = make_server("--event-days", "30")
        assert events(server, actions=["setting.changed"]) == []
        server.stop()
        make_server("--event-days", "31", folder=server.folder, port=server.port)
        (event,) = events(server, actions=["setting.changed"])
        assert event["target"] == "WATCHWORD_EVENT_DAYS"
        assert event["detail"] == {"before": "30", "after": "31"}
        assert event["actorUrn"] == "urn:li:corpuser:__system"


COUNTS = """query ($input: EventCountsInput!) { eventCounts(input: $input) {
  countedSince counts { start kind count } } }"""
HOUR = 3_600_000


class TestCounts:
    def test_events_are_counted_by_time_and_kind(self, server: Server, actor: str) -> None:
        server.grant(actor)
        made = [server.create(actor)["metadata"]["id"] for _ in range(2)]
        with pytest.raises(GraphQLRefused):
            page(server, actor=actor)
        at = events(server, targets=made[:1])[0]["at"]
        since = at - 3 * HOUR
        wanted = {"since": since, "until": at + HOUR, "step": HOUR, "actorUrns": [actor]}
        found = server.ask(COUNTS, {"input": wanted}, actor=ADMIN)["eventCounts"]
        assert found == {
            "countedSince": since,
            "counts": [
                {"start": at, "kind": "DENIALS", "count": 1},
                {"start": at, "kind": "TOKENS", "count": 2},
            ],
        }

    @pytest.mark.parametrize(
        ("changed", "field"),
        [({"since": -1}, "since"), ({"step": 1}, "step"), ({"until": 0}, "until"), ({"until": 2**62}, "until")],
    )
    def test_invalid_counts_name_the_field(self, server: Server, changed: dict[str, int], field: str) -> None:
        with pytest.raises(GraphQLRefused) as refused:
            server.ask(COUNTS, {"input": {"since": 0, "until": HOUR, "step": HOUR, **changed}}, actor=ADMIN)
        assert (refused.value.code, refused.value.errors[0]["extensions"]["field"]) == (400, field)

    def test_counting_needs_the_privilege(self, server: Server, actor: str) -> None:
        with pytest.raises(GraphQLRefused) as refused:
            server.ask(COUNTS, {"input": {"since": -1, "until": 0, "step": 0}}, actor=actor)
        assert refused.value.code == 403


NAMED = """query ($targets: [String!]) { listEvents(input: {targets: $targets}) {
  events { action actorName targetName names } } }"""


def test_events_keep_the_name_of_what_is_gone(server: Server, actor: str) -> None:
    server.ask(
        "mutation ($i: SetActorInput!) { setActor(input: $i) }",
        {"i": {"urn": actor, "displayName": "Ada"}},
        actor=ADMIN,
    )
    token = server.create(ADMIN, of=actor, name="reports")["metadata"]["id"]
    policy = server.grant(actor)
    server.revoke(token)
    server.withdraw(policy)
    found = server.ask(NAMED, {"targets": [token, policy]}, actor=ADMIN)["listEvents"]["events"]
    assert [(one["action"], one["targetName"]) for one in found] == [
        ("policy.deleted", "test policy"),
        ("token.revoked", "reports"),
        ("policy.created", "test policy"),
        ("token.created", "reports"),
    ]
    assert [one["names"] for one in found if one["action"].startswith("token")] == [{actor: "Ada"}] * 2

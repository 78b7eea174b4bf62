"""An actor may make so many changes a day. Nobody is kept from taking rights away."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import ADMIN, GraphQLRefused, Server

MOST = 20
"""At once: half of a day's."""
KINDS = '["new-network"]', "[]"
OFFBOARD = "mutation ($input: OffboardActorInput!) { offboardActor(input: $input) { receipt { sessionCount } } }"
RENAME = (
    "mutation ($id: String!, $input: UpdateAccessTokenInput!) { updateAccessToken(tokenId: $id, input: $input) {id}}"
)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("strict"), "--actor-daily-changes", str(2 * MOST)) as running:
        yield running


def toggles(number: int) -> str:
    """A document with this many changes of the caller's preferences, each of which changes something."""
    fields = (f"a{n}: setMailPreferences(off: {KINDS[n % 2]}) {{ kind }}" for n in range(number))
    return f"mutation {{ {' '.join(fields)} }}"


def use_up(server: Server, actor: str) -> dict[str, Any]:
    """Make changes until one is refused. Returns its error."""
    while "errors" not in (answer := server.post(toggles(2), actor=actor).json()):
        pass
    error: dict[str, Any] = answer["errors"][0]["extensions"]
    return error


def test_each_change_in_a_document_counts(strict: Server, actor: str) -> None:
    strict.ask(toggles(MOST), actor=actor)
    with pytest.raises(GraphQLRefused) as refused:
        strict.ask(toggles(1), actor=actor)
    error = refused.value.errors[0]["extensions"]
    assert (error["code"], error["reason"]) == (429, "too_many_changes")
    assert 0 < error["retryAfter"] <= 86_400 // MOST


def test_changes_of_more_than_the_limit_in_one_document_are_refused(strict: Server, actor: str) -> None:
    answer = strict.post(toggles(MOST - 1), actor=actor).json()
    assert "errors" not in answer
    answer = strict.post(toggles(5), actor=actor).json()
    refused = [error["extensions"]["reason"] for error in answer["errors"]]
    assert refused[:1] == ["too_many_changes"]


def test_renaming_one_token_is_limited(strict: Server, actor: str) -> None:
    strict.grant(actor)
    token = strict.create(actor)["metadata"]["id"]
    for number in range(MOST):
        strict.ask(RENAME, {"id": token, "input": {"name": f"name {number}"}}, actor=actor)
    with pytest.raises(GraphQLRefused) as refused:
        strict.ask(RENAME, {"id": token, "input": {"name": "one more"}}, actor=actor)
    assert refused.value.reason == "too_many_changes"
    assert strict.create(actor)["accessToken"], "tokens have limits of their own"
    assert strict.revoke(token, actor=actor)


def test_actor_that_used_up_its_changes_still_revokes_suspends_and_offboards(strict: Server, actor: str) -> None:
    manager, leaver = actor + "-manager", actor + "-leaver"
    rights = ("MANAGE_POLICIES", "MANAGE_ACCESS_TOKENS", "MANAGE_SERVICE_ACCOUNTS")
    strict.grant(manager, privileges=rights)
    strict.grant(actor, leaver)
    token, other = (strict.create(one)["metadata"]["id"] for one in (actor, leaver))
    assert use_up(strict, manager)["reason"] == "too_many_changes"
    assert strict.revoke(token, actor=manager)
    strict.ask(
        "mutation ($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }", {"urn": actor}, actor=manager
    )
    strict.ask(OFFBOARD, {"input": {"urn": leaver, "dryRun": False}}, actor=manager)
    (offboarded,) = strict.tokens(
        ADMIN, [{"field": "id", "values": [other]}, {"field": "status", "values": ["REVOKED"]}]
    )["tokens"]
    assert offboarded["status"] == "REVOKED"


def test_one_actor_that_used_up_its_changes_leaves_others_theirs(strict: Server, actor: str) -> None:
    use_up(strict, actor)
    strict.ask(toggles(MOST), actor=actor + "-other")

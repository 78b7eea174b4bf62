"""A worker keeps what the body of a list means. Callers, policies, tokens and the time are read for each request."""

import pytest

from tests.support.server import ADMIN, MANAGE_ALL, GraphQLRefused, Server
from tests.support.waiting import until
from watchword.app.graphql_endpoint import MAX_KEPT, MAX_KEPT_BODY, ParsedRequests
from watchword.basics.errors import Fault

LIST = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens { name urn } } }"


def listed(server: Server, caller: str, *filters: dict[str, str]) -> list[str]:
    page = server.ask(LIST, {"input": {"filters": list(filters), "count": 50}}, actor=caller)["listAccessTokens"]
    assert page["total"] == len(page["tokens"])
    return [token["name"] for token in page["tokens"]]


def test_repeated_list_is_authorized_for_each_caller(server: Server, actor: str) -> None:
    own = {"field": "actorUrn", "value": actor}
    server.create(ADMIN, of=actor, name="seen")
    assert listed(server, ADMIN, own) == listed(server, ADMIN, own) == ["seen"]
    with pytest.raises(GraphQLRefused):
        listed(server, actor, own)
    policy = server.grant(actor)
    assert listed(server, actor, own) == ["seen"]
    server.withdraw(policy)
    with pytest.raises(GraphQLRefused):
        listed(server, actor, own)
    assert listed(server, ADMIN, own) == ["seen"]


def test_repeated_list_of_all_tokens_needs_manage_all_each_time(server: Server, actor: str) -> None:
    named = {"field": "name", "value": f"of {actor}"}
    server.create(ADMIN, of=actor, name=f"of {actor}")
    assert listed(server, ADMIN, named) == listed(server, ADMIN, named) == [f"of {actor}"]
    server.grant(actor)
    with pytest.raises(GraphQLRefused):
        listed(server, actor, named)
    server.grant(actor, privileges=(MANAGE_ALL,))
    assert listed(server, actor, named) == [f"of {actor}"]


def test_repeated_list_shows_the_current_tokens(server: Server, actor: str) -> None:
    own = {"field": "ownerUrn", "value": actor}
    server.grant(actor)
    made = []
    for number in range(3):
        assert listed(server, actor, own) == [f"token {one}" for one in reversed(range(number))]
        made.append(server.create(actor, name=f"token {number}")["metadata"]["id"])
    server.revoke(made[1])
    assert listed(server, actor, own) == ["token 2", "token 0"]


def test_repeated_duration_counts_back_from_now(server: Server, actor: str) -> None:
    server.create(ADMIN, of=actor, name="ages")
    filters = [{"field": "actorUrn", "value": actor}, {"field": "createdAt", "condition": "LESS_THAN", "value": "PT2S"}]
    until(lambda: listed(server, ADMIN, *filters) == ["ages"], "the token is older than two seconds")


def test_only_so_many_small_bodies_are_kept() -> None:
    requests = ParsedRequests()
    for number in range(MAX_KEPT + 5):
        body = b'{"query": "{ listAccessTokens(input: {start: %d}) { total } }"}' % number
        requests.keep(body, requests.get(body))
    assert len(requests) == MAX_KEPT
    large = b'{"query": "{ listAccessTokens { total } }"}'.ljust(MAX_KEPT_BODY + 1)
    requests.keep(large, requests.get(large))
    assert requests.get(large) is not requests.get(large)


def test_body_with_a_token_in_it_is_not_kept() -> None:
    requests = ParsedRequests()
    body = b'{"query": "{ listAccessTokens { total } }", "variables": {"undeclared": "eyJhbGciOiJFZERTQSJ9.e30.c2ln"}}'
    requests.keep(body, requests.get(body))
    assert len(requests) == 0


def test_rejected_bodies_are_not_kept() -> None:
    requests = ParsedRequests()
    with pytest.raises(Fault):
        requests.get(b"[]")
    assert len(requests) == 0

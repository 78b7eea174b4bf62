"""Cases: the request, its caller and the expected response."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from bench.population import Holder, Population

OWN, ALL = 20, 100

CREATE = "mutation ($input: GetAccessTokenInput!) { createAccessToken(input: $input) { accessToken metadata { id } } }"
REVOKE = "mutation ($id: String!) { revokeAccessToken(tokenId: $id) }"
LIST = """query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) {
  start count total tokens { urn id name actorUrn ownerUrn createdAt expiresAt } } }"""
LIST_ALL = f"""{{ listAccessTokens(input: {{start: 0, count: {ALL}, filters: []}}) {{
  start count total tokens {{ urn id actorUrn }} }} }}"""
"""As the interface was given: everything in the document, no variables."""

_numbers = itertools.count()


def _unchanged(population: Population, sent: int, ids: list[str]) -> None:
    """As reading leaves it."""


@dataclass(frozen=True, slots=True)
class Request:
    bearer: str
    body: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    method: str
    path: str
    requests: Callable[[Population, Holder], Iterator[Request]]
    """Different ones, as many as there are; the holder is the root actor."""
    check: Callable[[httpx.Response], bool]
    """Whether an answer is the one that is meant to be measured."""
    expect: str = ""
    """What stands in every right body."""
    look: int = 0
    """Every how many-th body is looked at under load; 0 for an answer that has none."""
    once: bool = False
    """Whether a request can be sent only once."""
    settle: Callable[[Population, int, list[str]], None] = _unchanged
    """What so many requests, answered with these ids, have changed."""


def post(bearer: str, query: str, **variables: Any) -> Request:
    return Request(bearer, json.dumps({"query": query, "variables": variables}))


def create(caller: Holder) -> Request:
    """A token for the caller, with a name of its own."""
    wanted = {"type": "PERSONAL", "actorUrn": caller.actor, "duration": "ONE_DAY", "name": f"b {next(_numbers)}"}
    return post(caller.token, CREATE, input=wanted)


def _verify(population: Population, root: Holder) -> Iterator[Request]:
    return (Request(caller.token) for caller in population.callers)


def _create(population: Population, root: Holder) -> Iterator[Request]:
    return map(create, itertools.cycle(population.callers))


def _own_list(population: Population, root: Holder) -> Iterator[Request]:
    for caller in population.callers:
        mine = [{"field": "ownerUrn", "value": caller.actor}]
        yield post(caller.token, LIST, input={"start": 0, "count": OWN, "filters": mine})


def _list(population: Population, root: Holder) -> Iterator[Request]:
    yield post(root.token, LIST_ALL)


def _revoke(population: Population, root: Holder) -> Iterator[Request]:
    return (post(root.token, REVOKE, id=token_id) for token_id in population.to_revoke)


def _made(population: Population, sent: int, ids: list[str]) -> None:
    population.to_revoke.extend(ids)


def _ended(population: Population, sent: int, ids: list[str]) -> None:
    for _ in range(sent):
        population.to_revoke.popleft()


def _lists(count: int) -> Callable[[httpx.Response], bool]:
    return lambda answer: len(answer.json()["data"]["listAccessTokens"]["tokens"]) == count


_GRAPHQL = "/api/graphql"

VERIFY, OWN_LIST, LIST_OF_100, MAKE, END = "verify", "own list of 20", "list of 100", "create", "revoke"

# Revoke comes after create and ends as many as it made.
CASES = (
    Case(VERIFY, "GET", "/auth", _verify, lambda answer: answer.status_code == 204),
    Case(OWN_LIST, "POST", _GRAPHQL, _own_list, _lists(OWN), '"tokens":[{', look=50),
    Case(LIST_OF_100, "POST", _GRAPHQL, _list, _lists(ALL), '"tokens":[{', look=50),
    Case(
        MAKE,
        "POST",
        _GRAPHQL,
        _create,
        lambda answer: bool(answer.json()["data"]["createAccessToken"]["accessToken"]),
        '"accessToken":"',
        look=1,
        once=True,
        settle=_made,
    ),
    Case(
        END,
        "POST",
        _GRAPHQL,
        _revoke,
        lambda answer: answer.json() == {"data": {"revokeAccessToken": True}},
        '"revokeAccessToken":true',
        look=1,
        once=True,
        settle=_ended,
    ),
)


def case(name: str) -> Case:
    return next(one for one in CASES if one.name == name)

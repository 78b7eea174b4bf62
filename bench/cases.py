"""Cases: one request each, prepared on a contender and checked once before it is measured."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.contenders import ADMIN, Contender

OWN_TOKENS = 20

CREATE = "mutation ($input: GetAccessTokenInput!) { createAccessToken(input: $input) { accessToken } }"
LIST = """query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) {
  start count total tokens { urn id name actorUrn ownerUrn createdAt expiresAt } } }"""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    request: Callable[[str], Request]
    """The request, made with the bearer."""
    check: Callable[[httpx.Response], bool]
    """Whether Watchword's answer is the one that is meant to be measured."""


def prepare(contender: Contender) -> str:
    """Twenty tokens of the root actor; returns one of them. A bare contender takes any string."""
    token = "bare"
    if contender.is_watchword:
        for number in range(OWN_TOKENS):
            wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_DAY", "name": f"bench {number}"}
            token = contender.ask(CREATE, {"input": wanted})["createAccessToken"]["accessToken"]
    return token


def prove(contender: Contender, case: Case, token: str) -> None:
    request = case.request(token)
    answer = httpx.request(
        request.method, contender.url + request.path, headers=request.headers, content=request.body, timeout=30
    )
    assert answer.is_success, (contender.name, case.name, answer.status_code)
    assert not contender.is_watchword or case.check(answer), (contender.name, case.name, answer.text)


def _verify(token: str) -> Request:
    return Request("GET", "/auth", {"Authorization": f"Bearer {token}"})


def _own_list(token: str) -> Request:
    wanted: dict[str, Any] = {"start": 0, "count": OWN_TOKENS, "filters": [{"field": "ownerUrn", "value": ADMIN}]}
    return Request(
        "POST",
        "/api/graphql",
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        json.dumps({"query": LIST, "variables": {"input": wanted}}),
    )


def _lists_twenty(answer: httpx.Response) -> bool:
    return len(answer.json()["data"]["listAccessTokens"]["tokens"]) == OWN_TOKENS


CASES = (
    Case("verify", _verify, lambda answer: answer.status_code == 204),
    Case("own list of 20", _own_list, _lists_twenty),
)

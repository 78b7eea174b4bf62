"""Answers that cost more than ordinary ones are charged to the processor budget of the actor, whoever sent the document
first, and at every address.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from bench.fill import fill
from tests.support.server import GENERATE, Server
from tests.support.waiting import until

CLIENTS = 64
ME = "{ me { corpUser { urn } } }"
OTHER = "urn:li:corpuser:other"
FIELD = "listPrivileges { name displayName allows includes escalates }"
PRIVILEGES = "{ " + " ".join(f"a{number}: {FIELD}" for number in range(20)) + " }"
BY_GRAPHQL_CORE = PRIVILEGES.replace("{", "query ($v: Boolean = true) {", 1).replace(
    "}", "i: name @include(if: $v) }", 1
)
FOLLOWED = 'relationships(input: {types: ["IsMemberOfGroup"], direction: OUTGOING}) { total relationships { type } }'
LOOKUPS = "{ " + " ".join(f'a{number}: corpUser(urn: "{OTHER}") {{ urn {FOLLOWED} }}' for number in range(20)) + " }"
EVENTS = "{ listEvents(input: {count: 1000}) { events { id at action actorUrn actorName target targetName names } } }"
REVOKE_NONE = f'mutation {{ revokeAccessToken(tokenId: "{"0" * 43}=") }}'


def ask_until_rejected(ask: Callable[[], httpx.Response]) -> None:
    """By many clients at the same time: one alone waits for its turn."""
    rejected = threading.Event()

    def run() -> None:
        while not rejected.is_set():
            answer = ask()
            if answer.status_code == 429 or "processor_budget_used" in answer.text:
                rejected.set()
            else:
                assert answer.status_code == 200
                assert "errors" not in answer.json()

    with ThreadPoolExecutor(CLIENTS) as clients:
        runs = [clients.submit(run) for _ in range(CLIENTS)]
        until(rejected.is_set, "rejected")
        rejected.set()
    for one in runs:
        one.result()


ATTACKS: dict[str, tuple[str, str, Any]] = {
    "fields": ("POST", "/api/graphql", {"query": PRIVILEGES}),
    "fields by graphql-core": ("POST", "/api/graphql", {"query": BY_GRAPHQL_CORE}),
    "lookups": ("POST", "/api/graphql", {"query": LOOKUPS}),
    "listEvents": ("POST", "/api/graphql", {"query": EVENTS}),
    "events": ("GET", "/events?count=1000", None),
    "audit search": ("POST", "/openapi/v1/events/audit/search?size=1000", {}),
}


def actor_of(attack: str) -> str:
    return f"urn:li:corpuser:{attack.replace(' ', '-')}"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Mapping[str, Mapping[str, str]]]]:
    """With what the attackers send to authenticate. All is prepared before the first attack, because all actors share a
    budget too.
    """
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "data").mkdir(mode=0o700)
    fill(folder / "data" / "watchword.db", 20_000, now=time.time_ns() // 1_000_000, actors=1)
    with Server(folder, env={"WATCHWORD_ACTOR_PROCESSOR_PERCENT": "2"}) as server:
        actors = [actor_of(attack) for attack in ATTACKS]
        server.grant(*actors, privileges=(GENERATE, "VIEW_AUDIT_LOG"))
        bearers = {}
        for attack, actor in zip(ATTACKS, actors, strict=True):
            bearers[attack] = {"Authorization": f"Bearer {server.create(actor)['accessToken']}"}
        for document in (ME, REVOKE_NONE):
            for bearer in bearers.values():
                server.http.post("/api/graphql", json={"query": document}, headers=bearer)
        yield server, bearers


@pytest.mark.parametrize("attack", ATTACKS)
def test_costly_answers_use_up_the_budget_of_their_actor(
    attacked: tuple[Server, Mapping[str, Mapping[str, str]]], attack: str
) -> None:
    server, bearer = attacked[0], attacked[1][attack]
    method, path, content = ATTACKS[attack]
    if content and "query" in content:
        content = {"query": content["query"].replace(OTHER, actor_of(attack))}

    def ask(document: str) -> httpx.Response:
        return server.http.post("/api/graphql", json={"query": document}, headers=bearer)

    ask_until_rejected(lambda: server.http.request(method, path, json=content, headers=bearer))
    assert "errors" not in ask(ME).json(), "a document that costs little is answered"
    assert "token_not_found" in ask(REVOKE_NONE).text, "it may still revoke"
    assert server.http.get("/auth", headers=bearer).status_code == 204

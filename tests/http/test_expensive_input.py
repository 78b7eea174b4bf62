"""Expensive input is rejected or answered at a cost that grows no faster than its size. The test compares the worker's
processor time with that of a thousand normal requests, so a busy machine does not matter.
"""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.server import ADMIN, CREATE, LIST, Server
from tests.support.wire import send

ME = "{ me { corpUser { urn } } }"
AS_ADMIN = {"X-Service-Actor": ADMIN, "Content-Type": "application/json"}
Ask = Callable[[Server], httpx.Response]


def query(text: str, variables: Any = None) -> Ask:
    body = json.dumps({"query": text, "variables": variables or {}})
    return lambda server: server.http.post("/api/graphql", content=body, headers=AS_ADMIN)


def filters(count: int, values: int) -> Any:
    one = {"field": "description", "condition": "CONTAIN", "negated": True}
    return {"input": {"filters": [{**one, "values": [f"{f}-{v}" for v in range(values)]} for f in range(count)]}}


EXPENSIVE: dict[str, Ask] = {
    "a long name": query("{" + "x" * 99_000 + "}"),
    "a long enum value": query(CREATE, {"input": {"type": "x" * 900_000}}),
    "an enum value that reads like a suggestion": query(CREATE, {"input": {"type": " Did you mean " * 60_000}}),
    "a long unknown field": query(CREATE, {"input": {"x" * 900_000: 1}}),
    "a long string in the wrong place": query("{ me(" + "y" * 50_000 + ": 1) { corpUser { urn } } }"),
    "almost a token": query(CREATE, {"input": {"type": "eyJ" * 300_000}}),
    "almost many tokens": query(CREATE, {"input": {"type": ("x" * 20 + ".") * 40_000}}),
    "a field repeated": query("{ me {" + "corpUser { urn } " * 480 + "} }"),
    "an alias repeated": query("{ me { corpUser {" + "a: urn a: username " * 490 + "} } }"),
    "introspection repeated": query(
        "{ __schema { types {" + "a: fields(includeDeprecated: true) { name } " * 450 + "} } }"
    ),
    "repeated through fragments": query(
        "{ me { corpUser {" + "...f " * 400 + "} } } fragment f on CorpUser { urn type username exists }"
    ),
    "many filters with many values": query(LIST, filters(50, 1_000)),
    "the same, twenty times": query(
        "query ($input: ListAccessTokensInput) {"
        + " ".join(f"a{n}: listAccessTokens(input: $input) {{ total }}" for n in range(20))
        + "}",
        filters(20, 50),
    ),
}


def processor_time(server: Server) -> float:
    return sum(t.user + t.system for t in (worker.cpu_times() for worker in server.workers()))


@pytest.fixture(scope="module")
def measured_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Server(tmp_path_factory.mktemp("dear"), env={"WATCHWORD_ACCESS_LOG": "all"}) as server:
        before = processor_time(server)
        for _ in range(1_000):
            assert query(ME)(server).status_code == 200
        yield server, processor_time(server) - before


@pytest.mark.parametrize("name", EXPENSIVE)
def test_expensive_input_costs_less_than_1000_normal_requests(measured_server: tuple[Server, float], name: str) -> None:
    server, thousand = measured_server
    before = processor_time(server)
    answer = EXPENSIVE[name](server)
    assert answer.status_code in {200, 400}
    assert all(error["extensions"]["code"] in {400, 503} for error in answer.json().get("errors", []))
    assert processor_time(server) - before < thousand


@pytest.mark.parametrize(
    ("path", "status"), [("/" + "x" * 30_000, 414), ("/?" + "eyJ" * 10_000, 414), ("/auth/" + "x." * 15_000, 401)]
)
def test_long_path_costs_less_than_1000_normal_requests(
    measured_server: tuple[Server, float], path: str, status: int
) -> None:
    server, thousand = measured_server
    before = processor_time(server)
    assert send(server, "GET", path, headers=()).status == status
    assert server.http.get("/health/live").status_code == 200
    assert processor_time(server) - before < thousand

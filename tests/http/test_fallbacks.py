"""Each fallback from the fast path to graphql-core is counted by cause and logged once per document."""

import json
import re
from collections import Counter
from hashlib import sha256

from tests.support.server import ADMIN, Server

FALLBACKS = re.compile(r'^watchword_graphql_fallbacks_total\{cause="(\w+)"\} (\S+)$', re.MULTILINE)
INTROSPECTION = "{ __schema { queryType { fallback: name } } }"
LIST = "query ($count: Int) { listAccessTokens(input: {count: $count}) { total } }"
TWO = "query FallbackA { me { corpUser { urn } } } query B { me { corpUser { urn } } }"
CONDITION = "query ($v: Boolean!) { me { corpUser { a: urn @include(if: $v) exists } } }"


def fallbacks(server: Server) -> dict[str, float]:
    return {cause: float(number) for cause, number in FALLBACKS.findall(server.metrics())}


def logged(server: Server) -> Counter[str]:
    lines = [json.loads(line) for line in server.err.read_text().splitlines() if "graphql fallback" in line]
    return Counter(line["document"] for line in lines)


def test_every_fallback_is_counted_by_cause_and_logged_once_per_document(server: Server) -> None:
    before = fallbacks(server)
    for _ in range(3):
        assert server.post(INTROSPECTION, actor=ADMIN).json()["data"]["__schema"]
    assert "errors" in server.post(LIST, {"count": "x"}, actor=ADMIN).json()
    assert "errors" in server.post(TWO, actor=ADMIN).json()
    for value in (True, False):
        found = server.ask(CONDITION, {"v": value}, actor=ADMIN)["me"]["corpUser"]
        assert found == ({"a": ADMIN, "exists": True} if value else {"exists": True})
    after = fallbacks(server)
    new = {cause: number - before.get(cause, 0) for cause, number in after.items() if number != before.get(cause, 0)}
    assert new == {"introspection": 3, "invalid_input": 1, "unknown_operation": 1, "unsupported_operation": 2}
    documents = logged(server)
    for text in (INTROSPECTION, LIST, TWO, CONDITION):
        assert documents[sha256(text.encode()).hexdigest()[:16]] == 1
        assert text not in server.err.read_text()


def test_requests_on_the_fast_path_are_no_fallbacks(server: Server) -> None:
    before = fallbacks(server)
    made = server.create(ADMIN)
    assert server.ask(LIST, {"count": 5}, actor=ADMIN)["listAccessTokens"]["total"] >= 1
    assert server.revoke(made["metadata"]["id"])
    assert fallbacks(server) == before

"""Random input causes no 5xx; every error is well-formed and reveals no internals."""

from typing import Any

import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.server import ADMIN, CREATE, CREATE_POLICY, LIST, REVOKE, Server
from tests.support.wire import AS_ADMIN, JSON_TYPE, Answer, send

INTERNALS = (b"Traceback", b'File "', b".py", b"SELECT ", b"sqlite", b"apsw", b"Error(", b"/work/", b"/tmp/")
# The health checks reject a server shared by a session.
FAST = settings(max_examples=150, suppress_health_check=list(HealthCheck))

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
# The schema's own words, so that some input gets past the parser.
WORDS = st.sampled_from(
    """query mutation fragment on { } ( ) [ ] : ! ... @ $ | = & me corpUser urn listAccessTokens input start count
    filters field value values condition negated total tokens id name createAccessToken revokeAccessToken tokenId
    accessToken metadata __typename __schema types @include if true false null 0 -1 1e400 99999999999999999999 $input
    a b "x" "\\u0000" # PERSONAL ONE_HOUR actorUrn listPolicies policies""".split()  # noqa: SIM905 - sixty words
)
FIELDS = st.sampled_from(
    ["type", "actorUrn", "duration", "durationIso", "name", "description", "start", "count", "filters", "field",
     "value", "values", "condition", "negated", "sort", "order", "privileges", "actors", "state", "users", "groups"]
)  # fmt: skip
VALUES = st.sampled_from(
    ["PERSONAL", "ONE_HOUR", "EQUAL", "EXISTS", "name", "expiresAt", "status", "nobody", "\x00", "0"]
)
VARIABLE = st.recursive(
    JSON | VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6), max_leaves=10
)
ADDRESSES = st.sampled_from(
    ["/", "/config", "/health/live", "/auth", "/auth/x", "/api/graphql", "/api/v2/graphql", "/gms/api/graphql", "/api",
     "/operations", "/operations?action=getEsTaskStatus", "/openapi/x", "/aspects/x?aspect=corpUserKey",
     "/openapi/v1/events/audit/search?size=1", "/entitiesV2/x", "/oauth2/introspect", "/oauth2/revoke",
     "/.well-known/jwks.json", "/.well-known/oauth-authorization-server", "/gms", "/api/gms", "/session", "/console/x",
     "/assets/x/main.js"]
)  # fmt: skip
# HTTP allows no control characters in a header value except the tab.
HEADER_BYTES = st.binary(max_size=60).map(lambda raw: bytes(b for b in raw if b == 9 or (b >= 32 and b != 127)))
NAMES = st.sampled_from(
    [b"Authorization", b"X-Service-Actor", b"X-DataHub-Actor", b"X-Request-Id", b"Accept", b"Content-Type", b"Origin",
     b"X-Forwarded-For", b"Forwarded", b"Content-Encoding", b"Cookie", b"Range", b"If-Match", b"X-RestLi-Protocol",
     b"X-Watchword-Console", b"Sec-Fetch-Site", b"X-Forwarded-Proto", b"If-None-Match", b"Accept-Encoding"]
)  # fmt: skip
GRAPHQL = ("/api/graphql", "/api/v2/graphql")
OAUTH = ("/oauth2/introspect", "/oauth2/revoke")


def is_file(answer: Answer) -> bool:
    """Return whether the response is a console file."""
    kind = answer.header("Content-Type") or ""
    return answer.status == 200 and kind.startswith(("text/html", "text/javascript"))


def check(answer: Answer, target: str) -> Any:
    """Fail on a 5xx, a malformed error or a response that reveals internals."""
    assert answer.status < 500, answer
    assert answer.header("X-Request-Id")
    if is_file(answer):  # its code contains such words
        return None
    assert not [word for word in INTERNALS if word in answer.body], answer
    content = orjson.loads(answer.body) if answer.body else None
    if target.removeprefix("/gms") in GRAPHQL:
        assert content is not None
        for error in content.get("errors", []):
            kind = error["extensions"]
            assert isinstance(error["message"], str)
            assert 400 <= kind["code"] < 500
            assert kind["type"]
            assert kind["reason"]
        assert content.get("errors") != []
        assert "data" in content or "errors" in content
    elif answer.status >= 400 and target in OAUTH:
        assert content is not None
        assert set(content) == {"error", "error_description"}
    elif answer.status >= 400:
        assert content is not None
        assert content["error"]["code"] == answer.status
        assert {"type", "reason", "message"} <= set(content["error"])
    return content


@FAST
@given(st.binary(max_size=200))
def test_random_bytes_get_a_well_formed_error(server: Server, sent: bytes) -> None:
    assert check(send(server, body=sent), "/api/graphql").get("data") is None


@FAST
@given(JSON)
def test_random_json_gets_a_well_formed_error(server: Server, sent: Any) -> None:
    check(send(server, body=orjson.dumps(sent)), "/api/graphql")


@FAST
@given(st.one_of(TEXT, st.lists(WORDS, max_size=40).map(" ".join)), JSON, JSON)
def test_random_documents_get_a_well_formed_response(server: Server, query: str, variables: Any, name: Any) -> None:
    sent = orjson.dumps({"query": query, "variables": variables, "operationName": name})
    check(send(server, body=sent), "/api/graphql")


@FAST
@given(st.sampled_from([CREATE, LIST, REVOKE, CREATE_POLICY]), VARIABLE, VARIABLE)
def test_random_variables_get_a_well_formed_response(server: Server, query: str, value: Any, other: Any) -> None:
    sent = orjson.dumps({"query": query, "variables": {"input": value, "id": other}})
    check(send(server, body=sent), "/api/graphql")


@FAST
@given(st.lists(st.fixed_dictionaries({"field": FIELDS | TEXT}, optional={
    "value": TEXT | VALUES, "values": st.lists(TEXT | VALUES, max_size=3) | TEXT, "negated": st.booleans(),
    "condition": st.sampled_from(["EQUAL", "IEQUAL", "IN", "CONTAIN", "START_WITH", "END_WITH", "EXISTS", "LESS_THAN"]),
}), max_size=3), st.integers(-2, 2**31), st.integers(-2, 1_002))  # fmt: skip
def test_random_filters_get_a_well_formed_response(
    server: Server, filters: list[dict[str, Any]], start: int, count: int
) -> None:
    sent = orjson.dumps({"query": LIST, "variables": {"input": {"filters": filters, "start": start, "count": count}}})
    answer = send(server, body=sent)
    assert answer.status == 200
    check(answer, "/api/graphql")


@FAST
@example(method="GET", target="/assets/x/main.js", headers=[], sent=b"")
@given(
    st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO"]),
    ADDRESSES,
    st.lists(st.tuples(NAMES, HEADER_BYTES), max_size=5),
    st.binary(max_size=40),
)
def test_random_headers_get_a_well_formed_response(
    server: Server, method: str, target: str, headers: list[tuple[bytes, bytes]], sent: bytes
) -> None:
    answer = send(server, method, target, [name + b": " + value for name, value in headers], sent)
    if method == "HEAD":
        assert answer.status < 500
    else:
        check(answer, target)


@FAST
@given(st.text("/%.:;?#&=+abz019~_-", max_size=40), st.sampled_from(["", "/api", "/gms", "/auth", "/api/gms"]))
def test_random_paths_get_a_well_formed_response(server: Server, rest: str, prefix: str) -> None:
    answer = send(server, "GET", f"{prefix}/{rest.replace('#', '')}", [], None)
    if answer.header("X-Request-Id") is None:  # an invalid request target never reaches the application
        assert answer.status == 400
    else:
        assert answer.status in (200, 400, 401, 404, 405), answer
        assert is_file(answer) or orjson.loads(answer.body)


def test_random_input_logs_no_internal_error(server: Server) -> None:
    """Other tests may run before or after this one; none may cause an internal error."""
    server.ask("{ me { corpUser { urn } } }", actor=ADMIN, headers={"X-Request-Id": "last-of-all"})
    logged = server.err.read_text()
    assert '"event":"internal error"' not in logged
    assert '"reason":"internal"' not in logged
    assert "Traceback" not in logged
    assert AS_ADMIN not in logged
    assert JSON_TYPE not in logged

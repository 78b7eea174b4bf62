"""Addresses: prefixes, aliases, methods, request ids and the two error formats."""

from itertools import product
from typing import Any

import httpx
import orjson
import pytest

from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS
from tests.support.wire import AS_ADMIN, JSON_TYPE, Answer, send

PREFIXES = ("", "/gms", "/api/gms")
PUBLIC = (
    "/",
    "/config",
    "/health",
    "/health/live",
    "/health/ready",
    "/metrics",
    "/.well-known/jwks.json",
    "/.well-known/oauth-authorization-server",
)
GRAPHQL = ("/api/graphql", "/api/v2/graphql")
PROTECTED = (
    "/api",
    "/api/",
    "/api/nothing",
    "/api/graphql/",
    "/operations/none",
    "/operations/x",
    "/oauth2/x",
    "/openapi/x",
    "/aspects",
    "/aspects/urn:li:corpuser:nobody",
    "/entities/x",
    "/entitiesV2/x",
    "/relationships/x",
)
EVERY_ADDRESS = [(p, "GET") for p in PUBLIC] + [(p, "POST") for p in GRAPHQL] + [("/auth", "GET"), ("/auth/x/y", "PUT")]


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    made: str = server.create(ADMIN, name="http")["accessToken"]
    return made


def get(server: Server, target: str, *headers: str) -> Answer:
    return send(server, "GET", target, headers, None)


def rest_error(answer: Answer, code: int, kind: str, reason: str) -> dict[str, Any]:
    assert answer.status == code
    assert answer.header("Content-Type") == "application/json; charset=utf-8"
    assert set(answer.json()) - {"message", "status"} == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert (error["code"], error["type"], error["reason"]) == (code, kind, reason)
    assert error["message"]
    return error


class TestGatewayPrefixes:
    @pytest.mark.parametrize(("path", "method"), [one for one in EVERY_ADDRESS if one[0] != "/metrics"])
    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_gateway_prefixes_lead_to_the_same_address(
        self, server: Server, token: str, prefix: str, path: str, method: str
    ) -> None:
        answer = send(server, method, prefix + path, [f"Authorization: Bearer {token}", JSON_TYPE])
        assert answer.status == (204 if path.startswith("/auth") else 200)
        if path in GRAPHQL:
            assert answer.json() == {"data": {"me": {"corpUser": {"urn": ADMIN}}}}
        elif path not in ("/", "/auth", "/auth/x/y"):
            assert answer.body == get(server, path).body

    @pytest.mark.parametrize("prefix", PREFIXES[1:])
    def test_gateway_prefixes_do_not_lead_to_metrics(self, server: Server, prefix: str) -> None:
        for path in (f"{prefix}/metrics", "//metrics", "/metrics/", "/./metrics", f"{prefix}/../metrics"):
            rest_error(get(server, path), 404, "NOT_FOUND", "no_such_address")

    @pytest.mark.parametrize(
        "path", ["/gmsx/config", "/api/gmsx/config", "/gms/gms/config", "/GMS/config", "/xgms/config"]
    )
    def test_prefix_is_exact_and_removed_once(self, server: Server, token: str, path: str) -> None:
        rest_error(get(server, path, f"Authorization: Bearer {token}"), 404, "NOT_FOUND", "no_such_address")

    @pytest.mark.parametrize("prefix", PREFIXES[1:])
    def test_bare_prefix_leads_to_the_root(self, server: Server, prefix: str) -> None:
        assert get(server, prefix).json()["service"] == "watchword"


class TestProtectedPaths:
    @pytest.mark.parametrize(("prefix", "path"), [*product(PREFIXES, PROTECTED)])
    def test_unauthenticated_callers_get_401_for_any_path(self, server: Server, prefix: str, path: str) -> None:
        for method in ("GET", "POST", "DELETE"):
            answer = send(server, method, prefix + path, [AS_ADMIN, JSON_TYPE])
            rest_error(answer, 401, "UNAUTHENTICATED", "missing_credential")
            assert answer.header("WWW-Authenticate") == 'Bearer realm="watchword"'

    @pytest.mark.parametrize(("prefix", "path"), [*product(PREFIXES, PROTECTED)])
    def test_authenticated_callers_get_404_for_unknown_paths(
        self, server: Server, token: str, prefix: str, path: str
    ) -> None:
        rest_error(get(server, prefix + path, f"Authorization: Bearer {token}"), 404, "NOT_FOUND", "no_such_address")

    @pytest.mark.parametrize(
        "path", ["/nothing", "/apix", "/operationsx", "/aspectsx", "/favicon.ico", "/config/", "/authx", "//"]
    )
    def test_lookalike_paths_return_404(self, server: Server, path: str) -> None:
        rest_error(get(server, path), 404, "NOT_FOUND", "no_such_address")


class TestMethods:
    @pytest.mark.parametrize("path", PUBLIC)
    def test_public_address_rejects_other_methods_with_405(self, server: Server, path: str) -> None:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = send(server, method, path, [], b"")
            rest_error(answer, 405, "METHOD_NOT_ALLOWED", "method_not_allowed")
            assert answer.header("Allow") == "GET, HEAD"

    @pytest.mark.parametrize("path", GRAPHQL)
    def test_get_on_graphql_is_405_in_graphql_format(self, server: Server, path: str) -> None:
        answer = get(server, path)
        assert answer.status == 405
        assert answer.header("Allow") == "POST"
        (error,) = answer.json()["errors"]
        assert error["extensions"]["code"] == 405
        assert error["extensions"]["type"] == "METHOD_NOT_ALLOWED"

    @pytest.mark.parametrize("path", ["/", "/config", "/health/live", "/.well-known/jwks.json", "/nothing", "/api/x"])
    def test_head_equals_get_without_a_body(self, server: Server, path: str) -> None:
        full, bare = get(server, path), send(server, "HEAD", path, [], None)
        assert (bare.status, bare.body) == (full.status, b"")
        for name in ("Content-Type", "Content-Length", "WWW-Authenticate", "Cache-Control"):
            assert bare.header(name) == full.header(name)

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "ANY"])
    def test_auth_accepts_any_method(self, server: Server, token: str, method: str) -> None:
        for path in ("/auth", "/auth/", "/auth/deep/er?x=1"):
            answer = send(server, method, path, [f"Authorization: Bearer {token}"], b"a body that nobody reads")
            assert (answer.status, answer.body) == (204, b"")
            assert answer.header("X-Auth-Urn") == ADMIN
            refused = send(server, method, path, [], None)
            assert refused.status == 401
            assert [refused.header(f"X-Auth-{name}") for name in ("Urn", "Token-Id", "Scopes")] == ["", "", ""]


class TestEveryResponse:
    @pytest.mark.parametrize(
        ("path", "method"), [*EVERY_ADDRESS, ("/api/x", "GET"), ("/nothing", "GET"), ("/", "POST")]
    )
    def test_response_returns_the_given_request_id(self, server: Server, path: str, method: str) -> None:
        answer = send(server, method, path, ["X-Request-Id: my_Request-1"])
        assert answer.header("X-Request-Id") == "my_Request-1"

    @pytest.mark.parametrize("path", ["/config", "/auth", "/api/graphql", "/nothing"])
    @pytest.mark.parametrize("given", ["", "a b", "a.b.c", "x" * 65, "é", '"', "a,b", "<script>"])
    def test_malformed_request_id_is_replaced(self, server: Server, path: str, given: str) -> None:
        answer = get(server, path, f"X-Request-Id: {given}")
        assert answer.header("X-Request-Id") not in ("", given, None)

    def test_request_ids_are_unique(self, server: Server) -> None:
        assert len({get(server, "/health/live").header("X-Request-Id") for _ in range(50)}) == 50

    def test_request_ids_are_not_predictable(self, server: Server) -> None:
        ids = [get(server, "/health/live").header("X-Request-Id") or "" for _ in range(50)]
        assert len({one[:12] for one in ids}) == len({one[12:] for one in ids}) == 50

    def test_plain_http_response_has_no_hsts(self, server: Server) -> None:
        assert get(server, "/config").header("Strict-Transport-Security") is None

    @pytest.mark.parametrize(("path", "method"), [*EVERY_ADDRESS, ("/api/graphql", "OPTIONS"), ("/config", "OPTIONS")])
    def test_response_has_no_cors_headers(self, server: Server, token: str, path: str, method: str) -> None:
        asked = [
            "Origin: https://evil.example",
            "Access-Control-Request-Method: POST",
            f"Authorization: Bearer {token}",
        ]
        answer = send(server, method, path, [*asked, JSON_TYPE])
        assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]

    @pytest.mark.parametrize("path", ["/auth", "/api/graphql", "/metrics", "/health", "/api/nothing"])
    def test_dynamic_responses_are_not_cached(self, server: Server, token: str, path: str) -> None:
        method = "POST" if path == "/api/graphql" else "GET"
        for headers in ([f"Authorization: Bearer {token}", JSON_TYPE], [JSON_TYPE]):
            assert send(server, method, path, headers).header("Cache-Control") == "no-store"


def test_config_is_public_and_has_the_datahub_fields(server: Server) -> None:
    config = get(server, "/config", "Authorization: Bearer bad").json()
    assert config["noCode"] == "true"
    assert config["versions"]["acryldata/datahub"]["version"].startswith("v")
    assert set(config["datahub"]) >= {"serverType", "serverEnv"}
    assert config["watchword"]["version"]
    assert "tokens" in config["watchword"]["capabilities"]


def test_liveness_and_readiness_report_their_status(server: Server) -> None:
    assert get(server, "/health/live").json() == {"status": "live"}
    for path in ("/health", "/health/ready"):
        told = get(server, path).json()
        assert told["status"] == "ready"
        assert told["parts"]["store"] == {"status": "ready"}
        assert told["parts"]["index"] == {"status": "ready"}


def test_published_keys_have_no_private_part(server: Server) -> None:
    keys = get(server, "/.well-known/jwks.json").json()["keys"]
    assert keys
    for key in keys:
        assert set(key) == {"kty", "crv", "alg", "use", "kid", "x"}
        assert (key["kty"], key["crv"], key["alg"]) == ("OKP", "Ed25519", "EdDSA")


@pytest.mark.parametrize(
    ("headers", "sent", "code"),
    [
        ([AS_ADMIN, JSON_TYPE], b"{", 400),
        ([JSON_TYPE], b"{}", 401),
        ([AS_ADMIN, JSON_TYPE], b" " * (1024 * 1024 + 1), 413),
        ([AS_ADMIN], b"{}", 415),
    ],
)
@pytest.mark.parametrize("target", [prefix + path for prefix in PREFIXES for path in GRAPHQL])
def test_graphql_addresses_use_the_graphql_error_format(
    server: Server, target: str, headers: list[str], sent: bytes, code: int
) -> None:
    answer = send(server, "POST", target, headers, sent)
    assert answer.status == code
    assert set(answer.json()) == {"errors"}
    (error,) = answer.json()["errors"]
    assert set(error) == {"message", "extensions"}
    assert error["extensions"]["code"] == code
    assert error["extensions"]["type"].isupper()
    assert error["extensions"]["reason"].islower()


def test_connection_is_reused_after_rejections(server: Server, token: str) -> None:
    with httpx.Client(base_url=server.url, timeout=SECONDS) as client:
        for _ in range(3):
            assert client.get("/nothing").status_code == 404
            assert client.post("/api/graphql", content=b"{}").status_code == 401
            assert client.post("/auth", headers={"Authorization": f"Bearer {token}"}, content=b"x").status_code == 204
            assert client.post("/config", json=orjson.loads(b"{}")).status_code == 405

"""Addresses and their answers: prefixes, aliases, methods, request ids, the two shapes of an error."""

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
    "/openapi/x",
    "/oauth2/x",
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
    assert set(answer.json()) == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert (error["code"], error["type"], error["reason"]) == (code, kind, reason)
    assert error["message"]
    return error


class TestThePrefixesOfTheGateway:
    @pytest.mark.parametrize(("path", "method"), [one for one in EVERY_ADDRESS if one[0] != "/metrics"])
    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_lead_to_the_same_address(self, server: Server, token: str, prefix: str, path: str, method: str) -> None:
        answer = send(server, method, prefix + path, [f"Authorization: Bearer {token}", JSON_TYPE])
        assert answer.status == (204 if path.startswith("/auth") else 200)
        if path in GRAPHQL:
            assert answer.json() == {"data": {"me": {"corpUser": {"urn": ADMIN}}}}
        elif path not in ("/", "/auth", "/auth/x/y"):
            assert answer.body == get(server, path).body

    @pytest.mark.parametrize("prefix", PREFIXES[1:])
    def test_do_not_lead_to_the_metrics_past_the_rule_of_a_proxy(self, server: Server, prefix: str) -> None:
        for path in (f"{prefix}/metrics", "//metrics", "/metrics/", "/./metrics", f"{prefix}/../metrics"):
            rest_error(get(server, path), 404, "NOT_FOUND", "no_such_address")

    @pytest.mark.parametrize(
        "path", ["/gmsx/config", "/api/gmsx/config", "/gms/gms/config", "/GMS/config", "/xgms/config"]
    )
    def test_are_just_these_and_taken_off_once(self, server: Server, token: str, path: str) -> None:
        rest_error(get(server, path, f"Authorization: Bearer {token}"), 404, "NOT_FOUND", "no_such_address")

    @pytest.mark.parametrize("prefix", PREFIXES[1:])
    def test_alone_lead_to_the_root(self, server: Server, prefix: str) -> None:
        assert get(server, prefix).json()["service"] == "watchword"


class TestBelowAProtectedAddress:
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

    @pytest.mark.parametrize("path", ["/nothing", "/apix", "/operationsx", "/favicon.ico", "/config/", "/authx", "//"])
    def test_lookalike_paths_return_404(self, server: Server, path: str) -> None:
        rest_error(get(server, path), 404, "NOT_FOUND", "no_such_address")


class TestAMethod:
    @pytest.mark.parametrize("path", PUBLIC)
    def test_that_a_public_address_does_not_answer_is_405_with_what_it_does(self, server: Server, path: str) -> None:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = send(server, method, path, [], b"")
            rest_error(answer, 405, "METHOD_NOT_ALLOWED", "method_not_allowed")
            assert answer.header("Allow") == "GET, HEAD"

    @pytest.mark.parametrize("path", GRAPHQL)
    def test_other_than_post_is_405_on_graphql_in_its_own_shape(self, server: Server, path: str) -> None:
        answer = get(server, path)
        assert answer.status == 405
        assert answer.header("Allow") == "POST"
        (error,) = answer.json()["errors"]
        assert error["extensions"]["code"] == 405
        assert error["extensions"]["type"] == "METHOD_NOT_ALLOWED"

    @pytest.mark.parametrize("path", ["/", "/config", "/health/live", "/.well-known/jwks.json", "/nothing", "/api/x"])
    def test_head_answers_as_get_does_without_a_body(self, server: Server, path: str) -> None:
        full, bare = get(server, path), send(server, "HEAD", path, [], None)
        assert (bare.status, bare.body) == (full.status, b"")
        for name in ("Content-Type", "Content-Length", "WWW-Authenticate", "Cache-Control"):
            assert bare.header(name) == full.header(name)

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "ANY"])
    def test_of_any_name_asks_auth(self, server: Server, token: str, method: str) -> None:
        for path in ("/auth", "/auth/", "/auth/deep/er?x=1"):
            answer = send(server, method, path, [f"Authorization: Bearer {token}"], b"a body that nobody reads")
            assert (answer.status, answer.body) == (204, b"")
            assert answer.header("X-Auth-Urn") == ADMIN
            refused = send(server, method, path, [], None)
            assert refused.status == 401
            assert [refused.header(f"X-Auth-{name}") for name in ("Urn", "Token-Id", "Scopes")] == ["", "", ""]


class TestEveryAnswer:
    @pytest.mark.parametrize(
        ("path", "method"), [*EVERY_ADDRESS, ("/api/x", "GET"), ("/nothing", "GET"), ("/", "POST")]
    )
    def test_carries_the_request_id_it_was_given(self, server: Server, path: str, method: str) -> None:
        answer = send(server, method, path, ["X-Request-Id: my_Request-1"])
        assert answer.header("X-Request-Id") == "my_Request-1"

    @pytest.mark.parametrize("path", ["/config", "/auth", "/api/graphql", "/nothing"])
    @pytest.mark.parametrize("given", ["", "a b", "a.b.c", "x" * 65, "é", '"', "a,b", "<script>"])
    def test_carries_an_id_of_ours_where_the_given_one_is_malformed(
        self, server: Server, path: str, given: str
    ) -> None:
        answer = get(server, path, f"X-Request-Id: {given}")
        assert answer.header("X-Request-Id") not in ("", given, None)

    def test_has_an_id_of_its_own(self, server: Server) -> None:
        assert len({get(server, "/health/live").header("X-Request-Id") for _ in range(50)}) == 50

    def test_has_an_id_that_the_last_one_does_not_give_away(self, server: Server) -> None:
        ids = [get(server, "/health/live").header("X-Request-Id") or "" for _ in range(50)]
        assert len({one[:12] for one in ids}) == len({one[12:] for one in ids}) == 50

    def test_lets_a_browser_come_by_plain_http_again(self, server: Server) -> None:
        assert get(server, "/config").header("Strict-Transport-Security") is None

    @pytest.mark.parametrize(("path", "method"), [*EVERY_ADDRESS, ("/api/graphql", "OPTIONS"), ("/config", "OPTIONS")])
    def test_lacks_every_header_by_which_a_browser_would_share_it(
        self, server: Server, token: str, path: str, method: str
    ) -> None:
        asked = [
            "Origin: https://evil.example",
            "Access-Control-Request-Method: POST",
            f"Authorization: Bearer {token}",
        ]
        answer = send(server, method, path, [*asked, JSON_TYPE])
        assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]

    @pytest.mark.parametrize("path", ["/auth", "/api/graphql", "/metrics", "/health", "/api/nothing"])
    def test_that_depends_on_the_moment_is_not_to_be_kept(self, server: Server, token: str, path: str) -> None:
        method = "POST" if path == "/api/graphql" else "GET"
        for headers in ([f"Authorization: Bearer {token}", JSON_TYPE], [JSON_TYPE]):
            assert send(server, method, path, headers).header("Cache-Control") == "no-store"


def test_config_is_public_and_what_the_clients_of_datahub_look_for(server: Server) -> None:
    config = get(server, "/config", "Authorization: Bearer bad").json()
    assert config["noCode"] == "true"
    assert config["versions"]["acryldata/datahub"]["version"].startswith("v")
    assert set(config["datahub"]) >= {"serverType", "serverEnv"}
    assert config["watchword"]["version"]
    assert "tokens" in config["watchword"]["capabilities"]


def test_liveness_and_readiness_say_what_they_are(server: Server) -> None:
    assert get(server, "/health/live").json() == {"status": "live"}
    for path in ("/health", "/health/ready"):
        told = get(server, path).json()
        assert told["status"] == "ready"
        assert told["parts"]["store"] == {"status": "ready"}
        assert told["parts"]["index"] == {"status": "ready"}


def test_the_keys_are_published_without_their_private_part(server: Server) -> None:
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
def test_a_graphql_address_answers_every_error_in_graphqls_shape(
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


def test_one_connection_serves_many_requests_also_after_refusals(server: Server, token: str) -> None:
    with httpx.Client(base_url=server.url, timeout=SECONDS) as client:
        for _ in range(3):
            assert client.get("/nothing").status_code == 404
            assert client.post("/api/graphql", content=b"{}").status_code == 401
            assert client.post("/auth", headers={"Authorization": f"Bearer {token}"}, content=b"x").status_code == 204
            assert client.post("/config", json=orjson.loads(b"{}")).status_code == 405

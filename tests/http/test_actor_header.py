"""The actor header is accepted only if every sign says that the request comes from this machine."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx
import pytest

from tests.support.browser import chromium
from tests.support.server import ADMIN, CREATE, GENERATE, Server
from tests.support.store_file import stored
from tests.support.waiting import SECONDS
from tests.support.wire import JSON_TYPE, Answer, connect, head, receive, send

MakeServer = Callable[..., Server]
ACTOR = f"X-Service-Actor: {ADMIN}"
FORWARDING = (
    "Forwarded: for=127.0.0.1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: ", "x-forwarded-host: localhost",
    "X-Forwarded-Proto: http", "X-Forwarded-Port: 80", "X-Forwarded-Server: a", "X-Forwarded-Prefix: /",
    "X-Forwarded-Anything: 1", "X-FORWARDED-USER: a", "X-Real-IP: 127.0.0.1", "x-real-ip: ", "Via: 1.1 here", "via:",
    "CF-Connecting-IP: 127.0.0.1", "True-Client-IP: 127.0.0.1", "X-Client-IP: 127.0.0.1", "X-Envoy-Internal: true",
    "x-envoy-external-address: 127.0.0.1", "Tailscale-User-Login: a@example.com", "tailscale-anything:",
)  # fmt: skip
FOREIGN_HOSTS = (
    "example.com", "example.com:8080", "localhost.example.com", "127.0.0.1.example.com", "192.0.2.1", "0.0.0.0",
    "169.254.169.254", "[2001:db8::1]", "localhost:port", "127.0.0.1@example.com", "localhost,example.com", "a b",
    "http://localhost", "localhost/", "2130706433", "127.1", "[::1", "::1", "",
)  # fmt: skip


def send_claim(server: Server, *headers: str | bytes, host: str | None = "", target: str = "/api/graphql") -> Answer:
    return send(server, target=target, headers=[JSON_TYPE, *headers], host=host)


def is_admin(answer: Answer) -> bool:
    return answer.status == 200 and answer.json() == {"data": {"me": {"corpUser": {"urn": ADMIN}}}}


def is_rejected(answer: Answer) -> bool:
    """Rejected as if no actor header had been sent."""
    if "errors" not in answer.json():
        return False
    reason = answer.json()["errors"][0]["extensions"]["reason"]
    return (answer.status, reason) == (401, "missing_credential") and answer.header("WWW-Authenticate") is not None


class TestLocalServer:
    @pytest.mark.parametrize("target", ["/api/graphql", "/api/v2/graphql", "/gms/api/graphql", "/api/gms/api/graphql"])
    @pytest.mark.parametrize("name", ["X-Service-Actor", "x-service-actor", "X-DataHub-Actor", "X-DATAHUB-ACTOR"])
    def test_actor_header_is_accepted_on_graphql_under_either_name(
        self, server: Server, name: str, target: str
    ) -> None:
        assert is_admin(send_claim(server, f"{name}: {ADMIN}", target=target))

    @pytest.mark.parametrize("header", FORWARDING)
    def test_actor_header_is_rejected_with_any_proxy_header(self, server: Server, header: str) -> None:
        assert is_rejected(send_claim(server, ACTOR, header))
        assert is_rejected(send_claim(server, header, ACTOR))

    @pytest.mark.parametrize("site", ["cross-site", "same-site", "", "anything", "same-origin, none"])
    def test_actor_header_is_rejected_from_a_page_of_another_site(self, server: Server, site: str) -> None:
        assert is_rejected(send_claim(server, ACTOR, f"Sec-Fetch-Site: {site}"))
        assert is_rejected(send_claim(server, ACTOR, "Sec-Fetch-Site: none", f"Sec-Fetch-Site: {site}"))

    @pytest.mark.parametrize("header", ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "Sec-Fetch-Mode: cors"])
    def test_actor_header_is_accepted_with_headers_that_no_other_site_sends(self, server: Server, header: str) -> None:
        assert is_admin(send_claim(server, ACTOR, header))

    def test_actor_header_is_rejected_in_request_forms_that_proxies_send(self, server: Server) -> None:
        for target in (f"{server.url}/api/graphql", f"http://localhost:{server.port}/api/graphql"):
            answer = send_claim(server, ACTOR, target=target)
            assert is_rejected(answer)
            assert "origin form" in answer.json()["errors"][0]["message"]
        body = b'{"query": "{ me { corpUser { urn } } }"}'
        sent = head(server, "POST", "/api/graphql", [JSON_TYPE, ACTOR], len(body)) + body
        for version, believed in ((b"HTTP/1.0", False), (b"HTTP/1.1", True)):
            with closing(connect(server)) as connection:
                connection.sendall(sent.replace(b"HTTP/1.1", version, 1))
                answer = receive(connection)
            assert (is_admin(answer), is_rejected(answer)) == (believed, not believed)

    @pytest.mark.parametrize("host", FOREIGN_HOSTS)
    def test_actor_header_is_rejected_for_a_foreign_host(self, server: Server, host: str) -> None:
        """With DNS rebinding, the page's own name arrives as Host."""
        answer = send(server, headers=[f"Host: {host}", JSON_TYPE, ACTOR], host=None)
        assert is_rejected(answer)

    def test_actor_header_is_rejected_without_a_host_and_with_two(self, server: Server) -> None:
        assert is_rejected(send_claim(server, ACTOR, host=None))
        both = send(server, headers=["Host: localhost", "Host: example.com", JSON_TYPE, ACTOR], host=None)
        assert both.status in (400, 401)
        assert not is_admin(both)

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.3.2.1:99", "[::1]", "[::1]:80"])
    def test_actor_header_is_accepted_for_every_loopback_name(self, server: Server, host: str) -> None:
        assert is_admin(send_claim(server, ACTOR, host=host))

    @pytest.mark.parametrize(
        "origin",
        ["null", "https://example.com", "http://localhost", "http://localhost:1", "https://127.0.0.1:{port}", "", "file://",
         "http://127.0.0.1:{port}.example.com", "http://127.0.0.1:{port}/", "http://localhost:{port}", "chrome-extension://a"],
    )  # fmt: skip
    def test_actor_header_is_rejected_for_a_foreign_origin(self, server: Server, origin: str) -> None:
        assert is_rejected(send_claim(server, ACTOR, "Origin: " + origin.format(port=server.port)))

    def test_actor_header_is_accepted_for_a_single_own_origin(self, server: Server) -> None:
        own = f"Origin: {server.url}"
        assert is_admin(send_claim(server, ACTOR, own))
        assert is_admin(
            send_claim(server, ACTOR, f"Origin: HTTP://LocalHost:{server.port}", host=f"localhost:{server.port}")
        )
        assert is_rejected(send_claim(server, ACTOR, own, own))
        assert is_rejected(send_claim(server, ACTOR, own, "Origin: https://example.com"))

    @pytest.mark.parametrize(
        "headers",
        [
            [ACTOR, ACTOR],
            [ACTOR, "X-Service-Actor: urn:li:corpuser:other"],
            [ACTOR, "X-DataHub-Actor: urn:li:corpuser:other"],
            [ACTOR, f"X-DataHub-Actor: {ADMIN}", f"X-DataHub-Actor: {ADMIN}"],
        ],
    )
    def test_repeated_or_conflicting_actor_headers_are_a_bad_request(self, server: Server, headers: list[str]) -> None:
        answer = send_claim(server, *headers)
        assert answer.status == 400
        (error,) = answer.json()["errors"]
        assert error["extensions"]["reason"] == "invalid_header"
        assert "once" in error["message"]

    def test_both_actor_headers_are_accepted_if_they_agree(self, server: Server) -> None:
        assert is_admin(send_claim(server, ACTOR, f"X-DataHub-Actor: {ADMIN}"))

    @pytest.mark.parametrize(
        "value",
        [b"", b"admin", b"urn:li", b"urn:li:corpGroup:g", b"urn:li:serviceAccessToken:x", b"urn:li:servicePolicy:root",
         b"urn:li:dataHubRole:Admin", b"urn:li:corpuser:a b", b"urn:li:corpuser:\xff",
         b"urn:li:corpuser:" + b"a" * 250, b"urn:li:corpuser:a, urn:li:corpuser:b"],
    )  # fmt: skip
    def test_actor_header_that_names_no_user_is_a_bad_request(self, server: Server, value: bytes) -> None:
        answer = send_claim(server, b"X-Service-Actor: " + value)
        assert answer.status == 400
        (error,) = answer.json()["errors"]
        assert error["extensions"]["field"] == "x-service-actor"
        assert "must be" in error["message"]

    @pytest.mark.parametrize("urn", ["urn:li:corpuser:__system", "urn:li:corpuser:__", "urn:x:__a", "__system:__x"])
    def test_reserved_names_cannot_act(self, server: Server, urn: str) -> None:
        answer = send_claim(server, f"X-Service-Actor: {urn}")
        assert answer.status == 401
        assert answer.json()["errors"][0]["extensions"]["reason"] == "invalid_token"

    @pytest.mark.parametrize(
        "target", ["/auth", "/auth/x", "/operations?action=getEsTaskStatus", "/api/other", "/openapi/x"]
    )
    @pytest.mark.parametrize("prefix", ["", "/gms", "/api/gms"])
    def test_actor_header_is_rejected_on_all_other_addresses(self, server: Server, prefix: str, target: str) -> None:
        answer = send_claim(server, ACTOR, target=prefix + target)
        assert answer.status == 401
        assert answer.json()["error"]["reason"] == "missing_credential"

    def test_actor_header_is_ignored_beside_an_authorization_header(self, server: Server, actor: str) -> None:
        server.grant(actor)
        token = server.create(actor)["accessToken"]
        mine = send_claim(server, ACTOR, f"Authorization: Bearer {token}")
        assert mine.json()["data"]["me"]["corpUser"]["urn"] == actor
        # A malformed or repeated actor header, or a foreign origin, does not matter then.
        for headers in (["X-Service-Actor: nonsense"], [ACTOR, ACTOR], ["X-Forwarded-For: 1.2.3.4", ACTOR]):
            assert send_claim(server, *headers, f"Authorization: Bearer {token}").status == 200
        for bad in ("Basic YTpi", "Bearer x", "Negotiate"):
            assert send_claim(server, ACTOR, f"Authorization: {bad}").status == 401

    def test_actor_header_grants_only_what_policies_grant(self, server: Server, actor: str) -> None:
        before = stored(server)
        answer = send(
            server,
            headers=[JSON_TYPE, f"X-Service-Actor: {actor}"],
            body=b'{"query": "mutation { revokeAccessToken(tokenId: \\"x\\") }"}',
        )
        (error,) = answer.json()["errors"]
        assert (error["extensions"]["code"], error["extensions"]["privilege"]) == (403, GENERATE)
        assert stored(server) == before

    def test_spaces_around_the_actor_are_ignored(self, server: Server) -> None:
        assert is_admin(send_claim(server, f"X-Service-Actor:   {ADMIN}\t "))


class TestLocalMode:
    @pytest.mark.parametrize(
        ("flags", "says"),
        [
            (("--local-mode", "off"), "local mode  off"),
            (("--public-url", "https://tokens.example.org"), "local mode  off"),
            (("--trusted-proxies", "192.0.2.0/24"), "local mode  off"),
            (("--host", "0.0.0.0"), "WITHOUT TLS"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_setting_turns_local_mode_off_and_the_header_is_rejected(
        self, make_server: MakeServer, flags: tuple[str, ...], says: str
    ) -> None:
        server = make_server(*flags)
        assert "local mode  off" in server.out.read_text()
        assert says in server.out.read_text()
        assert is_rejected(send_claim(server, ACTOR))
        assert is_rejected(send_claim(server, ACTOR, f"X-DataHub-Actor: {ADMIN}", host="localhost"))
        made = server.command_line("token", "create", "--local", "--name", "first").stdout.strip()
        assert is_admin(send_claim(server, ACTOR, f"Authorization: Bearer {made}"))

    def test_local_mode_can_be_turned_on_with_a_public_url(self, make_server: MakeServer) -> None:
        server = make_server("--local-mode", "on", "--public-url", "https://tokens.example.org")
        assert "Strict-Transport-Security" in server.http.get("/config").headers
        assert "local mode  on" in server.out.read_text()
        assert is_admin(send_claim(server, ACTOR))
        assert is_rejected(send_claim(server, ACTOR, "X-Forwarded-For: 127.0.0.1"))


@pytest.fixture(scope="module")
def trusting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--local-mode", "off", "--trusted-peers", "127.0.0.0/8")
    with Server(tmp_path_factory.mktemp("trusting"), *flags) as made:
        yield made


class TestTrustedPeers:
    """A browser on a trusted machine can show any page, so its requests are not the peer's own."""

    @pytest.mark.parametrize("host", ["", "tokens.example.org"])
    @pytest.mark.parametrize("header", ["Sec-Fetch-Mode: cors", "X-Forwarded-For: 192.0.2.1", "User-Agent: node"])
    def test_trusted_peers_may_send_any_host(self, trusting_server: Server, header: str, host: str) -> None:
        """Node's `fetch` always sends Sec-Fetch-Mode."""
        assert is_admin(send_claim(trusting_server, ACTOR, header, host=host))

    @pytest.mark.parametrize(
        "header",
        [
            "Origin: {url}",
            "Origin: null",
            "Origin:",
            *(f"Sec-Fetch-Site: {site}" for site in ("same-origin", "none", "")),
        ],
    )
    def test_browser_pages_on_trusted_peers_are_rejected(self, trusting_server: Server, header: str) -> None:
        for host in ("", "tokens.example.org"):
            answer = send_claim(trusting_server, ACTOR, header.format(url=trusting_server.url), host=host)
            assert is_rejected(answer)
            assert "Origin or Sec-Fetch-Site" in answer.json()["errors"][0]["message"]

    def test_page_on_a_rebound_name_mints_no_token(self, trusting_server: Server) -> None:
        """A name of the attacker resolves to 127.0.0.1, so the attacker's page and this server have one origin."""
        before = stored(trusting_server)
        with chromium(f"--host-resolver-rules=MAP rebound.example 127.0.0.1:{trusting_server.port}") as browser:
            page = browser.new_page()
            page.goto("http://rebound.example/health/live")
            wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "stolen"}
            body = json.dumps({"query": CREATE, "variables": {"input": wanted}})
            told = page.evaluate(
                """async ([body, actor]) => {
                    const headers = { "Content-Type": "application/json", "X-Service-Actor": actor };
                    const answer = await fetch("/api/graphql", { method: "POST", headers, body });
                    return [answer.status, await answer.json()];
                }""",
                [body, ADMIN],
            )
        assert told[0] == 401, told
        assert "Origin or Sec-Fetch-Site" in told[1]["errors"][0]["message"]
        assert stored(trusting_server) == before


def test_actor_header_names_are_configurable(make_server: MakeServer) -> None:
    server = make_server(env={"WATCHWORD_ACTOR_HEADERS": "X-Remote-User, X-Other"})
    assert is_admin(send_claim(server, f"X-Remote-User: {ADMIN}"))
    assert is_admin(send_claim(server, f"x-other: {ADMIN}"))
    assert is_rejected(send_claim(server, ACTOR))
    assert is_rejected(send_claim(server, f"X-DataHub-Actor: {ADMIN}"))


def test_actor_header_is_accepted_on_ipv6_loopback(make_server: MakeServer) -> None:
    server = make_server("--host", "::1")
    with httpx.Client(base_url=f"http://[::1]:{server.port}", timeout=SECONDS) as client:
        answer = client.post(
            "/api/graphql",
            json={"query": "{ me { corpUser { urn } } }"},
            headers={"X-Service-Actor": ADMIN, "Origin": f"http://[::1]:{server.port}"},
        )
    assert answer.json()["data"]["me"]["corpUser"]["urn"] == ADMIN

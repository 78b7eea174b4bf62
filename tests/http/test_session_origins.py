"""Cross-site requests cannot use, open or end a session."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.browsing import ME, Browser, reason_of
from tests.support.server import ADMIN, Server
from tests.support.system import need_program
from tests.support.wire import send

MakeServer = Callable[..., Server]
FOREIGN = (403, "foreign_request")
Headers = dict[str, str | None]


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    made = Browser(server).signed_in(actor="urn:li:corpuser:visitor")
    yield made
    made.close()


def forged(server: Server) -> list[Headers]:
    port = server.port
    origins: list[str | None] = [
        None,
        "",
        "null",
        "https://elsewhere.example",
        f"https://127.0.0.1:{port}",
        f"http://127.0.0.1:{port + 1}",
        "http://127.0.0.1",
        f"http://localhost:{port}",
        f"http://127.0.0.1:{port}/",
        f"http://127.0.0.1:{port}.elsewhere.example",
        f"http://elsewhere.example@127.0.0.1:{port}",
        f"http://127.0.0.1:{port}, http://127.0.0.1:{port}",
    ]
    headers: list[str | None] = [None, "", "0", "true", "11", "1, 1"]
    return [
        *({"Origin": origin} for origin in origins),
        *({"X-Watchword-Console": header} for header in headers),
    ]


def test_forged_request_cannot_use_a_session(server: Server, browser: Browser) -> None:
    assert browser.post().status_code == 200
    for headers in forged(server):
        refused = browser.post(headers=headers)
        assert reason_of(refused) == FOREIGN, headers
        assert set(refused.json()) == {"errors"}


def test_forged_request_cannot_sign_in(server: Server, browser: Browser) -> None:
    for headers in forged(server):
        refused = browser.sign_in(headers, actor=ADMIN)
        assert reason_of(refused) == FOREIGN, headers
        assert "set-cookie" not in refused.headers
        assert set(refused.json()) == {"error"}


def test_forged_request_cannot_sign_out(server: Server, browser: Browser) -> None:
    for headers in forged(server):
        refused = browser.send("DELETE", "/session", headers=headers)
        assert reason_of(refused) == FOREIGN, headers
        assert "set-cookie" not in refused.headers
    assert browser.post().status_code == 200


def test_forged_request_does_not_learn_the_session(server: Server, browser: Browser) -> None:
    for headers in forged(server):
        if headers != {"Origin": None}:
            assert reason_of(browser.send("GET", "/session", headers=headers)) == FOREIGN, headers


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("none", 403)]
)
def test_request_without_origin_needs_same_origin_fetch_metadata(browser: Browser, site: str, status: int) -> None:
    headers: Headers = {"Origin": None, "Sec-Fetch-Site": site}
    assert browser.send("GET", "/session", headers=headers).status_code == status
    assert browser.send("DELETE", "/session", headers=headers).status_code == 403


def test_repeated_headers_are_rejected(server: Server, browser: Browser) -> None:
    own = [f"Origin: {server.url}", "X-Watchword-Console: 1", f"Cookie: watchword={browser.cookie}"]
    assert send(server, "GET", "/session", own, None).json()["signedIn"] is True
    for more in (f"Origin: {server.url}", "Origin: https://elsewhere.example", "X-Watchword-Console: 1"):
        assert send(server, "GET", "/session", [*own, more], None).status == 403, more


def test_preflight_allows_nothing(server: Server) -> None:
    for path in ("/session", "/api/graphql", "/", "/assets/main.js"):
        asked = {
            "Origin": "https://elsewhere.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-watchword-console, content-type",
        }
        answer = server.http.request("OPTIONS", path, headers=asked)
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS"])
def test_session_address_rejects_other_methods(browser: Browser, method: str) -> None:
    answer = browser.send(method, "/session")
    assert reason_of(answer) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST, DELETE, HEAD"


def test_console_request_without_cookie_gets_401(server: Server) -> None:
    stranger = Browser(server)
    refused = stranger.post(ME)
    assert reason_of(refused) == (401, "missing_credential")
    assert "Sign in" in refused.json()["errors"][0]["message"]
    assert stranger.sign_out().status_code == 204
    stranger.close()


class TestBehindAProxy:
    """Forwarded headers of trusted proxies are used; others are ignored."""

    PUBLIC = "https://tokens.example.org"

    @pytest.fixture
    def token(self) -> Callable[[Server], str]:
        def make(server: Server) -> str:
            done = server.command_line("token", "create", "--local", "--actor", ADMIN, "--name", "first")
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        return make

    def sign_in(self, server: Server, token: str, **headers: str) -> httpx.Response:
        sent = {"X-Watchword-Console": "1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return server.http.post("/session", json={"token": token}, headers=sent)

    def test_trusted_proxy_defines_the_own_origin(
        self, make_server: MakeServer, token: Callable[[Server], str]
    ) -> None:
        server = make_server("--trusted-proxies", "127.0.0.1/32")
        made = token(server)
        told = {"X_Forwarded_Proto": "https", "Host": "tokens.example.org", "X_Forwarded_For": "192.0.2.7"}
        answer = self.sign_in(server, made, Origin=self.PUBLIC, **told)
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-watchword=")
        assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
        assert self.sign_in(server, made, Origin="http://tokens.example.org", **told).status_code == 403
        named = {"X_Forwarded_Proto": "https", "X_Forwarded_Host": "tokens.example.org"}
        assert self.sign_in(server, made, Origin=self.PUBLIC, **named).status_code == 200
        assert self.sign_in(server, made, Origin=self.PUBLIC, X_Forwarded_Proto="https").status_code == 403

    def test_forwarded_headers_of_untrusted_proxies_are_ignored(
        self, make_server: MakeServer, token: Callable[[Server], str]
    ) -> None:
        server = make_server("--local-mode", "off")
        told = {"X_Forwarded_Proto": "https", "Host": "tokens.example.org"}
        made = token(server)
        assert self.sign_in(server, made, Origin=self.PUBLIC, **told).status_code == 403
        plain = self.sign_in(server, made, Origin="http://tokens.example.org", **told)
        assert plain.headers["set-cookie"].startswith("watchword=")

    def test_public_url_is_the_own_origin_without_forwarded_headers(
        self, make_server: MakeServer, token: Callable[[Server], str]
    ) -> None:
        server = make_server("--public-url", self.PUBLIC)
        made = token(server)
        answer = self.sign_in(server, made, Origin=self.PUBLIC)
        assert answer.status_code == 200
        name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
        assert name == "__Host-watchword"
        own = {"X-Watchword-Console": "1", "Origin": self.PUBLIC}
        for cookie, status in ((f"{name}={value}", 200), (f"watchword={value}", 401)):
            asked = server.http.post("/api/graphql", json={"query": ME}, headers={**own, "Cookie": cookie})
            assert asked.status_code == status, cookie
        # A page's own GET has no Origin, and this proxy does not send X-Forwarded-Proto.
        page = {"X-Watchword-Console": "1", "Sec-Fetch-Site": "same-origin", "Cookie": f"{name}={value}"}
        assert server.http.get("/session", headers=page).json()["signedIn"] is True
        assert self.sign_in(server, made, Origin="https://tokens.example.org.elsewhere").status_code == 403


def test_tls_cookie_is_secure_and_host_bound(tmp_path: Path, make_server: MakeServer, actor: str) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
    words = [*wanted.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([need_program("openssl", "openssl"), *words], check=True, capture_output=True)
    server = make_server("--tls-cert", str(certificate), "--tls-key", str(key))
    browser = Browser(server, server.url.replace("http:", "https:"))
    answer = browser.sign_in(actor=actor)
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-watchword=")
    assert "; Secure" in cookie
    assert browser.ask() == {"me": {"corpUser": {"urn": actor}}}
    plain: Any = {"Cookie": f"watchword={browser.cookie}"}
    browser.http.cookies.clear()
    assert reason_of(browser.post(headers=plain)) == (401, "missing_credential")
    assert reason_of(browser.post(headers={"Origin": server.url})) == (401, "missing_credential")
    browser.close()

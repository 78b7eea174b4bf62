"""Sessions: a browser signs in with a token and acts as that token until it ends."""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest

from tests.support.browsing import ME, Browser, reason_of
from tests.support.server import ADMIN, CREATE, LIST, Server
from tests.support.wire import send
from watchword.signin.session_rules import MOST_OF_ONE

EVENTS = """query ($targets: [String!]) {
  listEvents(input: {targets: $targets}) { events { action actorUrn tokenId detail } } }"""
HOUR = 3_600_000
MakeServer = Callable[..., Server]


@pytest.fixture
def browser(server: Server) -> Iterator[Browser]:
    made = Browser(server)
    yield made
    made.close()


@pytest.fixture
def token(server: Server, actor: str) -> Any:
    server.grant(actor)
    return server.create(actor)


class TestSignIn:
    def test_session_ends_when_its_token_expires(
        self, server: Server, browser: Browser, token: Any, actor: str
    ) -> None:
        answer = browser.sign_in(token=token["accessToken"])
        told = {
            "actorUrn": actor,
            "tokenId": token["metadata"]["id"],
            "expiresAt": token["metadata"]["expiresAt"],
        }
        assert (answer.status_code, answer.json()) == (200, told)
        assert answer.headers["cache-control"] == "no-store"
        asked = browser.session()
        assert asked.pop("version")
        held = [name for name, held in asked.pop("privileges").items() if held]
        assert held == ["generatePersonalAccessTokens", "getTaskStatus"]
        assert asked == {
            "signedIn": True,
            "localMode": True,
            "method": "token",
            "provider": None,
            "dataDir": str(server.data_dir),
            "displayName": None,
            **told,
        }
        assert browser.ask() == {"me": {"corpUser": {"urn": actor}}}

    def test_session_lasts_at_most_twelve_hours(self, server: Server, browser: Browser, actor: str) -> None:
        token = server.create(ADMIN, of=actor, duration="ONE_WEEK")["accessToken"]
        before = time.time_ns() // 1_000_000
        end = browser.sign_in(token=token).json()["expiresAt"]
        assert before + 12 * HOUR <= end <= time.time_ns() // 1_000_000 + 12 * HOUR

    def test_session_cookie_is_http_only_and_same_site_strict(self, browser: Browser, token: Any) -> None:
        given = browser.sign_in(token=token["accessToken"]).headers["set-cookie"]
        assert re.fullmatch(r"watchword=[A-Za-z0-9_-]{43}; Path=/; HttpOnly; SameSite=Strict", given)

    def test_sign_in_replaces_the_previous_session(self, browser: Browser, token: Any) -> None:
        browser.signed_in(token=token["accessToken"])
        before = browser.cookie
        browser.signed_in(token=token["accessToken"])
        assert browser.cookie != before
        browser.http.cookies.clear()
        assert reason_of(browser.post(headers={"Cookie": f"watchword={before}"})) == (401, "session_over")

    def test_sign_in_and_sign_out_write_events(self, server: Server, browser: Browser, token: Any, actor: str) -> None:
        browser.signed_in(token=token["accessToken"]).sign_out()
        token_id = token["metadata"]["id"]
        events = server.ask(EVENTS, {"targets": [token_id]}, actor=ADMIN)["listEvents"]["events"]
        ours = [event for event in reversed(events) if event["action"].startswith("session.")]
        assert [(event["action"], event["actorUrn"], event["tokenId"]) for event in ours] == [
            ("session.started", actor, token_id),
            ("session.ended", actor, token_id),
        ]

    def test_too_many_sessions_of_a_token_end_the_first(self, server: Server, browser: Browser, token: Any) -> None:
        others = [Browser(server) for _ in range(MOST_OF_ONE)]
        browser.signed_in(token=token["accessToken"])
        for other in others:
            other.signed_in(token=token["accessToken"])
        assert reason_of(browser.post()) == (401, "session_over")
        assert all(other.post().status_code == 200 for other in others)
        for other in others:
            other.close()

    @pytest.mark.parametrize(
        "content",
        [None, [], {}, "x", {"token": "a", "actor": "b"}, {"user": "a"}, {"token": "a", "x": 1}],
        ids=repr,
    )
    def test_sign_in_needs_an_object_with_one_field(self, browser: Browser, content: Any) -> None:
        headers = {**browser.headers, "Content-Type": "application/json"}
        answer = browser.http.post("/session", content=orjson.dumps(content), headers=headers)
        assert reason_of(answer) == (400, "invalid_json")
        assert '"token"' in answer.json()["error"]["message"]

    @pytest.mark.parametrize("value", [None, 5, "", "  ", "x" * 8_193, ["a"], True], ids=lambda v: repr(v)[:20])
    @pytest.mark.parametrize("field", ["token", "actor"])
    def test_sign_in_needs_a_non_empty_text(self, browser: Browser, field: str, value: Any) -> None:
        answer = browser.send("POST", "/session", {field: value})
        assert reason_of(answer) == (400, "invalid_field")
        assert answer.json()["error"]["field"] == field

    @pytest.mark.parametrize(
        ("body", "kind", "expected"),
        [
            (b"{", "application/json", (400, "invalid_json")),
            (b'{"token": "\\ud800"}', "application/json", (400, "invalid_json")),
            (b'{"token": "\xff"}', "application/json", (400, "invalid_json")),
            (b"", "application/json", (400, "invalid_json")),
            (b'{"token": "' + b"x" * 70_000 + b'"}', "application/json", (413, "body_too_large")),
            (b'{"token": "x"}', "text/plain", (415, "not_json")),
            (b"token=x", "application/x-www-form-urlencoded", (415, "not_json")),
        ],
    )
    def test_sign_in_error_describes_the_body(
        self, browser: Browser, body: bytes, kind: str, expected: tuple[int, str]
    ) -> None:
        headers = {**browser.headers, "Content-Type": kind}
        assert reason_of(browser.http.post("/session", content=body, headers=headers)) == expected

    def test_sign_in_with_an_invalid_token_is_a_failed_authentication(self, make_server: MakeServer) -> None:
        server = make_server()  # its own server: failures are combined per hour
        browser = Browser(server)
        answer = browser.sign_in(token="nothing-of-the-kind")
        assert reason_of(answer) == (401, "invalid_token")
        assert "set-cookie" not in answer.headers
        failed = server.ask(
            'query ($id: [String!]) { listEvents(input: {targets: $id, actions: ["authentication.failed"]})'
            " { events { detail requestId } } }",
            {"id": ["/session"]},
            actor=ADMIN,
        )["listEvents"]["events"]
        assert answer.headers["x-request-id"] in [event["requestId"] for event in failed]
        browser.close()

    def test_sign_in_with_a_revoked_token_says_why(self, server: Server, browser: Browser, token: Any) -> None:
        server.revoke(token["metadata"]["id"])
        assert reason_of(browser.sign_in(token=token["accessToken"])) == (401, "token_revoked")

    def test_sign_in_with_a_token_for_another_audience_is_rejected(
        self, server: Server, browser: Browser, actor: str
    ) -> None:
        made = server.create(ADMIN, of=actor, audience=["https://elsewhere.example"])
        assert reason_of(browser.sign_in(token=made["accessToken"])) == (403, "wrong_audience")


class TestSession:
    def test_session_has_the_scopes_of_its_token(self, server: Server, browser: Browser, actor: str) -> None:
        """The token's scopes apply to the session."""
        server.grant(actor)
        limited = server.create(actor, scopes=["GET_ES_TASK_STATUS_PRIVILEGE"])
        browser.signed_in(token=limited["accessToken"])
        wanted = {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_HOUR", "name": "by session"}
        refused = browser.post(CREATE, {"input": wanted})
        asked = server.post(CREATE, {"input": wanted}, token=limited["accessToken"])
        assert "errors" in refused.json()
        assert refused.json() == asked.json()
        assert refused.status_code == asked.status_code
        free = browser.signed_in(token=server.create(actor)["accessToken"])
        made = free.ask(CREATE, {"input": wanted})["createAccessToken"]
        assert server.verify(made["accessToken"]).status_code == 204

    def test_session_is_bound_to_the_allowed_networks_of_its_token(self, make_server: MakeServer, actor: str) -> None:
        server = make_server("--trusted-proxies", "127.0.0.1/32", "--local-mode", "on")
        made = server.create(ADMIN, of=actor, allowedNetworks=["10.0.0.0/8"])
        browser = Browser(server)
        inside, outside = {"X-Forwarded-For": "10.1.2.3"}, {"X-Forwarded-For": "192.0.2.1"}
        assert reason_of(browser.sign_in(outside, token=made["accessToken"])) == (401, "invalid_token")
        assert browser.sign_in(inside, token=made["accessToken"]).status_code == 200
        assert browser.post(headers=inside).status_code == 200
        assert reason_of(browser.post(headers=outside)) == (401, "invalid_token")
        browser.close()

    def test_session_request_counts_as_use_of_its_token(self, make_server: MakeServer, actor: str) -> None:
        server = make_server()
        made = server.create(ADMIN, of=actor)
        browser = Browser(server).signed_in(token=made["accessToken"])
        for _ in range(3):
            browser.ask()
        server.stop()  # writes the recorded uses
        with closing(sqlite3.connect(server.data_dir / "watchword.db")) as file:
            found = file.execute("SELECT use_count FROM tokens WHERE id = ?", (made["metadata"]["id"],)).fetchone()
        assert found == (4,)
        browser.close()

    def test_sign_in_is_the_first_use_of_a_successor(self, server: Server, browser: Browser, token: Any) -> None:
        rotate = "mutation ($id: String!) { rotateAccessToken(tokenId: $id) { accessToken metadata { id } } }"
        new = server.ask(rotate, {"id": token["metadata"]["id"]}, token=token["accessToken"])["rotateAccessToken"]
        browser.signed_in(token=new["accessToken"])
        assert browser.session()["tokenId"] == new["metadata"]["id"]

    @pytest.mark.parametrize("how", ["revoked", "suspended", "signed-out"])
    def test_session_ends_with_its_token(
        self, server: Server, browser: Browser, token: Any, actor: str, how: str
    ) -> None:
        browser.signed_in(token=token["accessToken"])
        held = browser.cookie
        if how == "revoked":
            server.revoke(token["metadata"]["id"])
        elif how == "suspended":
            server.set_status(actor, "SUSPENDED")
        else:
            assert browser.sign_out().status_code == 204
            assert browser.cookie == ""
            browser.http.cookies.set("watchword", held, domain="127.0.0.1")
        expected = {"revoked": "token_revoked", "suspended": "session_over", "signed-out": "session_over"}[how]
        assert reason_of(browser.post()) == (401, expected)
        told = browser.session()
        assert (told["signedIn"], told["reason"]) == (False, expected)
        assert told["message"]
        assert browser.cookie == ""
        assert "reason" not in browser.session()

    def test_session_ends_when_its_token_is_revoked_by_possession(
        self, server: Server, browser: Browser, token: Any
    ) -> None:
        browser.signed_in(token=token["accessToken"])
        assert server.http.post("/oauth2/revoke", data={"token": token["accessToken"]}).status_code == 200
        assert reason_of(browser.post()) == (401, "token_revoked")

    @pytest.mark.parametrize("kind", ["file", "database"])
    def test_session_ends_when_another_process_revokes_its_token(
        self, make_server: MakeServer, actor: str, kind: str, request: pytest.FixtureRequest
    ) -> None:
        how: Any = {} if kind == "file" else {"env": request.getfixturevalue("database").env}
        one = make_server("--local-mode", "on", **how)
        other = make_server("--local-mode", "on", "--data-dir", str(one.data_dir), **how)
        browser, elsewhere = Browser(one), Browser(other)
        for _ in range(20):
            made = one.create(ADMIN, of=actor)
            browser.signed_in(token=made["accessToken"])
            # The same browser, on another instance behind the same address.
            assert elsewhere.post(headers={"Cookie": f"watchword={browser.cookie}"}).status_code == 200
            assert one.revoke(made["metadata"]["id"])
            refused = elsewhere.post(headers={"Cookie": f"watchword={browser.cookie}"})
            assert reason_of(refused) == (401, "token_revoked")
        browser.close()
        elsewhere.close()

    def test_session_survives_a_restart_and_expires(self, make_server: MakeServer, actor: str) -> None:
        server = make_server("--session-hours", "1", "--allow-no-expiry", "on")
        browser = Browser(server)
        made = server.create(ADMIN, of=actor, duration="NO_EXPIRY")
        end = browser.sign_in(token=made["accessToken"]).json()["expiresAt"]
        server.stop()
        with closing(sqlite3.connect(server.data_dir / "watchword.db")) as file, file:
            assert file.execute("SELECT ends_at, ends_at - created_at FROM sessions").fetchall() == [(end, HOUR)]
        server.start()
        assert browser.post().status_code == 200
        server.stop()
        with closing(sqlite3.connect(server.data_dir / "watchword.db")) as file, file:
            file.execute("UPDATE sessions SET created_at = created_at - ?1, ends_at = ends_at - ?1", (HOUR,))
        server.start()
        assert reason_of(browser.post()) == (401, "session_over")
        browser.close()

    def test_session_is_accepted_only_by_graphql(self, server: Server, browser: Browser, token: Any) -> None:
        browser.signed_in(token=token["accessToken"])
        assert browser.post(path="/api/v2/graphql").status_code == 200
        for method, path in (
            ("GET", "/auth"),
            ("POST", "/operations?action=getIndexSizes"),
            ("POST", "/oauth2/introspect"),
            ("GET", "/openapi/operations/identity/user/urn"),
            ("GET", "/api/nothing"),
        ):
            assert browser.send(method, path, None if method == "GET" else {}).status_code == 401, path

    def test_session_is_ignored_with_an_authorization_header(
        self, server: Server, browser: Browser, token: Any
    ) -> None:
        browser.signed_in(token=token["accessToken"])
        refused = browser.post(headers={"Authorization": "Bearer nothing"})
        assert reason_of(refused) == (401, "invalid_token")
        other = server.create(ADMIN)["accessToken"]
        # The origin is not checked then: a token is no cookie.
        asked = browser.post(headers={"Authorization": f"Bearer {other}", "Origin": "https://elsewhere.example"})
        assert asked.json()["data"] == {"me": {"corpUser": {"urn": ADMIN}}}

    def test_session_overrides_the_actor_header(self, browser: Browser, token: Any, actor: str) -> None:
        browser.signed_in(token=token["accessToken"])
        asked = browser.post(headers={"X-Service-Actor": ADMIN})
        assert asked.json()["data"] == {"me": {"corpUser": {"urn": actor}}}

    def test_unknown_session_is_rejected_with_401(self, browser: Browser) -> None:
        for made_up in ("x", "A" * 43, "", "a" * 5_000):
            refused = browser.post(headers={"Cookie": f"other=1; watchword={made_up}"})
            assert refused.status_code == 401
            assert refused.json()["errors"][0]["extensions"]["reason"] in {"session_over", "missing_credential"}

    def test_repeated_session_cookie_is_ignored(self, browser: Browser, token: Any) -> None:
        browser.signed_in(token=token["accessToken"])
        held = browser.cookie
        browser.http.cookies.clear()
        twice = browser.post(headers={"Cookie": f"watchword={held}; watchword={held}"})
        assert reason_of(twice) == (401, "missing_credential")

    def test_session_id_is_not_in_store_responses_or_log(self, make_server: MakeServer) -> None:
        server = make_server("--access-log", "all", "--log-level", "debug")
        browser = Browser(server)
        token = server.create(ADMIN)["accessToken"]
        browser.signed_in(token=token)
        held = browser.cookie
        texts = [browser.post(LIST, {"input": {}}).text, browser.send("GET", "/session").text]
        texts.append(browser.send("GET", f"/assets/{held[:5]}").text)
        texts.append(server.post("{ listEvents { events { target detail } } }", actor=ADMIN).text)
        assert browser.sign_out().status_code == 204
        texts.append(browser.post(headers={"Cookie": f"watchword={held}"}).text)
        server.stop()
        kept = b"".join(path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file())
        told = server.out.read_bytes() + server.err.read_bytes()
        for window in (held[:20], held[-20:], token[-40:]):
            assert window.encode() not in kept + told
            assert window not in str(texts)
        browser.close()


class TestLocalMode:
    def test_local_mode_sign_in_accepts_any_user(self, browser: Browser, actor: str) -> None:
        answer = browser.sign_in(actor=actor)
        assert (answer.status_code, answer.json()["actorUrn"], answer.json()["tokenId"]) == (200, actor, None)
        assert browser.ask() == {"me": {"corpUser": {"urn": actor}}}
        assert browser.session()["tokenId"] is None

    @pytest.mark.parametrize(
        ("actor", "expected"),
        [
            ("nobody", (400, "invalid_field")),
            ("urn:li:corpGroup:ops", (400, "invalid_field")),
            ("urn:li:corpuser:__system", (401, "invalid_token")),
        ],
    )
    def test_local_mode_sign_in_rejects_other_urns(
        self, browser: Browser, actor: str, expected: tuple[int, str]
    ) -> None:
        assert reason_of(browser.sign_in(actor=actor)) == expected

    def test_suspended_actor_is_rejected_and_signed_out(self, server: Server, browser: Browser, actor: str) -> None:
        browser.signed_in(actor=actor)
        server.set_status(actor, "SUSPENDED")
        assert reason_of(browser.post()) == (401, "session_over")
        assert reason_of(browser.sign_in(actor=actor)) == (401, "invalid_token")

    def test_session_without_a_token_ends_with_local_mode(self, make_server: MakeServer) -> None:
        server = make_server()
        browser = Browser(server).signed_in(actor=ADMIN)
        held = browser.cookie
        server.stop()
        again = make_server("--local-mode", "off", folder=server.folder, port=server.port)
        after = Browser(again)
        refused = after.post(headers={"Cookie": f"watchword={held}"})
        assert reason_of(refused) == (401, "session_over")
        assert after.session({"Cookie": f"watchword={held}"})["localMode"] is False
        assert reason_of(after.sign_in(actor=ADMIN)) == (403, "foreign_request")
        browser.close()
        after.close()

    @pytest.mark.parametrize("header", ["X-Forwarded-For: 10.0.0.1", "Via: 1.1 proxy", "Forwarded: for=10.0.0.1"])
    def test_proxy_header_prevents_local_mode_sign_in(self, browser: Browser, header: str, actor: str) -> None:
        name, _, value = header.partition(": ")
        refused = browser.sign_in({name: value}, actor=actor)
        assert reason_of(refused) == (403, "foreign_request")
        told = browser.session({name: value})
        assert (told["localMode"], told["dataDir"]) == (False, None)

    def test_rebound_host_prevents_local_mode_sign_in(self, server: Server) -> None:
        for host in ("rebound.example", f"rebound.example:{server.port}", "127.0.0.1.example", "10.0.0.1"):
            headers = ["X-Watchword-Console: 1", f"Origin: http://{host}", "Content-Type: application/json"]
            answer = send(server, "POST", "/session", headers, f'{{"actor": "{ADMIN}"}}'.encode(), host=host)
            assert (answer.status, answer.json()["error"]["reason"]) == (403, "foreign_request"), host
            assert "loopback" in answer.json()["error"]["message"]
            answer = send(server, "GET", "/session", headers, None, host=host)
            assert answer.status == 403, host

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "127.1.2.3"])
    def test_local_mode_sign_in_works_on_every_loopback_name(self, server: Server, actor: str, host: str) -> None:
        at = f"{host}:{server.port}"
        headers = ["X-Watchword-Console: 1", f"Origin: http://{at}", "Content-Type: application/json"]
        answer = send(server, "POST", "/session", headers, f'{{"actor": "{actor}"}}'.encode(), host=at)
        assert answer.status == 200


def test_disabled_console_has_no_sessions(make_server: MakeServer) -> None:
    server = make_server("--console", "off")
    browser = Browser(server)
    for method in ("GET", "POST", "DELETE"):
        assert reason_of(browser.send(method, "/session")) == (404, "no_such_address")
    for path in ("/console", "/console/tokens", "/assets/main.js"):
        assert reason_of(browser.send("GET", path)) == (404, "no_such_address")
    assert server.http.get("/").json()["service"] == "watchword"
    refused = browser.post(ME, headers={"Cookie": "watchword=x"})
    assert reason_of(refused) == (401, "missing_credential")
    browser.close()

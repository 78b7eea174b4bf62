"""Device authorization (RFC 8628): a terminal waits, a signed-in person approves, one poll gets the token."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.browsing import Browser, reason_of
from tests.support.clock import SetClock
from tests.support.devices import CLIENT, DEVICE_CODE, approve, ask, decide, outcome, poll, start
from tests.support.postgres import Home
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.signing_in import urn
from watchword.signin.device_rules import CONSONANTS, DeviceLimits
from watchword.signin.device_service import WRONG_CODES
from watchword.signin.session_rules import SIGN_INS_AN_HOUR

EVENTS = (
    """query ($input: ListEventsInput) { listEvents(input: $input) { events { action actorUrn target detail } } }"""
)
OFFBOARD = "mutation ($input: OffboardActorInput!) { offboardActor(input: $input) { receipt { sessionCount } } }"
MakeServer = Callable[..., Server]


@pytest.fixture
def browser(server: Server, actor: str) -> Iterator[Browser]:
    """The console, where a person is signed in who may create tokens."""
    server.grant(actor)
    made = Browser(server).signed_in(actor=actor)
    yield made
    made.close()


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> SetClock:
    return SetClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def timed(clock: SetClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose time the tests set."""
    with Server(tmp_path_factory.mktemp("timed"), env=clock.env) as running:
        yield running


def events_of(server: Server, actor: str) -> list[Any]:
    found = server.ask(EVENTS, {"input": {"actorUrns": [actor]}}, actor=ADMIN)["listEvents"]["events"]
    return [event for event in reversed(found) if event["action"].startswith(("device.", "token."))]


class TestTerminal:
    def test_answer_has_two_codes_and_the_page(self, server: Server) -> None:
        answer = ask(server, host="ann@laptop", scope="")
        content = answer.json()
        assert answer.headers["cache-control"] == "no-store"
        assert len(content.pop("device_code")) >= 43
        code = content.pop("user_code")
        assert re.fullmatch(f"[{CONSONANTS}]{{4}}-[{CONSONANTS}]{{4}}", code)
        assert content == {
            "verification_uri": f"{server.url}/device",
            "verification_uri_complete": f"{server.url}/device?user_code={code}",
            "expires_in": 600,
            "interval": 5,
        }

    def test_metadata_names_the_addresses(self, server: Server) -> None:
        found = server.http.get("/.well-known/oauth-authorization-server").json()
        assert found["device_authorization_endpoint"] == f"{server.url}/oauth2/device_authorization"
        assert found["token_endpoint"] == f"{server.url}/oauth2/token"
        assert found["grant_types_supported"] == [DEVICE_CODE]
        assert found["token_endpoint_auth_methods_supported"] == ["none"]

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"client_id": ""}, "invalid_request"),
            ({"client_id": "another"}, "invalid_client"),
            ({"scope": 'a"b'}, "invalid_scope"),
            ({"scope": "NO_SUCH_PRIVILEGE"}, "invalid_scope"),
            ({"host": "x" * 101}, "invalid_request"),
            ({"host": "a\nb"}, "invalid_request"),
        ],
    )
    def test_bad_request_is_rejected(self, server: Server, fields: dict[str, str], error: str) -> None:
        assert outcome(ask(server, **fields)) == (400, error)

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"grant_type": ""}, "invalid_request"),
            ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
            ({"client_id": "another"}, "invalid_client"),
            ({"device_code": ""}, "invalid_request"),
            ({"device_code": "guessed"}, "invalid_grant"),
        ],
    )
    def test_bad_poll_is_rejected(self, server: Server, fields: dict[str, str], error: str) -> None:
        assert outcome(poll(server, {"device_code": "x"}, **fields)) == (400, error)

    def test_parameters_are_taken_from_the_body_only(self, server: Server) -> None:
        assert server.http.post(f"/oauth2/device_authorization?client_id={CLIENT}").status_code == 400
        assert server.http.get("/oauth2/token").status_code == 405
        assert server.http.post("/oauth2/token", json={"grant_type": DEVICE_CODE}).json()["error"] == "invalid_request"


class TestApproval:
    def test_approved_terminal_gets_a_personal_token_once(self, server: Server, browser: Browser, actor: str) -> None:
        started = start(server, host="ann@laptop")
        looked = decide(browser, started, approve=None).json()
        assert {
            "client": CLIENT,
            "host": "ann@laptop",
            "address": "127.0.0.1",
            "scopes": None,
        }.items() <= looked.items()
        assert (looked["userCode"], looked["tokenSeconds"]) == (started["user_code"], 30 * 86_400)
        approve(browser, started)
        answer = poll(server, started)
        assert outcome(answer) == (200, "")
        content = answer.json()
        assert (content["token_type"], content["expires_in"], "scope" in content) == ("Bearer", 30 * 86_400, False)
        assert server.verify(content["access_token"]).headers["x-auth-urn"] == actor
        assert outcome(poll(server, started)) == (400, "invalid_grant")
        (token,) = server.tokens(actor, [{"field": "actorUrn", "value": actor}])["tokens"]
        assert (token["name"], token["ownerUrn"]) == (f"{CLIENT} login on ann@laptop", actor)
        detail = {"client": CLIENT, "host": "ann@laptop", "address": "127.0.0.1"}
        approved, created = events_of(server, actor)
        assert (approved["action"], approved["target"], approved["detail"]) == ("device.approved", actor, detail)
        assert (created["action"], created["target"]) == ("token.created", token["id"])

    def test_denied_terminal_is_told(self, server: Server, browser: Browser, actor: str) -> None:
        started = start(server)
        assert decide(browser, started, approve=False).status_code == 200
        assert outcome(poll(server, started)) == (400, "access_denied")
        assert reason_of(decide(browser, started, approve=True)) == (404, "device_not_found")
        assert [event["action"] for event in events_of(server, actor)] == ["device.denied"]

    def test_requested_scopes_limit_the_token(self, server: Server, browser: Browser) -> None:
        started = start(server, scope=f"{GENERATE}  {GENERATE}")
        assert decide(browser, started, approve=None).json()["scopes"] == [GENERATE]
        approve(browser, started)
        answer = poll(server, started).json()
        assert answer["scope"] == GENERATE
        assert server.verify(answer["access_token"]).headers["x-auth-scopes"] == GENERATE

    @pytest.mark.parametrize("loss", ["suspended", "withdrawn"])
    def test_rights_are_those_at_the_poll(self, server: Server, actor: str, loss: str) -> None:
        policy = server.grant(actor)
        browser, started = Browser(server).signed_in(actor=actor), start(server)
        approve(browser, started)
        if loss == "suspended":
            server.set_status(actor, "SUSPENDED")
        else:
            server.withdraw(policy)
        assert outcome(poll(server, started)) == (400, "access_denied")
        assert server.tokens(ADMIN, [{"field": "actorUrn", "value": actor}])["total"] == 0
        browser.close()

    @pytest.mark.parametrize(
        "end", ["sign-out", "endSession", "suspension and resumption", "offboarding", "new sign-in"]
    )
    def test_approved_terminal_gets_no_token_after_its_session_ended(
        self, server: Server, browser: Browser, actor: str, end: str
    ) -> None:
        started = start(server)
        approve(browser, started)
        match end:
            case "sign-out":
                assert browser.sign_out().status_code == 204
            case "endSession":
                (session,) = browser.ask("{ listSessions { sessions { id } } }")["listSessions"]["sessions"]
                server.ask("mutation ($id: String!) { endSession(id: $id) }", session, actor=ADMIN)
            case "suspension and resumption":
                server.set_status(actor, "SUSPENDED")
                server.set_status(actor, "ACTIVE")
            case "offboarding":
                server.ask(OFFBOARD, {"input": {"urn": actor, "dryRun": False}}, actor=ADMIN)
                server.set_status(actor, "ACTIVE")
            case _:
                browser.signed_in(actor=actor)
        refused = poll(server, started)
        assert outcome(refused) == (400, "access_denied")
        assert "The session has ended" in refused.json()["error_description"]
        assert server.tokens(ADMIN, [{"field": "actorUrn", "value": actor}])["total"] == 0

    def test_scope_that_the_approver_does_not_hold_is_not_approved(self, server: Server, actor: str) -> None:
        server.grant(actor)
        browser, started = Browser(server).signed_in(actor=actor), start(server, scope="reports:read")
        assert reason_of(decide(browser, started, approve=True)) == (403, "missing_scope")
        server.grant(actor, scopes=("reports:*",))
        approve(browser, started)
        assert poll(server, started).json()["scope"] == "reports:read"
        browser.close()

    def test_session_of_a_limited_token_approves_no_more_than_the_token_has(self, server: Server, actor: str) -> None:
        server.grant(actor)
        limited = server.create(actor, scopes=[GENERATE])
        browser = Browser(server).signed_in(token=limited["accessToken"])
        wider, same = start(server, scope="VIEW_AUDIT_LOG"), start(server)
        assert reason_of(decide(browser, wider, approve=True)) == (400, "wider_than_maker")
        approve(browser, same)
        content = poll(server, same).json()
        assert content["scope"] == GENERATE
        assert content["expires_in"] <= 3_600  # that of the token
        another = start(server)
        approve(browser, another)
        server.revoke(limited["metadata"]["id"])
        assert outcome(poll(server, another)) == (400, "access_denied")
        browser.close()

    def test_only_a_session_of_the_console_approves(self, server: Server, browser: Browser, actor: str) -> None:
        started = start(server)
        body = {"userCode": started["user_code"], "approve": True}
        token = server.create(actor)["accessToken"]
        stranger = Browser(server)
        bearer = {"Authorization": f"Bearer {token}"}
        assert reason_of(stranger.send("POST", "/device", body, bearer)) == (401, "missing_credential")
        assert reason_of(stranger.send("POST", "/device", body, {"X-Service-Actor": actor}))[0] == 401
        for foreign in ({"Origin": "https://evil.example"}, {"Origin": None}, {"X-Watchword-Console": None}):
            assert reason_of(browser.send("POST", "/device", body, foreign)) == (403, "foreign_request")
        assert outcome(poll(server, started)) == (400, "authorization_pending")
        stranger.close()

    def test_actor_without_the_privilege_learns_nothing(self, server: Server, actor: str) -> None:
        browser, started = Browser(server).signed_in(actor=actor), start(server)
        for code in (started["user_code"], "BCDF-GHJK", "?"):
            answer = browser.send("POST", "/device", {"userCode": code})
            assert reason_of(answer) == (403, "missing_privilege")
        browser.close()

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ([], "invalid_json"),
            ({"code": "x"}, "invalid_json"),
            ({}, "invalid_field"),
            ({"userCode": 5}, "invalid_field"),
            ({"userCode": "AEIO-UAEI"}, "invalid_field"),
            ({"userCode": "BCDF-GHJK", "approve": "yes"}, "invalid_field"),
        ],
    )
    def test_bad_decision_is_rejected(self, browser: Browser, content: Any, reason: str) -> None:
        assert reason_of(browser.send("POST", "/device", content)) == (400, reason)

    def test_code_may_be_typed_in_any_case(self, server: Server, browser: Browser) -> None:
        started = start(server)
        typed = f" {started['user_code'].lower().replace('-', ' ')} "
        assert browser.send("POST", "/device", {"userCode": typed}).json()["userCode"] == started["user_code"]


class TestTime:
    def test_poll_before_the_interval_is_slowed_down(self, timed: Server, clock: SetClock) -> None:
        started = start(timed)
        assert outcome(poll(timed, started)) == (400, "authorization_pending")
        assert outcome(poll(timed, started)) == (400, "slow_down")
        clock.advance(6)
        assert outcome(poll(timed, started)) == (400, "slow_down")  # the interval is 10 seconds now
        clock.advance(9)
        assert outcome(poll(timed, started)) == (400, "authorization_pending")

    def test_code_expires(self, timed: Server, clock: SetClock) -> None:
        browser = Browser(timed).signed_in(actor=ADMIN)
        started, approved = start(timed), start(timed)
        approve(browser, approved)
        clock.advance(601)
        assert outcome(poll(timed, started)) == (400, "expired_token")
        assert outcome(poll(timed, approved)) == (400, "expired_token")
        assert reason_of(decide(browser, started, approve=True)) == (404, "device_not_found")
        browser.close()

    def test_guessed_codes_are_limited(self, timed: Server, clock: SetClock) -> None:
        clock.advance(600)
        browser, started = Browser(timed).signed_in(actor=ADMIN), start(timed)
        for number in range(WRONG_CODES):
            answer = browser.send("POST", "/device", {"userCode": f"BCDF-GHJ{CONSONANTS[number]}"})
            assert reason_of(answer) == (404, "device_not_found")
        refused = decide(browser, started, approve=True)
        assert reason_of(refused) == (429, "too_many_codes")
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        clock.advance(30)
        approve(browser, started)
        failed = timed.ask(EVENTS, {"input": {"targets": ["/device"]}}, actor=ADMIN)["listEvents"]["events"]
        assert {"reason": "device_not_found"} in [event["detail"] for event in failed]
        browser.close()

    def test_person_without_tries_uses_up_none_of_the_address(self, timed: Server, clock: SetClock) -> None:
        clock.advance(600)
        timed.grant(urn("ann"))
        ann, admin = (Browser(timed).signed_in(actor=actor) for actor in (urn("ann"), ADMIN))
        wrong = {"userCode": "BCDF-GHJK"}
        answers = [reason_of(ann.send("POST", "/device", wrong)) for _ in range(21 * WRONG_CODES)]
        assert answers[WRONG_CODES:] == [(429, "too_many_codes")] * (20 * WRONG_CODES)
        assert reason_of(admin.send("POST", "/device", wrong)) == (404, "device_not_found")
        ann.close()
        admin.close()

    def test_open_codes_of_an_address_are_limited(self, timed: Server, clock: SetClock) -> None:
        clock.advance(600)
        for _ in range(DeviceLimits().of_origin):
            start(timed)
        refused = ask(timed)
        assert outcome(refused) == (429, "temporarily_unavailable")
        assert 1 <= int(refused.headers["retry-after"]) <= 600
        clock.advance(600)
        start(timed)


def test_one_ipv6_network_uses_up_its_own_codes_only(make_server: MakeServer) -> None:
    server, limits = make_server("--trusted-proxies", "127.0.0.1/32"), DeviceLimits()

    def start_from(address: str) -> int:
        form, headers = {"client_id": CLIENT}, {"X-Forwarded-For": address}
        return server.http.post("/oauth2/device_authorization", data=form, headers=headers).status_code

    assert {start_from(f"2001:db8:0:{number:x}::1") for number in range(limits.of_site)} == {200}
    assert start_from("2001:db8:0:ff::1") == 429
    others = [f"2001:db8:0:{0x100 + 0x10 * number:x}::1" for number in range(limits.of_network - limits.of_site)]
    assert {start_from(address) for address in others} == {200}
    assert start_from("2001:db8:0:ff00::1") == 429
    assert start_from("2001:db8:1::1") == 200


def test_outage_of_the_store_uses_no_tries(make_server: MakeServer, database: Home) -> None:
    server = make_server("--local-mode", "on", env={**database.env, "WATCHWORD_DATABASE_TIMEOUT": "1"})
    browser, started = Browser(server).signed_in(actor=ADMIN), start(server)
    token = server.create(ADMIN)["accessToken"]

    def look(_: int) -> int:
        return decide(browser, started, approve=None).status_code

    def sign_in(_: int) -> int:
        with closing(Browser(server)) as another:
            return another.sign_in(token=token).status_code

    with database.connect() as lock, ThreadPoolExecutor(40) as pool:
        lock.execute("BEGIN")
        lock.execute("LOCK TABLE devices IN ACCESS EXCLUSIVE MODE")
        lock.execute("LOCK TABLE sessions IN EXCLUSIVE MODE")  # they can be read
        for _ in range(2):
            assert set(pool.map(look, range(WRONG_CODES))) == {503}
        assert set(pool.map(sign_in, range(SIGN_INS_AN_HOUR + 1))) == {503}
        lock.execute("ROLLBACK")
    approve(browser, started)
    assert sign_in(0) == 200
    browser.close()


class TestSettings:
    def test_clients_and_lifetime_are_settings(self, make_server: MakeServer) -> None:
        env = {"WATCHWORD_DEVICE_CLIENTS": "one,two", "WATCHWORD_LOGIN_DAYS": "90"}
        server = make_server(env=env | {"WATCHWORD_ALLOWED_DURATIONS": "ONE_HOUR,ONE_DAY"})
        assert outcome(ask(server)) == (400, "invalid_client")
        first, second = start(server, client_id="one"), start(server, client_id="two")
        browser = Browser(server).signed_in(actor=ADMIN)
        approve(browser, first)
        approve(browser, second)
        assert outcome(poll(server, first, client_id="two")) == (400, "invalid_grant")
        assert poll(server, second, client_id="two").json()["expires_in"] == 86_400  # the longest that is allowed
        browser.close()

    def test_without_clients_there_is_no_device_authorization(self, make_server: MakeServer) -> None:
        server = make_server(env={"WATCHWORD_DEVICE_CLIENTS": ""})
        assert ask(server).status_code == 401
        assert server.http.get("/device").status_code == 404
        found = server.http.get("/.well-known/oauth-authorization-server").json()
        assert (found["grant_types_supported"], "token_endpoint" in found) == ([], False)


def test_one_of_several_instances_hands_out_the_token(make_server: MakeServer, database: Home, tmp_path: Path) -> None:
    env = database.env
    servers = [make_server("--local-mode", "on", folder=tmp_path / name, env=env) for name in ("one", "two")]
    browser = Browser(servers[1]).signed_in(actor=ADMIN)
    for _ in range(3):
        started = start(servers[0])
        approve(browser, started)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n, code=started: outcome(poll(servers[n % 2], code)), range(8)))
        assert sorted(answers).count((200, "")) == 1
        assert {error for _, error in answers} <= {"", "slow_down", "invalid_grant"}
    browser.close()

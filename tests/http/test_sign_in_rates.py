"""Sign-ins are rate limited, so a token without privileges cannot fill the store."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing

import httpx

from tests.support.backends import NOW, AdjustableClock
from tests.support.browsing import Browser, reason_of
from tests.support.console import first_token
from tests.support.server import ADMIN, Server
from watchword.basics.errors import Fault
from watchword.signin.session_rules import MOST_OF_ONE, SIGN_INS_AN_HOUR
from watchword.signin.session_service import ADDRESS_BURST, ADDRESS_INTERVAL, SignInRate

EVENTS = "query ($targets: [String!]) { listEvents(input: {targets: $targets}) { events { action } } }"
MakeServer = Callable[..., Server]


class TestSignInLimits:
    def test_sign_ins_of_one_token_are_limited(self, make_server: MakeServer) -> None:
        server = make_server("--trusted-proxies", "127.0.0.1/32")
        token, token_id = first_token(server)
        with closing(Browser(server)) as browser:
            for number in range(SIGN_INS_AN_HOUR):
                browser.http.cookies.clear()  # or each sign-in would end the session before
                assert sign_in_from(browser, f"203.0.113.{number}", token).status_code == 200
            held = browser.cookie
            server.stop()
            server.start()  # the limit is kept in the store
            for number in range(3):
                refused = sign_in_from(browser, f"198.51.100.{number}", token)
                assert reason_of(refused) == (429, "too_many_sign_ins")
                wait = refused.json()["error"]["retryAfter"]
                assert refused.headers["retry-after"] == str(wait)
                assert 0 < wait <= 3600
            assert browser.cookie == held
            assert browser.post().status_code == 200  # its open session stays valid
            with closing(sqlite3.connect(server.data_dir / "watchword.db")) as store:
                assert store.execute("SELECT count(*) FROM sessions").fetchone() == (MOST_OF_ONE,)
            events = server.ask(EVENTS, {"targets": [token_id]}, token=token)["listEvents"]["events"]
            assert {event["action"] for event in events} <= {"session.started", "token.created"}

    def test_limited_token_does_not_limit_others_at_its_address(self, make_server: MakeServer) -> None:
        server = make_server()
        token, _ = first_token(server)
        other = server.create(ADMIN, token=token)["accessToken"]
        with closing(Browser(server)) as browser:
            for _ in range(SIGN_INS_AN_HOUR):
                browser.http.cookies.clear()
                assert browser.sign_in(token=token).status_code == 200
            for restart in (False, True):  # after the restart only the store has the count
                if restart:
                    server.stop()
                    server.start()
                for _ in range(ADDRESS_BURST + 30):
                    assert reason_of(browser.sign_in(token=token)) == (429, "too_many_sign_ins")
                assert browser.sign_in(token=other).status_code == 200

    def test_sign_ins_from_one_address_are_limited(self, make_server: MakeServer) -> None:
        server = make_server("--trusted-proxies", "127.0.0.1/32")
        first, _ = first_token(server)
        made = [server.create(ADMIN, token=first)["accessToken"] for _ in range(2 * ADDRESS_BURST // SIGN_INS_AN_HOUR)]
        with closing(Browser(server)) as browser:
            allowed = 0
            for number in itertools.count():
                browser.http.cookies.clear()
                answer = sign_in_from(browser, f"2001:db8::{number:x}", made[number % len(made)])
                if answer.status_code != 200:
                    break
                allowed += 1
            assert reason_of(answer) == (429, "too_many_sign_ins")
            assert answer.headers["retry-after"] == "1"
            assert allowed >= ADDRESS_BURST
            for _ in range(SIGN_INS_AN_HOUR):  # a token uses up nothing while its address is limited
                sign_in_from(browser, "2001:db8::1", first)
            assert sign_in_from(browser, "2001:db8:0:1::1", first).status_code == 200

    def test_address_gets_one_more_sign_in_a_second_after_its_burst(self) -> None:
        clock = AdjustableClock()
        rate = SignInRate(clock, ADDRESS_BURST, ADDRESS_INTERVAL)
        allowed = {}
        for later in (0, 999, 1_000, 1_999, 2_000):
            clock.now = NOW + later
            allowed[later] = sum(takes(rate) for _ in range(301))
        assert allowed == {0: 300, 999: 0, 1_000: 1, 1_999: 0, 2_000: 1}


def takes(rate: SignInRate) -> bool:
    try:
        rate.take("192.0.2.1", "This address")
    except Fault:
        return False
    return True


def sign_in_from(browser: Browser, client: str, token: str) -> httpx.Response:
    """Sign in through a proxy that names the client."""
    return browser.sign_in({"X-Forwarded-For": client}, token=token)

"""What an attacker, or a broken provider, answers to a sign-in: nobody is signed in, and the page says why."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.forging_provider import DISCOVERY, FORGERIES, KEYS, TOKEN, USERINFO, ForgingProvider, Reply
from tests.support.server import ADMIN, Server
from tests.support.signing_in import SignInBrowser, signing_in_at, urn
from tests.support.waiting import until
from watchword.signin.openid_http import EXCHANGES

FAILURES = """{ listEvents(input: {actions: ["authentication.failed"]}) { events { target detail actorUrn } } }"""


@pytest.fixture(scope="module")
def shared_forger() -> Iterator[ForgingProvider]:
    with ForgingProvider() as made:
        yield made


@pytest.fixture
def forger(shared_forger: ForgingProvider) -> Iterator[ForgingProvider]:
    shared_forger.reset()
    yield shared_forger
    shared_forger.reset()


@pytest.fixture(scope="module")
def company(shared_forger: ForgingProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with signing_in_at(lambda _: shared_forger.client, tmp_path_factory.mktemp("forged")) as server:
        yield server


@pytest.fixture
def browser(company: Server) -> Iterator[SignInBrowser]:
    """The forger asks nobody for a password: `go` signs in."""
    made = SignInBrowser(company)
    yield made
    made.close()


@pytest.fixture
def another(company: Server) -> Iterator[SignInBrowser]:
    made = SignInBrowser(company)
    yield made
    made.close()


def refused(browser: SignInBrowser, answer: httpx.Response, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src" in answer.headers["content-security-policy"]
    assert browser.session_cookie is None
    assert not browser.session()["signedIn"]
    return answer.text


def test_honest_answer_signs_in(forger: ForgingProvider, browser: SignInBrowser) -> None:
    """So the others are refused for what is forged in them."""
    assert browser.go().status_code == 303
    assert browser.session()["actorUrn"] == "urn:li:corpuser:mallory"


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_id_token_is_refused(forger: ForgingProvider, browser: SignInBrowser, forgery: str) -> None:
    forger.id_token = FORGERIES[forgery]
    refused(browser, browser.go())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": "forged"}, "does not belong"),
        ({"state": None}, "does not belong"),
        ({"iss": "https://other.example"}, "another identity provider"),
        ({"iss": None}, "another identity provider"),
        ({"code": None}, "no code"),
        ({"code": "guessed"}, "not accepted"),
        ({"code": None, "error": "server_error"}, "server_error"),
        ({"code": None, "error": "<script>"}, "unknown error"),
    ],
)
def test_forged_answer_is_refused(
    forger: ForgingProvider, browser: SignInBrowser, changes: dict[str, str | None], told: str
) -> None:
    forger.authorization = changes
    page = refused(browser, browser.go())
    assert told in page
    assert "<script>" not in page


def test_sign_in_that_was_refused_at_the_provider_says_so(forger: ForgingProvider, browser: SignInBrowser) -> None:
    forger.authorization = {"code": None, "error": "access_denied"}
    assert "refused" in refused(browser, browser.go(), 403)


def test_answer_counts_once_and_only_in_the_browser_that_began(
    forger: ForgingProvider, browser: SignInBrowser, another: SignInBrowser
) -> None:
    """Login CSRF: the victim's browser is sent to the attacker's answer."""
    answer = browser.go()
    assert answer.status_code == 303
    assert "did not begin in this browser" in refused(another, another.http.get(answer.url))
    another.http.get("/sign-in")  # it has begun another sign-in
    assert "does not belong" in refused(another, another.http.get(answer.url))
    repeated = browser.http.get(answer.url)
    assert (repeated.status_code, "did not begin" in repeated.text) == (400, True)


def test_code_is_used_once(forger: ForgingProvider, browser: SignInBrowser) -> None:
    first = browser.go()
    forger.authorization = {"code": httpx.URL(str(first.url)).params["code"]}
    assert "not accepted" in browser.go().text


@pytest.mark.parametrize(
    "next_page",
    [
        "https://evil.example/", "//evil.example/", "/\\evil.example", "/console/../../x", "javascript:alert(1)",
        "/api", "/console/tokens\r\nSet-Cookie: a=b", "",
    ],
)  # fmt: skip
def test_browser_returns_only_to_pages_of_the_console(
    forger: ForgingProvider, browser: SignInBrowser, next_page: str
) -> None:
    answer = browser.go(next=next_page)
    location = answer.headers["location"]
    assert location == "/" or location.startswith("/console/")
    assert len(answer.headers.get_list("set-cookie")) == 2


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        (TOKEN, Reply(500)),
        (TOKEN, Reply(200, b"not JSON")),
        (TOKEN, Reply(200, b"[" * 100_000)),
        (TOKEN, Reply(302, b"", {"Location": "http://127.0.0.1:9/"})),
        (TOKEN, Reply(200, b" " * 2_000_000)),
        (TOKEN, Reply(endless=b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000)),
        (USERINFO, Reply(500)),
    ],
)
def test_broken_provider_is_an_outage_of_sign_in_only(
    forger: ForgingProvider, browser: SignInBrowser, company: Server, path: str, reply: Reply
) -> None:
    forger.answers[path] = reply
    assert "does not answer as expected" in refused(browser, browser.go(), 503)
    assert company.http.get("/health").status_code == 200


def test_failed_sign_ins_of_an_address_are_limited(forger: ForgingProvider, tmp_path: Path) -> None:
    """Each asks the provider. On a server of its own: all tests have one address."""
    forger.authorization = {"code": "guessed"}
    with signing_in_at(lambda _: forger.client, tmp_path) as server, closing(SignInBrowser(server)) as browser:
        allowed = 0
        while (code := browser.go().status_code) == 400:
            allowed += 1
        assert code == 429
        assert allowed >= EXCHANGES  # and one more each second
        assert forger.times_asked(TOKEN) == allowed


def test_person_who_is_refused_uses_up_no_sign_ins_of_the_address(forger: ForgingProvider, tmp_path: Path) -> None:
    """The provider said who it is, so the limits of that person apply."""
    with signing_in_at(lambda _: forger.client, tmp_path) as server, closing(SignInBrowser(server)) as browser:
        server.set_status(urn("mallory"), "SUSPENDED")
        assert {browser.go().status_code for _ in range(EXCHANGES + 20)} == {403}
        forger.claims = {"sub": "eve", "preferred_username": "eve"}
        assert browser.go().status_code == 303


def test_name_and_address_may_be_missing_if_userinfo_is_away(forger: ForgingProvider, browser: SignInBrowser) -> None:
    forger.answers[USERINFO] = Reply(500)
    forger.claims["groups"] = []
    assert browser.go().status_code == 303


@pytest.mark.parametrize(
    "claims", [{"sub": "a\ud800"}, {"sub": "a\0"}, {"groups": ["\ud800"]}, {"nonce": "\ud800"}, {"sub": " "}]
)
def test_claims_that_are_no_text_are_refused(
    forger: ForgingProvider, browser: SignInBrowser, claims: dict[str, Any]
) -> None:
    forger.claims |= claims
    assert browser.go().status_code in {303, 400, 403}


def test_userinfo_of_another_person_is_refused(forger: ForgingProvider, browser: SignInBrowser) -> None:
    forger.answers[USERINFO] = Reply.of({"sub": "alice", "preferred_username": "alice", "email": "alice@example.com"})
    assert "another person" in refused(browser, browser.go())


def test_slow_provider_is_asked_by_another_process_and_blocks_nobody(
    forger: ForgingProvider, browser: SignInBrowser, company: Server
) -> None:
    released = threading.Event()
    forger.answers[TOKEN] = Reply(until=released)
    outcome: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: outcome.append(browser.go()))
    waiting.start()
    try:
        until(lambda: forger.times_asked(TOKEN) == 1, "the provider is asked")
        assert company.http.get("/health").status_code == 200
        asking = company.process_of(forger.asked[-1].port)
        assert asking is not None
        assert asking.pid not in {worker.pid for worker in company.workers()}
        waiting.join(60)
        assert outcome[0].status_code == 503
    finally:
        released.set()


def test_unknown_keys_are_read_again_but_not_each_time(forger: ForgingProvider, browser: SignInBrowser) -> None:
    browser.go()
    forger.asked.clear()
    forger.id_token = FORGERIES["unknown kid"]
    assert [browser.go().status_code for _ in range(5)] == [400] * 5
    assert forger.times_asked(KEYS) <= 1
    assert forger.times_asked(DISCOVERY) <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"}, {"aud": "other"}, {"iat": 1}, {"events": None}, {"events": {}},
        {"nonce": "n"}, {"sub": None}, {"sub": 7},
    ],
)  # fmt: skip
def test_forged_notice_of_logout_ends_nothing(
    forger: ForgingProvider, browser: SignInBrowser, company: Server, changes: dict[str, Any]
) -> None:
    assert browser.go().status_code == 303
    sent = {"logout_token": forger.signed(forger.logout_claims(**changes))}
    answer = company.http.post("/sign-in/logout", data=sent)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert browser.session()["signedIn"]


def test_notice_of_logout_without_a_session_id_ends_all_of_the_person(
    forger: ForgingProvider, browser: SignInBrowser, another: SignInBrowser, company: Server
) -> None:
    assert browser.go().status_code == another.go().status_code == 303
    forged = {"logout_token": forger.signed(forger.logout_claims(), key="x" * 64, algorithm="HS256")}
    assert company.http.post("/sign-in/logout", data=forged).status_code == 400
    assert company.http.post("/sign-in/logout", data={"other": "x"}).status_code == 400
    assert browser.session()["signedIn"]
    answer = company.http.post("/sign-in/logout", data={"logout_token": forger.signed(forger.logout_claims())})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert not browser.session()["signedIn"]
    assert not another.session()["signedIn"]


def test_refused_sign_in_leaves_an_event_without_claims(forger: ForgingProvider, tmp_path: Path) -> None:
    """On a server of its own: only the first rejections from an address have an event each."""
    forger.claims = {"sub": "s-e-c-r-e-t", "preferred_username": "__system", "email": "hidden@example.com"}
    with signing_in_at(lambda _: forger.client, tmp_path) as server, closing(SignInBrowser(server)) as browser:
        assert browser.go().status_code == 403

        def events() -> list[Any]:
            found: list[Any] = server.ask(FAILURES, actor=ADMIN)["listEvents"]["events"]
            return found

        until(lambda: bool(events()), "the event is written")
        (event,) = events()
        assert (event["target"], event["detail"]) == ("/sign-in", {"reason": "sign_in_refused"})
        told = str(event) + server.err.read_text() + server.out.read_text()
        assert "s-e-c-r-e-t" not in told
        assert "hidden@example.com" not in told

"""The page where a signed-in person compares the code of a terminal, and approves or denies it."""

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.console.test_sign_in import enter_token
from tests.support.browser import settled
from tests.support.console import Console
from tests.support.devices import outcome, poll, start
from tests.support.server import GENERATE


def test_visitor_signs_in_compares_and_approves(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    started = start(console.server, host="<b>laptop</b>", scope=GENERATE)
    page = window().open(f"/device?user_code={started['user_code']}")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    enter_token(page, alice.token)
    expect(page.get_by_role("heading", name="Sign in a terminal")).to_be_visible()
    expect(page.locator("#shown-code")).to_have_text(started["user_code"])
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("watchword-cli")
    expect(facts).to_contain_text("The terminal says it is <b>laptop</b>, which proves nothing.")
    expect(facts).to_contain_text("127.0.0.1")
    expect(facts).to_contain_text("valid for up to 30 days")
    expect(facts).to_contain_text(f"Only {GENERATE}")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status").filter(has_text="Approved.")).to_be_visible()
    token = poll(console.server, started).json()["access_token"]
    assert console.server.verify(token).headers["x-auth-urn"] == alice.urn
    page.get_by_role("link", name="your tokens").click()
    expect(page.get_by_role("link", name="watchword-cli login on <b>laptop</b>")).to_be_visible()


def type_code(page: Page, code: str) -> None:
    page.get_by_label("Code").fill(code)
    page.get_by_role("button", name="Continue").click()


def test_typed_code_can_be_denied(console: Console, window: Windows) -> None:
    started = start(console.server)
    opened = window(console.person("alice", GENERATE))
    opened.watch.allow("status of 40[04]")
    page = opened.open("/device")
    settled(page)
    for wrong in ("AEIO-UAEI", "BCDF-GHJK"):
        type_code(page, wrong)
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_label("Code")).to_have_value(wrong)
    type_code(page, started["user_code"].lower())
    expect(page.get_by_text("The terminal says nothing about itself.")).to_be_visible()
    expect(page.get_by_text("No limit: all that you may do")).to_be_visible()
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("status").filter(has_text="Denied.")).to_be_visible()
    assert outcome(poll(console.server, started)) == (400, "access_denied")

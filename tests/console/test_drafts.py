"""What is typed into a form survives Esc, leaving, a reload and the end of a session; never another actor's sign-in."""

import re

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.console.test_sign_in import enter_token
from tests.support.console import Console

POLICIES = "MANAGE_POLICIES"
RESTORED = "Restored what you had typed."


def stored(page: Page) -> str:
    return str(page.evaluate("() => JSON.stringify({...sessionStorage})"))


def open_group_dialog(page: Page) -> None:
    page.goto("/console/actors?show=groups")
    page.get_by_role("button", name="New group").first.click()


def test_draft_survives_escape_reload_and_a_dead_session(console: Console, window: Windows) -> None:
    boss = console.person("boss", POLICIES)
    second, _ = console.token(boss.urn, name="second")
    opened = window(boss)
    opened.watch.allow("status of 401")
    page = opened.open("/console/actors?show=groups")
    open_group_dialog(page)
    page.get_by_label("Name").fill("Night shift")
    page.get_by_label("Description").fill(boss.token)
    palette = page.get_by_role("dialog", name="Search and commands")
    expect(palette).to_be_visible()
    page.keyboard.press("Escape")
    expect(palette).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="New group").first.click()
    expect(page.get_by_label("Name")).to_have_value("Night shift")
    expect(page.get_by_text(RESTORED)).to_be_visible()
    assert boss.token not in stored(page), "a token is never kept"

    console.ask("mutation ($id: String!) { revokeAccessToken(tokenId: $id) }", {"id": boss.token_id})
    page.get_by_role("button", name="Create group").click()
    expect(page.get_by_role("alert")).to_contain_text("revoked")
    expect(page.get_by_text("What you had typed into a form is kept")).to_be_visible()
    enter_token(page, second)
    expect(page.get_by_role("heading", name="Groups", exact=True)).to_be_visible()
    page.get_by_role("button", name="New group").first.click()
    expect(page.get_by_label("Name")).to_have_value("Night shift")
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_label("Name")).to_have_value("")
    expect(page.get_by_text(RESTORED)).to_have_count(0)
    page.get_by_label("Name").fill("Day shift")
    page.get_by_role("button", name="Create group").click()
    expect(page.get_by_role("dialog", name="Day shift")).to_be_visible()
    assert "shift" not in stored(page)


def test_draft_of_a_policy_survives_leaving_and_ends_with_sign_out(console: Console, window: Windows) -> None:
    boss, other = console.person("boss", POLICIES), console.person("other", POLICIES)
    opened = window(boss)
    page = opened.open("/console/policies/new")
    page.get_by_label("Name", exact=True).fill("Readers")
    page.get_by_label(re.compile("^View Audit Log")).check()
    page.get_by_role("link", name="Actors", exact=True).click()
    expect(page.get_by_role("heading", name="Actors")).to_be_visible()
    opened.go(page, "/console/policies/new")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Readers")
    expect(page.get_by_label(re.compile("^View Audit Log"))).to_be_checked()
    expect(page.get_by_text(RESTORED)).to_be_visible()

    # Another actor in the same tab, without a sign-out.
    opened.sign_in(other.token)
    opened.go(page, "/console/policies/new")
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    assert "Readers" not in stored(page)

    page.get_by_label("Name", exact=True).fill("Writers")
    assert "Writers" in stored(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page).to_have_url(re.compile("/console/sign-in"))
    assert "Writers" not in stored(page)

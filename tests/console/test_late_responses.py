"""Late responses: none replaces a newer one or moves the focus."""

import re

from playwright.sync_api import Request, expect

from tests.console.conftest import Windows
from tests.support.browser import asks, held_back, overtaken, settled
from tests.support.console import Console
from tests.support.server import GENERATE


def test_late_sign_out_response_is_ignored_after_sign_in(console: Console, window: Windows) -> None:
    alice, bob = console.person("alice", GENERATE), console.person("bob", GENERATE)
    opened = window(alice)
    page, other = opened.open("/console/tokens"), opened.open("/console/tokens")

    def is_session_check_on_sign_in_page(request: Request) -> bool:
        return request.method == "GET" and "/console/sign-in" in other.url

    with overtaken(other, "/session", is_session_check_on_sign_in_page):
        page.get_by_role("button", name="Sign out").click()
        expect(other).to_have_url(re.compile("/console/sign-in"))
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_label("Access token").fill(bob.token)
        page.get_by_role("button", name="Sign in").click()
        expect(other.get_by_text(bob.name, exact=True)).to_be_visible()
        settled(other)
    expect(other.get_by_role("heading", name="Sign in")).to_have_count(0)
    expect(other.get_by_text(bob.name, exact=True)).to_be_visible()


def test_late_list_does_not_replace_a_newer_one(console: Console, window: Windows) -> None:
    mallory = console.person("mallory", GENERATE)
    page = window(console.root).open(f"/console/actors?q={mallory.name}")
    with overtaken(page, "/api/graphql", lambda request: asks(request, "Actors")):
        page.get_by_role("link", name=mallory.name, exact=True).click()
        page.get_by_role("button", name=f"Suspend {mallory.name}…").click()
        page.get_by_role("button", name=f"Suspend {mallory.name}", exact=True).click()
        row = page.get_by_role("row", name=re.compile(mallory.name))
        expect(row).to_contain_text("suspended")
    expect(row).to_contain_text("suspended")


def test_sorting_before_the_list_arrives_keeps_the_search(console: Console, window: Windows) -> None:
    page = window(console.person("owner", GENERATE)).open("/console/tokens")
    with held_back(page, "Tokens"):
        page.get_by_role("searchbox").fill("sign in")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("q=sign"))
        page.get_by_role("link", name="Name").click()
        expect(page).to_have_url(re.compile("sort=name"))
        expect(page).to_have_url(re.compile("q=sign"))


def test_search_typed_while_a_filter_is_looked_up_stays(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    page = window(console.root).open("/console/all-tokens")
    with held_back(page, "Candidates"):
        page.locator("#filter-actor").fill(owner.name)
        page.locator("#filter-actor").press("Enter")
        page.get_by_role("searchbox").fill("leaked")
    expect(page).to_have_url(re.compile("actor="))
    expect(page.get_by_role("searchbox")).to_have_value("leaked")
    page.get_by_role("searchbox").press("Enter")
    expect(page).to_have_url(re.compile("q=leaked"))
    page.get_by_role("link", name="Clear filters").first.click()
    expect(page.get_by_role("searchbox")).to_have_value("")


def test_back_before_the_list_arrives_restores_the_filter(console: Console, window: Windows) -> None:
    page = window(console.person("owner", GENERATE)).open("/console/tokens")
    with held_back(page, "Tokens"):
        page.locator("#filter-status").select_option("revoked")
        expect(page).to_have_url(re.compile("status=revoked"))
        page.go_back()
        expect(page.locator("#filter-status")).to_have_value("")
    expect(page.get_by_role("link", name="to sign in with")).to_be_visible()


def test_late_totals_are_shown_after_a_filter_was_chosen(console: Console, window: Windows) -> None:
    page = window(console.root).open()
    with held_back(page, "Numbers"):
        page.goto("/console/all-tokens")
        page.locator("#filter-status").select_option("live")
        expect(page).to_have_url(re.compile("status=live"))
    expect(page.get_by_role("link", name=re.compile("expires? within 7 days"))).to_be_visible()


def test_late_response_to_a_revocation_does_not_move_the_focus(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    console.token(owner.urn, name="gone")
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="gone").click()
    page.get_by_role("button", name="Revoke gone…").click()
    with held_back(page, "Numbers"):
        page.locator("dialog").get_by_role("button", name="Revoke gone").press("Enter")
        expect(page.locator(".notice")).to_be_focused()
        page.get_by_role("searchbox").focus()
    expect(page.locator(".numbers")).to_contain_text("1 live")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_late_response_after_closing_details_does_not_move_the_focus(console: Console, window: Windows) -> None:
    holder = console.person("holder", GENERATE)
    console.token(holder.urn, name="closed")
    page = window(console.root).open(f"/console/all-tokens?actor={holder.urn}&q=closed")
    page.get_by_role("link", name="closed").click()
    expect(page.get_by_role("heading", name="closed")).to_be_visible()
    with held_back(page, "Tokens"):
        page.reload()
        expect(page.get_by_role("button", name="Revoke closed…")).to_be_visible()
        page.locator(".panel h2").press("Escape")
        expect(page.locator(".panel")).to_have_count(0)
        page.get_by_role("searchbox").focus()
    expect(page.get_by_role("link", name="closed")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_cancelled_dry_run_stays_closed(console: Console, window: Windows) -> None:
    who = console.person("planned")
    page = window(console.root).open(f"/console/all-tokens?actor={who.urn}")
    page.get_by_role("button", name="Revoke all matching…").click()
    expect(page.get_by_role("heading", name="Dry run: 1 token of 1 actor")).to_be_focused()
    with overtaken(page, "/api/graphql", lambda request: asks(request, "RevokeMany")):
        page.get_by_label("Also revoke tokens created with them").check()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("heading", name="Dry run")).to_have_count(0)
    expect(page.get_by_role("heading", name="Dry run")).to_have_count(0)


def test_leaving_while_a_token_is_created_asks_for_confirmation(console: Console, window: Windows) -> None:
    page = window(console.person("owner", GENERATE)).open("/console/tokens/new")
    page.get_by_role("textbox", name="Name", exact=True).fill("slow to come")
    page.get_by_label("None").check()
    with held_back(page, "Create"):
        page.get_by_role("button", name="Create token").click()
        page.get_by_role("link", name="My tokens").click()
        question = page.get_by_role("dialog", name="Leave without the token?")
        question.get_by_role("button", name="Stay").click()
        expect(question).to_have_count(0)
    expect(page.locator("#secret")).to_be_visible()


def test_dialog_closes_with_its_page(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    console.token(owner.urn, name="asked about")
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="asked about").click()
    page.get_by_role("button", name="Revoke asked about…").click()
    expect(page.get_by_role("dialog", name="Revoke asked about?")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="asked about")).to_be_visible()

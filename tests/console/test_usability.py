"""Usability of the console: long names, focus, back links, offline errors and outdated lists."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window, held_back, settled
from tests.support.console import Console
from tests.support.server import Server

OWN = "GENERATE_PERSONAL_ACCESS_TOKENS"
MINUTE = 60_000
WIDER_THAN_THE_WINDOW = """() => [...document.querySelectorAll("body *")].filter((node) => {
  const box = node.getBoundingClientRect();
  return box.width && !node.closest(".unseen") && (box.right > innerWidth + 1 || box.left < -1);
}).map((node) => node.outerHTML.slice(0, 80))"""


def test_longest_name_is_shown_in_full_in_details_and_dialogs(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    name = "w" * 200
    console.token(owner.urn, name=name)
    for width in (1280, 360):
        page = window(owner, width=width).open("/console/tokens")
        page.get_by_role("link", name=name).click()
        page.get_by_role("button", name=f"Revoke {name}").click()
        expect(page.locator("dialog")).to_be_visible()
        assert page.evaluate(WIDER_THAN_THE_WINDOW) == []
        box = page.locator("dialog").bounding_box()
        submit = page.locator("dialog button[type=submit]").bounding_box()
        assert box
        assert submit
        assert box["x"] < submit["x"]
        assert submit["x"] + submit["width"] < box["x"] + box["width"]


def test_details_from_all_tokens_close_to_all_tokens(console: Console, window: Windows) -> None:
    holder = console.person("holder", OWN)
    console.token(holder.urn, name="found")
    page = window(console.root).open(f"/console/all-tokens?actor={holder.urn}&q=found")
    page.get_by_role("link", name="found").click()
    expect(page.get_by_role("heading", name="found")).to_be_visible()
    expect(page.get_by_role("link", name="All tokens")).to_have_attribute("aria-current", "page")
    page.reload()
    expect(page.get_by_role("button", name="Revoke found…")).to_be_visible()
    settled(page)
    page.locator(".panel h2").press("Escape")
    expect(page).to_have_url(re.compile(r"/console/all-tokens\?.*q=found$"))
    expect(page.get_by_role("link", name="found")).to_be_focused()

    page.get_by_role("link", name="found").click()
    page.get_by_role("button", name="Revoke found…").click()
    page.locator("dialog").get_by_role("button", name="Revoke found").click()
    expect(page.get_by_text("Revoked found at")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/console/all-tokens\?.*q=found$"))


@pytest.mark.parametrize("late", ["Tokens", "Made"])
def test_details_closed_before_loading_return_to_all_tokens(late: str, console: Console, window: Windows) -> None:
    holder = console.person("holder", OWN)
    console.token(holder.urn, name="early")
    page = window(console.root).open(f"/console/all-tokens?actor={holder.urn}&q=early")
    open_and_close_early(page, late)
    expect(page).to_have_url(re.compile(r"/console/all-tokens\?.*q=early$"))


@pytest.mark.parametrize("late", ["Tokens", "Made"])
def test_details_closed_before_loading_return_to_my_tokens(late: str, console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    console.token(owner.urn, name="early")
    page = window(owner).open("/console/tokens?q=early")
    open_and_close_early(page, late)
    expect(page).to_have_url(re.compile(r"/console/tokens\?q=early$"))


def open_and_close_early(page: Page, late: str) -> None:
    page.get_by_role("link", name="early").click()
    expect(page.get_by_role("heading", name="early")).to_be_visible()
    with held_back(page, late):
        page.reload()
        expect(page.get_by_role("button", name="Revoke early…")).to_be_visible()
        page.locator(".panel h2").press("Escape")
        expect(page.locator(".panel")).to_have_count(0)
    expect(page.get_by_role("link", name="early")).to_be_focused()


def test_late_response_does_not_close_a_shown_secret(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    console.token(owner.urn, name="renewed")
    page = window(owner).open("/console/tokens?q=renewed")
    page.get_by_role("link", name="renewed").click()
    expect(page.get_by_role("heading", name="renewed")).to_be_visible()
    with held_back(page, "Made"):
        page.reload()
        page.get_by_role("button", name="Rotate").click()
        page.get_by_role("dialog").get_by_role("button", name="Rotate renewed").click()
        expect(page.locator("#secret")).to_be_visible()
    page.get_by_role("link", name="My tokens").click()
    expect(page.get_by_role("dialog", name="Leave without the token?")).to_be_visible()


def test_account_manager_sees_and_revokes_account_tokens(console: Console, window: Windows) -> None:
    keeper = console.person("keeper", "MANAGE_SERVICE_ACCOUNTS")
    make = 'mutation { createServiceAccount(input: {displayName: "nightly"}) { urn } }'
    urn = console.ask(make, by=keeper)["createServiceAccount"]["urn"]
    console.token(urn, by=keeper, type="SERVICE_ACCOUNT", name="key of nightly")
    page = window(keeper).open(f"/console/accounts/{urn}")
    page.get_by_role("link", name="key of nightly").click()
    page.get_by_role("button", name="Revoke key of nightly…").click()
    page.locator("dialog").get_by_role("button", name="Revoke key of nightly").click()
    expect(page.get_by_text("Revoked key of nightly at")).to_be_visible()
    expect(page.locator(".panel").get_by_text("0 live tokens")).to_be_visible()


def test_list_is_reloaded_when_a_token_expires(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    _, brief = console.token(owner.urn, name="brief", duration="ONE_HOUR")
    opened = window(owner)
    page = opened.open()
    opened.install_clock(page)
    opened.go(page, "/console/tokens?q=brief&status=live")
    expect(page.locator("tbody tr")).to_contain_text("live")
    console.server.revoke(brief, token=console.root.token)
    page.clock.run_for(30 * MINUTE)
    # The hour of the token began before the page was opened.
    expect(page.locator("tbody tr")).to_contain_text(re.compile(r"in (2\d|30) minutes"))
    page.clock.run_for(31 * MINUTE)
    expect(page.locator("#main")).to_contain_text("No token matches")


def test_revoke_dialog_of_a_revoked_token_lists_no_derived_tokens(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    _, gone = console.token(owner.urn, name="gone meanwhile")
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="gone meanwhile").click()
    button = page.get_by_role("button", name="Revoke gone meanwhile…")
    expect(button).to_be_visible()
    console.server.revoke(gone, token=console.root.token)
    button.click()
    expect(page.locator("dialog")).to_contain_text("no other token")


def test_network_error_is_shown_at_the_text_field(console: Console, window: Windows) -> None:
    page = window(console.person("owner", OWN)).open("/console/tokens/new")
    page.locator("#name").fill("narrow")
    page.get_by_label("None").check()
    page.get_by_label("Only from these networks").check()
    page.get_by_label("Networks", exact=True).fill("10.0.0.1/8")
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_label("Networks", exact=True)).to_be_focused()
    expect(page.get_by_label("Networks", exact=True)).to_have_attribute("aria-invalid", "true")


def test_empty_scope_selection_is_rejected(console: Console, window: Windows) -> None:
    page = window(console.person("owner", OWN)).open("/console/tokens/new")
    page.locator("#name").fill("empty")
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("alert")).to_contain_text("Select at least one scope")
    expect(page.locator("#secret")).to_have_count(0)


def test_focus_moves_to_the_notice_after_a_revocation(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    console.token(owner.urn, name="gone")
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="gone").click()
    page.get_by_role("button", name="Revoke gone…").click()
    page.locator("dialog").get_by_role("button", name="Revoke gone").press("Enter")
    expect(page.locator(".notice")).to_be_focused()

    page = window(console.root).open(f"/console/all-tokens?actor={owner.urn}")
    page.get_by_label("All 1 on this page").check()
    page.get_by_role("button", name="Revoke selected…").click()
    page.get_by_role("button", name="Revoke 1 token…").click()
    page.locator("dialog").get_by_role("button", name="Revoke 1 token").press("Enter")
    expect(page.locator(".notice").first).to_be_focused()


def test_closing_details_returns_the_focus_to_the_row(console: Console, window: Windows) -> None:
    who = console.person("somebody", OWN)
    page = window(console.root).open("/console/policies?q=" + who.name)
    page.get_by_role("link", name=f"for {who.name}").first.click()
    page.locator(".panel h2").press("Escape")
    expect(page.locator(".panel")).to_have_count(0)
    expect(page.get_by_role("link", name=f"for {who.name}").first).to_be_focused()
    page.goto("/console/actors?q=" + who.name)
    page.get_by_role("link", name=who.name, exact=True).click()
    page.locator(".panel h2").press("Escape")
    expect(page.get_by_role("link", name=who.name, exact=True)).to_be_focused()


def test_failed_sign_out_reports_that_the_session_is_still_open(console: Console, window: Windows) -> None:
    opened = window(console.person("owner", OWN))
    page = opened.open("/console/tokens")
    opened.watch.allow("ERR_INTERNET_DISCONNECTED")
    opened.context.set_offline(True)
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("dialog")).to_contain_text("You are still signed in")
    expect(page.locator("dialog")).to_contain_text("The server could not be reached.")
    opened.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_unreachable_page_shows_an_error_and_can_be_retried(console: Console, window: Windows) -> None:
    opened = window(console.root)
    page = opened.open("/console/tokens")
    opened.watch.allow("ERR_INTERNET_DISCONNECTED")
    opened.context.set_offline(True)
    page.get_by_role("link", name="Policies").click()
    expect(page.get_by_role("alert")).to_contain_text("The server could not be reached.")
    opened.context.set_offline(False)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", name="Policies", level=1)).to_be_visible()


def test_back_button_clears_a_filter_on_every_list(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/all-tokens")
    for address, control, choice in (
        ("/console/all-tokens", "#filter-status", "live"),
        ("/console/activity", "#filter-action", "token.created"),
        ("/console/actors", "#filter-suspended", "1"),
    ):
        page.goto(address)
        expect(page.locator("tbody tr, .events > li").first).to_be_visible()
        page.locator(control).select_option(choice)
        expect(page).to_have_url(re.compile(r"\?"))
        page.go_back()
        expect(page).to_have_url(re.compile(address + "$"))


def test_command_hint_in_local_mode_names_actor_and_url(browser: Browser, make_server: Callable[..., Server]) -> None:
    server = make_server()
    local = Window(browser, server)
    page = local.open("/")
    page.get_by_label("Act as").fill("admin")
    page.get_by_role("button", name="Act as this actor").click()
    page.get_by_role("link", name="Accounts").click()
    command = f"watchword account create --name ci --as urn:li:corpuser:admin --url {server.url}"
    expect(page.locator(".empty .code")).to_contain_text(command)
    local.close()

"""Signing in, and how a session ends."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.console import Console
from tests.support.server import GENERATE, Server


def give_token(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_a_first_visitor_signs_in_with_a_token_and_sees_their_tokens(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window().open("/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    give_token(page, alice.token)
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    expect(page.get_by_role("link", name="to sign in with")).to_be_visible()
    expect(page.get_by_text(alice.name, exact=True)).to_be_visible()


def test_the_page_keeps_no_token_where_a_script_could_read_it(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    opened = window()
    page = opened.open("/")
    give_token(page, alice.token)
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    kept = page.evaluate(
        "() => JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, history.state])"
    )
    assert alice.token not in kept
    assert alice.token not in page.content()
    (cookie,) = opened.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"] in alice.token) == (True, "Strict", False)


def test_a_token_that_is_not_accepted_is_told_in_the_server_s_sentence(window: Windows) -> None:
    opened = window()
    opened.watch.allow("status of 401")
    page = opened.open("/console/sign-in")
    give_token(page, "not-a-token")
    expect(page.get_by_role("alert")).to_contain_text("token")
    expect(page.get_by_role("alert")).to_contain_text("request ")
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled()


def test_whoever_signs_in_comes_to_the_address_that_was_asked_for(console: Console, window: Windows) -> None:
    page = window().open("/console/operations?page=2")
    give_token(page, console.root.token)
    expect(page.get_by_role("heading", name="Operations")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/console/operations\?page=2$"))


def test_a_session_ends_when_its_token_is_revoked_in_another_window(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    second, _ = console.token(alice.urn, name="second")
    mine = window(alice)
    page = mine.open("/console/tokens?status=live")
    other = window()
    there = other.open("/")
    give_token(there, second)
    there.get_by_role("link", name="to sign in with").click()
    there.get_by_role("button", name="Revoke to sign in with").click()
    there.locator("dialog").get_by_role("button", name="Revoke to sign in with").click()
    expect(there.locator("dialog")).to_have_count(0)
    mine.watch.allow("status of 401")
    page.get_by_label("Status").select_option("all")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("revoked")
    give_token(page, second)
    expect(page).to_have_url(re.compile(r"/console/tokens\?status=all$"))


def test_whoever_signs_out_is_out_in_every_page_of_the_browser(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    opened = window(alice)
    page, other = opened.open("/console/tokens"), opened.open("/console/tokens")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_role("link", name="to sign in with")).to_have_count(0)


def test_after_a_sign_out_the_way_back_shows_nothing_of_what_was_seen(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window(alice).open("/console/tokens")
    expect(page.get_by_role("link", name="to sign in with")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back(wait_until="commit")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("link", name="to sign in with")).to_have_count(0)
    expect(page.get_by_text(alice.name, exact=True)).to_have_count(0)


def test_whoever_signs_in_in_one_page_is_who_every_page_of_the_browser_acts_as(
    console: Console, window: Windows
) -> None:
    alice, bob = console.person("alice", GENERATE), console.person("bob", GENERATE)
    opened = window(alice)
    page, other = opened.open("/console/tokens"), opened.open("/console/tokens")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    give_token(page, bob.token)
    expect(other.get_by_text(bob.name, exact=True)).to_be_visible()
    expect(other.get_by_text(alice.name, exact=True)).to_have_count(0)


class TestLocalMode:
    @pytest.fixture
    def local(self, browser: Browser, server: Server) -> Window:
        return Window(browser, server)

    def test_one_signs_in_by_choosing_an_actor_and_is_warned_on_every_page(self, local: Window) -> None:
        page = local.open("/")
        expect(page.locator(".warning")).to_contain_text("can act as any actor")
        page.get_by_label("Act as").fill("admin")
        page.get_by_role("button", name="Act as this actor").click()
        expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
        for view in ("Policies", "Operations"):
            page.get_by_role("link", name=view, exact=True).click()
            expect(page.get_by_role("heading", name=view, level=1)).to_be_visible()
            expect(page.get_by_text("Local mode:")).to_be_visible()
        local.close()

    def test_without_local_mode_no_actor_can_be_chosen(self, window: Windows) -> None:
        page = window().open("/")
        expect(page.get_by_label("Access token")).to_be_visible()
        expect(page.get_by_label("Act as")).to_have_count(0)
        expect(page.locator(".warning")).to_have_count(0)

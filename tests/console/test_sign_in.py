"""Sign in, sign out, and the end of a session."""

import re
import shlex

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.console import Console
from tests.support.server import GENERATE, Server, watchword


def enter_token(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_visitor_signs_in_with_a_token_and_sees_own_tokens(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window().open("/console/tokens")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    enter_token(page, alice.token)
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    expect(page.get_by_role("link", name="to sign in with")).to_be_visible()
    expect(page.get_by_text(alice.name, exact=True)).to_be_visible()


def test_token_is_kept_nowhere_a_script_can_read(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    opened = window()
    page = opened.open("/")
    enter_token(page, alice.token)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    kept = page.evaluate(
        "() => JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, history.state])"
    )
    assert alice.token not in kept
    assert alice.token not in page.content()
    (cookie,) = opened.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"] in alice.token) == (True, "Strict", False)


def test_rejected_token_shows_the_server_error(window: Windows) -> None:
    opened = window()
    opened.watch.allow("status of 401")
    page = opened.open("/console/sign-in")
    enter_token(page, "not-a-token")
    expect(page.get_by_role("alert")).to_contain_text("token")
    expect(page.get_by_role("alert")).to_contain_text("request ")
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled()


def test_sign_in_leads_to_the_requested_page(console: Console, window: Windows) -> None:
    page = window().open("/console/operations?page=2")
    enter_token(page, console.root.token)
    expect(page.get_by_role("heading", name="Operations")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/console/operations\?page=2$"))


def test_session_ends_when_another_window_revokes_its_token(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    second, _ = console.token(alice.urn, name="second")
    mine = window(alice)
    page = mine.open("/console/tokens?status=live")
    other = window()
    there = other.open("/console/tokens")
    enter_token(there, second)
    there.get_by_role("link", name="to sign in with").click()
    there.get_by_role("button", name="Revoke to sign in with").click()
    there.locator("dialog").get_by_role("button", name="Revoke to sign in with").click()
    expect(there.locator("dialog")).to_have_count(0)
    mine.watch.allow("status of 401")
    page.locator("#filter-status").select_option("all")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("revoked")
    enter_token(page, second)
    expect(page).to_have_url(re.compile(r"/console/tokens\?status=all$"))


def test_sign_out_signs_out_every_page_of_the_browser(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    opened = window(alice)
    page, other = opened.open("/console/tokens"), opened.open("/console/tokens")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_role("link", name="to sign in with")).to_have_count(0)


def test_back_button_after_sign_out_shows_no_data(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window(alice).open("/console/tokens")
    expect(page.get_by_role("link", name="to sign in with")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back(wait_until="commit")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("link", name="to sign in with")).to_have_count(0)
    expect(page.get_by_text(alice.name, exact=True)).to_have_count(0)


def test_sign_in_changes_the_actor_of_every_page_of_the_browser(console: Console, window: Windows) -> None:
    alice, bob = console.person("alice", GENERATE), console.person("bob", GENERATE)
    opened = window(alice)
    page, other = opened.open("/console/tokens"), opened.open("/console/tokens")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    enter_token(page, bob.token)
    expect(other.get_by_text(bob.name, exact=True)).to_be_visible()
    expect(other.get_by_text(alice.name, exact=True)).to_have_count(0)


def test_newcomer_sees_where_a_first_token_comes_from(console: Console, window: Windows) -> None:
    page = window().open("/")
    page.get_by_text("No token yet?").click()
    command = page.locator(".code code").inner_text()
    assert str(console.server.data_dir) in command
    made = watchword(*shlex.split(command)[1:])
    assert made.returncode == 0, made.stderr
    enter_token(page, made.stdout.strip())
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


class TestLocalMode:
    @pytest.fixture
    def local(self, window: Windows, server: Server) -> Window:
        return window(on=server)

    def test_local_mode_sign_in_chooses_an_actor_and_warns_on_every_page(self, local: Window) -> None:
        page = local.open("/")
        expect(page.locator(".warning")).to_contain_text("can act as any actor")
        page.get_by_label("Act as").fill("admin")
        page.get_by_role("button", name="Act as this actor").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        for view in ("Policies", "Operations"):
            page.get_by_role("link", name=view, exact=True).click()
            expect(page.get_by_role("heading", name=view, level=1)).to_be_visible()
            expect(page.get_by_text("Local mode:")).to_be_visible()

    def test_actor_cannot_be_chosen_without_local_mode(self, window: Windows) -> None:
        page = window().open("/")
        expect(page.get_by_label("Access token")).to_be_visible()
        expect(page.get_by_label("Act as")).to_have_count(0)
        expect(page.locator(".warning")).to_have_count(0)

"""The command palette, and tokens that are pasted into fields and addresses."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Windows
from tests.console.test_every_page import NARROW, violations
from tests.console.test_my_tokens import derive
from tests.support.browser import asks, settled
from tests.support.console import Console, Person
from tests.support.server import GENERATE

KEPT = """() => JSON.stringify([location.href, document.title, {...localStorage}, {...sessionStorage}, history.state,
  document.documentElement.outerHTML, [...document.querySelectorAll("input, textarea")].map((field) => field.value)])"""


def palette(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Search and commands")


def paste(page: Page, text: str) -> None:
    page.evaluate(
        """(text) => { const data = new DataTransfer(); data.setData("text", text);
          const event = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
          if (document.activeElement.dispatchEvent(event)) document.execCommand("insertText", false, text); }""",
        text,
    )


def test_leaked_token_is_found_and_revoked_by_keyboard(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    secret, token_id = console.token(owner.urn, by=owner, name="leaked")
    derive(console, Person(owner.urn, secret, token_id), "child")
    opened = window(console.root)
    page = opened.open("/console/policies")
    page.keyboard.press("Control+k")
    expect(palette(page).get_by_role("combobox")).to_be_focused()
    # As it is found in a log, with a line break in it.
    paste(page, f'curl -H "Authorization: Bearer {secret[:50]}\n  {secret[50:]}" https://api.example')
    expect(palette(page)).to_contain_text(
        re.compile(rf"leaked.*live.*{owner.name}.*1 live token derived from it", re.DOTALL)
    )
    assert secret[10:] not in page.evaluate(KEPT)
    assert violations(page) == []
    page.keyboard.press("ArrowDown")
    expect(palette(page).get_by_role("option", name="Revoke leaked…")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    question = page.get_by_role("dialog", name="Revoke leaked?")
    expect(question).to_contain_text("1 other token")
    question.get_by_role("button", name="Revoke leaked").press("Enter")
    expect(page.locator(".notice").filter(has_text="Revoked leaked and 1 token with it")).to_be_visible()
    assert console.server.verify(secret).status_code == 401
    assert secret[-20:] not in page.evaluate(KEPT) + str(opened.watch.requests)
    assert secret[-20:] not in console.server.err.read_text()


def test_token_pasted_into_any_field_is_looked_up_and_removed(console: Console, window: Windows) -> None:
    secret, _ = console.token(console.person("owner").urn, name="mistaken")
    opened = window(console.root)
    page = opened.open()
    fields = {"tokens": "#search", "all-tokens": "#search", "accounts": "#search", "policies": "#search",
              "actors": "#search", "activity": ".filters input", "tokens/new": "#name"}  # fmt: skip
    for address, field in fields.items():
        opened.go(page, f"/console/{address}")
        page.locator(field).first.focus()
        paste(page, f"'{secret}'")
        expect(palette(page)).to_contain_text("mistaken")
        expect(palette(page).get_by_role("option", name="Open mistaken")).to_be_visible()
        assert secret not in page.evaluate(KEPT), address
        page.keyboard.press("Escape")
        expect(palette(page)).to_have_count(0)
        expect(page.locator(field).first).to_be_focused()
        assert page.url.endswith(f"/console/{address}")
    assert secret not in str(opened.watch.requests)


def test_token_in_an_opened_address_is_removed(console: Console, window: Windows) -> None:
    secret, _ = console.token(console.person("owner").urn, name="in a link")
    opened = window(console.root)
    page = opened.open(f"/console/all-tokens?status=live&q={quote('Bearer ' + secret)}")
    expect(palette(page)).to_contain_text("The address contained a token.")
    expect(palette(page)).to_contain_text("in a link")
    assert page.url.endswith("/console/all-tokens?status=live")
    assert [one for one in opened.watch.requests[1:] if secret in one] == []
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="in a link")).to_be_visible()

    visitor = window().open(f"/console/tokens/{secret}")
    expect(visitor.get_by_role("alert")).to_contain_text("The address contained a token.")
    assert secret not in visitor.evaluate(KEPT)
    assert secret[-20:] not in console.server.err.read_text()


def test_unknown_token_is_reported_without_showing_it(console: Console, window: Windows) -> None:
    owner, other = console.person("owner", GENERATE), console.person("other")
    page = window(owner).open("/console/tokens")
    page.keyboard.press("/")
    expect(palette(page).get_by_role("combobox")).to_be_focused()
    paste(page, other.token)
    expect(palette(page)).to_contain_text("No such token.")
    assert other.token[-20:] not in page.evaluate(KEPT)


@pytest.mark.parametrize("width", [1280, pytest.param(NARROW, marks=pytest.mark.soak)])
def test_palette_finds_tokens_people_pages_and_actions(console: Console, window: Windows, width: int) -> None:
    owner = console.person("nightly", GENERATE)
    name = f"Report of {owner.name}"
    _, token_id = console.token(owner.urn, name=name)
    page = window(console.root, width=width).open("/console/activity")
    box = palette(page).get_by_role("combobox")

    def search(text: str) -> None:
        page.keyboard.press("/")
        expect(box).to_be_focused()
        page.keyboard.insert_text(text)

    search(name.upper())
    expect(palette(page).get_by_role("option", name=re.compile(name))).to_have_count(1)
    for wide in (1280, NARROW):
        page.set_viewport_size({"width": wide, "height": 800})
        assert violations(page) == [], wide
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, wide
    page.set_viewport_size({"width": width, "height": 800})
    page.keyboard.press("Escape")
    expect(palette(page)).to_have_count(0)
    search(token_id)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name=name)).to_be_visible()
    settled(page)
    page.keyboard.press("Escape")
    expect(page.locator(".panel")).to_have_count(0)
    search(f"offboard {owner.name}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Offboard {owner.name}", level=1)).to_be_visible()
    settled(page)
    search(owner.name)
    expect(palette(page).get_by_role("option", name=re.compile(name))).to_be_visible()
    expect(palette(page).get_by_role("group").first).to_have_accessible_name("People")
    palette(page).get_by_role("group", name="People").get_by_role("option", name=owner.name).click()
    expect(page.get_by_role("dialog", name=owner.name)).to_be_visible()
    settled(page)
    page.locator(".panel h2").press("Escape")
    search("theme dark")
    page.keyboard.press("Enter")
    expect(page.locator("html[data-theme=dark]")).to_have_count(1)
    search("polic")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Policies", level=1)).to_be_visible()
    assert page.url.endswith("/console/policies")


def test_palette_shows_what_it_found_when_one_search_fails(console: Console, window: Windows) -> None:
    owner = console.person("half", GENERATE)
    opened = window(console.root)
    page = opened.open("/console/tokens")
    opened.watch.allow("ERR_FAILED")
    page.route(
        "**/api/graphql",
        lambda route: route.abort() if asks(route.request, "FindTokens") else route.continue_(),
    )
    page.keyboard.press("/")
    expect(palette(page).get_by_role("combobox")).to_be_focused()
    page.keyboard.insert_text(owner.name)
    expect(palette(page).get_by_role("option", name=owner.name).first).to_be_visible()
    expect(palette(page).get_by_role("alert")).to_contain_text("The server could not be reached.")
    page.unroute("**/api/graphql")
    palette(page).get_by_role("button", name="Retry").click()
    expect(palette(page).get_by_role("group", name="Tokens")).to_be_visible()
    expect(palette(page).get_by_role("alert")).to_have_count(0)


def test_palette_offers_only_what_the_caller_may(console: Console, window: Windows) -> None:
    owner, other = console.person("owner", GENERATE), console.person("stranger")
    console.token(owner.urn, name="mine of stranger")
    page = window(owner).open("/console/tokens")
    page.keyboard.press("/")
    expect(palette(page).get_by_role("option", name="My tokens")).to_be_visible()
    expect(palette(page).get_by_role("option", name="Policies")).to_have_count(0)
    expect(palette(page).get_by_role("combobox")).to_be_focused()
    page.keyboard.insert_text("stranger")
    expect(palette(page).get_by_role("option")).to_have_count(1)
    expect(palette(page).get_by_role("option")).to_contain_text("mine of stranger")
    assert other.urn not in palette(page).inner_text()

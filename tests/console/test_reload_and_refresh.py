"""A page that is reloaded, outdated, offline or shown again after a while; and where Tab leads on it."""

import re

from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Windows
from tests.support.browser import settled
from tests.support.console import Console
from tests.support.server import GENERATE, MANAGE_ALL

MOST_STOPS = 25
SHOW = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
STOP = """() => document.activeElement.matches(".skip-pages") ? "skip"
  : document.activeElement.matches("#next-page, .pager a[rel=next]") ? "next" : "other" """
NOT_FROM_CACHE = """() => performance.getEntriesByType("resource")
  .filter((one) => one.transferSize).map((one) => new URL(one.name).pathname)"""


def ask_for_another_version(route: Route) -> None:
    route.continue_(url=re.sub(r"/assets/\w+/", "/assets/0123456789abcdef/", route.request.url))


def test_warm_reload_loads_only_the_page_and_its_data(console: Console, window: Windows) -> None:
    page = window(console.person("owner", GENERATE), fresh=True).open("/console/tokens")
    assert [one for one in page.evaluate(NOT_FROM_CACHE) if one.endswith("/main.js")]
    page.reload()
    settled(page)
    assert set(page.evaluate(NOT_FROM_CACHE)) <= {"/session", "/api/graphql"}


def test_page_from_before_an_upgrade_asks_to_reload(console: Console, window: Windows) -> None:
    opened = window(console.root)
    page = opened.open("/console/tokens")
    opened.watch.allow("404")
    page.route("**/assets/**", ask_for_another_version)
    page.get_by_role("link", name="Policies").click()
    expect(page.get_by_role("alert")).to_contain_text("The server has a newer version of this page. Reload it.")
    page.unroute("**/assets/**", ask_for_another_version)
    page.get_by_role("button", name="Reload").click()
    expect(page.get_by_role("heading", name="Policies", level=1)).to_be_visible()


def test_page_whose_script_another_version_lacks_offers_to_reload(console: Console, window: Windows) -> None:
    opened = window(console.root)
    page = opened.open("/console/tokens")
    hint = page.get_by_text("The console is still loading.")
    expect(hint).to_have_count(0)
    opened.watch.allow("404")
    page.route("**/main.js", ask_for_another_version)
    page.reload()
    expect(hint).to_be_visible()
    page.unroute("**/main.js", ask_for_another_version)
    page.get_by_role("link", name="reload the page").click()
    expect(page.get_by_role("heading", name="My tokens", level=1)).to_be_visible()


def test_failed_list_is_kept_and_can_be_retried(console: Console, window: Windows) -> None:
    who = console.person("retried", GENERATE)
    opened = window(console.root)
    page = opened.open(f"/console/actors?q={who.name}")
    opened.watch.allow("ERR_INTERNET_DISCONNECTED")
    opened.context.set_offline(True)
    page.locator("#filter-suspended").select_option("1")
    expect(page.get_by_role("alert")).to_contain_text("The server could not be reached.")
    opened.context.set_offline(False)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("#main")).to_be_focused()


def test_page_shown_again_after_a_minute_loads_its_list_again(console: Console, window: Windows) -> None:
    first = console.person("seen", GENERATE)
    opened = window(console.root)
    page = opened.open()
    opened.install_clock(page)
    opened.go(page, f"/console/sessions?actor={first.urn}")
    expect(page.locator("#main")).to_contain_text("No sessions")
    window(first)
    page.evaluate(SHOW, True)
    page.clock.run_for(30_000)
    before = opened.watch.requests.count("POST /api/graphql")
    page.evaluate(SHOW, False)
    page.evaluate(SHOW, True)
    page.clock.run_for(61_000)
    assert opened.watch.requests.count("POST /api/graphql") == before
    page.evaluate(SHOW, False)
    expect(page.locator("tbody tr")).to_have_count(1)

    moment = page.locator("tbody time").first
    moment.focus()
    page.evaluate(SHOW, True)
    page.clock.run_for(61_000)
    with page.expect_response("**/api/graphql"):
        page.evaluate(SHOW, False)
    settled(page)
    expect(moment).to_be_focused()


def test_focus_stays_in_an_open_panel(console: Console, window: Windows) -> None:
    who = console.person("held", GENERATE)
    page = window(console.root).open(f"/console/actors/{who.urn}")
    expect(page.locator(".panel h2")).to_be_focused()
    inside = "() => document.activeElement.closest('.panel') ? document.activeElement.outerHTML : null"
    page.keyboard.press("Shift+Tab")
    last = page.evaluate(inside)
    seen = []
    page.keyboard.press("Tab")
    while (at := page.evaluate(inside)) not in seen:
        assert at
        seen.append(at)
        page.keyboard.press("Tab")
    assert at == seen[0]
    assert last == seen[-1]
    page.keyboard.press("Escape")
    expect(page.locator(".panel")).to_have_count(0)


def stops_to_the_next_page(page: Page) -> int:
    """Press Tab from the start of the page until the link to the next page has the focus."""
    for stops in range(1, 100):
        page.keyboard.press("Tab")
        at = page.evaluate(STOP)
        if at == "skip":
            page.keyboard.press("Enter")
            at = page.evaluate(STOP)
        if at == "next":
            return stops
    raise AssertionError("The link to the next page is not reached.")


def test_next_page_is_reached_in_few_tab_stops(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE, MANAGE_ALL, "VIEW_AUDIT_LOG", "MANAGE_POLICIES")
    for number in range(25):
        console.token(f"urn:li:corpuser:tabbed-{number}")
        console.token(alice.urn)
    page = (opened := window(alice)).open()
    for address in ("/console/tokens", "/console/all-tokens", "/console/activity", "/console/actors"):
        opened.go(page, address)
        expect(page.locator(".pager a").first).to_be_visible()
        assert stops_to_the_next_page(page) < MOST_STOPS, address
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"[?&](page=2|cursor=)"))

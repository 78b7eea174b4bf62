"""Errors are in view; a page that cannot be opened leaves the one before; the next page of a list starts at its top."""

import re

from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Windows
from tests.support.console import Console
from tests.support.server import GENERATE


def fail_graphql(page: Page, operation: str) -> None:
    def answer(route: Route) -> None:
        if operation in (route.request.post_data or ""):
            route.abort()
        else:
            route.fallback()

    page.route("**/api/graphql", answer)


def test_error_of_a_form_is_scrolled_into_view(console: Console, window: Windows) -> None:
    opened = window(console.person("maker", GENERATE))
    opened.watch.allow("ERR_FAILED")
    page = opened.open("/console/tokens/new")
    page.set_viewport_size({"width": 1280, "height": 400})
    page.get_by_label("None").check()
    fail_graphql(page, "mutation Create(")
    page.get_by_label("Name", exact=True).fill("unsent")
    page.get_by_label("Name", exact=True).press("Enter")
    error = page.locator(".form-error").get_by_role("alert")
    expect(error).to_contain_text("The server could not be reached")
    expect(error).to_be_in_viewport(ratio=1)


def test_page_that_cannot_be_opened_leaves_the_page_before(console: Console, window: Windows) -> None:
    opened = window(console.root)
    opened.watch.allow("ERR_FAILED")
    page = opened.open("/console/actors?q=nobody-at-all")
    fail_graphql(page, "listPrivileges")
    for _ in range(2):
        page.get_by_role("link", name="Policies").click()
        problem = page.get_by_role("group", name="Problem")
        expect(problem).to_contain_text("/console/policies could not be opened.")
        expect(problem).to_be_focused()
        expect(problem).to_be_in_viewport(ratio=1)
        expect(page).to_have_url(re.compile(r"/console/actors\?q=nobody-at-all$"))
        expect(page.get_by_role("heading", name="Actors", exact=True)).to_be_visible()
        views = page.get_by_role("navigation", name="Views")
        expect(views.get_by_role("link", name="Actors")).to_have_attribute("aria-current", "page")
        expect(page).to_have_title(re.compile("^Actors"))
    # The page that stays works.
    page.get_by_role("searchbox").fill("")
    page.get_by_role("searchbox").press("Enter")
    expect(problem).to_have_count(0)
    expect(page.get_by_role("table", name="Actors")).to_be_visible()

    page.get_by_role("link", name="Policies").click()
    expect(problem).to_be_visible()
    page.unroute_all()
    problem.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", name="Policies", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("/console/policies$"))
    page.go_back()
    expect(page.get_by_role("heading", name="Actors", exact=True)).to_be_visible()


def test_going_back_to_a_page_that_cannot_be_opened_stays(console: Console, window: Windows) -> None:
    opened = window(console.root)
    opened.watch.allow("ERR_FAILED")
    page = opened.open("/console/policies")
    page.get_by_role("link", name="Actors", exact=True).click()
    expect(page.get_by_role("table", name="Actors")).to_be_visible()
    fail_graphql(page, "listPrivileges")
    page.evaluate("() => history.back()")
    expect(page.get_by_role("group", name="Problem")).to_contain_text("/console/policies could not be opened.")
    expect(page).to_have_url(re.compile("/console/actors$"))
    expect(page.get_by_role("heading", name="Actors", exact=True)).to_be_visible()
    page.unroute_all()
    page.evaluate("() => history.back()")
    expect(page.get_by_role("heading", name="Policies", exact=True)).to_be_visible()


def test_next_page_of_a_list_starts_at_its_top(console: Console, window: Windows) -> None:
    owner = console.person("many", GENERATE)
    for number in range(25):
        console.token(owner.urn, name=f"token {number:02}")
    page = window(owner).open("/console/tokens?sort=name&order=ASCENDING")
    page.set_viewport_size({"width": 1280, "height": 500})
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="token 20")).to_be_in_viewport()
    page.get_by_role("link", name="Previous page").click()
    expect(page.get_by_role("link", name="token 00")).to_be_in_viewport()

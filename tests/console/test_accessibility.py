"""Every page passes axe in both themes, fits a phone screen and loads less than 100 kB. axe is injected through the
debugging protocol (`page.evaluate`), which bypasses the content policy: the page is tested with its policy.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.console import Console
from tests.support.furniture import VIEWS, furnish

MOST_BYTES = 100_000
NARROW = 360


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with Console.on(tmp_path_factory.mktemp("furnished")) as console:
        furnish(console)
        yield console


def open_view(opened: Window, console: Console, view: str) -> Page:
    return opened.open(VIEWS[view](console))


@functools.cache
def axe() -> Axe:
    return Axe()


def violations(page: Page) -> list[str]:
    found: Any = axe().run(page).response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("view", VIEWS)
def test_page_passes_axe_in_both_themes_and_fits_the_window(furnished: Console, window: Windows, view: str) -> None:
    for theme, width in (("light", 1280), ("dark", NARROW)):
        page = open_view(window(furnished.root, on=furnished, theme=theme, width=width), furnished, view)
        assert violations(page) == [], (theme, width)
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, (theme, width)


def test_dialog_passes_axe(furnished: Console, window: Windows) -> None:
    for theme in ("light", "dark"):
        page = open_view(window(furnished.root, on=furnished, theme=theme), furnished, "a token")
        page.get_by_role("button", name="Revoke ").click()
        expect(page.locator("dialog")).to_be_visible()
        assert violations(page) == [], theme


def test_sign_in_page_passes_axe(console: Console, window: Windows) -> None:
    for theme, width in (("light", 1280), ("dark", NARROW)):
        page = window(on=console, theme=theme, width=width).open("/console/sign-in")
        assert violations(page) == [], theme
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0


def test_axe_reports_a_missing_label(console: Console, window: Windows) -> None:
    page = window(on=console).open("/console/sign-in")
    page.evaluate("() => document.querySelector('label').remove()")
    assert [one for one in violations(page) if one.startswith("label:")]


@pytest.mark.parametrize("view", VIEWS)
def test_first_view_loads_less_than_100_kb(furnished: Console, window: Windows, view: str) -> None:
    opened = window(furnished.root, on=furnished)
    page = opened.open()
    transferred: dict[str, int] = {}
    wire = opened.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.on("Network.loadingFinished", lambda told: transferred.update({told["requestId"]: told["encodedDataLength"]}))
    opened.go(page, VIEWS[view](furnished))
    page.wait_for_load_state("networkidle")
    assert len(transferred) > 5
    assert 0 < sum(transferred.values()) < MOST_BYTES


def test_relative_times_show_exact_local_and_utc_time(furnished: Console, window: Windows) -> None:
    opened = window(furnished.root, on=furnished)
    for view in ("my tokens", "all tokens", "operations", "activity"):
        exact = (
            open_view(opened, furnished, view)
            .locator("time[data-moment]")
            .evaluate_all("(all) => all.map((one) => one.title)")
        )
        assert exact, view
        pattern = r"\d+ \w+ \d{4}, [\d:]+ CES?T · \d{4}-\d\d-\d\d [\d:.]+ UTC"
        assert [one for one in exact if not re.fullmatch(pattern, one)] == [], view

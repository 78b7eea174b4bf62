"""Every page of the console, opened once and resized: axe, overflow, the rail, weight. axe is injected through the
debugging protocol (`page.evaluate`), which bypasses the content policy: the page is tested with its policy.
"""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.console import Console
from tests.support.furniture import VIEWS, furnish
from tests.support.pages import ROOT
from tests.support.profiles import Theme

MOST_BYTES = 120_000
NARROW = 360
WIDTHS = (NARROW, 768, 1280, 1920)
THEMES: tuple[Theme, ...] = ("light", "dark")
COMBINATIONS: tuple[tuple[int, Theme], ...] = ((1280, "light"), (NARROW, "dark"))
"""axe takes a second, so outside the soak each view is checked in one of these, the next view in the other."""
OVERLAPS = """() => {
  const box = (node) => node.getBoundingClientRect();
  const over = (a, b) => a.width && b.width && a.left < b.right - 1 && a.right > b.left + 1 && a.top < b.bottom - 1
    && a.bottom > b.top + 1;
  const rail = box(document.getElementById("rail"));
  const shown = (node) => !node.closest(".panel, .unseen, .skip-pages") && node.checkVisibility();
  const links = [...document.querySelectorAll("#rail a, #rail button")].filter(shown);
  const words = [...document.querySelectorAll("#rail nav span")].filter(shown);
  return [
    ...[...document.querySelectorAll("#main *")].filter((node) => shown(node) && over(box(node), rail)),
    ...links.filter((node, at) => links.slice(0, at).some((other) => over(box(node), box(other)))),
    ...links.filter((node) => box(node).left < rail.left - 1 || box(node).right > rail.right + 1),
    ...words.filter((node) => node.scrollWidth > node.clientWidth),
  ].map((node) => node.outerHTML.slice(0, 100));
}"""


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with Console.on(tmp_path_factory.mktemp("furnished")) as console:
        furnish(console)
        yield console


def open_view(opened: Window, console: Console, view: str) -> Page:
    return opened.open(VIEWS[view](console))


RUN_AXE = """async () => {
  const { violations } = await axe.run({ resultTypes: ["violations"] });
  return violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.target} ${node.failureSummary}`));
}"""


def violations(page: Page) -> list[str]:
    if not page.evaluate("() => typeof axe === 'object'"):
        page.evaluate(AXE_SCRIPT)
    found: list[str] = page.evaluate(RUN_AXE)
    return found


def check_layout(page: Page, width: int, theme: Theme) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, width
    assert page.evaluate(OVERLAPS) == [], width


def test_every_route_has_a_view_here(furnished: Console) -> None:
    text = (ROOT / "src/watchword/console/main.js").read_text()
    patterns = [
        re.compile("^" + re.sub(r"/:\w+\?", "(/[^/]+)?", pattern).replace("/:urn", "/[^/]+") + "/?$")
        for pattern in re.findall(r'^route\("[\w-]+", "([^"]+)"', text, re.MULTILINE)
    ]
    addresses = [address(furnished).partition("?")[0] for address in VIEWS.values()] + ["/console/sign-in"]
    assert len(patterns) > 10
    assert [one.pattern for one in patterns if not any(map(one.match, addresses))] == []


@pytest.mark.parametrize("view", VIEWS)
def test_page_passes_axe_fits_the_window_and_is_light(furnished: Console, window: Windows, view: str) -> None:
    opened = window(furnished.root, on=furnished)
    page = opened.open()
    transferred: dict[str, int] = {}
    wire = opened.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    wire.on("Network.loadingFinished", lambda told: transferred.update({told["requestId"]: told["encodedDataLength"]}))
    opened.go(page, VIEWS[view](furnished))
    page.wait_for_load_state("networkidle")
    assert len(transferred) > 5
    assert 0 < sum(transferred.values()) < MOST_BYTES
    with_axe = COMBINATIONS[list(VIEWS).index(view) % 2]
    for width, theme in COMBINATIONS:
        check_layout(page, width, theme)
        if (width, theme) == with_axe:
            assert violations(page) == [], (theme, width)


@pytest.mark.soak
@pytest.mark.parametrize("view", VIEWS)
def test_page_passes_axe_at_every_width_in_both_themes(furnished: Console, window: Windows, view: str) -> None:
    page = open_view(window(furnished.root, on=furnished), furnished, view)
    for theme in THEMES:
        for width in WIDTHS:
            check_layout(page, width, theme)
            assert violations(page) == [], (theme, width)


def test_dialog_passes_axe(furnished: Console, window: Windows) -> None:
    page = open_view(window(furnished.root, on=furnished), furnished, "a token")
    page.get_by_role("button", name="Revoke ").click()
    expect(page.locator("dialog")).to_be_visible()
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert violations(page) == [], theme


def test_sign_in_page_passes_axe(console: Console, window: Windows) -> None:
    page = window(on=console).open("/console/sign-in")
    for width, theme in COMBINATIONS:
        check_layout(page, width, theme)
        assert violations(page) == [], (theme, width)


def test_axe_reports_a_missing_label(console: Console, window: Windows) -> None:
    page = window(on=console).open("/console/sign-in")
    page.evaluate("() => document.querySelector('label').remove()")
    assert [one for one in violations(page) if one.startswith("label:")]


def test_views_are_a_menu_on_a_phone(furnished: Console, window: Windows) -> None:
    page = window(furnished.root, on=furnished, width=NARROW).open("/console/tokens")
    menu = page.get_by_role("button", name="Menu")
    expect(page.get_by_role("link", name="Policies")).to_be_hidden()
    menu.press("Enter")
    expect(menu).to_have_attribute("aria-expanded", "true")
    check_layout(page, NARROW, "light")
    assert violations(page) == []
    page.get_by_role("link", name="Policies").press("Escape")
    expect(menu).to_be_focused()
    expect(menu).to_have_attribute("aria-expanded", "false")
    menu.press("Enter")
    page.get_by_role("link", name="Policies").click()
    expect(page.get_by_role("heading", name="Policies", level=1)).to_be_visible()
    expect(menu).to_have_attribute("aria-expanded", "false")


def test_every_link_of_the_rail_has_its_own_icon(furnished: Console, window: Windows) -> None:
    page = window(furnished.root, on=furnished).open("/console/tokens")
    drawn = page.locator("#rail .icon").evaluate_all("(all) => all.map((one) => one.innerHTML)")
    assert len(set(drawn)) == len(drawn) > 10


def test_print_has_the_page_alone_with_absolute_times(furnished: Console, window: Windows) -> None:
    page = open_view(window(furnished.root, on=furnished), furnished, "all tokens")
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator("#rail")).to_be_hidden()
    expect(page.locator(".table-box")).to_be_visible()
    moment = page.locator("table time").first
    written, size = moment.evaluate(
        "(node) => [getComputedStyle(node, '::after').content, getComputedStyle(node).fontSize]"
    )
    assert re.search(r"\d+ \w+ \d{4}, [\d:]+ CES?T · \d{4}-\d\d-\d\d [\d:]+ UTC", written)
    assert size == "0px"
    assert page.evaluate("() => getComputedStyle(document.body).color") == "rgb(28, 29, 26)"


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

"""Tests that use one browser profile after the other do not notice each other."""

import re

from playwright.sync_api import Browser

from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.console import Console
from tests.support.pages import ROOT
from tests.support.profiles import MOST_IDLE, ProfilePool

LEAVE = """async () => {
  localStorage.left = sessionStorage.left = window.name = window.left = "left";
  document.cookie = "left=left";
  history.pushState("left", "", "/console/sign-in?left");
  await (await caches.open("left")).put("/left", new Response("left"));
  await new Promise((done) => { indexedDB.open("left").onsuccess = done; });
}"""
FIND = """async () => JSON.stringify([
  document.cookie, { ...localStorage }, { ...sessionStorage }, name, window.left ?? null, history.state,
  history.length, location.href, await caches.keys(), await indexedDB.databases(), navigator.onLine,
  (await navigator.permissions.query({ name: "geolocation" })).state,
])"""
STAYS_IN_A_PROFILE = re.compile(r"clock\.install|context\.(add_init_script|expose_|set_geolocation|set_extra|on\()")


def test_reused_profile_shows_nothing_of_the_test_before(browser: Browser, console: Console) -> None:
    pool = ProfilePool(browser)
    unused = Window(browser, console)
    expected = unused.open("/console/sign-in").evaluate(FIND)
    unused.close()

    first = Window(browser, console, pool=pool)
    first.sign_in(console.root.token)
    page = first.open("/console/tokens")
    page.evaluate(LEAVE)
    first.context.grant_permissions(["geolocation"])
    first.context.route("**/session", lambda route: route.abort())
    first.watch.allow("went wrong|ERR_")
    page.evaluate("() => console.error('went wrong')")
    other = first.open("/console/tokens?q=left")
    first.context.set_offline(True)
    first.close()
    assert page.is_closed()
    assert other.is_closed()

    second = Window(browser, console, pool=pool)
    assert second.context is first.context
    opened = second.open("/console/sign-in")
    assert opened.evaluate(FIND) == expected
    assert second.context.cookies() == []
    opened.evaluate("() => console.error('again')")
    opened.evaluate("() => 0")  # lets the browser report
    assert [fault.partition(" (")[0] for fault in second.watch.faults] == ["console: again"]
    assert "again" not in str(first.watch.faults)
    assert not [one for one in second.watch.requests if "q=left" in one]
    second.watch.allow("again")
    second.close()


def test_two_windows_of_one_test_do_not_share_a_profile(browser: Browser, console: Console) -> None:
    pool = ProfilePool(browser)
    windows = [Window(browser, console, pool=pool) for _ in range(MOST_IDLE + 1)]
    assert len({id(one.context) for one in windows}) == len(windows)
    before = len(browser.contexts)
    for one in windows:
        one.close()
    assert len(browser.contexts) == before - 1


def test_window_with_a_clock_or_other_options_does_not_return_to_the_pool(browser: Browser, console: Console) -> None:
    pool = ProfilePool(browser)
    with_clock = Window(browser, console, pool=pool)
    with_clock.install_clock(with_clock.open("/console/sign-in"))
    dark, with_option = Window(browser, console, "dark", pool=pool), Window(browser, console, pool=pool, has_touch=True)
    contexts = [with_clock.context, dark.context, with_option.context]
    for one in (with_clock, dark, with_option):
        one.close()
    light = Window(browser, console, pool=pool)
    assert light.context not in contexts
    light.close()


def test_console_tests_add_nothing_that_stays_in_a_profile() -> None:
    """A clock, an init script and a binding cannot be removed; `Window.install_clock` gives the profile up."""
    tests = [path for path in (ROOT / "tests/console").glob("test_*.py") if path.name != "test_profiles.py"]
    assert [path.name for path in tests if STAYS_IN_A_PROFILE.search(path.read_text(encoding="utf-8"))] == []


def test_windows_fixture_reuses_profiles(console: Console, window: Windows, profiles: ProfilePool) -> None:
    used = Window(profiles.browser, console, pool=profiles)
    used.close()
    assert window().context is used.context
    assert window(fresh=True).context is not used.context

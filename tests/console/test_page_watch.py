"""The page watch reports each forbidden thing that a page does."""

import pytest
from playwright.sync_api import Page

from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.ports import free_port
from tests.support.waiting import until


@pytest.fixture
def watched(window: Windows) -> tuple[Window, Page]:
    opened = window()
    return opened, opened.open("/")


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("console.error('that went wrong')", "console: that went wrong"),
        ("setTimeout(() => { throw new TypeError('nobody caught it') })", "uncaught: TypeError: nobody caught it"),
        ("Promise.reject(new Error('nor this'))", "uncaught: Error: nor this"),
        ("document.body.setAttribute('style', 'color: red')", "policy breach: style-src-attr"),
        ("try { document.body.innerHTML = '<b>' } catch { }", "policy breach: require-trusted-types-for"),
    ],
)
def test_watch_reports_forbidden_page_behaviour(watched: tuple[Window, Page], script: str, seen: str) -> None:
    opened, page = watched
    assert opened.watch.faults == []
    page.evaluate(f"() => {{ {script} }}")
    until(lambda: _saw(page, opened, seen), seen)
    opened.watch.allow("")


def test_watch_reports_blocked_requests_to_other_origins(watched: tuple[Window, Page]) -> None:
    opened, page = watched
    page.evaluate(f"() => fetch('http://127.0.0.1:{free_port()}/').catch(() => null)")
    until(lambda: _saw(page, opened, "policy breach: connect-src"), "the watch reports it")
    opened.watch.allow("")


def _saw(page: Page, opened: Window, seen: str) -> bool:
    page.evaluate("() => 0")  # lets the browser report
    return any(fault.startswith(seen) for fault in opened.watch.faults)

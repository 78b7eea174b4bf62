"""The watch over pages itself: each thing a page must never do is seen."""

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
    ("deed", "seen"),
    [
        ("console.error('that went wrong')", "console: that went wrong"),
        ("setTimeout(() => { throw new TypeError('nobody caught it') })", "uncaught: TypeError: nobody caught it"),
        ("Promise.reject(new Error('nor this'))", "uncaught: Error: nor this"),
        ("document.body.setAttribute('style', 'color: red')", "policy breach: style-src-attr"),
        ("try { document.body.innerHTML = '<b>' } catch { }", "policy breach: require-trusted-types-for"),
    ],
)
def test_what_a_page_must_never_do_is_seen(watched: tuple[Window, Page], deed: str, seen: str) -> None:
    opened, page = watched
    assert opened.watch.faults == []
    page.evaluate(f"() => {{ {deed} }}")
    until(lambda: _saw(page, opened, seen), seen)
    opened.watch.allow("")


def test_a_request_to_another_origin_is_seen_even_if_the_policy_refused_it(watched: tuple[Window, Page]) -> None:
    opened, page = watched
    page.evaluate(f"() => fetch('http://127.0.0.1:{free_port()}/').catch(() => null)")
    until(lambda: _saw(page, opened, "policy breach: connect-src"), "it is seen")
    opened.watch.allow("")


def _saw(page: Page, opened: Window, seen: str) -> bool:
    page.evaluate("() => 0")  # lets the browser tell what it has to tell
    return any(fault.startswith(seen) for fault in opened.watch.faults)

"""Fixtures for console tests: a real browser and a real server for the tests of a process, own users per test.
`window(person)` is a browser profile in which that person is signed in; every page in it is watched.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Window, chromium
from tests.support.console import Console, Person
from tests.support.profiles import ONE_RENDERER, ProfilePool
from tests.support.server import Server


class Windows(Protocol):
    def __call__(
        self, person: Person | None = None, *, on: Console | Server | None = None, fresh: bool = False, **how: Any
    ) -> Window:
        """`fresh`: a new profile, with empty caches. `how`: theme, width and other options of a browser context."""


_browsers: list[tuple[Browser, ProfilePool]] = []
_closing = ExitStack()


@pytest.fixture
def browser() -> Browser:
    """Starting one takes a second of processor time, so tests that follow each other share it."""
    if _browsers and not _browsers[0][0].is_connected():
        _close_browser()
    if not _browsers:
        started = _closing.enter_context(chromium(ONE_RENDERER))
        _browsers.append((started, ProfilePool(started)))
    return _browsers[0][0]


@pytest.fixture
def profiles(browser: Browser) -> ProfilePool:
    return _browsers[0][1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser before a test that does not use it: while it runs, this thread has a running event loop."""
    try:
        yield
    finally:
        if "browser" not in getattr(nextitem, "fixturenames", ()):
            _close_browser()


def _close_browser() -> None:
    _browsers.clear()
    _closing.close()


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Run without local mode, as in production; the tests of a process share it."""
    with Console.on(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def window(browser: Browser, profiles: ProfilePool, console: Console) -> Iterator[Windows]:
    made: list[Window] = []

    def open_window(
        person: Person | None = None, *, on: Console | Server | None = None, fresh: bool = False, **how: Any
    ) -> Window:
        opened = Window(browser, on or console, pool=None if fresh else profiles, **how)
        made.append(opened)
        if person is not None:
            opened.sign_in(person.token)
        return opened

    yield open_window
    for one in made:
        one.close()

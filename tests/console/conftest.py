"""Fixtures for console tests: a real browser per module, a real server per run, own users per test. `window(person)` is
a browser profile in which that person is signed in; every page in it is watched.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Window, chromium
from tests.support.console import Console, Person


class Windows(Protocol):
    def __call__(self, person: Person | None = None, *, on: Console | None = None, **how: Any) -> Window:
        """`how`: theme, width and other options of a browser context."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Run without local mode, as in production; the tests of a process share it."""
    with Console.on(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def window(browser: Browser, console: Console) -> Iterator[Windows]:
    made: list[Window] = []

    def open_window(person: Person | None = None, *, on: Console | None = None, **how: Any) -> Window:
        opened = Window(browser, on or console, **how)
        made.append(opened)
        if person is not None:
            opened.sign_in(person.token)
        return opened

    yield open_window
    for one in made:
        one.close()

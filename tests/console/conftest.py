"""The console in a real browser, on a real server: one browser a module, one server a run, people of a test's own.

`window(person)` is a browser profile in which that person is signed in; every page of it is watched.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Window, chromium
from tests.support.console import Console, Person


class Windows(Protocol):
    def __call__(self, person: Person | None = None, *, on: Console | None = None, **how: Any) -> Window:
        """`how`: theme, width, and whatever a browser context takes."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Without local mode, as in production; shared by the tests of a process."""
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

"""Lists longer than a page, walked to their end. A walk says which page comes next; a client fetches it.

Most pages are counted off from the start of the list, and the list may change meanwhile. What was there all the time
is given just once, whatever else comes and goes: each page has to begin with something already given, which proves
that nothing slipped past in between; otherwise the walk steps back. What comes again is passed over. For this the
order must be one that stays, as every order does but that by last use; a list that never comes to rest is walked
without this care after so many steps back.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from watchword.client.records import Json, record
from watchword.client.wire import ApiRequest

T = TypeVar("T")
P = TypeVar("P")
PAGE_SIZE = 1_000
MOST_STEPS_BACK = 100


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """Some of a list, and how many there are in all."""

    items: tuple[T, ...]
    total: int


def page_of(kind: Any, found: Json, name: str) -> ResultPage[Any]:
    """A page of such records, from an answer that has them under this name."""
    return ResultPage(tuple(record(kind, item) for item in found[name]), found["total"])


@dataclass(frozen=True, slots=True)
class Stretch(Generic[T]):
    """Some of a list, and where it goes on; None at its end."""

    items: tuple[T, ...]
    cursor: str | None


class Walk(ABC, Generic[P, T]):
    following: ApiRequest[P] | None
    pause: float = 0.0
    """Seconds to wait before each page but the first."""

    @abstractmethod
    def take(self, page: P) -> list[T]:
        """What the page adds to what was given before. Then `following` is the next call, or None at the end."""


class Paged(Walk[ResultPage[T], T]):
    def __init__(
        self, fetch: Callable[[int, int], ApiRequest[ResultPage[T]]], key: Callable[[T], str], page_size: int
    ) -> None:
        """`fetch` makes the call for (start, count); `key` is what tells two items apart."""
        if page_size < 2:
            raise ValueError("page_size must be 2 or more.")
        self._fetch = fetch
        self._key = key
        self._size = page_size
        self._start = 0
        self._step = page_size
        self._steps_back = 0
        self._given: set[str] = set()
        self.following = fetch(0, page_size)

    def take(self, page: ResultPage[T]) -> list[T]:
        if self._may_have_missed(page) and self._steps_back < MOST_STEPS_BACK:
            self._go_to(max(0, self._start - self._step))
            self._steps_back += 1
            self._step *= 2
            return []
        self._step = self._size
        new = [item for item in page.items if self._key(item) not in self._given]
        self._given.update(map(self._key, new))
        if len(page.items) < self._size:
            self.following = None
        else:
            self._go_to(self._start + len(page.items) - 1)
        return new

    def _may_have_missed(self, page: ResultPage[T]) -> bool:
        return self._start > 0 and not (page.items and self._key(page.items[0]) in self._given)

    def _go_to(self, start: int) -> None:
        self._start = start
        self.following = self._fetch(start, self._size)


class Cursored(Walk[Stretch[T], T]):
    def __init__(self, fetch: Callable[[str | None], ApiRequest[Stretch[T]]]) -> None:
        self._fetch = fetch
        self.following = fetch(None)

    def take(self, page: Stretch[T]) -> list[T]:
        self.following = None if page.cursor is None else self._fetch(page.cursor)
        return list(page.items)


class Watched(Walk[T, T]):
    """One thing, looked at again and again until it is over; what is over is given too."""

    def __init__(self, look: ApiRequest[T], is_over: Callable[[T], bool], every: float) -> None:
        if not every > 0:
            raise ValueError("every must be more than 0 seconds.")
        self._is_over = is_over
        self.pause = every
        self.following = look

    def take(self, page: T) -> list[T]:
        if self._is_over(page):
            self.following = None
        return [page]

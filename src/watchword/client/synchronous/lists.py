# Generated. Change asynchronous/lists.py, then run: make reference
"""Lists that take several requests."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Self, TypeVar

from watchword.client.requests import ResultPage

T = TypeVar("T")
MAX_STEPS_BACK = 100


class Results(Generic[T]):
    """An iterator over the rows of a list. A page is requested when its first row is needed."""

    def __init__(self, pages: Iterator[Sequence[T]]) -> None:
        self._pages = pages
        self._rows = self._each_row()

    def pages(self) -> Iterator[Sequence[T]]:
        """Iterate over pages instead of rows. One request gives at most one page."""
        return self._pages

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return next(self._rows)

    def _each_row(self) -> Iterator[T]:
        for page in self._pages:
            yield from page


def pages_by_offset(
    fetch: Callable[[int, int], ResultPage[T]], key: Callable[[T], str], page_size: int
) -> Iterator[Sequence[T]]:
    """List by offset while others may change the list. Items that stay in the list are given exactly once.

    Each page starts with the last item of the page before. If it does not, items before the offset were removed, and
    the listing steps back. Items given before are skipped. Every order stays the same meanwhile, except the order by
    last use. After 100 steps back the listing continues without this check, so that it ends.

    `fetch` gets the page at (start, count); `key` identifies an item.
    """
    if page_size < 2:
        raise ValueError("page_size must be 2 or more.")
    start, step, steps_back = 0, page_size, 0
    given: set[str] = set()
    is_last = False
    while not is_last:
        page = fetch(start, page_size)
        may_have_missed = start > 0 and not (page.items and key(page.items[0]) in given)
        if may_have_missed and steps_back < MAX_STEPS_BACK:
            start = max(0, start - step)
            steps_back, step = steps_back + 1, step * 2
            continue
        new = [item for item in page.items if key(item) not in given]
        given.update(map(key, new))
        start, step = start + len(page.items) - 1, page_size
        is_last = len(page.items) < page_size
        if new:
            yield new


def pages_by_cursor(
    fetch: Callable[[str | None], tuple[Sequence[T], str | None]],
) -> Iterator[Sequence[T]]:
    """Each answer has a cursor to the next page."""
    cursor = None
    is_first = True
    while is_first or cursor is not None:
        page, cursor = fetch(cursor)
        is_first = False
        if page:
            yield page

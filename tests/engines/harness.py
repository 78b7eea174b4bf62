"""Helpers for the search engine contract tests."""

import json
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import pytest

from tests.support.engines import IndexLocation, Source
from tests.support.waiting import SECONDS
from watchword.basics.errors import Fault
from watchword.index.engine import ClusterEngine, Engine, Pace, TaskId, TaskStatus
from watchword.index.indices import Row

T = TypeVar("T")

UNTIL = 1_767_225_600_000
TAG = "watchword-test"
QUICK = Pace(TAG)
SLOW = Pace(TAG, batch=5, rate=20.0)
Rows = dict[str, Source]


class Run(Protocol):
    def __call__(self, coro: Coroutine[Any, Any, T], /) -> T: ...


def row(number: int, at: Any = UNTIL) -> Source:
    return {"urn": f"urn:li:dataset:{number}", "value": number, "timestampMillis": at}


def old(count: int, first: int = 0) -> Rows:
    """The newest of them is exactly at the cutoff."""
    return {f"old-{n}": row(n, UNTIL - n) for n in range(first, first + count)}


def young(count: int, first: int = 0) -> Rows:
    return {f"young-{n}": row(n, UNTIL + 1 + n) for n in range(first, first + count)}


def timeless(count: int) -> Rows:
    return {f"timeless-{n}": {"urn": f"urn:li:dataset:{n}", "value": n} for n in range(count)}


def as_rows(rows: Mapping[str, Source]) -> list[Row]:
    return [Row(json.dumps(source).encode(), row_id) for row_id, source in rows.items()]


def is_old(source: Source) -> bool:
    at = source.get("timestampMillis")
    return isinstance(at, int | float) and not isinstance(at, bool) and at <= UNTIL


def staying(rows: Mapping[str, Source]) -> Rows:
    return {row_id: source for row_id, source in rows.items() if not is_old(source)}


class EngineHarness:
    def __init__(self, run: Run, engine: Engine, place: IndexLocation) -> None:
        self.run = run
        self.engine = engine
        self.place = place

    def index(self, word: str, rows: Mapping[str, Source] | None = None) -> str:
        """Create an index with these rows."""
        name = self.place.name(word)
        self.run(self.engine.make(name))
        if rows:
            self.write(name, rows)
        return name

    def write(self, index: str, rows: Mapping[str, Source]) -> None:
        self.run(self.engine.write(index, as_rows(rows)))

    def status(self, task: TaskId) -> TaskStatus:
        status = self.run(self.engine.task(task))
        assert status is not None, f"{task} is not known"
        return status

    def over(self, task: TaskId) -> TaskStatus:
        """Wait until the task ends, successfully or not."""
        return self.until(task, lambda status: status.completed, "it is over")

    def ended(self, task: TaskId) -> TaskStatus:
        """Wait until the task ends successfully."""
        status = self.over(task)
        assert not status.failed, status
        return status

    def until(
        self, task: TaskId, true: Callable[[TaskStatus], bool], what: str, seconds: float = SECONDS
    ) -> TaskStatus:
        deadline = time.monotonic() + seconds
        while not true(status := self.status(task)):
            assert time.monotonic() < deadline, f"still not so after {seconds:g} seconds: {what}; {status}"
            time.sleep(0.01)
        return status

    def deleted(self, index: str, cutoff: int, keep_last: int) -> int:
        """Delete page after page; returns the number of deleted rows."""
        rows, after = 0, None
        while True:
            page = self.run(self.engine.deletion_page(index, cutoff, keep_last, after))
            if page.rows is not None:
                task = self.run(self.engine.start_delete(index, cutoff, QUICK, page))
                rows += self.ended(task).counters.deleted
            if page.after is None:
                return rows
            after = page.after

    def rows(self, name: str) -> Rows:
        return self.place.rows(name)

    def concrete(self, name: str) -> str | None:
        resolved = self.run(self.engine.resolve(name))
        return None if resolved is None else resolved.concrete

    def refused(self, work: Coroutine[Any, Any, Any]) -> Fault:
        with pytest.raises(Fault) as caught:
            self.run(work)
        return caught.value


class ClusterHarness(EngineHarness):
    engine: ClusterEngine

    def __init__(self, run: Run, engine: ClusterEngine, place: IndexLocation) -> None:
        super().__init__(run, engine, place)

    def copy_of(self, source: str, word: str = "copy") -> str:
        """Create an empty index like the source."""
        target = self.place.name(word)
        self.run(self.engine.make_like(source, target))
        return target

    def copied(self, source: str, word: str = "copy") -> str:
        """Copy the rows that stay."""
        target = self.copy_of(source, word)
        self.ended(self.run(self.engine.start_copy(source, target, UNTIL, QUICK)))
        return target

    def caught_up(
        self, source: str, target: str, since: tuple[int, ...], *, overwrite: bool = False
    ) -> list[TaskStatus]:
        tasks = self.run(self.engine.start_catch_up(source, target, UNTIL, since, QUICK, overwrite=overwrite))
        assert tasks
        return [self.ended(task) for task in tasks]

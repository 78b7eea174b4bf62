"""Long work as it goes on: a bar at a terminal; elsewhere a line for each state, and one from time to time.

Whoever stops watching stops nothing: the work goes on in the server, and is picked up again by its id.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from watchword.cli.show import console, on_terminal, say
from watchword.cli.text import one_line
from watchword.domain.errors import OperatorError

if TYPE_CHECKING:
    from watchword.client import Client, OperationInfo, TaskInfo

T = TypeVar("T")
BETWEEN_LOOKS = 0.5
BETWEEN_LINES = 10.0
STATE_WIDTH, BAR_WIDTH, PERCENT_WIDTH = 9, 8, 6
PATIENCE = 120.0
"""Seconds that a server may be away, as it is when it is started anew."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How far it is, in rows."""

    state: str
    percent: float
    done: int
    total: int
    rate: float | None
    note: str | None = None

    @property
    def left(self) -> str | None:
        """By the rate, because the clocks of two machines may differ."""
        if not self.rate or self.done >= self.total:
            return None
        return span((self.total - self.done) / self.rate)

    @property
    def parts(self) -> Iterator[str]:
        if self.total:
            yield f"{self.done:,} of {self.total:,} rows"
        if self.rate is not None:
            yield f"{self.rate:,.0f} rows/s"
        if self.left is not None:
            yield f"{self.left} left"


def span(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def of_operation(operation: "OperationInfo") -> Seen:
    return Seen(
        state=operation.state,
        percent=operation.percent,
        done=operation.rows_done,
        total=operation.rows_to_do,
        rate=None if operation.is_over else operation.rows_per_second,
        note=operation.note,
    )


def of_task(task: "TaskInfo") -> Seen:
    state = ("FAILED" if task.failed else "DONE") if task.completed else "RUNNING"
    done, total, seconds = task.status.done, task.status.total, task.run_time_nanos / 1e9
    rate = done / seconds if done and seconds and not task.completed else None
    percent = 100.0 if state == "DONE" else done * 100 / total if total else 0.0
    return Seen(state, percent, done, total, rate)


def watch_operation(client: "Client", operation_id: str) -> "OperationInfo":
    """Show it until it is over; returns it as it is then."""
    with _can_be_left(operation_id):
        return _shown(_patiently(lambda: client.watch_operation(operation_id, BETWEEN_LOOKS)), of_operation)


def watch_task(client: "Client", task_id: str) -> "TaskInfo":
    """The same for a task of the search index itself."""

    def looks() -> "Iterator[TaskInfo]":
        while True:
            found = status_of(client, task_id)
            yield found
            if found.completed:
                return
            time.sleep(BETWEEN_LOOKS)

    with _can_be_left(task_id):
        return _shown(_patiently(looks), of_task)


def status_of(client: "Client", task_id: str) -> "TaskInfo":
    found = client.task_status(task_id)
    if found is None:
        raise OperatorError(
            f"Could not get task status for {task_id}: there is no such task, or the search index cannot be asked now. "
            "Operations are listed by: watchword task list"
        )
    return found


@contextmanager
def _can_be_left(task_id: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"watchword: It goes on. To watch it again: watchword task watch {one_line(task_id)}\n")
        raise


def _patiently(begin: Callable[[], Iterator[T]]) -> Iterator[T]:
    """What was seen once is waited for when the server is away."""
    from watchword.client import Unavailable, Unreachable

    seen_at: float | None = None
    while True:
        try:
            for one in begin():
                seen_at = time.monotonic()
                yield one
        except (Unavailable, Unreachable):
            if seen_at is None or time.monotonic() - seen_at > PATIENCE:
                raise
        else:
            return
        time.sleep(BETWEEN_LOOKS)


def _shown(looks: Iterable[T], seen: Callable[[T], Seen]) -> T:
    with _bar() if _can_draw() else _lines() as show:
        for one in looks:
            show(seen(one))
    return one


def _can_draw() -> bool:
    return on_terminal() and not console().is_dumb_terminal


@contextmanager
def _lines() -> Iterator[Callable[[Seen], None]]:
    last: Seen | None = None
    said_at = 0.0

    def show(seen: Seen) -> None:
        nonlocal last, said_at
        now = time.monotonic()
        if last is not None and last.state == seen.state and now - said_at < BETWEEN_LINES:
            return
        last, said_at = seen, now
        words = f"{seen.state:<9}  {seen.percent:5.1f}%", ", ".join(seen.parts), seen.note or ""
        say(one_line("  ".join(word for word in words if word)))
        sys.stdout.flush()

    yield show


@contextmanager
def _bar() -> Iterator[Callable[[Seen], None]]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, min_width=STATE_WIDTH)),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=BAR_WIDTH)),
        TextColumn(
            "{task.percentage:>5.1f}%", markup=False, table_column=Column(no_wrap=True, min_width=PERCENT_WIDTH)
        ),
        TextColumn("{task.fields[told]}", markup=False, table_column=Column(no_wrap=True)),
    )
    drawn = console()
    with Progress(*columns, console=drawn, transient=True, expand=True) as progress:
        task = progress.add_task("", total=100, state="", told="")

        def show(seen: Seen) -> None:
            # A rate says nothing about the last steps; what is being done does.
            parts = [seen.note] if seen.note and seen.left is None else [*seen.parts]
            room = drawn.width - STATE_WIDTH - BAR_WIDTH - PERCENT_WIDTH - len(columns)
            while len(parts) > 1 and len(", ".join(parts)) > room:
                parts = parts[1:]  # the time that is left stays longest
            told = one_line(", ".join(parts))
            progress.update(task, completed=seen.percent, state=one_line(seen.state), told=told)

        yield show


def tell_end(operation: "OperationInfo") -> None:
    """The outcome and its post-check; an error where it did not come to its end."""
    plan, check = operation.plan, operation.post_check
    began = operation.started_at or operation.created_at
    took = span(((operation.finished_at or began) - began) / 1_000)
    by_copy = plan.strategy == "REINDEX"
    kept = "The index is as it was." if by_copy else f"{operation.status.deleted:,} rows were deleted before."
    if operation.state == "CANCELLED":
        by = f" by {operation.cancel_asked_by}" if operation.cancel_asked_by else ""
        raise OperatorError(f"The operation {operation.id} was cancelled{by}. {kept}")
    if operation.state != "DONE":
        raise OperatorError(
            f"The operation {operation.id} failed: {operation.error or 'it does not say why.'} {kept} "
            f"See its steps with: watchword event list --target {operation.id}"
        )
    if by_copy:
        gone = f"{operation.status.created:,} rows were copied, {plan.rows_to_delete:,} old ones left behind"
    else:
        gone = f"{operation.status.deleted:,} rows deleted"
    say(one_line(f"Done in {took}: {gone}, in {plan.index_name}."))
    if check is None:
        return
    if check.passed:
        say(f"Post-check passed: {check.rows:,} rows are there, none of them old.")
    else:
        say(
            f"Post-check not passed: {check.rows:,} rows are there, {check.rows_left:,} of them old, written while "
            "it ran. Run it again to remove them."
        )


def tell_task_end(task: "TaskInfo") -> None:
    if task.failed:
        why = "; ".join([*([task.error] if task.error else []), *task.failures[:3]])
        raise OperatorError(f"The task {task.task_id} ended early: {why}")
    counters = task.status
    say(
        f"Done in {span(task.run_time_nanos / 1e9)}: {counters.created:,} created, {counters.updated:,} updated, "
        f"{counters.deleted:,} deleted, {counters.version_conflicts:,} left out because they changed meanwhile."
    )

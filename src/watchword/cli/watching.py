"""Show the progress of operations and tasks in the search index, and their outcome.

On a terminal there is a progress bar; elsewhere a line for each state and one every ten seconds. The server runs the
operation, so interrupting the watcher stops nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from watchword import client as api
from watchword.basics.errors import OperatorError
from watchword.cli import output as out
from watchword.cli.remote import POLL_SECONDS, patiently

T = TypeVar("T")
LINE_SECONDS = 10.0
STATE_WIDTH, BAR_WIDTH, PERCENT_WIDTH = 9, 8, 6


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """How far an operation or task is, in rows."""

    state: str
    percent: float
    done: int
    total: int
    rate: float | None
    note: str | None = None

    @property
    def left(self) -> str | None:
        """Computed from the rate, because the clocks of two machines may differ."""
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

    @property
    def sentence(self) -> str:
        return ", ".join([f"{self.percent:.1f}%", *self.parts])


def span(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def operation_progress(operation: "api.OperationInfo") -> OperationProgress:
    return OperationProgress(
        state=operation.state,
        percent=operation.percent,
        done=operation.rows_done,
        total=operation.rows_to_do,
        rate=None if operation.is_over else operation.rows_per_second,
        note=operation.note,
    )


def task_progress(task: "api.TaskInfo") -> OperationProgress:
    state = ("FAILED" if task.failed else "DONE") if task.completed else "RUNNING"
    done, total, seconds = task.status.done, task.status.total, task.run_time_nanos / 1e9
    rate = done / seconds if done and seconds and not task.completed else None
    percent = 100.0 if state == "DONE" else done * 100 / total if total else 0.0
    return OperationProgress(state, percent, done, total, rate)


def watch_operation(client: "api.Client", operation_id: str) -> "api.OperationInfo":
    """Show progress until the operation ends, unless JSON is wanted; returns its final state."""

    def poll() -> "Iterator[api.OperationInfo]":
        return client.operations.watch(operation_id, POLL_SECONDS)

    return _show_progress(operation_id, poll, operation_progress)


def task_status(client: "api.Client", task_id: str) -> "api.TaskInfo":
    found = client.operations.task_status(task_id)
    if found is None:
        raise OperatorError(
            f"Could not get task status for {task_id}: there is no such task, or the search index does not answer. "
            "To list operations: watchword operation list"
        )
    return found


def watch_task(client: "api.Client", task_id: str) -> "api.TaskInfo":
    def poll() -> "Iterator[api.TaskInfo]":
        while True:
            found = task_status(client, task_id)
            yield found
            if found.completed:
                return
            time.sleep(POLL_SECONDS)

    return _show_progress(task_id, poll, task_progress)


def _show_progress(task_id: str, poll: Callable[[], Iterator[T]], progress_of: Callable[[T], OperationProgress]) -> T:
    has_bar = out.on_terminal() and not out.console().is_dumb_terminal
    try:
        with nullcontext(lambda _: None) if out.is_data() else _bar() if has_bar else _lines() as show:
            for one in patiently(poll):
                show(progress_of(one))
    except KeyboardInterrupt:
        out.warn(f"The operation continues. To watch it again: watchword operation watch {task_id}")
        raise
    return one


@contextmanager
def _lines() -> Iterator[Callable[[OperationProgress], None]]:
    state: str | None = None
    printed_at = 0.0

    def show(progress: OperationProgress) -> None:
        nonlocal state, printed_at
        now = time.monotonic()
        if state == progress.state and now - printed_at < LINE_SECONDS:
            return
        state, printed_at = progress.state, now
        words = f"{progress.state:<9}  {progress.percent:5.1f}%", ", ".join(progress.parts), progress.note or ""
        out.say("  ".join(word for word in words if word))
        sys.stdout.flush()

    yield show


@contextmanager
def _bar() -> Iterator[Callable[[OperationProgress], None]]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column as TableColumn

    def fixed(text: str, width: int | None = None) -> TextColumn:
        return TextColumn(text, markup=False, table_column=TableColumn(no_wrap=True, min_width=width))

    parts_shown = (
        fixed("{task.fields[state]}", STATE_WIDTH),
        BarColumn(bar_width=None, table_column=TableColumn(ratio=1, min_width=BAR_WIDTH)),
        fixed("{task.percentage:>5.1f}%", PERCENT_WIDTH),
        fixed("{task.fields[text]}"),
    )
    terminal = out.console()
    with Progress(*parts_shown, console=terminal, transient=True, expand=True) as bar:
        row = bar.add_task("", total=100, state="", text="")

        def show(progress: OperationProgress) -> None:
            # In the last steps there is no rate; the note says what is being done.
            parts = [progress.note] if progress.note and progress.left is None else [*progress.parts]
            room = terminal.width - STATE_WIDTH - BAR_WIDTH - PERCENT_WIDTH - len(parts_shown)
            while len(parts) > 1 and len(", ".join(parts)) > room:
                parts = parts[1:]  # the time left is dropped last
            text = out.one_line(", ".join(parts))
            bar.update(row, completed=progress.percent, state=out.one_line(progress.state), text=text)

        yield show


def report_operation(operation: "api.OperationInfo") -> None:
    """Print the outcome and the post-check; fail where it did not succeed."""
    plan, check = operation.plan, operation.post_check
    began = operation.started_at or operation.created_at
    took = span(((operation.finished_at or began) - began).total_seconds())
    by_copy = plan.strategy == "REINDEX"
    kept = "The index is unchanged." if by_copy else f"{operation.status.deleted:,} rows were deleted before."
    if operation.state == "CANCELLED":
        by = f" by {operation.cancel_requested_by}" if operation.cancel_requested_by else ""
        raise OperatorError(f"The operation {operation.id} was cancelled{by}. {kept}")
    if operation.state != "DONE":
        raise OperatorError(
            f"The operation {operation.id} failed: {operation.error or 'no reason was recorded.'} {kept} "
            f"To see its steps: watchword event list --target {operation.id}"
        )
    if by_copy:
        outcome = f"{operation.status.created:,} rows were copied, {plan.rows_to_delete:,} old ones left behind"
    else:
        outcome = f"{operation.status.deleted:,} rows deleted"
    out.say(f"Done in {took}: {outcome}, in {plan.index_name}.")
    if check is None:
        return
    if check.passed:
        out.say(f"Post-check passed: {check.rows:,} rows, none of them old.")
    else:
        out.say(
            f"Post-check not passed: {check.rows:,} rows, {check.rows_left:,} of them old, written meanwhile. "
            "Run it again to remove them."
        )


def report_task(task: "api.TaskInfo") -> None:
    out.say_data(task)
    if task.failed:
        reasons = "; ".join([*([task.error] if task.error else []), *task.failures[:3]])
        raise OperatorError(f"The task {task.task_id} failed: {reasons}")
    counters = task.status
    out.say(
        f"Done in {span(task.run_time_nanos / 1e9)}: {counters.created:,} created, {counters.updated:,} updated, "
        f"{counters.deleted:,} deleted, {counters.version_conflicts:,} skipped because they changed meanwhile."
    )

"""`watchword task`: show, watch and cancel long operations in the search index.

Watching shows a progress bar on a terminal; elsewhere a line for each state and one every ten seconds. The server runs
the operation, so interrupting the watcher stops nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from watchword.cli.options import limit_flag, page_size, urns_flag, yes_flag
from watchword.cli.output import (
    Cell,
    Column,
    TimeCell,
    console,
    json_value,
    on_terminal,
    one_line,
    say,
    say_json,
    show_list,
    show_one,
    show_result,
    warn,
    with_name,
)
from watchword.cli.remote import POLL_SECONDS, confirm, patiently, with_client
from watchword.cli.run import Command, CommandGroup
from watchword.client.errors import NotFound, Unauthorized
from watchword.domain.engine import TaskId
from watchword.domain.errors import Fault, OperatorError

if TYPE_CHECKING:
    from watchword.client import Client, OperationInfo, TaskInfo

T = TypeVar("T")
LINE_SECONDS = 10.0
STATE_WIDTH, BAR_WIDTH, PERCENT_WIDTH = 9, 8, 6

_COLUMNS: "list[Column[OperationInfo]]" = [
    Column("ID", lambda operation: operation.id),
    Column("STATE", lambda operation: operation.state),
    Column("DONE", lambda operation: f"{operation.percent:.1f}%"),
    Column("ASPECT", lambda operation: f"{operation.plan.entity_type}.{operation.plan.aspect}", free=True),
    Column("ROWS", lambda operation: operation.plan.rows_to_delete),
    Column("REQUESTED", lambda operation: TimeCell(operation.created_at)),
    Column("ENDED", lambda operation: TimeCell(operation.finished_at)),
    Column("ACTOR", lambda operation: operation.actor_urn, name=lambda operation: operation.actor_name),
]


def _is_task_id(word: str) -> bool:
    try:
        TaskId.parse(word)
    except Fault:
        return False
    return True


def _check_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _is_task_id(value):
        raise click.BadParameter("must be <node>:<number>, as `watchword task list` shows.", context, parameter)
    return value


class _TaskCommand(Command):
    """Search engines use node names that begin with a dash: those are ids, not flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashed = [] if "--" in args else [word for word in args if word.startswith("-") and _is_task_id(word)]
        if dashed:
            args = [*(word for word in args if word not in dashed), "--", *dashed]
        return super().parse_args(ctx, args)


_id = click.argument("task_id", metavar="ID", callback=_check_id)


@click.group(cls=CommandGroup)
def task() -> None:
    """Watch and cancel long operations in the search index.

    ID is <node>:<number>, of an operation or of one of the index's own tasks.
    """


@task.command(cls=_TaskCommand)
@_id
@with_client
def status(client: "Client", task_id: str, as_json: bool) -> None:
    """Show the progress of an operation or task.

    Example: watchword task status oTUltX4IQMOUUVeiohTt8A:12345
    """
    # The operation is read first, so that one that is over is over in both answers.
    operation = _operation(client, task_id)
    found = _task_status(client, task_id)
    pairs = _task_pairs(found) if operation is None else _operation_pairs(operation)
    record = {**json_value(found), "operation": operation}
    show_one({title: value for title, value in pairs.items() if value is not None}, record, json=as_json)


def _operation(client: "Client", task_id: str) -> "OperationInfo | None":
    """None for one of the index's own tasks, or where the caller may only see the status of tasks."""
    try:
        return client.get_operation(task_id)
    except (NotFound, Unauthorized):
        return None


def _task_status(client: "Client", task_id: str) -> "TaskInfo":
    found = client.get_task_status(task_id)
    if found is None:
        raise OperatorError(
            f"Could not get task status for {task_id}: there is no such task, or the search index does not answer. "
            "To list operations: watchword task list"
        )
    return found


def _operation_pairs(operation: "OperationInfo") -> dict[str, Cell]:
    plan, check = operation.plan, operation.post_check
    pairs: dict[str, Cell] = {
        "Operation": operation.id,
        "State": operation.state,
        "Done": _operation_progress(operation).sentence,
        "Now": operation.note,
        "Error": operation.error,
        "Index": plan.index_name,
        "Rows up to": TimeCell(plan.end_time),
        "Plan": f"delete {plan.rows_to_delete:,} of {plan.rows:,} rows ({plan.share:.2f}%)",
        "Strategy": f"{plan.strategy}: {plan.reason}",
        "Requested by": with_name(operation.actor_urn, operation.actor_name),
        "Requested": TimeCell(operation.created_at),
        "Started": TimeCell(operation.started_at, "not yet"),
        "Ended": TimeCell(operation.finished_at, "not yet"),
    }
    if check is not None:
        verdict = "passed" if check.passed else "not passed"
        pairs["Post-check"] = f"{verdict}: {check.rows:,} rows, {check.rows_left:,} of them old"
    return pairs


def _task_pairs(found: "TaskInfo") -> dict[str, Cell]:
    progress, counters = _task_progress(found), found.status
    return {
        "Task": found.task_id,
        "State": progress.state,
        "Done": progress.sentence,
        "Error": found.error,
        "Failures": found.failures or None,
        "Ran for": span(found.run_time_nanos / 1e9),
        "Created": counters.created,
        "Updated": counters.updated,
        "Deleted": counters.deleted,
        "Skipped": counters.noops + counters.version_conflicts,
        "Batches": counters.batches,
    }


@task.command(cls=_TaskCommand)
@_id
@with_client
def watch(client: "Client", task_id: str, as_json: bool) -> None:
    """Show the progress of an operation until it ends; exit with 1 if it failed or was cancelled.

    On a terminal there is a bar; in a pipe a line for each state and one every ten seconds. Ctrl-C stops only the
    watching.

    Example: watchword task watch oTUltX4IQMOUUVeiohTt8A:12345
    """
    if _operation(client, task_id) is None:
        _report_task(_watch_task(client, task_id, quiet=as_json), as_json=as_json)
    else:
        report_operation(watch_operation(client, task_id, quiet=as_json), as_json=as_json)


@task.command("list")
@urns_flag
@limit_flag(default=100)
@with_client
def list_operations(client: "Client", limit: int, as_json: bool, urns: bool) -> None:
    """List operations, newest first.

    Example: watchword task list --json
    """
    found = client.operations(page_size=page_size(limit))
    show_list(found, _COLUMNS, json=as_json, limit=limit, empty="No operations.", urns=urns)


@task.command(cls=_TaskCommand)
@_id
@click.option("--wait", is_flag=True, help="Wait until it ends; exit with 1 if it was done or failed before.")
@yes_flag
@with_client
def cancel(client: "Client", task_id: str, wait: bool, yes: bool, as_json: bool) -> None:
    """Cancel an operation. Rows that were deleted stay deleted; an unfinished copy is removed.

    Example: watchword task cancel oTUltX4IQMOUUVeiohTt8A:12345 --yes --wait
    """
    found = client.get_operation(task_id)
    plan = found.plan
    question = f"Cancel the truncation of {plan.entity_type}.{plan.aspect}, {found.state} at {found.percent:.1f}%?"
    confirm(question, yes=yes)
    ending = client.cancel_operation(task_id)
    if not wait:
        sentence = f"Cancelling {task_id}. To see it end: watchword task watch {task_id}"
        show_result(sentence, ending, json=as_json)
        return
    ended = watch_operation(client, task_id, quiet=as_json)
    if as_json:
        say_json(ended)
    if ended.state != "CANCELLED":
        raise OperatorError(f"The operation {task_id} ended before it could be cancelled: {ended.state}.")
    if not as_json:
        say(f"Cancelled {task_id}")


# Watching.


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


def _operation_progress(operation: "OperationInfo") -> OperationProgress:
    return OperationProgress(
        state=operation.state,
        percent=operation.percent,
        done=operation.rows_done,
        total=operation.rows_to_do,
        rate=None if operation.is_over else operation.rows_per_second,
        note=operation.note,
    )


def _task_progress(task: "TaskInfo") -> OperationProgress:
    state = ("FAILED" if task.failed else "DONE") if task.completed else "RUNNING"
    done, total, seconds = task.status.done, task.status.total, task.run_time_nanos / 1e9
    rate = done / seconds if done and seconds and not task.completed else None
    percent = 100.0 if state == "DONE" else done * 100 / total if total else 0.0
    return OperationProgress(state, percent, done, total, rate)


def watch_operation(client: "Client", operation_id: str, *, quiet: bool = False) -> "OperationInfo":
    """Show progress until the operation ends, unless `quiet`; returns its final state."""

    def poll() -> "Iterator[OperationInfo]":
        return client.watch_operation(operation_id, POLL_SECONDS)

    return _show_progress(operation_id, poll, _operation_progress, quiet=quiet)


def _watch_task(client: "Client", task_id: str, *, quiet: bool) -> "TaskInfo":
    def poll() -> "Iterator[TaskInfo]":
        while True:
            found = _task_status(client, task_id)
            yield found
            if found.completed:
                return
            time.sleep(POLL_SECONDS)

    return _show_progress(task_id, poll, _task_progress, quiet=quiet)


def _show_progress(
    task_id: str, poll: Callable[[], Iterator[T]], progress_of: Callable[[T], OperationProgress], *, quiet: bool
) -> T:
    has_bar = on_terminal() and not console().is_dumb_terminal
    try:
        with nullcontext(lambda _: None) if quiet else _bar() if has_bar else _lines() as show:
            for one in patiently(poll):
                show(progress_of(one))
    except KeyboardInterrupt:
        warn(f"The operation continues. To watch it again: watchword task watch {task_id}")
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
        say("  ".join(word for word in words if word))
        sys.stdout.flush()

    yield show


@contextmanager
def _bar() -> Iterator[Callable[[OperationProgress], None]]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column as TableColumn

    def fixed(text: str, width: int | None = None) -> TextColumn:
        return TextColumn(text, markup=False, table_column=TableColumn(no_wrap=True, min_width=width))

    columns = (
        fixed("{task.fields[state]}", STATE_WIDTH),
        BarColumn(bar_width=None, table_column=TableColumn(ratio=1, min_width=BAR_WIDTH)),
        fixed("{task.percentage:>5.1f}%", PERCENT_WIDTH),
        fixed("{task.fields[text]}"),
    )
    terminal = console()
    with Progress(*columns, console=terminal, transient=True, expand=True) as bar:
        row = bar.add_task("", total=100, state="", text="")

        def show(progress: OperationProgress) -> None:
            # In the last steps there is no rate; the note says what is being done.
            parts = [progress.note] if progress.note and progress.left is None else [*progress.parts]
            room = terminal.width - STATE_WIDTH - BAR_WIDTH - PERCENT_WIDTH - len(columns)
            while len(parts) > 1 and len(", ".join(parts)) > room:
                parts = parts[1:]  # the time left is dropped last
            text = one_line(", ".join(parts))
            bar.update(row, completed=progress.percent, state=one_line(progress.state), text=text)

        yield show


def report_operation(operation: "OperationInfo", *, as_json: bool = False) -> None:
    """Print the outcome and the post-check, or the operation; fail where it did not succeed."""
    if as_json:
        say_json(operation)
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
    if as_json:
        return
    if by_copy:
        outcome = f"{operation.status.created:,} rows were copied, {plan.rows_to_delete:,} old ones left behind"
    else:
        outcome = f"{operation.status.deleted:,} rows deleted"
    say(f"Done in {took}: {outcome}, in {plan.index_name}.")
    if check is None:
        return
    if check.passed:
        say(f"Post-check passed: {check.rows:,} rows, none of them old.")
    else:
        say(
            f"Post-check not passed: {check.rows:,} rows, {check.rows_left:,} of them old, written meanwhile. "
            "Run it again to remove them."
        )


def _report_task(task: "TaskInfo", *, as_json: bool) -> None:
    if as_json:
        say_json(task)
    if task.failed:
        reasons = "; ".join([*([task.error] if task.error else []), *task.failures[:3]])
        raise OperatorError(f"The task {task.task_id} failed: {reasons}")
    if as_json:
        return
    counters = task.status
    say(
        f"Done in {span(task.run_time_nanos / 1e9)}: {counters.created:,} created, {counters.updated:,} updated, "
        f"{counters.deleted:,} deleted, {counters.version_conflicts:,} skipped because they changed meanwhile."
    )

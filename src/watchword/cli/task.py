"""`watchword task`."""

from typing import TYPE_CHECKING

import click

from watchword.cli import watching
from watchword.cli.common import json_flag
from watchword.cli.remote import confirm, with_client, yes_flag
from watchword.cli.show import Cell, Column, When, first, named, say, show_list, show_one
from watchword.cli.text import one_line
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.tasks import TaskId

if TYPE_CHECKING:
    from watchword.client import Client, OperationInfo, TaskInfo

COLUMNS: "list[Column[OperationInfo]]" = [
    Column("ID", lambda operation: operation.id),
    Column("STATE", lambda operation: operation.state),
    Column("DONE", lambda operation: f"{operation.percent:.1f}%"),
    Column("ASPECT", lambda operation: f"{operation.plan.entity_type}.{operation.plan.aspect}", free=True),
    Column("ROWS", lambda operation: operation.plan.rows_to_delete),
    Column("ASKED", lambda operation: When(operation.created_at)),
    Column("ENDED", lambda operation: When(operation.finished_at)),
    Column("ACTOR", lambda operation: operation.actor_urn),
]


def _is_id(word: str) -> bool:
    try:
        TaskId.parse(word)
    except Fault:
        return False
    return True


def _check(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _is_id(value):
        raise click.BadParameter("It must be <node>:<number>, as `watchword task list` shows.", context, parameter)
    return value


class _OfTask(click.Command):
    """Search engines make up nodes that begin with a dash: those are no flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashed = [] if "--" in args else [word for word in args if word.startswith("-") and _is_id(word)]
        if dashed:
            args = [*(word for word in args if word not in dashed), "--", *dashed]
        return super().parse_args(ctx, args)


_id = click.argument("task_id", metavar="ID", callback=_check)


@click.group()
def task() -> None:
    """Long work in the search index. ID is <node>:<number>, of an operation or of a task of the index itself."""


@task.command(cls=_OfTask)
@_id
@json_flag
@with_client
def status(client: "Client", task_id: str, as_json: bool) -> None:
    """How far it is.

    \b
    Example: watchword task status oTUltX4IQMOUUVeiohTt8A:12345
    """
    # The operation is asked for first: what it says is over is then over in both.
    operation = _operation(client, task_id)
    found = watching.status_of(client, task_id)
    pairs = _of_task(found) if operation is None else _of_operation(operation)
    show_one(pairs, {**named(found), "operation": operation}, json=as_json)


def _operation(client: "Client", task_id: str) -> "OperationInfo | None":
    """None where it is a task of the engine, or the caller may see the status of tasks and no more."""
    from watchword.client import NotFound, Unauthorized

    try:
        return client.operation(task_id)
    except (NotFound, Unauthorized):
        return None


def _far(seen: watching.Seen) -> str:
    return ", ".join([f"{seen.percent:.1f}%", *seen.parts])


def _of_operation(operation: "OperationInfo") -> dict[str, Cell]:
    plan, check = operation.plan, operation.post_check
    told: dict[str, Cell] = {
        "Operation": operation.id,
        "State": operation.state,
        "Done": _far(watching.of_operation(operation)),
        "Now": operation.note,
        "Error": operation.error,
        "Index": plan.index_name,
        "Rows up to": When(plan.end_time_millis),
        "Plan": f"delete {plan.rows_to_delete:,} of {plan.rows:,} rows ({plan.share:.2f}%)",
        "Strategy": f"{plan.strategy}: {plan.reason}",
        "Asked by": operation.actor_urn,
        "Asked": When(operation.created_at),
        "Started": When(operation.started_at, "not yet"),
        "Ended": When(operation.finished_at, "not yet"),
    }
    if check is not None:
        verdict = "passed" if check.passed else "not passed"
        told["Post-check"] = f"{verdict}: {check.rows:,} rows, {check.rows_left:,} of them old"
    return {title: value for title, value in told.items() if value is not None}


def _of_task(found: "TaskInfo") -> dict[str, Cell]:
    seen, counters = watching.of_task(found), found.status
    told: dict[str, Cell] = {
        "Task": found.task_id,
        "State": seen.state,
        "Done": _far(seen),
        "Error": found.error,
        "Failures": found.failures or None,
        "Ran for": watching.span(found.run_time_nanos / 1e9),
        "Created": counters.created,
        "Updated": counters.updated,
        "Deleted": counters.deleted,
        "Left out": counters.noops + counters.version_conflicts,
        "Batches": counters.batches,
    }
    return {title: value for title, value in told.items() if value is not None}


@task.command(cls=_OfTask)
@_id
@with_client
def watch(client: "Client", task_id: str) -> None:
    """Show how it goes on until it is over, and how it ended; exit code 1 if it failed or was cancelled.

    At a terminal there is a bar; in a pipe a line for each state, and one every ten seconds. Ctrl-C ends the watching
    and nothing else.

    \b
    Example: watchword task watch oTUltX4IQMOUUVeiohTt8A:12345
    """
    if _operation(client, task_id) is None:
        watching.tell_task_end(watching.watch_task(client, task_id))
    else:
        watching.tell_end(watching.watch_operation(client, task_id))


@task.command("list")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="At most so many; 0 is all.")
@json_flag
@with_client
def list_operations(client: "Client", limit: int, as_json: bool) -> None:
    """The operations, newest first.

    \b
    Example: watchword task list --json
    """
    size = min(1_000, (limit or 1_000) + 1)
    found = first(client.operations(page_size=size), limit)
    show_list(found, COLUMNS, json=as_json, empty="No operations.")


@task.command(cls=_OfTask)
@_id
@click.option("--wait", is_flag=True, help="Wait for its end; exit code 1 if it was done or failed before.")
@yes_flag
@with_client
def cancel(client: "Client", task_id: str, wait: bool, yes: bool) -> None:
    """Ask an operation to end early. Rows that a deletion has removed stay removed; a copy leaves no trace.

    \b
    Example: watchword task cancel oTUltX4IQMOUUVeiohTt8A:12345 --yes --wait
    """
    found = client.operation(task_id)
    plan = found.plan
    question = f"Cancel the truncation of {plan.entity_type}.{plan.aspect}, {found.state} at {found.percent:.1f}%?"
    confirm(one_line(question), yes=yes)
    client.cancel_operation(task_id)
    if not wait:
        say(f"Cancelling {task_id}. To see it end: watchword task watch {task_id}")
        return
    ended = watching.watch_operation(client, task_id)
    if ended.state != "CANCELLED":
        raise OperatorError(f"The operation {task_id} came to its end before it could be cancelled: {ended.state}.")
    say(f"Cancelled {task_id}")

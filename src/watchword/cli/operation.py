"""`watchword operation`: show, watch and cancel long operations in the search index."""

from operator import attrgetter

import click

from watchword import client as api
from watchword.basics.errors import Fault, OperatorError
from watchword.cli import output as out
from watchword.cli import watching
from watchword.cli.options import page_size, wait_flag, yes_flag
from watchword.cli.remote import completes, confirm, with_client, with_list
from watchword.cli.run import Command, CommandGroup
from watchword.client.errors import NotFound, Unauthorized
from watchword.index.engine import TaskId

_COLUMNS = out.columns(
    "id, state",
    out.Column("DONE", lambda operation: f"{operation.percent:.1f}%"),
    out.Column("SERIES", lambda operation: f"{operation.plan.entity_type}.{operation.plan.aspect}", free=True),
    "ROWS=plan.rows_to_delete, REQUESTED=created_at, ENDED=finished_at",
    out.Column("ACTOR", "actor_urn", name="actor_name"),
)


def _is_task_id(word: str) -> bool:
    try:
        TaskId.parse(word)
    except Fault:
        return False
    return True


def _check_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _is_task_id(value):
        raise click.BadParameter("must be <node>:<number>, as `watchword operation list` shows.", context, parameter)
    return value


class _TaskCommand(Command):
    """Search engines use node names that begin with a dash: those are ids, not flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashed = [] if "--" in args else [word for word in args if word.startswith("-") and _is_task_id(word)]
        if dashed:
            args = [*(word for word in args if word not in dashed), "--", *dashed]
        return super().parse_args(ctx, args)


_complete = completes(lambda client, _: client.operations.list(), attrgetter("id", "plan.index_name"))
_id = click.argument("task_id", metavar="ID", callback=_check_id, shell_complete=_complete)


@click.group(cls=CommandGroup)
def operation() -> None:
    """ID is <node>:<number>, of an operation or of one of the index's own tasks."""


@operation.command(cls=_TaskCommand)
@_id
@with_client
def status(client: "api.Client", task_id: str) -> None:
    """Show the progress of an operation or task.

    Example: watchword operation status oTUltX4IQMOUUVeiohTt8A:12345
    """
    # The operation is read first, so that one that is over is over in both answers.
    operation = _operation(client, task_id)
    found = watching.task_status(client, task_id)
    pairs = _task_pairs(found) if operation is None else _operation_pairs(operation)
    record = {**out.json_value(found), "operation": operation}
    out.show_one(record, {title: value for title, value in pairs.items() if value is not None})


def _operation(client: "api.Client", task_id: str) -> "api.OperationInfo | None":
    """None for one of the index's own tasks, or where the caller may only see the status of tasks."""
    try:
        return client.operations.get(task_id)
    except (NotFound, Unauthorized):
        return None


def _operation_pairs(operation: "api.OperationInfo") -> dict[str, out.Cell]:
    plan, check = operation.plan, operation.post_check
    pairs: dict[str, out.Cell] = {
        **out.attributes(operation, "Operation=id, state"),
        "Done": watching.operation_progress(operation).sentence,
        **out.attributes(operation, "Now=note, error"),
        **out.attributes(plan, "Index=index_name, Rows up to=end_time"),
        "Plan": f"delete {plan.rows_to_delete:,} of {plan.rows:,} rows ({plan.share:.2f}%)",
        "Strategy": f"{plan.strategy}: {plan.reason}",
        "Requested by": out.with_name(operation.actor_urn, operation.actor_name),
        "Requested": out.TimeCell(operation.created_at),
        "Started": out.TimeCell(operation.started_at, "not yet"),
        "Ended": out.TimeCell(operation.finished_at, "not yet"),
    }
    if check is not None:
        verdict = "passed" if check.passed else "not passed"
        pairs["Post-check"] = f"{verdict}: {check.rows:,} rows, {check.rows_left:,} of them old"
    return pairs


def _task_pairs(found: "api.TaskInfo") -> dict[str, out.Cell]:
    progress, counters = watching.task_progress(found), found.status
    return {
        "Task": found.task_id,
        **out.attributes(progress, "state, Done=sentence"),
        "Error": found.error,
        "Failures": found.failures or None,
        "Ran for": watching.span(found.run_time_nanos / 1e9),
        **out.attributes(counters, "created, updated, deleted"),
        "Skipped": counters.noops + counters.version_conflicts,
        "Batches": counters.batches,
    }


@operation.command(cls=_TaskCommand)
@_id
@with_client
def watch(client: "api.Client", task_id: str) -> None:
    """Show the progress of an operation until it ends; exit with 1 if it failed or was cancelled.

    On a terminal there is a bar; in a pipe a line for each state and one every ten seconds. Ctrl-C stops only the
    watching.

    Example: watchword operation watch oTUltX4IQMOUUVeiohTt8A:12345
    """
    if _operation(client, task_id) is None:
        watching.report_task(watching.watch_task(client, task_id))
    else:
        ended = watching.watch_operation(client, task_id)
        out.say_data(ended)
        watching.report_operation(ended)


@operation.command("list")
@with_list(urns=True)
def list_operations(client: "api.Client") -> None:
    """List operations, newest first.

    Example: watchword operation list --json
    """
    found = client.operations.list(page_size=page_size())
    out.show_list(found, _COLUMNS, "No operations.")


@operation.command(cls=_TaskCommand)
@_id
@wait_flag
@yes_flag
@with_client
def cancel(client: "api.Client", task_id: str, wait: bool) -> None:
    """Cancel an operation. Rows that were deleted stay deleted; an unfinished copy is removed. Exit with 1 if it was
    done or failed before.

    Example: watchword operation cancel oTUltX4IQMOUUVeiohTt8A:12345 --yes
    """
    found = client.operations.get(task_id)
    plan = found.plan
    question = f"Cancel the truncation of {plan.entity_type}.{plan.aspect}, {found.state} at {found.percent:.1f}%?"
    confirm(question)
    ending = client.operations.cancel(task_id)
    if not wait:
        sentence = f"Cancelling {task_id}. To see it end: watchword operation watch {task_id}"
        out.show_result(sentence, ending)
        return
    ended = watching.watch_operation(client, task_id)
    out.say_data(ended)
    if ended.state != "CANCELLED":
        raise OperatorError(f"The operation {task_id} ended before it could be cancelled: {ended.state}.")
    out.say(f"Cancelled {task_id}")

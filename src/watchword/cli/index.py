"""`watchword index`."""

import time
from datetime import datetime
from typing import Any

import click

from watchword import client as api
from watchword.basics.errors import OperatorError
from watchword.basics.times import SPAN_FORMS
from watchword.cli import output as out
from watchword.cli.options import duration, seconds, time_ago, wait_flag, yes_flag
from watchword.cli.remote import confirm, need_confirmation, series_argument, with_client, with_list
from watchword.cli.run import CommandGroup, WrongUse
from watchword.cli.watching import report_operation, watch_operation
from watchword.client.errors import Conflict
from watchword.client.records import from_millis
from watchword.index.indices import Aspect

_LOAD = "Load rows into the index of a series from FILE, one JSON object a line; - is standard input."
_COLUMNS = out.columns(
    "INDEX=index_name",
    out.Column("SERIES", lambda size: f"{size.entity_name}.{size.aspect_name}", free=True),
    "rows",
    out.Column("SIZE", lambda size: out.byte_size(size.size_in_bytes)),
)


@click.group(cls=CommandGroup, lazy={"load": ("load", _LOAD)})
def index() -> None: ...


@index.command()
@with_list()
def sizes(client: "api.Client") -> None:
    """List the indices with their rows and sizes.

    Example: watchword index sizes --json
    """
    empty = "No indices. To create samples: watchword index load --demo"
    out.show_list(client.series.list(), _COLUMNS, empty)


@index.command()
@series_argument
@click.option("--older-than", type=duration, help=f"Delete rows older than this, such as {SPAN_FORMS}.")
@click.option("--until", type=time_ago, help="Delete rows up to this: a date, a time, or a duration back.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows per batch.")
@click.option("--timeout", "timeout_seconds", type=seconds, help="Give up after this time, such as 10m.")
@click.option("--delete", "force_delete_by_query", is_flag=True, help="Delete old rows in place, whatever their share.")
@click.option("--copy", "force_reindex", is_flag=True, help="Copy the other rows to a new index, whatever their share.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@wait_flag
@yes_flag
@with_client
def truncate(
    client: "api.Client",
    series: Aspect,
    older_than: int | None,
    until: datetime | None,
    dry_run: bool,
    wait: bool,
    **wanted: Any,
) -> None:
    """Delete the old rows of a time series: show the plan, ask, then show progress until the operation ends.

    Ctrl-C does not stop the operation: watch it again with `watchword operation watch`, cancel it with `operation
    cancel`. With --json only the plan (of a dry run) or the operation is printed.

    To see how old the rows are: watchword retention plan ENTITY.ASPECT

    Example: watchword index truncate dataset.operation --older-than 30d --dry-run
    Example: watchword index truncate dataset.operation --until 2026-10-01T00:00:00Z --yes
    """
    wanted |= {"entity_type": series.entity, "aspect": series.name, "end_time": _end(older_than, until)}
    if wanted["force_delete_by_query"] and wanted["force_reindex"]:
        raise WrongUse("Pass --delete or --copy, not both.")
    need_confirmation()
    plan = client.series.plan_truncation(**wanted)
    out.show_pairs(_pairs(plan))
    if dry_run:
        out.say_data(plan)
        out.say("This was a dry run. Nothing was deleted.")
        return
    if not plan.rows_to_delete:
        out.show_result("Nothing to delete.", None)
        return
    what = f"{plan.rows_to_delete:,} of {plan.rows:,} rows of {plan.entity_type}.{plan.aspect}"
    confirm(f"Delete {what}? This cannot be undone.")
    started = _start(client, wanted)
    if not wait:
        out.show_result(f"Started {started.id}. Watch it: watchword operation watch {started.id}", started)
    else:
        out.say(f"Started {started.id}")
        started = watch_operation(client, started.id)
        out.say_data(started)
    if wait or started.state in ("FAILED", "CANCELLED"):
        report_operation(started)


def _end(older_than: int | None, until: datetime | None) -> datetime:
    if (older_than is None) == (until is None):
        raise WrongUse("Pass one of --older-than (such as 30d) and --until (such as 2026-10-01).")
    now = time.time_ns() // 1_000_000
    end = until if until is not None else from_millis(now - (older_than or 0))
    if not from_millis(0) <= end <= from_millis(now):
        flag = "--older-than" if until is None else "--until"
        raise WrongUse(f"{flag} must mean a time between 1970 and now.")
    return end


def _pairs(plan: "api.TruncationPlan") -> dict[str, out.Cell]:
    return {
        **out.attributes(plan, "Index=index_name, Rows up to=end_time"),
        "To delete": f"{plan.rows_to_delete:,} of {plan.rows:,} rows ({plan.share:.2f}%)",
        "Frees about": f"{out.byte_size(plan.bytes_to_free)} of {out.byte_size(plan.size_in_bytes)}",
        "Strategy": f"{plan.strategy}: {plan.reason}",
    }


def _start(client: "api.Client", wanted: dict[str, Any]) -> "api.OperationInfo":
    try:
        return client.series.truncate(**wanted)
    except Conflict as error:
        running = error.details.get("operationId")
        if not isinstance(running, str):
            raise
        raise OperatorError(f"{error} To watch it: watchword operation watch {running}") from None
    except KeyboardInterrupt:
        out.warn("The operation may have started. See: watchword operation list")
        raise

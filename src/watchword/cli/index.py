"""`watchword index`."""

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import DurationParam, TimeParam, limit_flag, yes_flag
from watchword.cli.output import Cell, Column, TimeCell, byte_size, say, show_list, show_one, show_result, warn
from watchword.cli.remote import POLL_SECONDS, confirm, need_confirmation, patiently, with_client
from watchword.cli.run import CommandGroup, WrongUse
from watchword.cli.task import report_operation, watch_operation
from watchword.client.errors import Conflict
from watchword.client.records import from_millis
from watchword.domain.errors import OperatorError
from watchword.domain.lifetimes import SPAN_FORMS

if TYPE_CHECKING:
    from watchword.client import Client, IndexInfo, OperationInfo, TimeSpan, TruncationPlan

MAX_BAR = 40
_LOAD = "Load rows into the index of an aspect from FILE, one JSON object a line; - is standard input."
_COLUMNS: "list[Column[IndexInfo]]" = [
    Column("INDEX", lambda size: size.index_name),
    Column("ENTITY", lambda size: size.entity_name),
    Column("ASPECT", lambda size: size.aspect_name, free=True),
    Column("ROWS", lambda size: size.rows),
    Column("SIZE", lambda size: byte_size(size.size_in_bytes)),
]


@click.group(cls=CommandGroup, lazy={"load": ("load", _LOAD)})
def index() -> None:
    """Show, truncate and load the time-series indices."""


@index.command()
@limit_flag()
@with_client
def sizes(client: "Client", limit: int, as_json: bool) -> None:
    """List the indices with their rows and sizes.

    Example: watchword index sizes --json
    """
    empty = "No indices. To create samples: watchword index load --demo"
    show_list(client.index_sizes(), _COLUMNS, json=as_json, limit=limit, empty=empty)


@index.command()
@click.argument("entity_type", metavar="ENTITY")
@click.argument("aspect")
@click.option("--spans", type=click.IntRange(1, 200), default=20, show_default=True, help="Number of bars at most.")
@with_client
def histogram(client: "Client", entity_type: str, aspect: str, spans: int, as_json: bool) -> None:
    """Show how the rows of a time series are spread over time, to choose what to truncate.

    Example: watchword index histogram dataset operation --spans 12
    """
    found = client.get_timeseries_histogram(entity_type, aspect, spans=spans)
    most = max((span.rows for span in found.spans), default=0)
    columns: list[Column[TimeSpan]] = [
        Column("FROM", lambda span: TimeCell(span.start)),
        Column("ROWS", lambda span: span.rows),
        Column("SHARE", lambda span: "#" * round(span.rows * MAX_BAR / most) if most else ""),
    ]
    show_list(found.spans, columns, json=as_json, empty=f"No row of {entity_type}.{aspect} has a time.")


@index.command()
@click.argument("entity_type", metavar="ENTITY")
@click.argument("aspect")
@click.option("--older-than", type=DurationParam(), help=f"Delete rows older than this, such as {SPAN_FORMS}.")
@click.option("--until", type=TimeParam(ago=True), help="Delete rows up to this: a date, a time, or a duration back.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows per batch.")
@click.option(
    "--timeout", "timeout_seconds", type=DurationParam(seconds=True), help="Give up after this time, such as 10m."
)
@click.option("--delete", "force_delete_by_query", is_flag=True, help="Delete old rows in place, whatever their share.")
@click.option("--copy", "force_reindex", is_flag=True, help="Copy the other rows to a new index, whatever their share.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--no-wait", is_flag=True, help="Start the operation, print its id and return.")
@yes_flag
@with_client
def truncate(
    client: "Client",
    older_than: int | None,
    until: datetime | None,
    dry_run: bool,
    no_wait: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Delete the old rows of a time series: show the plan, ask, then show progress until the operation ends.

    Ctrl-C does not stop the operation: watch it again with `watchword task watch`, cancel it with `task cancel`. With
    --json only the plan (of a dry run) or the operation is printed.

    Example: watchword index truncate dataset operation --older-than 30d --dry-run
    Example: watchword index truncate dataset operation --until 2026-10-01T00:00:00Z --yes
    """
    wanted["end_time"] = _end(older_than, until)
    if wanted["force_delete_by_query"] and wanted["force_reindex"]:
        raise WrongUse("Pass --delete or --copy, not both.")
    need_confirmation(yes=yes, dry_run=dry_run)
    plan = client.plan_truncation(**wanted)
    if dry_run or not as_json:
        show_one(_pairs(plan), plan, json=as_json)
    if dry_run:
        if not as_json:
            say("This was a dry run. Nothing was deleted.")
        return
    if not plan.rows_to_delete:
        show_result("Nothing to delete.", None, json=as_json)
        return
    what = f"{plan.rows_to_delete:,} of {plan.rows:,} rows of {plan.entity_type}.{plan.aspect}"
    confirm(f"Delete {what}? This cannot be undone.", yes=yes)
    started = _start(client, wanted)
    if not no_wait and not as_json:
        say(f"Started {started.id}")
        report_operation(watch_operation(client, started.id))
        return
    watched = () if no_wait else patiently(lambda: client.watch_operation(started.id, POLL_SECONDS))
    ended = [started, *watched][-1]
    show_result(f"Started {started.id}. Watch it: watchword task watch {started.id}", ended, json=as_json)
    if ended.state in ("FAILED", "CANCELLED"):
        report_operation(ended)


def _end(older_than: int | None, until: datetime | None) -> datetime:
    if (older_than is None) == (until is None):
        raise WrongUse("Pass one of --older-than (such as 30d) and --until (such as 2026-10-01).")
    now = time.time_ns() // 1_000_000
    end = until if until is not None else from_millis(now - (older_than or 0))
    if not from_millis(0) <= end <= from_millis(now):
        flag = "--older-than" if until is None else "--until"
        raise WrongUse(f"{flag} must mean a time between 1970 and now.")
    return end


def _pairs(plan: "TruncationPlan") -> dict[str, Cell]:
    return {
        "Index": plan.index_name,
        "Rows up to": TimeCell(plan.end_time),
        "To delete": f"{plan.rows_to_delete:,} of {plan.rows:,} rows ({plan.share:.2f}%)",
        "Frees about": f"{byte_size(plan.bytes_to_free)} of {byte_size(plan.size_in_bytes)}",
        "Strategy": f"{plan.strategy}: {plan.reason}",
    }


def _start(client: "Client", wanted: dict[str, Any]) -> "OperationInfo":
    try:
        return client.truncate_series(**wanted)
    except Conflict as error:
        running = error.details.get("operationId")
        if not isinstance(running, str):
            raise
        raise OperatorError(f"{error} To watch it: watchword task watch {running}") from None
    except KeyboardInterrupt:
        warn("The operation may have started. See: watchword task list")
        raise

"""`watchword index`."""

import time
from typing import TYPE_CHECKING, Any

import click

from watchword.cli import watching
from watchword.cli.common import json_flag
from watchword.cli.later import LaterGroup
from watchword.cli.moments import Age, Moment
from watchword.cli.remote import can_be_asked, confirm, with_client, yes_flag
from watchword.cli.show import Cell, Column, When, named, say, show_list, show_one, sized
from watchword.cli.streams import WrongUse
from watchword.cli.text import as_json as json_text
from watchword.cli.text import one_line
from watchword.domain.errors import OperatorError

if TYPE_CHECKING:
    from watchword.client import Client, IndexInfo, OperationInfo, TruncationPlan

COLUMNS: "list[Column[IndexInfo]]" = [
    Column("INDEX", lambda size: size.index_name),
    Column("ENTITY", lambda size: size.entity_name),
    Column("ASPECT", lambda size: size.aspect_name, free=True),
    Column("ROWS", lambda size: size.rows),
    Column("SIZE", lambda size: sized(size.size_in_bytes)),
]


_LATER = {
    "histogram": ("histogram", "How the rows of a time series lie in time: what a truncation would cut."),
    "load": (
        "loading",
        "Put rows into the index of an aspect, from a FILE with a JSON object a line; - is standard input.",
    ),
}


@click.group(cls=LaterGroup, later=_LATER)
def index() -> None:
    """The indices of time series: what they weigh, how old rows go, how rows get in."""


@index.command()
@json_flag
@with_client
def sizes(client: "Client", as_json: bool) -> None:
    """What each index holds and weighs.

    \b
    Example: watchword index sizes --json
    """
    show_list(
        client.index_sizes(), COLUMNS, json=as_json, empty="No indices. To make some: watchword index load --demo"
    )


@index.command()
@click.argument("entity")
@click.argument("aspect")
@click.option("--older-than", type=Age(), metavar="SPAN", help="Rows older than this go, such as 30d, 12h or P30D.")
@click.option(
    "--until", type=Moment(ago=True), metavar="MOMENT", help="Rows up to this go: a date, time, or span back."
)
@click.option("--batch-size", type=click.IntRange(1), default=None, help="Rows at a time.")
@click.option("--timeout", type=click.IntRange(1), default=None, metavar="SECONDS", help="Give up after so long.")
@click.option("--delete", is_flag=True, help="Take the old rows out, whatever their share.")
@click.option("--copy", is_flag=True, help="Copy the others and leave the old ones behind, whatever their share.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--no-wait", is_flag=True, help="Start it, print its id, and do not watch it.")
@yes_flag
@json_flag
@with_client
def truncate(
    client: "Client",
    entity: str,
    aspect: str,
    older_than: int | None,
    until: int | None,
    batch_size: int | None,
    timeout: int | None,
    delete: bool,
    copy: bool,
    dry_run: bool,
    no_wait: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the old rows of a time series: shows the plan, asks, then shows how it goes on until it is over.

    Ctrl-C while it goes on stops nothing: watch it again with `watchword task watch`, end it with `task cancel`. With
    --json the plan (of a dry run) or the operation is printed, and nothing else.

    \b
    Example: watchword index truncate dataset operation --older-than 30d --dry-run
    Example: watchword index truncate dataset operation --until 2026-10-01T00:00:00Z --yes
    """
    wanted: dict[str, Any] = {
        "entity_type": entity,
        "aspect": aspect,
        "end_time": _end(older_than, until),
        "batch_size": batch_size,
        "timeout_seconds": timeout,
        "force_delete_by_query": delete,
        "force_reindex": copy,
    }
    if delete and copy:
        raise WrongUse("Give --delete or --copy, not both.")
    if not dry_run and not yes and not can_be_asked():
        raise WrongUse("Nobody can be asked here: give --yes to truncate, or --dry-run to see the plan.")
    plan = client.plan_truncation(**wanted)
    if dry_run or not as_json:
        show_one(_pairs(plan), plan, json=as_json)
    if dry_run:
        if not as_json:
            say("This was a dry run: nothing was changed. Without --dry-run it asks, and does it.")
        return
    if not plan.rows_to_delete:
        say(json_text(None) if as_json else "There is nothing to delete.")
        return
    what = f"{plan.rows_to_delete:,} of {plan.rows:,} rows of {plan.entity_type}.{plan.aspect}"
    confirm(one_line(f"Delete {what} for good?"), yes=yes)
    started = _start(client, wanted)
    if no_wait or as_json:
        ended = started if no_wait else _wait(client, started)
        say(
            json_text(named(ended))
            if as_json
            else one_line(f"Started {started.id}. Watch it: watchword task watch {started.id}")
        )
        if ended.state in ("FAILED", "CANCELLED"):
            watching.tell_end(ended)
        return
    say(one_line(f"Started {started.id}"))
    watching.tell_end(watching.watch_operation(client, started.id))


def _end(older_than: int | None, until: int | None) -> int:
    if (older_than is None) == (until is None):
        raise WrongUse("Give one of --older-than (such as 30d) and --until (such as 2026-10-01).")
    now = time.time_ns() // 1_000_000
    end = until if until is not None else now - (older_than or 0)
    if not 0 <= end <= now:
        flag = "--older-than" if until is None else "--until"
        raise WrongUse(f"{flag} must lead to a moment between 1970 and now.")
    return end


def _pairs(plan: "TruncationPlan") -> dict[str, Cell]:
    return {
        "Index": plan.index_name,
        "Rows up to": When(plan.end_time_millis),
        "To delete": f"{plan.rows_to_delete:,} of {plan.rows:,} rows ({plan.share:.2f}%)",
        "Frees about": f"{sized(plan.bytes_to_free)} of {sized(plan.size_in_bytes)}",
        "Strategy": f"{plan.strategy}: {plan.reason}",
    }


def _start(client: "Client", wanted: dict[str, Any]) -> "OperationInfo":
    from watchword.client import Conflict

    try:
        return client.truncate(**wanted)
    except Conflict as error:
        running = error.details.get("operationId")
        if not isinstance(running, str):
            raise
        raise OperatorError(f"{error} To watch it: watchword task watch {running}") from None
    except KeyboardInterrupt:
        click.echo("watchword: Whether it was started is not known. See: watchword task list", err=True)
        raise


def _wait(client: "Client", started: "OperationInfo") -> "OperationInfo":
    *_, ended = client.watch_operation(started.id, watching.BETWEEN_LOOKS)
    return ended

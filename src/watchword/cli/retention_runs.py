"""`watchword retention plan`, `run`, `history` and `sizes`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.options import json_flag, list_flags, page_size, urns_flag, yes_flag
from watchword.cli.output import Cell, Column, When, byte_size, json_text, say, show_list, show_one, with_name
from watchword.cli.remote import confirm, need_confirmation, with_client
from watchword.cli.run import Command
from watchword.cli.task import report_operation, watch_operation
from watchword.domain.errors import OperatorError

if TYPE_CHECKING:
    from watchword.client import Client, PlannedSpan, RetentionRunInfo, SeriesPlan, SeriesSize

MAX_BAR = 40
_WORDS = {
    None: "no rule",
    "HELD": "held",
    "REPORTED": "would report",
    "NOTHING_TO_REMOVE": "nothing to remove",
    "WAITING": "would wait for approval",
    "STARTED": "would remove",
}
_some_series = click.argument("series", required=False)


def _marks(plan: "SeriesPlan") -> str:
    """A letter for each span of time, oldest first: x where most rows go, # where most stay, . without rows."""
    return "".join(
        "x" if span.rows and 2 * span.rows_to_remove >= span.rows else "#" if span.rows else "." for span in plan.spans
    )


def _to_remove(plan: "SeriesPlan") -> str | None:
    return None if plan.plan is None else f"{plan.plan.rows_to_delete:,} ({plan.plan.share:.1f}%)"


def _removed(run: "RetentionRunInfo") -> int | None:
    operation = run.operation
    if operation is None:
        return None
    if operation.plan.strategy == "REINDEX":
        return operation.plan.rows_to_delete if operation.state == "DONE" else 0
    return operation.status.deleted


_PLAN_COLUMNS: "list[Column[SeriesPlan]]" = [
    Column("SERIES", lambda plan: plan.series),
    Column("MODE", lambda plan: None if plan.rule is None else plan.rule.mode),
    Column("NEXT RUN", lambda plan: When(plan.next_due_at)),
    Column("ROWS", lambda plan: plan.rows),
    Column("TO REMOVE", _to_remove),
    Column("NOW", lambda plan: _WORDS.get(plan.outcome, plan.outcome)),
    Column("OLDEST TO NEWEST", _marks),
]
_RUN_COLUMNS: "list[Column[RetentionRunInfo]]" = [
    Column("RUN", lambda run: run.number),
    Column("SERIES", lambda run: run.series, free=True),
    Column("DUE", lambda run: When(run.due_at)),
    Column("STATE", lambda run: run.state),
    Column("REMOVED", _removed),
    Column("OF ROWS", lambda run: None if run.plan is None else run.plan.rows),
    Column("RULE", lambda run: str(run.rule["series"])),
    Column("ASKED BY", lambda run: run.asked_by, name=lambda run: run.asked_by_name),
    Column("APPROVED BY", lambda run: run.approved_by, name=lambda run: run.approved_by_name),
    Column("OPERATION", lambda run: None if run.operation is None else run.operation.id),
]
_SIZE_COLUMNS: "list[Column[SeriesSize]]" = [
    Column("SERIES", lambda size: size.series, free=True),
    Column("DAY", lambda size: f"{size.day:%Y-%m-%d}"),
    Column("ROWS", lambda size: size.rows),
    Column("SIZE", lambda size: byte_size(size.size_in_bytes)),
]


@click.command(cls=Command)
@_some_series
@list_flags()
@with_client
def plan(client: "Client", series: str | None, limit: int, as_json: bool) -> None:
    """Show for every series what a run of its rule would remove now, and when the next one is due.

    Of one SERIES, the rows are shown by time. Nothing is removed. In the list, each letter stands for a span of time,
    the oldest first: x where most rows would go, # where most stay, . without rows.

    Example: watchword retention plan
    Example: watchword retention plan dataset.datasetProfile
    """
    found = client.retention_plan(series)
    if series is None or as_json:
        show_list(found, _PLAN_COLUMNS, json=as_json, limit=limit, empty="No series.")
        return
    for one in found:
        _show_plan(one)


def _show_plan(found: "SeriesPlan") -> None:
    rule, hold, waiting = found.rule, found.hold, found.waiting
    pairs: dict[str, Cell] = {
        "Series": found.series,
        "Rule": None if rule is None else f"{rule.series}: {rule.mode}, keep {rule.keep}, at most {rule.at_most}",
        "Held": None if hold is None else f"by {with_name(hold.set_by, hold.set_by_name)}: {hold.reason}",
        "Next run": When(found.next_due_at, "none"),
        "Now": _WORDS.get(found.outcome, found.outcome),
        "Waiting": None
        if waiting is None
        else f"run {waiting.number}; to approve: retention run {found.series} --approve",
        "Error": found.error,
    }
    if found.plan is not None:
        pairs |= {
            "Rows up to": When(found.plan.end_time) if found.plan.end_time.timestamp() else None,
            "To remove": f"{found.plan.rows_to_delete:,} of {found.plan.rows:,} rows ({found.plan.share:.2f}%)",
            "Strategy": f"{found.plan.strategy}: {found.plan.reason}",
        }
    show_one({title: value for title, value in pairs.items() if value is not None}, found, json=False)
    if found.spans:
        say("")
        most = max(span.rows for span in found.spans)
        columns: list[Column[PlannedSpan]] = [
            Column("FROM", lambda span: When(span.start)),
            Column("ROWS", lambda span: span.rows),
            Column("TO REMOVE", lambda span: span.rows_to_remove),
            Column("SHARE", lambda span: _bar(span, most)),
        ]
        show_list(found.spans, columns, json=False, empty="")


def _bar(span: "PlannedSpan", most: int) -> str:
    whole = round(span.rows * MAX_BAR / most) if most else 0
    gone = round(span.rows_to_remove * MAX_BAR / most) if most else 0
    return "x" * gone + "#" * (whole - gone)


@click.command(cls=Command)
@click.argument("series")
@click.option("--approve", is_flag=True, help="Approve the run that waits, or the new one if it would wait.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the run has started.")
@yes_flag
@json_flag
@with_client
def run(client: "Client", series: str, approve: bool, no_wait: bool, yes: bool, as_json: bool) -> None:
    """Run the rule of a series now, as if it were due, and show progress until it ends.

    In mode report it only reports. Beyond the rule's atMost it waits: look at it with `retention plan SERIES`, then
    approve it with --approve. Ctrl-C does not stop a run that has started.

    Example: watchword retention run dataset.datasetProfile
    Example: watchword retention run dataset.datasetProfile --approve
    """
    if approve:
        need_confirmation(yes=yes)
    waiting = next((one for one in client.retention_plan(series) if one.waiting is not None), None) if approve else None
    ran = client.run_retention(series) if waiting is None or waiting.waiting is None else waiting.waiting
    if approve and ran.state == "WAITING" and ran.plan is not None:
        rows = ran.plan.rows_to_delete
        confirm(f"Remove {rows:,} of {ran.plan.rows:,} rows of {ran.series}? This cannot be undone.", yes=yes)
        ran = client.approve_retention_run(ran.number, rows)
    if ran.operation is not None and not no_wait:
        if as_json:
            for operation in client.watch_operation(ran.operation.id):
                ended = operation
            say(json_text(ended))
        else:
            say(f"Run {ran.number} started {ran.operation.id}")
            ended = watch_operation(client, ran.operation.id)
        if not as_json or ended.state != "DONE":
            report_operation(ended)
        return
    say(json_text(ran) if as_json else _outcome(ran))
    if ran.state in ("WAITING", "FAILED", "HELD") and ran.approved_at is None:
        raise OperatorError(f"Nothing was removed from {ran.series}.")


def _outcome(ran: "RetentionRunInfo") -> str:
    planned = "" if ran.plan is None else f"{ran.plan.rows_to_delete:,} of {ran.plan.rows:,} rows"
    match ran.state:
        case "REPORTED":
            return f"Run {ran.number} would remove {planned}. The rule only reports: set its mode to enforce."
        case "NOTHING_TO_REMOVE":
            return f"Run {ran.number}: nothing to remove."
        case "WAITING" if ran.approved_at is not None:
            return f"Run {ran.number} is approved and starts soon. To see it: watchword retention history {ran.series}"
        case "WAITING":
            share = "" if ran.plan is None else f" ({ran.plan.share:.1f}%)"
            return (
                f"Run {ran.number} would remove {planned}{share}, more than atMost ({ran.rule['atMost']}). To approve "
                f"it: watchword retention run {ran.series} --approve"
            )
    if ran.operation is not None:
        return f"Run {ran.number} started {ran.operation.id}. Watch it: watchword task watch {ran.operation.id}"
    return f"Run {ran.number}: {ran.state}"


@click.command(cls=Command)
@_some_series
@urns_flag
@list_flags(default=100)
@with_client
def history(client: "Client", series: str | None, limit: int, as_json: bool, urns: bool) -> None:
    """List the runs of retention rules, newest first: what was removed, by which rule, asked by whom.

    Example: watchword retention history dataset.datasetProfile --json
    """
    found = client.retention_runs(series, page_size=page_size(limit))
    show_list(found, _RUN_COLUMNS, json=as_json, limit=limit, empty="No runs.", urns=urns)


@click.command(cls=Command)
@_some_series
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="How many days back.")
@list_flags()
@with_client
def sizes(client: "Client", series: str | None, days: int, limit: int, as_json: bool) -> None:
    """List the rows and sizes of series by day.

    Example: watchword retention sizes dataset.datasetProfile --days 90
    """
    empty = "No sizes yet: they are taken once a day."
    show_list(client.series_sizes(series, days=days), _SIZE_COLUMNS, json=as_json, limit=limit, empty=empty)

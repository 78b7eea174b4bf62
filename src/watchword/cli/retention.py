"""`watchword retention`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from watchword import client as api
from watchword.basics.errors import Fault, OperatorError
from watchword.cli import output as out
from watchword.cli.options import need_change, page_size, series_name, wait_flag, yes_flag
from watchword.cli.policy import declared_fields
from watchword.cli.remote import complete_series, confirm, need_confirmation, with_client, with_list
from watchword.cli.run import CommandGroup, WrongUse, read_input
from watchword.cli.watching import report_operation, watch_operation
from watchword.client.errors import snake_case
from watchword.retention.gc_recipe import DATAHUB_GC, rules_of_recipe
from watchword.retention.rules import Mode


def _removes(rule: "api.RetentionRuleInfo") -> str:
    limits = {"older than {}": rule.remove_after, "beyond {}": rule.max_size, "beyond {:,} rows": rule.max_rows}
    given = [words.format(value) for words, value in limits.items() if value is not None]
    return ", ".join(given) or f"older than {rule.keep}"


_COLUMNS = out.columns(
    "series, mode, keep",
    out.Column("REMOVES", _removes, free=True),
    out.Column("SCHEDULE", lambda rule: f"{rule.schedule} {rule.time_zone}", free=True),
    out.Column(
        "HELD BY",
        lambda rule: rule.hold.set_by if rule.hold else None,
        name=lambda rule: rule.hold.set_by_name if rule.hold else None,
    ),
    "set",
)
_HOLD_COLUMNS = out.columns(
    "series, SINCE=set_at",
    out.Column("SET BY", "set_by", name="set_by_name"),
    out.Column("BY RULE", lambda hold: "yes" if hold.by_rule else "no"),
    "reason*",
)
_SERIES: dict[str, Any] = {"type": series_name, "shell_complete": complete_series}
_series = click.argument("series", metavar="ENTITY.ASPECT", **_SERIES)


@click.group(cls=CommandGroup)
def retention() -> None:
    """ENTITY.ASPECT names a series, in any case, such as dataset.datasetProfile; '*' is every series."""


@retention.command("list")
@with_list(urns=True)
def list_rules(client: "api.Client") -> None:
    """List the retention rules.

    Example: watchword retention list --json
    """
    out.show_list(client.retention.list(), _COLUMNS, "No retention rules.")


@retention.command()
@_series
@with_client
def show(client: "api.Client", series: str) -> None:
    """Show the rule of a series: its own, or else that of every series.

    Example: watchword retention show dataset.datasetProfile
    """
    rule = client.retention.get(series)
    pairs: dict[str, out.Cell] = {
        **out.attributes(rule, "series, mode, keep"),
        "Removes": _removes(rule),
        "Keep last": None if rule.keep_last is None else f"{rule.keep_last} of each urn",
        "Schedule": f"{rule.schedule} {rule.time_zone}",
        "Window": rule.window,
        "At most": f"{rule.at_most} of the rows without approval",
        "Held": None if rule.hold is None else _hold_words(rule.hold),
        **out.attributes(rule, "set, Changed=changed_at"),
        "Changed by": out.with_name(rule.changed_by, rule.changed_by_name),
    }
    out.show_one(rule, pairs)


@retention.command()
@_series
@click.option("--keep", help="Never remove rows younger than this, such as 90d.")
@click.option("--remove-after", help="Remove rows older than this. [default: --keep, without --max-size, --max-rows]")
@click.option("--max-size", help="Remove the oldest rows beyond this size, such as 20GB.")
@click.option("--max-rows", type=int, help="Remove the oldest rows beyond this number.")
@click.option("--keep-last", type=int, help="Keep this many rows of each urn, whatever their age.")
@click.option("--schedule", help="When it runs, as cron has it, such as '0 3 * * *'.")
@click.option("--time-zone", help="Time zone of --schedule and --window, such as Europe/Berlin.")
@click.option("--window", help="Part of the day in which runs work, such as 22:00-06:00.")
@click.option("--at-most", help="Share of the rows beyond which a run waits for approval, such as 50%.")
@click.option("--mode", type=click.Choice([mode.value.lower() for mode in Mode]), help="Whether runs remove rows.")
@with_client
def update(client: "api.Client", series: str, **flags: str | int | None) -> None:
    """Create or change the rule of a series: given flags replace its values, the rest stays. '' or 0 removes a value.

    `watchword policy apply` takes rules from a file, under `retention:`.

    Example: watchword retention update dataset.datasetProfile --keep 90d
    """
    need_change(flags)
    found = (rule for rule in client.retention.list() if rule.series.lower() == series.lower())
    values: dict[str, Any] = {"series": series}
    values |= {snake_case(name): value for rule in found for name, value in declared_fields(rule).items()}
    values |= {name: value for name, value in flags.items() if value is not None}
    if not values.get("keep"):
        raise WrongUse("--keep must say how long rows are kept at least, such as 90d.")
    rule = client.retention.set(**{name: value for name, value in values.items() if value})
    out.show_result(f"Updated the retention rule of {rule.series}", rule)


@retention.command()
@_series
@yes_flag
@with_client
def delete(client: "api.Client", series: str) -> None:
    """Delete the rule of a series. The rule of every series counts for it from then on, if there is one.

    Example: watchword retention delete dataset.datasetProfile --yes
    """
    confirm(f"Delete the retention rule of {series}?")
    client.retention.delete(series)
    out.show_result(f"Deleted the retention rule of {series}", {"series": series, "deleted": True})


@retention.command()
@with_list(urns=True)
def holds(client: "api.Client") -> None:
    """List the holds.

    Example: watchword retention holds
    """
    out.show_list(client.retention.holds(), _HOLD_COLUMNS, "No holds.")


@retention.command()
@_series
@click.option("--reason", required=True, help="Why, for those who want to remove rows.")
@wait_flag
@with_client
def hold(client: "api.Client", series: str, reason: str, wait: bool) -> None:
    """Hold a series: nothing of it is removed, by rule or by hand, until it is released.

    Active operations on it are cancelled, and the command waits for them. One that is SWAPPING can no
    longer be cancelled.

    Example: watchword retention hold dataset.datasetProfile --reason "audit 2026-11"
    """
    held = client.retention.hold(series, reason)
    out.say(f"Held. {_hold_words(held.hold)}")
    if series != "*" and not _exists(client, series):
        out.warn(f"There is no index of {series} and no rule for it. Check the spelling: watchword index sizes")
    operations = [_cancelled(client, operation, wait=wait) for operation in held.active_operations]
    out.say_data({"hold": held.hold, "operations": operations})


def _exists(client: "api.Client", series: str) -> bool:
    try:
        return bool(list(client.retention.plan(series)))
    except api.RequestRejected as refused:
        return refused.reason != "aspect_not_found"


def _cancelled(client: "api.Client", operation: "api.OperationInfo", *, wait: bool) -> "api.OperationInfo":
    if operation.state == "SWAPPING":
        out.say(f"The operation {operation.id} is replacing the index. It can no longer be cancelled.")
    else:
        out.say(f"The operation {operation.id} is being cancelled.")
    if not wait:
        out.say(f"To see it end: watchword operation watch {operation.id}")
        return operation
    ended = watch_operation(client, operation.id)
    out.say(f"The operation {operation.id} is over: {ended.state}. It removes nothing any more.")
    return ended


@retention.command()
@_series
@with_client
def release(client: "api.Client", series: str) -> None:
    """Release the hold on a series. If someone else set it, this needs Release Retention Holds.

    Example: watchword retention release dataset.datasetProfile
    """
    client.retention.release(series)
    left = [found for found in client.retention.holds() if found.series in {"*", series.lower()}]
    out.show_result(f"Released {series}", {"series": series, "released": True, "holds": left})
    for found in left:
        out.say(f"It is still held. {_hold_words(found)}")


@retention.command()
@click.argument("tool", type=click.Choice([DATAHUB_GC]))
@click.argument("file", type=click.Path(path_type=Path))
def convert(tool: str, file: Path) -> None:
    """Print the rules that remove what another tool removes, from its settings in FILE; - is standard input.

    FILE of datahub-gc is its ingestion recipe. The rules are in the mode report.

    Example: watchword retention convert datahub-gc recipe.yaml > retention.yaml
    """
    from watchword.declared.policy_file import MAX_BYTES, read_yaml, yaml_text

    if (name := str(file)) == "-":
        name, content = "standard input", read_input(MAX_BYTES + 1)
    else:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    try:
        found = rules_of_recipe(read_yaml(content, name))
    except Fault as fault:
        raise OperatorError(f"{name}: {fault.message}") from None
    for warning in found.warnings:
        out.warn(warning)
    out.say(f"# Made from a recipe of {tool}. In the mode report nothing is removed.")
    out.say("# To remove rows, write mode: enforce. A run beyond atMost, a share of the rows, waits for approval.")
    click.echo(yaml_text({"retention": [rule.written() for rule in found.rules]}), nl=False)


def _hold_words(hold: "api.RetentionHold") -> str:
    what = "Every series" if hold.series == "*" else hold.series
    by = "by its rule" if hold.by_rule else f"by {out.with_name(hold.set_by, hold.set_by_name)}"
    return f"{what} is held {by} since {out.TimeCell(hold.set_at).iso}: {hold.reason}"


MAX_BAR = 40
_WORDS = {
    None: "no rule",
    "HELD": "held",
    "REPORTED": "would report",
    "NOTHING_TO_REMOVE": "nothing to remove",
    "WAITING": "would wait for approval",
    "STARTED": "would remove",
}
_some_series = click.argument("series", metavar="[ENTITY.ASPECT]", required=False, **_SERIES)


def _marks(plan: "api.SeriesPlanInfo") -> str:
    """A letter for each span of time, oldest first: x where most rows go, # where most stay, . without rows."""
    return "".join(
        "x" if span.rows and 2 * span.rows_to_remove >= span.rows else "#" if span.rows else "." for span in plan.spans
    )


def _removed(run: "api.RetentionRunInfo") -> int | None:
    operation = run.operation
    if operation is None:
        return None
    if operation.plan.strategy == "REINDEX":
        return operation.plan.rows_to_delete if operation.state == "DONE" else 0
    return operation.status.deleted


_PLAN_COLUMNS = out.columns(
    "series",
    out.Column("MODE", lambda plan: None if plan.rule is None else plan.rule.mode),
    "NEXT RUN=next_due_at, rows",
    out.Column("TO REMOVE", lambda one: one.plan and f"{one.plan.rows_to_delete:,} ({one.plan.share:.1f}%)"),
    out.Column("NOW", lambda plan: _WORDS.get(plan.outcome, plan.outcome)),
    out.Column("OLDEST TO NEWEST", _marks),
)
_RUN_COLUMNS = out.columns(
    "RUN=number, series*, DUE=due_at, state",
    out.Column("REMOVED", _removed),
    out.Column("OF ROWS", lambda run: None if run.plan is None else run.plan.rows),
    out.Column("RULE", lambda run: str(run.rule["series"])),
    out.Column("REQUESTED BY", "requested_by", name="requested_by_name"),
    out.Column("APPROVED BY", "approved_by", name="approved_by_name"),
    out.Column("OPERATION", lambda run: None if run.operation is None else run.operation.id),
)
_SIZE_COLUMNS = out.columns(
    "series*",
    out.Column("DAY", lambda size: f"{size.day:%Y-%m-%d}"),
    "rows",
    out.Column("SIZE", lambda size: out.byte_size(size.size_in_bytes)),
)


@retention.command()
@_some_series
@with_list()
def plan(client: "api.Client", series: str | None) -> None:
    """Show for every series what a run of its rule would remove now, and when the next one is due.

    Of one series, the rows are shown by time, with or without a rule. Nothing is removed. In the list, each letter
    stands for a span of time, the oldest first: x where most rows would go, # where most stay, . without rows.

    Example: watchword retention plan
    Example: watchword retention plan dataset.datasetProfile
    """
    found = client.retention.plan(series)
    if series is None or out.is_data():
        out.show_list(found, _PLAN_COLUMNS, "No series.")
        return
    for one in found:
        _show_plan(one)


def _show_plan(found: "api.SeriesPlanInfo") -> None:
    rule, hold, waiting = found.rule, found.hold, found.waiting
    pairs: dict[str, out.Cell] = {
        "Series": found.series,
        "Rule": None if rule is None else f"{rule.series}: {rule.mode}, keep {rule.keep}, at most {rule.at_most}",
        "Held": None if hold is None else f"by {out.with_name(hold.set_by, hold.set_by_name)}: {hold.reason}",
        "Next run": out.TimeCell(found.next_due_at, "none"),
        "Now": _WORDS.get(found.outcome, found.outcome),
        "Waiting": None
        if waiting is None
        else f"run {waiting.number}; to approve: retention run {found.series} --approve",
        "Error": found.error,
    }
    if found.plan is not None:
        pairs |= {
            "Rows up to": out.TimeCell(found.plan.end_time) if found.plan.end_time.timestamp() else None,
            "To remove": f"{found.plan.rows_to_delete:,} of {found.plan.rows:,} rows ({found.plan.share:.2f}%)",
            "Strategy": f"{found.plan.strategy}: {found.plan.reason}",
        }
    out.show_pairs({title: value for title, value in pairs.items() if value is not None})
    if found.spans:
        out.say("")
        most = max(span.rows for span in found.spans)
        shown = out.columns(
            "FROM=start, rows, TO REMOVE=rows_to_remove", out.Column("SHARE", lambda span: _bar(span, most))
        )
        out.show_table(found.spans, shown)


def _bar(span: "api.PlannedSpan", most: int) -> str:
    whole = round(span.rows * MAX_BAR / most) if most else 0
    gone = round(span.rows_to_remove * MAX_BAR / most) if most else 0
    return "x" * gone + "#" * (whole - gone)


@retention.command()
@_series
@click.option("--approve", is_flag=True, help="Approve the run that waits, or the new one if it would wait.")
@wait_flag
@yes_flag
@with_client
def run(client: "api.Client", series: str, approve: bool, wait: bool) -> None:
    """Run the rule of a series now, as if it were due, and show progress until it ends.

    In mode report it only reports. Beyond the rule's atMost it waits: look at it with `retention plan`, then approve it
    with --approve. Ctrl-C does not stop a run that has started.

    Example: watchword retention run dataset.datasetProfile
    Example: watchword retention run dataset.datasetProfile --approve
    """
    if approve:
        need_confirmation()
    waiting = next((one for one in client.retention.plan(series) if one.waiting is not None), None) if approve else None
    ran = client.retention.run(series) if waiting is None or waiting.waiting is None else waiting.waiting
    if approve and ran.state == "WAITING" and ran.plan is not None:
        rows = ran.plan.rows_to_delete
        confirm(f"Remove {rows:,} of {ran.plan.rows:,} rows of {ran.series}? This cannot be undone.")
        ran = client.retention.approve(ran.number, rows)
    if ran.operation is not None and wait:
        out.say(f"Run {ran.number} started {ran.operation.id}")
        ended = watch_operation(client, ran.operation.id)
        out.say_data(replace(ran, state=ended.state, operation=ended))
        report_operation(ended)
        return
    out.show_result(_outcome(ran), ran)
    if ran.state in ("WAITING", "FAILED", "HELD") and ran.approved_at is None:
        raise OperatorError(f"Nothing was removed from {ran.series}.")


def _outcome(ran: "api.RetentionRunInfo") -> str:
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
        return f"Run {ran.number} started {ran.operation.id}. Watch it: watchword operation watch {ran.operation.id}"
    return f"Run {ran.number}: {ran.state}"


@retention.command()
@_some_series
@with_list(urns=True)
def history(client: "api.Client", series: str | None) -> None:
    """List the runs of retention rules, newest first. Show rows removed, rule and requester of each run.

    Example: watchword retention history dataset.datasetProfile --json
    """
    found = client.retention.runs(series, page_size=page_size())
    out.show_list(found, _RUN_COLUMNS, "No runs.")


@retention.command()
@_some_series
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="How many days back.")
@with_list()
def sizes(client: "api.Client", series: str | None, days: int) -> None:
    """List the rows and sizes of series by day.

    Example: watchword retention sizes dataset.datasetProfile --days 90
    """
    empty = "No sizes yet: they are taken once a day."
    out.show_list(client.series.sizes(series, days=days), _SIZE_COLUMNS, empty)

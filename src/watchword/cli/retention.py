"""`watchword retention`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import limit_flag, page_size, urns_flag, yes_flag
from watchword.cli.output import (
    Cell,
    Column,
    TimeCell,
    byte_size,
    say,
    say_json,
    show_list,
    show_one,
    show_result,
    warn,
    with_name,
)
from watchword.cli.policy import DRIFT, declared_fields, read_declaration, show_change
from watchword.cli.remote import confirm, need_confirmation, with_client
from watchword.cli.run import CommandGroup, WrongUse, read_input
from watchword.cli.task import report_operation, watch_operation
from watchword.client.errors import snake_case
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.policies import DEFAULT_SET
from watchword.domain.retention import DATAHUB_GC, rules_of_recipe

if TYPE_CHECKING:
    from watchword.client import (
        Client,
        OperationInfo,
        PlannedSpan,
        RetentionHold,
        RetentionRuleInfo,
        RetentionRunInfo,
        SeriesPlanInfo,
        SeriesSize,
    )


def _removes(rule: "RetentionRuleInfo") -> str:
    limits = {"older than {}": rule.remove_after, "beyond {}": rule.max_size, "beyond {:,} rows": rule.max_rows}
    given = [words.format(value) for words, value in limits.items() if value is not None]
    return ", ".join(given) or f"older than {rule.keep}"


_COLUMNS: "list[Column[RetentionRuleInfo]]" = [
    Column("SERIES", lambda rule: rule.series),
    Column("MODE", lambda rule: rule.mode),
    Column("KEEP", lambda rule: rule.keep),
    Column("REMOVES", _removes, free=True),
    Column("SCHEDULE", lambda rule: f"{rule.schedule} {rule.time_zone}", free=True),
    Column(
        "HELD BY",
        lambda rule: rule.hold.set_by if rule.hold else None,
        name=lambda rule: rule.hold.set_by_name if rule.hold else None,
    ),
    Column("SET", lambda rule: rule.set),
]
_HOLD_COLUMNS: "list[Column[RetentionHold]]" = [
    Column("SERIES", lambda hold: hold.series),
    Column("SINCE", lambda hold: TimeCell(hold.set_at)),
    Column("SET BY", lambda hold: hold.set_by, name=lambda hold: hold.set_by_name),
    Column("BY RULE", lambda hold: "yes" if hold.by_rule else "no"),
    Column("REASON", lambda hold: hold.reason, free=True),
]
_series = click.argument("series")


@click.group(cls=CommandGroup)
def retention() -> None:
    """Manage how long the rows of time series are kept, and holds on them.

    SERIES is entity.aspect, in any case, such as dataset.datasetProfile, or '*' for every series.
    """


@retention.command("list")
@urns_flag
@limit_flag()
@with_client
def list_rules(client: "Client", limit: int, as_json: bool, urns: bool) -> None:
    """List the retention rules.

    Example: watchword retention list --json
    """
    show_list(client.retention_rules(), _COLUMNS, json=as_json, limit=limit, empty="No retention rules.", urns=urns)


@retention.command()
@_series
@with_client
def show(client: "Client", series: str, as_json: bool) -> None:
    """Show the rule of a series: its own, or else that of every series.

    Example: watchword retention show dataset.datasetProfile
    """
    rule = client.get_retention_rule(series)
    pairs: dict[str, Cell] = {
        "Series": rule.series,
        "Mode": rule.mode,
        "Keep": rule.keep,
        "Removes": _removes(rule),
        "Keep last": None if rule.keep_last is None else f"{rule.keep_last} of each urn",
        "Schedule": f"{rule.schedule} {rule.time_zone}",
        "Window": rule.window,
        "At most": f"{rule.at_most} of the rows without approval",
        "Held": None if rule.hold is None else _hold_words(rule.hold),
        "Set": rule.set,
        "Changed": TimeCell(rule.changed_at),
        "Changed by": with_name(rule.changed_by, rule.changed_by_name),
    }
    show_one(pairs, rule, json=as_json)


@retention.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would change; exit with 3 if anything would.")
@with_client
def apply(client: "Client", file: Path, dry_run: bool, as_json: bool) -> None:
    """Create and update the rules that FILE declares under `retention:`; - is standard input.

    Other rules stay. Each rule is applied by itself; after an error, apply the file again. For a file that also
    declares policies, or to remove rules with --prune, use `watchword policy apply`.

    Example: watchword retention apply retention.yaml --dry-run
    """
    declared = read_declaration(file)
    if declared.policies or declared.entities or declared.set_name != DEFAULT_SET:
        raise WrongUse("FILE must have only the key retention. For other keys: watchword policy apply")
    if not declared.rules:
        raise WrongUse("FILE must declare at least one rule under retention.")
    before = {rule.series.lower(): declared_fields(rule) for rule in client.retention_rules()}
    wanted = {rule.key: rule.written() for rule in declared.rules}
    changed = {key: rule for key, rule in wanted.items() if before.get(key) != rule}
    changes: list[dict[str, Any]] = []
    for key, rule in changed.items():
        if not dry_run:
            client.set_retention_rule(**{snake_case(name): value for name, value in rule.items()})
        kind = "UPDATE" if key in before else "CREATE"
        changes.append({"change": kind, "series": rule["series"], "before": before.get(key), "after": rule})
        if not as_json:
            show_change(kind, rule["series"], before.get(key), rule)
    created, unchanged = len(changed.keys() - before.keys()), len(wanted) - len(changed)
    words = "{} to create, {} to update, {} unchanged." if dry_run else "{} created, {} updated, {} unchanged."
    record = {"dryRun": dry_run, "changes": changes, "unchanged": unchanged}
    show_result(words.format(created, len(changed) - created, unchanged), record, json=as_json)
    if dry_run and changed:
        raise click.exceptions.Exit(DRIFT)


@retention.command()
@_series
@yes_flag
@with_client
def delete(client: "Client", series: str, yes: bool, as_json: bool) -> None:
    """Delete the rule of a series. The rule of every series counts for it from then on, if there is one.

    Example: watchword retention delete dataset.datasetProfile --yes
    """
    confirm(f"Delete the retention rule of {series}?", yes=yes)
    client.delete_retention_rule(series)
    show_result(f"Deleted the retention rule of {series}", {"series": series, "deleted": True}, json=as_json)


@retention.command()
@urns_flag
@limit_flag()
@with_client
def holds(client: "Client", limit: int, as_json: bool, urns: bool) -> None:
    """List the holds.

    Example: watchword retention holds
    """
    show_list(client.retention_holds(), _HOLD_COLUMNS, json=as_json, limit=limit, empty="No holds.", urns=urns)


@retention.command()
@_series
@click.option("--reason", required=True, help="Why, for those who want to remove rows.")
@click.option("--no-wait", is_flag=True, help="Do not wait for operations on the series to end.")
@with_client
def hold(client: "Client", series: str, reason: str, no_wait: bool, as_json: bool) -> None:
    """Hold a series: nothing of it is removed, by rule or by hand, until it is released.

    Active operations on it are cancelled, and the command waits until they are over. One that is SWAPPING can no
    longer be cancelled.

    Example: watchword retention hold dataset.datasetProfile --reason "audit 2026-11"
    """
    held = client.hold_series(series, reason)
    if not as_json:
        say(f"Held. {_hold_words(held.hold)}")
    if series != "*" and not _exists(client, series):
        warn(f"There is no index of {series} and no rule for it. Check the spelling: watchword index sizes")
    if as_json:
        ended = held.active_operations
        if not no_wait:
            ended = tuple(watch_operation(client, one.id, quiet=True) for one in ended)
        say_json({"hold": held.hold, "operations": ended})
        return
    for operation in held.active_operations:
        _wait(client, operation, no_wait=no_wait)


def _exists(client: "Client", series: str) -> bool:
    from watchword.client import RequestRejected

    try:
        return bool(list(client.retention_plan(series)))
    except RequestRejected as refused:
        return refused.reason != "aspect_not_found"


def _wait(client: "Client", operation: "OperationInfo", *, no_wait: bool) -> None:
    if operation.state == "SWAPPING":
        say(f"The operation {operation.id} is replacing the index. It can no longer be cancelled.")
    else:
        say(f"The operation {operation.id} is being cancelled.")
    if no_wait:
        say(f"To see it end: watchword task watch {operation.id}")
        return
    ended = watch_operation(client, operation.id)
    say(f"The operation {operation.id} is over: {ended.state}. It removes nothing any more.")


@retention.command()
@_series
@with_client
def release(client: "Client", series: str, as_json: bool) -> None:
    """Release the hold on a series. If someone else set it, this needs Release Retention Holds.

    Example: watchword retention release dataset.datasetProfile
    """
    client.release_series(series)
    left = [found for found in client.retention_holds() if found.series in {"*", series.lower()}]
    show_result(f"Released {series}", {"series": series, "released": True, "holds": left}, json=as_json)
    for found in () if as_json else left:
        say(f"It is still held. {_hold_words(found)}")


@retention.command()
@click.argument("tool", type=click.Choice([DATAHUB_GC]))
@click.argument("file", type=click.Path(path_type=Path))
def convert(tool: str, file: Path) -> None:
    """Print the rules that remove what another tool removes, from its settings in FILE; - is standard input.

    FILE of datahub-gc is its ingestion recipe. The rules are in the mode report.

    Example: watchword retention convert datahub-gc recipe.yaml > retention.yaml
    """
    from watchword.policyfile import MAX_BYTES, read_yaml, write_rules

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
        warn(warning)
    say(f"# Made from a recipe of {tool}. In the mode report nothing is removed.")
    say("# To remove rows, write mode: enforce. A run beyond atMost, a share of the rows, waits for approval.")
    click.echo(write_rules(found.rules), nl=False)


def _hold_words(hold: "RetentionHold") -> str:
    what = "Every series" if hold.series == "*" else hold.series
    by = "by its rule" if hold.by_rule else f"by {with_name(hold.set_by, hold.set_by_name)}"
    return f"{what} is held {by} since {TimeCell(hold.set_at).iso}: {hold.reason}"


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


def _marks(plan: "SeriesPlanInfo") -> str:
    """A letter for each span of time, oldest first: x where most rows go, # where most stay, . without rows."""
    return "".join(
        "x" if span.rows and 2 * span.rows_to_remove >= span.rows else "#" if span.rows else "." for span in plan.spans
    )


def _to_remove(plan: "SeriesPlanInfo") -> str | None:
    return None if plan.plan is None else f"{plan.plan.rows_to_delete:,} ({plan.plan.share:.1f}%)"


def _removed(run: "RetentionRunInfo") -> int | None:
    operation = run.operation
    if operation is None:
        return None
    if operation.plan.strategy == "REINDEX":
        return operation.plan.rows_to_delete if operation.state == "DONE" else 0
    return operation.status.deleted


_PLAN_COLUMNS: "list[Column[SeriesPlanInfo]]" = [
    Column("SERIES", lambda plan: plan.series),
    Column("MODE", lambda plan: None if plan.rule is None else plan.rule.mode),
    Column("NEXT RUN", lambda plan: TimeCell(plan.next_due_at)),
    Column("ROWS", lambda plan: plan.rows),
    Column("TO REMOVE", _to_remove),
    Column("NOW", lambda plan: _WORDS.get(plan.outcome, plan.outcome)),
    Column("OLDEST TO NEWEST", _marks),
]
_RUN_COLUMNS: "list[Column[RetentionRunInfo]]" = [
    Column("RUN", lambda run: run.number),
    Column("SERIES", lambda run: run.series, free=True),
    Column("DUE", lambda run: TimeCell(run.due_at)),
    Column("STATE", lambda run: run.state),
    Column("REMOVED", _removed),
    Column("OF ROWS", lambda run: None if run.plan is None else run.plan.rows),
    Column("RULE", lambda run: str(run.rule["series"])),
    Column("REQUESTED BY", lambda run: run.requested_by, name=lambda run: run.requested_by_name),
    Column("APPROVED BY", lambda run: run.approved_by, name=lambda run: run.approved_by_name),
    Column("OPERATION", lambda run: None if run.operation is None else run.operation.id),
]
_SIZE_COLUMNS: "list[Column[SeriesSize]]" = [
    Column("SERIES", lambda size: size.series, free=True),
    Column("DAY", lambda size: f"{size.day:%Y-%m-%d}"),
    Column("ROWS", lambda size: size.rows),
    Column("SIZE", lambda size: byte_size(size.size_in_bytes)),
]


@retention.command()
@_some_series
@limit_flag()
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


def _show_plan(found: "SeriesPlanInfo") -> None:
    rule, hold, waiting = found.rule, found.hold, found.waiting
    pairs: dict[str, Cell] = {
        "Series": found.series,
        "Rule": None if rule is None else f"{rule.series}: {rule.mode}, keep {rule.keep}, at most {rule.at_most}",
        "Held": None if hold is None else f"by {with_name(hold.set_by, hold.set_by_name)}: {hold.reason}",
        "Next run": TimeCell(found.next_due_at, "none"),
        "Now": _WORDS.get(found.outcome, found.outcome),
        "Waiting": None
        if waiting is None
        else f"run {waiting.number}; to approve: retention run {found.series} --approve",
        "Error": found.error,
    }
    if found.plan is not None:
        pairs |= {
            "Rows up to": TimeCell(found.plan.end_time) if found.plan.end_time.timestamp() else None,
            "To remove": f"{found.plan.rows_to_delete:,} of {found.plan.rows:,} rows ({found.plan.share:.2f}%)",
            "Strategy": f"{found.plan.strategy}: {found.plan.reason}",
        }
    show_one({title: value for title, value in pairs.items() if value is not None}, found, json=False)
    if found.spans:
        say("")
        most = max(span.rows for span in found.spans)
        columns: list[Column[PlannedSpan]] = [
            Column("FROM", lambda span: TimeCell(span.start)),
            Column("ROWS", lambda span: span.rows),
            Column("TO REMOVE", lambda span: span.rows_to_remove),
            Column("SHARE", lambda span: _bar(span, most)),
        ]
        show_list(found.spans, columns, json=False, empty="")


def _bar(span: "PlannedSpan", most: int) -> str:
    whole = round(span.rows * MAX_BAR / most) if most else 0
    gone = round(span.rows_to_remove * MAX_BAR / most) if most else 0
    return "x" * gone + "#" * (whole - gone)


@retention.command()
@click.argument("series")
@click.option("--approve", is_flag=True, help="Approve the run that waits, or the new one if it would wait.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the run has started.")
@yes_flag
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
            say_json(replace(ran, state=ended.state, operation=ended))
        else:
            say(f"Run {ran.number} started {ran.operation.id}")
            ended = watch_operation(client, ran.operation.id)
        if not as_json or ended.state != "DONE":
            report_operation(ended)
        return
    show_result(_outcome(ran), ran, json=as_json)
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


@retention.command()
@_some_series
@urns_flag
@limit_flag(default=100)
@with_client
def history(client: "Client", series: str | None, limit: int, as_json: bool, urns: bool) -> None:
    """List the runs of retention rules, newest first. Show rows removed, rule and requester of each run.

    Example: watchword retention history dataset.datasetProfile --json
    """
    found = client.retention_runs(series, page_size=page_size(limit))
    show_list(found, _RUN_COLUMNS, json=as_json, limit=limit, empty="No runs.", urns=urns)


@retention.command()
@_some_series
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="How many days back.")
@limit_flag()
@with_client
def sizes(client: "Client", series: str | None, days: int, limit: int, as_json: bool) -> None:
    """List the rows and sizes of series by day.

    Example: watchword retention sizes dataset.datasetProfile --days 90
    """
    empty = "No sizes yet: they are taken once a day."
    show_list(client.series_sizes(series, days=days), _SIZE_COLUMNS, json=as_json, limit=limit, empty=empty)

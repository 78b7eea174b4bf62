"""`watchword retention`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchword.cli.options import json_flag, list_flags, urns_flag, yes_flag
from watchword.cli.output import Cell, Column, When, say, show_list, show_one, warn, with_name
from watchword.cli.policy import DRIFT, declared_fields, read_declaration, show_change
from watchword.cli.remote import confirm, with_client
from watchword.cli.run import Group, WrongUse, read_input
from watchword.cli.task import watch_operation
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.policies import DEFAULT_SET
from watchword.domain.retention import DATAHUB_GC, rules_of_recipe

if TYPE_CHECKING:
    from watchword.client import Client, OperationInfo, RetentionHold, RetentionRuleInfo


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
        lambda rule: None if rule.held_by is None else rule.held_by.set_by,
        name=lambda rule: _holder(rule.held_by),
    ),
    Column("SET", lambda rule: rule.set),
]
_HOLD_COLUMNS: "list[Column[RetentionHold]]" = [
    Column("SERIES", lambda hold: hold.series),
    Column("SINCE", lambda hold: When(hold.set_at)),
    Column("SET BY", lambda hold: hold.set_by, name=lambda hold: hold.set_by_name),
    Column("BY RULE", lambda hold: "yes" if hold.by_rule else "no"),
    Column("REASON", lambda hold: hold.reason, free=True),
]
_series = click.argument("series")


_RUNS = {
    "plan": "Show for every series what a run of its rule would remove now, and when the next one is due.",
    "run": "Run the rule of a series now, as if it were due, and show progress until it ends.",
    "history": "List the runs of retention rules, newest first: what was removed, by which rule, asked by whom.",
    "sizes": "List the rows and sizes of series by day.",
}


@click.group(cls=Group, lazy={name: ("retention_runs", sentence) for name, sentence in _RUNS.items()})
def retention() -> None:
    """Manage how long the rows of time series are kept, and holds on them.

    SERIES is entity.aspect, in any case, such as dataset.datasetProfile, or '*' for every series.
    """


@retention.command("list")
@urns_flag
@list_flags()
@with_client
def list_rules(client: "Client", limit: int, as_json: bool, urns: bool) -> None:
    """List the retention rules.

    Example: watchword retention list --json
    """
    show_list(client.retention_rules(), _COLUMNS, json=as_json, limit=limit, empty="No retention rules.", urns=urns)


@retention.command()
@_series
@json_flag
@with_client
def show(client: "Client", series: str, as_json: bool) -> None:
    """Show the rule of a series: its own, or else that of every series.

    Example: watchword retention show dataset.datasetProfile
    """
    rule = client.retention_rule(series)
    pairs: dict[str, Cell] = {
        "Series": rule.series,
        "Mode": rule.mode,
        "Keep": rule.keep,
        "Removes": _removes(rule),
        "Keep last": None if rule.keep_last is None else f"{rule.keep_last} of each urn",
        "Schedule": f"{rule.schedule} {rule.time_zone}",
        "Window": rule.window,
        "At most": f"{rule.at_most} of the rows without approval",
        "Held": None if rule.held_by is None else _hold_words(rule.held_by),
        "Set": rule.set,
        "Changed": When(rule.changed_at),
        "Changed by": with_name(rule.changed_by, rule.changed_by_name),
    }
    show_one(pairs, rule, json=as_json)


@retention.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would change; exit with 3 if anything would.")
@with_client
def apply(client: "Client", file: Path, dry_run: bool) -> None:
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
    for key, rule in changed.items():
        if not dry_run:
            client.set_retention_rule(rule)
        show_change("UPDATE" if key in before else "CREATE", rule["series"], before.get(key), rule)
    created = len(changed.keys() - before.keys())
    words = "{} to create, {} to update, {} unchanged." if dry_run else "{} created, {} updated, {} unchanged."
    say(words.format(created, len(changed) - created, len(wanted) - len(changed)))
    if dry_run and changed:
        raise click.exceptions.Exit(DRIFT)


@retention.command()
@_series
@yes_flag
@with_client
def delete(client: "Client", series: str, yes: bool) -> None:
    """Delete the rule of a series. The rule of every series counts for it from then on, if there is one.

    Example: watchword retention delete dataset.datasetProfile --yes
    """
    confirm(f"Delete the retention rule of {series}?", yes=yes)
    client.delete_retention_rule(series)
    say(f"Deleted the retention rule of {series}")


@retention.command()
@urns_flag
@list_flags()
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
def hold(client: "Client", series: str, reason: str, no_wait: bool) -> None:
    """Hold a series: nothing of it is removed, by rule or by hand, until it is released.

    Operations on it are asked to cancel, and the command waits until they are over. One that is SWAPPING can no longer
    be cancelled.

    Example: watchword retention hold dataset.datasetProfile --reason "audit 2026-11"
    """
    held = client.hold_series(series, reason)
    say(f"Held. {_hold_words(held.hold)}")
    if series != "*" and not _exists(client, series):
        warn(f"There is no index of {series} and no rule for it. Check the spelling: watchword index sizes")
    for operation in held.active_operations:
        _wait(client, operation, no_wait=no_wait)


def _exists(client: "Client", series: str) -> bool:
    from watchword.client import Refused

    try:
        return bool(list(client.retention_plan(series)))
    except Refused as refused:
        return refused.reason != "aspect_not_found"


def _wait(client: "Client", operation: "OperationInfo", *, no_wait: bool) -> None:
    if operation.state == "SWAPPING":
        say(f"The operation {operation.id} is replacing the index. It can no longer be cancelled.")
    else:
        say(f"The operation {operation.id} was asked to cancel.")
    if no_wait:
        say(f"To see it end: watchword task watch {operation.id}")
        return
    ended = watch_operation(client, operation.id)
    say(f"The operation {operation.id} is over: {ended.state}. It removes nothing any more.")


@retention.command()
@_series
@with_client
def release(client: "Client", series: str) -> None:
    """Release the hold on a series. If someone else set it, this needs Release Retention Holds.

    Example: watchword retention release dataset.datasetProfile
    """
    client.release_series(series)
    say(f"Released {series}")
    for found in client.retention_holds():
        if found.series in {"*", series.lower()}:
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


def _holder(hold: "RetentionHold | None") -> str | None:
    return None if hold is None else hold.set_by_name


def _hold_words(hold: "RetentionHold") -> str:
    what = "Every series" if hold.series == "*" else hold.series
    by = "by its rule" if hold.by_rule else f"by {with_name(hold.set_by, hold.set_by_name)}"
    return f"{what} is held {by} since {When(hold.set_at).iso}: {hold.reason}"

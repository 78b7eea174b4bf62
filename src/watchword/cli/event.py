"""`watchword event`."""

import itertools
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import ActorParam, TimeParam, limit_flag, page_size, repeatable, urns_flag
from watchword.cli.output import Column, TimeCell, json_text, say, say_json, show_list
from watchword.cli.remote import patiently, with_client
from watchword.cli.run import CommandGroup, WrongUse

if TYPE_CHECKING:
    from datetime import datetime

    from watchword.client import Client, EventAction, EventInfo

FOLLOW_SECONDS = 1.0
LATE, LATEST, LATEST_EVERY = timedelta(seconds=10), timedelta(seconds=75), 10
"""A transaction that began earlier may commit later, with an earlier time. Few take ten seconds, and none takes longer
than a minute. So each look goes back by the first, and one in ten by the second.
"""

_COLUMNS: "list[Column[EventInfo]]" = [
    Column("AT", lambda event: TimeCell(event.at)),
    Column("ACTION", lambda event: event.action),
    Column("ACTOR", lambda event: event.actor_urn, name=lambda event: event.actor_name),
    Column("TARGET", lambda event: event.target, free=True, name=lambda event: event.target_name),
    Column("FROM", lambda event: event.peer),
    Column("DETAIL", lambda event: json_text(event.detail) if event.detail else None, free=True),
]
_ACTION_COLUMNS: "list[Column[EventAction]]" = [
    Column("ACTION", lambda action: action.name),
    Column("DESCRIPTION", lambda action: action.description, free=True),
]


@click.group(cls=CommandGroup)
def event() -> None:
    """Read the audit log."""


@event.command("list")
@repeatable("--actor", "actors", "ACTOR", "Events of this actor.", type=ActorParam())
@repeatable("--about", "about", "ACTOR", "Events about this actor or its tokens.", type=ActorParam())
@repeatable("--action", "actions", "WORD", "Events with this action. `watchword event actions` lists them.")
@repeatable("--target", "targets", "TEXT", "Events on this id or URN.")
@click.option("--since", type=TimeParam(ago=True), help="From a date, a time, or a duration back such as 1d.")
@click.option("--until", type=TimeParam(ago=True), help="Before a date, a time, or a duration back.")
@click.option("--follow", is_flag=True, help="Print events oldest first, then new ones as they happen, until Ctrl-C.")
@urns_flag
@limit_flag(default=100)
@with_client
def list_events(client: "Client", limit: int, as_json: bool, follow: bool, urns: bool, **filters: Any) -> None:
    """List events, newest first. With --follow and --json, each line is one event.

    Example: watchword event list --action token.created --since 1d
    Example: watchword event list --about urn:li:corpuser:alice --limit 0
    Example: watchword event list --follow -o json
    """
    if follow and filters["until"] is not None:
        raise WrongUse("Pass --follow or --until, not both.")
    if follow:
        for found in _follow(client, limit, filters):
            _print_event(found, as_json=as_json)
        return
    events = client.events(**filters, page_size=page_size(limit))
    show_list(events, _COLUMNS, json=as_json, limit=limit, empty="No events.", urns=urns)


def _follow(client: "Client", limit: int, filters: dict[str, Any]) -> "Iterator[EventInfo]":
    """The latest events, oldest first, then each new one."""
    recent: list[EventInfo] = []
    requested = filters["since"]
    newest = _newest(client)
    for one in client.events(**filters, page_size=page_size(limit)):
        if limit and len(recent) >= limit and one.at < recent[0].at - LATEST:
            break
        recent.append(one)
    yield from reversed(recent[: limit or None])
    seen = {one.id: one.at for one in recent}

    def poll() -> "Iterator[tuple[datetime | None, list[EventInfo]]]":
        while True:
            yield _newest(client), [one for one in client.events(**filters) if one.id not in seen]
            sys.stdout.flush()
            time.sleep(FOLLOW_SECONDS)

    looks = patiently(poll)
    for number in itertools.count(1):
        # From the newest event that any filter would have seen at the last look, whether it matched or not.
        if newest is not None:
            since = newest - (LATEST if number % LATEST_EVERY == 0 else LATE)
            filters["since"] = max(requested or since, since)
            seen = {id_: at for id_, at in seen.items() if at >= newest - LATEST}
        newest, found = next(looks)
        yield from reversed(found)
        seen |= {one.id: one.at for one in found}


def _newest(client: "Client") -> "datetime | None":
    """When the newest event happened."""
    return next((one.at for one in client.events(page_size=1)), None)


def _print_event(found: "EventInfo", *, as_json: bool) -> None:
    if as_json:
        say_json(found)
        return
    detail = json_text(found.detail) if found.detail else ""
    words = TimeCell(found.at).iso, found.action, found.actor_urn, found.target, detail
    say("  ".join(word for word in words if word))


@event.command("actions")
@limit_flag()
@with_client
def list_actions(client: "Client", limit: int, as_json: bool) -> None:
    """List the actions that leave an event: the values of --action.

    Example: watchword event actions
    """
    show_list(client.event_actions(), _ACTION_COLUMNS, json=as_json, limit=limit, empty="No actions.")

"""`watchword event`."""

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import Moment, list_flags, page_size
from watchword.cli.output import Column, When, json_text, one_line, say, show_list
from watchword.cli.remote import with_client
from watchword.cli.run import WrongUse
from watchword.client.records import from_millis

if TYPE_CHECKING:
    from watchword.client import Client, EventAction, EventInfo

FOLLOW_SECONDS = 1.0
LATE = timedelta(seconds=10)
"""A transaction that began earlier may commit later, with an earlier time; so each look goes back by this."""
PATIENCE_SECONDS = 120.0

_COLUMNS: "list[Column[EventInfo]]" = [
    Column("AT", lambda event: When(event.at)),
    Column("ACTION", lambda event: event.action),
    Column("ACTOR", lambda event: event.actor_urn),
    Column("TARGET", lambda event: event.target, free=True),
    Column("FROM", lambda event: event.peer),
    Column("DETAIL", lambda event: json_text(event.detail) if event.detail else None, free=True),
]
_ACTION_COLUMNS: "list[Column[EventAction]]" = [
    Column("ACTION", lambda action: action.name),
    Column("MEANS", lambda action: action.means, free=True),
]


@click.group()
def event() -> None:
    """Read the audit log."""


@event.command("list")
@click.option("--actor", "actors", multiple=True, metavar="URN", help="Events of this actor; repeatable.")
@click.option("--about", multiple=True, metavar="URN", help="Events about this actor or its tokens; repeatable.")
@click.option(
    "--action", "actions", multiple=True, metavar="WORD", help="Events with this action, such as token.revoked."
)
@click.option("--target", "targets", multiple=True, metavar="TEXT", help="Events on this target: an id or URN.")
@click.option("--since", type=Moment(ago=True), metavar="MOMENT", help="From a date, time, or span back such as 1d.")
@click.option("--until", type=Moment(ago=True), metavar="MOMENT", help="Before a date, time, or span back.")
@click.option("--follow", is_flag=True, help="Print events oldest first, then new ones as they happen, until Ctrl-C.")
@list_flags(default=100)
@with_client
def list_events(client: "Client", limit: int, as_json: bool, follow: bool, **filters: Any) -> None:
    """List events, newest first. With --follow and --json, each line is one event.

    \b
    Example: watchword event list --action token.created --since 1d
    Example: watchword event list --about urn:li:corpuser:alice --limit 0
    Example: watchword event list --follow -o json
    """
    for name in ("since", "until"):
        filters[name] = None if filters[name] is None else from_millis(filters[name])
    if follow and filters["until"] is not None:
        raise WrongUse("Pass --follow or --until, not both.")
    if follow:
        for found in _follow(client, limit, filters):
            _print_event(found, as_json=as_json)
        return
    show_list(
        client.events(**filters, page_size=page_size(limit)), _COLUMNS, json=as_json, limit=limit, empty="No events."
    )


def _follow(client: "Client", limit: int, filters: dict[str, Any]) -> "Iterator[EventInfo]":
    """The latest events, oldest first, then each new one; waits while the server is away, as during a restart."""
    from watchword.client import Unavailable, Unreachable

    recent: list[EventInfo] = []
    for one in client.events(**filters, page_size=page_size(limit)):
        if limit and len(recent) >= limit and one.at < recent[0].at - LATE:
            break
        recent.append(one)
    yield from reversed(recent[: limit or None])
    seen = {one.id: one.at for one in recent}
    answered_at = time.monotonic()
    while True:
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
        if seen:
            latest = max(seen.values()) - LATE
            filters["since"] = max(filters["since"] or latest, latest)
        try:
            found = [one for one in client.events(**filters) if one.id not in seen]
        except (Unavailable, Unreachable):
            if time.monotonic() - answered_at > PATIENCE_SECONDS:
                raise
            continue
        answered_at = time.monotonic()
        yield from reversed(found)
        since = filters["since"]
        seen = {id_: at for id_, at in seen.items() if since is None or at >= since} | {one.id: one.at for one in found}


def _print_event(found: "EventInfo", *, as_json: bool) -> None:
    if as_json:
        say(json_text(found))
        return
    detail = json_text(found.detail) if found.detail else ""
    words = When(found.at).iso, found.action, found.actor_urn, found.target, detail
    say(one_line("  ".join(word for word in words if word)))


@event.command("actions")
@list_flags()
@with_client
def list_actions(client: "Client", limit: int, as_json: bool) -> None:
    """List the actions that leave an event: the values of --action.

    \b
    Example: watchword event actions
    """
    show_list(client.event_actions(), _ACTION_COLUMNS, json=as_json, limit=limit, empty="No actions.")

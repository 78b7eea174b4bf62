"""`watchword event`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.moments import Moment
from watchword.cli.remote import with_client
from watchword.cli.show import Column, When, first, named, show_list
from watchword.cli.text import as_json as json_text

if TYPE_CHECKING:
    from watchword.client import Client, EventAction, EventInfo

COLUMNS: "list[Column[EventInfo]]" = [
    Column("AT", lambda event: When(event.at)),
    Column("ACTION", lambda event: event.action),
    Column("ACTOR", lambda event: event.actor_urn),
    Column("TARGET", lambda event: event.target, free=True),
    Column("FROM", lambda event: event.peer),
    Column("DETAIL", lambda event: json_text(named(event.detail)) if event.detail else None, free=True),
]
ACTIONS: "list[Column[EventAction]]" = [
    Column("ACTION", lambda action: action.name),
    Column("MEANS", lambda action: action.means, free=True),
]


@click.group()
def event() -> None:
    """What happened: every change, every denial."""


@event.command("list")
@click.option("--actor", "actors", multiple=True, metavar="URN", help="Who did it; may be repeated.")
@click.option("--action", "actions", multiple=True, metavar="WORD", help="What was done, such as token.revoked.")
@click.option("--target", "targets", multiple=True, metavar="TEXT", help="What it was done to: an id or urn.")
@click.option("--since", type=Moment(ago=True), metavar="MOMENT", help="From a date, time, or span back such as P1D.")
@click.option("--until", type=Moment(ago=True), metavar="MOMENT", help="Before a date, time, or span back.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="At most so many; 0 is all.")
@json_flag
@with_client
def list_events(
    client: "Client",
    actors: tuple[str, ...],
    actions: tuple[str, ...],
    targets: tuple[str, ...],
    since: int | None,
    until: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """The events, newest first.

    \b
    Example: watchword event list --action token.created --since P1D
    """
    size = min(limit or 1_000, 1_000)
    found = client.events(actors=actors, actions=actions, targets=targets, since=since, until=until, page_size=size)
    show_list(first(found, limit), COLUMNS, json=as_json, empty="No events.")


@event.command("actions")
@json_flag
@with_client
def list_actions(client: "Client", as_json: bool) -> None:
    """Everything that leaves an event: what --action takes.

    \b
    Example: watchword event actions
    """
    show_list(client.event_actions(), ACTIONS, json=as_json, empty="No actions.")

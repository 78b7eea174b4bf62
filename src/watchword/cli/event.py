"""`watchword event`."""

import itertools
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from watchword import client as api
from watchword.cli import output as out
from watchword.cli.options import page_size, repeatable, time_ago
from watchword.cli.remote import ACTOR, patiently, with_list
from watchword.cli.run import CommandGroup, WrongUse

if TYPE_CHECKING:
    from datetime import datetime

FOLLOW_SECONDS = 1.0
LATE, LATEST, LATEST_EVERY = timedelta(seconds=10), timedelta(seconds=75), 10
"""A transaction that began earlier may commit later, with an earlier time. Few take ten seconds, and none takes longer
than a minute. So each look goes back by the first, and one in ten by the second.
"""

_COLUMNS = out.columns(
    "at, action",
    out.Column("ACTOR", "actor_urn", name="actor_name"),
    out.Column("TARGET", "target", free=True, name="target_name"),
    "FROM=peer",
    out.Column("DETAIL", lambda event: out.json_text(event.detail) if event.detail else None, free=True),
)
_ACTION_COLUMNS = out.columns("ACTION=name, description*")


@click.group(cls=CommandGroup)
def event() -> None: ...


@event.command("list")
@repeatable("--actor", "actor_urns", "ACTOR", "Events of this actor.", **ACTOR)
@repeatable("--about", "about_urns", "ACTOR", "Events about this actor or its tokens.", **ACTOR)
@repeatable("--action", "actions", "WORD", "Events with this action. `watchword event actions` lists them.")
@repeatable("--target", "targets", "TEXT", "Events on this id or URN.")
@click.option("--since", type=time_ago, help="From a date, a time, or a duration back such as 1d.")
@click.option("--until", type=time_ago, help="Before a date, a time, or a duration back.")
@click.option("--follow", is_flag=True, help="Print events oldest first, then new ones as they happen, until Ctrl-C.")
@with_list(urns=True)
def list_events(client: "api.Client", follow: bool, **filters: Any) -> None:
    """List events, newest first. With --follow and --json, each line is one event.

    Example: watchword event list --action token.created --since 1d
    Example: watchword event list --about urn:li:corpuser:alice --all
    Example: watchword event list --follow -o json
    """
    if follow and filters["until"] is not None:
        raise WrongUse("Pass --follow or --until, not both.")
    if follow:
        out.show_stream(_follow(client, out.flag("limit"), filters), _line)
        return
    events = client.events.list(**filters, page_size=page_size())
    out.show_list(events, _COLUMNS, "No events.")


def _follow(client: "api.Client", limit: int | None, filters: dict[str, Any]) -> "Iterator[api.EventInfo]":
    """The latest events, oldest first, then each new one."""
    recent: list[api.EventInfo] = []
    requested = filters["since"]
    newest = _newest(client)
    for one in client.events.list(**filters, page_size=page_size()):
        if limit and len(recent) >= limit and one.at < recent[0].at - LATEST:
            break
        recent.append(one)
    yield from reversed(recent[: limit or None])
    seen = {one.id: one.at for one in recent}

    def poll() -> "Iterator[tuple[datetime | None, list[api.EventInfo]]]":
        while True:
            yield _newest(client), [one for one in client.events.list(**filters) if one.id not in seen]
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


def _newest(client: "api.Client") -> "datetime | None":
    """When the newest event happened."""
    return next((one.at for one in client.events.list(page_size=1)), None)


def _line(found: "api.EventInfo") -> str:
    detail = out.json_text(found.detail) if found.detail else ""
    words = out.iso(found.at), found.action, found.actor_urn, found.target, detail
    return "  ".join(word for word in words if word)


@event.command("actions")
@with_list()
def list_actions(client: "api.Client") -> None:
    """List the actions that leave an event: the values of --action.

    Example: watchword event actions
    """
    out.show_list(client.events.actions(), _ACTION_COLUMNS, "No actions.")

"""`watchword actor`."""

from typing import TYPE_CHECKING

import click

from watchword.doors.cli.common import json_flag
from watchword.doors.cli.remote import with_client
from watchword.doors.cli.show import Cell, Column, When, named, say, show_list, show_one
from watchword.doors.cli.text import one_line

if TYPE_CHECKING:
    from watchword.client import Client, KnownActor


@click.group()
def actor() -> None:
    """Look at actors, suspend them, let them act again."""


COLUMNS: "list[Column[KnownActor]]" = [
    Column("URN", lambda actor: actor.urn),
    Column("STATUS", lambda actor: actor.status),
    Column("CHANGED", lambda actor: When(actor.changed_at)),
    Column("TOKENS", lambda actor: actor.token_count),
    Column("GROUPS", lambda actor: actor.groups, free=True),
]


@actor.command("list")
@click.option("--prefix", default="", metavar="TEXT", help="Those whose urn, or name as a user, begins so.")
@click.option("--suspended", is_flag=True, help="Only those that are suspended.")
@json_flag
@with_client
def list_actors(client: "Client", prefix: str, suspended: bool, as_json: bool) -> None:
    """The actors that are known: with tokens, a status or a group, or named by a policy.

    \b
    Example: watchword actor list --prefix al
    """
    found = client.actors(prefix=prefix, only_suspended=suspended)
    show_list(found, COLUMNS, json=as_json, empty="No actors.")


@actor.command()
@click.argument("urn")
@json_flag
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """How an actor stands, and what it may do.

    \b
    Example: watchword actor show urn:li:corpuser:alice
    """
    found, privileges = client.actor(urn), client.granted_privileges(urn)
    pairs: dict[str, Cell] = {
        "Urn": found.urn,
        "Status": found.status,
        "Changed": When(found.changed_at),
        "Changed by": found.changed_by,
        "Privileges": privileges,
    }
    show_one(pairs, {**named(found), "privileges": privileges}, json=as_json)


@actor.command()
@click.argument("urn")
@with_client
def suspend(client: "Client", urn: str) -> None:
    """Refuse everything an actor does, and every token of it, from now on.

    \b
    Example: watchword actor suspend urn:li:corpuser:mallory
    """
    client.suspend(urn)
    say(f"Suspended {one_line(urn)}")


@actor.command()
@click.argument("urn")
@with_client
def resume(client: "Client", urn: str) -> None:
    """Let a suspended actor act again, and its tokens work as far as they live.

    \b
    Example: watchword actor resume urn:li:corpuser:mallory
    """
    client.resume(urn)
    say(f"Resumed {one_line(urn)}")

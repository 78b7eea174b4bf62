"""`watchword session`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.options import list_flags
from watchword.cli.output import Column, When, say, show_list, with_name
from watchword.cli.remote import with_client
from watchword.cli.run import Group

if TYPE_CHECKING:
    from watchword.client import Client, SessionInfo

_COLUMNS: "list[Column[SessionInfo]]" = [
    Column("ID", lambda session: session.id),
    Column("ACTOR", lambda session: with_name(session.actor_urn, session.actor_name), free=True),
    Column("BY", lambda session: session.method.lower()),
    Column("CREATED", lambda session: When(session.created_at)),
    Column("SEEN", lambda session: When(session.seen_at)),
    Column("ENDS", lambda session: When(session.ends_at)),
    Column("FROM", lambda session: session.peer),
]


@click.group(cls=Group)
def session() -> None:
    """List and end console sessions."""


@session.command("list")
@click.option("--actor", metavar="URN", help="Sessions of this actor. Default: your own.")
@click.option("--all", "all_actors", is_flag=True, help="Sessions of all actors.")
@list_flags()
@with_client
def list_sessions(client: "Client", actor: str | None, all_actors: bool, limit: int, as_json: bool) -> None:
    """List console sessions, the last used first.

    Example: watchword session list --actor urn:li:corpuser:alice
    Example: watchword session list --all
    """
    show_list(client.sessions(actor, all_actors=all_actors), _COLUMNS, json=as_json, limit=limit, empty="No sessions.")


@session.command()
@click.argument("session_id", metavar="ID")
@with_client
def end(client: "Client", session_id: str) -> None:
    """End a console session. Its browser must sign in again.

    Example: watchword session end 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
    """
    client.end_session(session_id)
    say(f"Ended {session_id}")

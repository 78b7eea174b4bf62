"""`watchword group`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.remote import confirm, urn_of, with_client, yes_flag
from watchword.cli.show import Column, named, say, show_list, show_one
from watchword.cli.text import one_line
from watchword.domain.urns import GROUP_PREFIX

if TYPE_CHECKING:
    from watchword.client import Client, GroupInfo

COLUMNS: "list[Column[GroupInfo]]" = [
    Column("URN", lambda group: group.urn, terse=("GROUP", GROUP_PREFIX)),
    Column("NAME", lambda group: group.name, free=True),
    Column("MEMBERS", lambda group: group.member_count),
    Column("DESCRIPTION", lambda group: group.description, free=True),
]
_group = click.argument("urn", metavar="GROUP", callback=urn_of(GROUP_PREFIX))


@click.group()
def group() -> None:
    """Groups of actors, for policies to name. GROUP is an urn, or just the id at its end."""


@group.command("list")
@json_flag
@with_client
def list_groups(client: "Client", as_json: bool) -> None:
    """All groups.

    \b
    Example: watchword group list --json
    """
    show_list(client.groups(), COLUMNS, json=as_json, empty="No groups.")


@group.command()
@_group
@json_flag
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """A group and its members.

    \b
    Example: watchword group show ops
    """
    found, members = client.get_group(urn), tuple(client.group_members(urn))
    pairs = {"Urn": found.urn, "Name": found.name, "Description": found.description, "Members": members}
    show_one(pairs, {**named(found), "members": members}, json=as_json)


@group.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", required=True, help="What people call it.")
@click.option("--description", default=None, help="More about it.")
@with_client
def create(client: "Client", id_: str | None, name: str, description: str | None) -> None:
    """Make a group and print its urn, which ends in ID.

    \b
    Example: watchword group create ops --name Operations
    """
    say(one_line(client.create_group(name, id=id_, description=description)))


@group.command()
@_group
@yes_flag
@with_client
def delete(client: "Client", urn: str, yes: bool) -> None:
    """Delete a group and its memberships. Policies that name it then grant it nothing.

    \b
    Example: watchword group delete ops --yes
    """
    found = client.get_group(urn)
    confirm(f"Delete {one_line(urn)} ({one_line(found.name)}, {_size(found)})?", yes=yes)
    client.delete_group(urn)
    say(f"Deleted {one_line(urn)}")


@group.command()
@_group
@click.argument("users", nargs=-1, required=True, metavar="USER...")
@with_client
def add(client: "Client", urn: str, users: tuple[str, ...]) -> None:
    """Put users, named by their urns, into a group.

    \b
    Example: watchword group add ops urn:li:corpuser:carol urn:li:corpuser:dave
    """
    client.add_members(urn, users)
    _say_size(client, urn)


@group.command()
@_group
@click.argument("users", nargs=-1, required=True, metavar="USER...")
@with_client
def remove(client: "Client", urn: str, users: tuple[str, ...]) -> None:
    """Take users out of a group.

    \b
    Example: watchword group remove ops urn:li:corpuser:dave
    """
    client.remove_members(urn, users)
    _say_size(client, urn)


def _say_size(client: "Client", urn: str) -> None:
    say(f"{one_line(urn)} has {_size(client.get_group(urn))}.")


def _size(group: "GroupInfo") -> str:
    return "1 member" if group.member_count == 1 else f"{group.member_count} members"

"""`watchword group`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.options import ActorParam, limit_flag, yes_flag
from watchword.cli.output import (
    Column,
    json_value,
    plural,
    show_list,
    show_one,
    show_result,
    undone_by_file,
    warn,
    with_name,
)
from watchword.cli.remote import confirm, urn_argument, with_client
from watchword.cli.run import CommandGroup
from watchword.domain.names import GROUP_PREFIX

if TYPE_CHECKING:
    from watchword.client import Client, GroupInfo

_COLUMNS: "list[Column[GroupInfo]]" = [
    Column("URN", lambda group: group.urn, terse=("GROUP", GROUP_PREFIX)),
    Column("NAME", lambda group: group.name, free=True),
    Column("MEMBERS", lambda group: group.member_count),
    Column("DESCRIPTION", lambda group: group.description, free=True),
]
_group = urn_argument("GROUP", GROUP_PREFIX)
_users = click.argument("users", nargs=-1, required=True, metavar="USER...", type=ActorParam())


@click.group(cls=CommandGroup)
def group() -> None:
    """Manage groups of actors that policies name. GROUP is a URN or the id at its end."""


@group.command("list")
@limit_flag()
@with_client
def list_groups(client: "Client", limit: int, as_json: bool) -> None:
    """List groups.

    Example: watchword group list --json
    """
    show_list(client.groups(), _COLUMNS, json=as_json, limit=limit, empty="No groups.")


@group.command()
@_group
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """Show a group and its members.

    Example: watchword group show ops
    """
    found, members = client.get_group(urn), tuple(client.group_members(urn))
    shown = [with_name(member.urn, member.display_name) for member in members]
    pairs = {"URN": found.urn, "Name": found.name, "Description": found.description, "Members": shown}
    show_one(pairs, {**json_value(found), "members": members}, json=as_json)


@group.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", required=True, help="Display name.")
@click.option("--description", help="Description of the group.")
@with_client
def create(client: "Client", id_: str | None, name: str, description: str | None, as_json: bool) -> None:
    """Create a group and print its URN, which ends with ID.

    Example: watchword group create ops --name Operations
    """
    urn = client.create_group(name, group_id=id_, description=description)
    show_result(urn, client.get_group(urn) if as_json else None, json=as_json)


@group.command()
@_group
@yes_flag
@with_client
def delete(client: "Client", urn: str, yes: bool, as_json: bool) -> None:
    """Delete a group and its memberships. Policies that name it no longer grant anything to its members.

    Example: watchword group delete ops --yes
    """
    found = client.get_group(urn)
    confirm(f"Delete {urn} ({found.name}, {plural(found.member_count, 'member')})?", yes=yes)
    client.delete_group(urn)
    show_result(f"Deleted {urn}", {"urn": urn, "deleted": True}, json=as_json)


@group.command()
@_group
@_users
@with_client
def add(client: "Client", urn: str, users: tuple[str, ...], as_json: bool) -> None:
    """Add users to a group.

    Example: watchword group add ops urn:li:corpuser:carol urn:li:corpuser:dave
    """
    client.add_members(urn, users)
    _warn_if_declared(client, urn, "Add them there too.")
    _show_size(client, urn, as_json=as_json)


@group.command()
@_group
@_users
@with_client
def remove(client: "Client", urn: str, users: tuple[str, ...], as_json: bool) -> None:
    """Remove users from a group.

    Example: watchword group remove ops urn:li:corpuser:dave
    """
    client.remove_members(urn, users)
    _warn_if_declared(client, urn, "Remove them there too.")
    _show_size(client, urn, as_json=as_json)


def _warn_if_declared(client: "Client", urn: str, fix: str) -> None:
    found = client.get_group(urn)
    if found.set is not None:
        warn(undone_by_file(urn, found.set, fix))


def _show_size(client: "Client", urn: str, *, as_json: bool) -> None:
    found = client.get_group(urn)
    show_result(f"{urn} has {plural(found.member_count, 'member')}.", found, json=as_json)

"""`watchword group`."""

import click

from watchword import client as api
from watchword.basics.names import GROUP_PREFIX
from watchword.cli import output as out
from watchword.cli.options import yes_flag
from watchword.cli.remote import ACTOR, complete_groups, confirm, urn_argument, with_client, with_list
from watchword.cli.run import CommandGroup

_COLUMNS = out.columns(
    out.Column("URN", "urn", terse=("GROUP", GROUP_PREFIX)), "name*, MEMBERS=member_count, description*"
)
_group = urn_argument("GROUP", GROUP_PREFIX, complete_groups)
_users = click.argument("users", nargs=-1, required=True, metavar="USER...", **ACTOR)


@click.group(cls=CommandGroup)
def group() -> None:
    """GROUP is a URN or the id at its end."""


@group.command("list")
@with_list()
def list_groups(client: "api.Client") -> None:
    """List groups.

    Example: watchword group list --json
    """
    out.show_list(client.groups.list(), _COLUMNS, "No groups.")


@group.command()
@_group
@with_client
def show(client: "api.Client", urn: str) -> None:
    """Show a group and its members.

    Example: watchword group show ops
    """
    found, members = client.groups.get(urn), tuple(client.groups.members(urn))
    shown = [out.with_name(member.urn, member.display_name) for member in members]
    pairs = {"URN": found.urn, "Name": found.name, "Description": found.description, "Members": shown}
    out.show_one({**out.json_value(found), "members": members}, pairs)


@group.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", required=True, help="Display name.")
@click.option("--description", help="Description of the group.")
@with_client
def create(client: "api.Client", id_: str | None, name: str, description: str | None) -> None:
    """Create a group and print its URN, which ends with ID.

    Example: watchword group create ops --name Operations
    """
    urn = client.groups.create(name, id=id_, description=description)
    out.show_result(urn, client.groups.get(urn) if out.is_data() else None)


@group.command()
@_group
@yes_flag
@with_client
def delete(client: "api.Client", urn: str) -> None:
    """Delete a group and its memberships. Policies that name it no longer grant anything to its members.

    Example: watchword group delete ops --yes
    """
    found = client.groups.get(urn)
    confirm(f"Delete {urn} ({found.name}, {out.plural(found.member_count, 'member')})?")
    client.groups.delete(urn)
    out.show_result(f"Deleted {urn}", {"urn": urn, "deleted": True})


@group.command()
@_group
@_users
@with_client
def add(client: "api.Client", urn: str, users: tuple[str, ...]) -> None:
    """Add users to a group.

    Example: watchword group add ops urn:li:corpuser:carol urn:li:corpuser:dave
    """
    client.groups.add_members(urn, users)
    _warn_if_declared(client, urn, "Add them there too.")
    _show_size(client, urn)


@group.command()
@_group
@_users
@with_client
def remove(client: "api.Client", urn: str, users: tuple[str, ...]) -> None:
    """Remove users from a group.

    Example: watchword group remove ops urn:li:corpuser:dave
    """
    client.groups.remove_members(urn, users)
    _warn_if_declared(client, urn, "Remove them there too.")
    _show_size(client, urn)


def _warn_if_declared(client: "api.Client", urn: str, fix: str) -> None:
    found = client.groups.get(urn)
    if found.set is not None:
        out.warn(out.undone_by_file(urn, found.set, fix))


def _show_size(client: "api.Client", urn: str) -> None:
    found = client.groups.get(urn)
    out.show_result(f"{urn} has {out.plural(found.member_count, 'member')}.", found)

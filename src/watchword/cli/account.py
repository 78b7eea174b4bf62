"""`watchword account`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.remote import confirm, urn_of, with_client, yes_flag
from watchword.cli.show import Column, When, named, say, show_list, show_one
from watchword.cli.text import as_json as json_text
from watchword.cli.text import one_line
from watchword.domain.accounts import ACCOUNT_PREFIX

if TYPE_CHECKING:
    from watchword.client import Client, ServiceAccountInfo

COLUMNS: "list[Column[ServiceAccountInfo]]" = [
    Column("URN", lambda account: account.urn, terse=("ACCOUNT", ACCOUNT_PREFIX)),
    Column("NAME", lambda account: account.display_name, free=True),
    Column("STATUS", lambda account: account.status),
    Column("CREATED", lambda account: When(account.created_at)),
    Column("DESCRIPTION", lambda account: account.description, free=True),
]
_account = click.argument("urn", metavar="ACCOUNT", callback=urn_of(ACCOUNT_PREFIX))


@click.group()
def account() -> None:
    """Service accounts: actors for programs. ACCOUNT is an urn, or just the uuid at its end."""


@account.command()
@click.option("--name", required=True, help="What people call it.")
@click.option("--description", default=None, help="More about it.")
@json_flag
@with_client
def create(client: "Client", name: str, description: str | None, as_json: bool) -> None:
    """Make a service account and print its urn, which `token create --actor` takes.

    \b
    Example: ACCOUNT=$(watchword account create --name nightly-build)
    """
    made = client.create_service_account(name, description=description)
    say(json_text(named(made)) if as_json else one_line(made.urn))


@account.command("list")
@click.option("--contains", default=None, metavar="TEXT", help="Those with this in their name or urn.")
@json_flag
@with_client
def list_accounts(client: "Client", contains: str | None, as_json: bool) -> None:
    """All service accounts.

    \b
    Example: watchword account list --contains nightly --json
    """
    show_list(client.service_accounts(query=contains), COLUMNS, json=as_json, empty="No service accounts.")


@account.command()
@_account
@json_flag
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """A service account, and how many live tokens it has.

    \b
    Example: watchword account show 0b5c7a52-6c49-4d4e-9c7f-6f7f6d0f6a11
    """
    found = client.get_service_account(urn)
    live = _live(client, urn)
    pairs = {
        "Urn": found.urn,
        "Name": found.display_name,
        "Description": found.description,
        "Status": found.status,
        "Created": When(found.created_at),
        "Made by": found.created_by,
        "Live tokens": live,
    }
    show_one(pairs, {**named(found), "liveTokens": live}, json=as_json)


@account.command()
@_account
@yes_flag
@with_client
def delete(client: "Client", urn: str, yes: bool) -> None:
    """Delete a service account. Its tokens die in the same moment, and its urn is never used again.

    \b
    Example: watchword account delete 0b5c7a52-6c49-4d4e-9c7f-6f7f6d0f6a11 --yes
    """
    found = client.get_service_account(urn)
    live = _live(client, urn)
    tokens = "1 live token" if live == 1 else f"{live:,} live tokens"
    confirm(f"Delete {one_line(urn)} ({one_line(found.display_name)}), and with it {tokens}, for good?", yes=yes)
    client.delete_service_account(urn)
    say(f"Deleted {one_line(urn)} with {tokens}")


def _live(client: "Client", urn: str) -> int:
    from watchword.client import Where

    return client.token_page(Where("actorUrn", urn), Where("status", "ACTIVE"), count=0).total

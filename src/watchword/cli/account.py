"""`watchword account`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.options import json_flag, list_flags, yes_flag
from watchword.cli.output import Column, When, json_text, json_value, plural, say, show_list, show_one, with_name
from watchword.cli.remote import confirm, urn_argument, with_client
from watchword.cli.run import Group
from watchword.domain.names import ACCOUNT_PREFIX

if TYPE_CHECKING:
    from watchword.client import Client, ServiceAccountInfo

_COLUMNS: "list[Column[ServiceAccountInfo]]" = [
    Column("URN", lambda account: account.urn, terse=("ACCOUNT", ACCOUNT_PREFIX)),
    Column("NAME", lambda account: account.display_name, free=True),
    Column("STATUS", lambda account: account.status),
    Column("CREATED", lambda account: When(account.created_at)),
    Column("DESCRIPTION", lambda account: account.description, free=True),
]
_account = urn_argument("ACCOUNT", ACCOUNT_PREFIX)


@click.group(cls=Group)
def account() -> None:
    """Manage service accounts, the actors for programs. ACCOUNT is a URN or the id at its end."""


@account.command()
@click.option("--id", "id_", metavar="ID", help=f"End of its URN, {ACCOUNT_PREFIX}ID. [default: a uuid]")
@click.option("--name", required=True, help="Display name.")
@click.option("--description", help="Description of the account.")
@json_flag
@with_client
def create(client: "Client", id_: str | None, name: str, description: str | None, as_json: bool) -> None:
    """Create a service account and print its URN for `token create --actor`.

    Example: watchword account create --id airflow --name Airflow
    Example: ACCOUNT=$(watchword account create --name nightly-build)
    """
    made = client.create_service_account(name, id=id_, description=description)
    say(json_text(made) if as_json else made.urn)


@account.command("list")
@click.option("--contains", help="Accounts with this text in their name or URN.")
@list_flags()
@with_client
def list_accounts(client: "Client", contains: str | None, limit: int, as_json: bool) -> None:
    """List service accounts.

    Example: watchword account list --contains nightly --json
    """
    found = client.service_accounts(query=contains)
    show_list(found, _COLUMNS, json=as_json, limit=limit, empty="No service accounts.")


@account.command()
@_account
@json_flag
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """Show a service account and its number of live tokens.

    Example: watchword account show airflow
    """
    found = client.get_service_account(urn)
    live = _count_tokens(client, urn, "effectiveStatus")
    pairs = {
        "Urn": found.urn,
        "Name": found.display_name,
        "Description": found.description,
        "Status": found.status,
        "Created": When(found.created_at),
        "Created by": with_name(found.created_by, found.created_by_name),
        "Live tokens": live,
    }
    show_one(pairs, {**json_value(found), "liveTokens": live}, json=as_json)


@account.command()
@_account
@yes_flag
@with_client
def delete(client: "Client", urn: str, yes: bool) -> None:
    """Delete a service account and revoke its tokens. Its URN is never used again.

    Example: watchword account delete airflow --yes
    """
    found = client.get_service_account(urn)
    # Those of a suspended account too.
    tokens = plural(_count_tokens(client, urn, "status"), "token")
    name = f"{urn} ({found.display_name})"
    confirm(f"Delete {name} and revoke {tokens}? This cannot be undone.", yes=yes)
    client.delete_service_account(urn)
    say(f"Deleted {urn} with {tokens}")


def _count_tokens(client: "Client", urn: str, status: str) -> int:
    """Tokens of the account that are ACTIVE by this field."""
    from watchword.client import Where

    return client.token_page(Where("actorUrn", urn), Where(status, "ACTIVE"), count=0).total

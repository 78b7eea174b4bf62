"""`watchword whoami`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.remote import with_client
from watchword.cli.show import show_one

if TYPE_CHECKING:
    from watchword.client import Client


@click.command()
@json_flag
@with_client
def whoami(client: "Client", as_json: bool) -> None:
    """Who the server takes the caller for, and what that actor may do.

    \b
    Example: watchword whoami --as urn:li:corpuser:alice
    """
    me = client.me()
    privileges = client.granted_privileges(me.urn)
    record = {"urn": me.urn, "username": me.username, "privileges": privileges}
    show_one({"Urn": me.urn, "Privileges": privileges}, record, json=as_json)

"""`watchword mail`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.local import Wiring
from watchword.cli.options import json_flag, with_settings
from watchword.cli.output import Column, show_list, show_result
from watchword.cli.remote import with_client
from watchword.cli.run import CommandGroup, WrongUse
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.mail import MailKind, SendResult, one_line
from watchword.domain.names import check_email

if TYPE_CHECKING:
    from watchword.client import Client, MailPreference
    from watchword.settings import Settings

_KIND = click.Choice([kind.value for kind in MailKind])
_COLUMNS: "list[Column[MailPreference]]" = [
    Column("KIND", lambda preference: preference.kind),
    Column("WANTED", lambda preference: "yes" if preference.enabled else "no"),
    Column("SENT", lambda preference: "yes" if preference.sent else "no"),
    Column("MEANING", lambda preference: preference.description, free=True),
]


@click.group(cls=CommandGroup)
def mail() -> None:
    """Choose the mail you get, and test the mail server."""


@mail.command()
@click.option("--off", type=_KIND, multiple=True, help="Get no more mail of this kind. Repeatable.")
@click.option("--on", type=_KIND, multiple=True, help="Get mail of this kind again. Repeatable.")
@json_flag
@with_client
def preferences(client: "Client", off: tuple[str, ...], on: tuple[str, ...], as_json: bool) -> None:
    """Show which kinds of mail you want, after switching some off or on, and which of them the server sends.

    Example: watchword mail preferences --off new-network
    """
    if set(off) & set(on):
        raise WrongUse("--off and --on must not name the same kind.")
    found = client.mail_preferences()
    if off or on:
        unwanted = {one.kind for one in found if not one.enabled} | set(off)
        client.set_mail_preferences(sorted(unwanted - set(on)))
        found = client.mail_preferences()
    show_list(found, _COLUMNS, json=as_json, empty="")


@mail.command("test")
@click.argument("address", metavar="ADDRESS")
@json_flag
@with_settings("smtp_url", "smtp_from", "smtp_ca_file", "public_url")
@click.pass_obj
def send_test(wiring: Wiring, address: str, as_json: bool, settings: "Settings") -> None:
    """Send a test mail, with the settings of this server.

    Example: watchword mail test alice@example.org
    """
    try:
        check_email(address, "ADDRESS")
    except Fault as fault:
        raise WrongUse(fault.message) from None
    result, words = wiring.send_test_mail(settings, address)
    if result is not SendResult.SENT:
        raise OperatorError(f"The mail was not sent ({result.value}): {one_line(words)}")
    show_result(f"Sent a test mail to {address}", {"address": address, "sent": True}, json=as_json)

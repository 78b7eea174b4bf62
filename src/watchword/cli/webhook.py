"""`watchword webhook` and `watchword mail`."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.local import Wiring
from watchword.cli.options import (
    ActorParam,
    DurationParam,
    TimeParam,
    add_options,
    full_urn,
    json_flag,
    limit_flag,
    need_change,
    page_size,
    repeatable,
    with_settings,
    yes_flag,
)
from watchword.cli.output import Column, TimeCell, say, say_json, show_list, show_one, show_result, warn
from watchword.cli.remote import confirm, with_client
from watchword.cli.run import CommandGroup, WrongUse
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.mail import MailKind, SendResult, one_line
from watchword.domain.names import GROUP_PREFIX, check_email

if TYPE_CHECKING:
    from watchword.client import Client, MailPreference, NewWebhook, WebhookDelivery, WebhookInfo
    from watchword.settings import Settings

_COLUMNS: "list[Column[WebhookInfo]]" = [
    Column("ID", lambda webhook: webhook.id),
    Column("NAME", lambda webhook: webhook.name, free=True),
    Column("STATE", lambda webhook: webhook.state),
    Column("WAITING", lambda webhook: webhook.waiting),
    Column("FAILING SINCE", lambda webhook: TimeCell(webhook.failing_since)),
    Column("CREATED BY", lambda webhook: webhook.created_by),
    Column("URL", lambda webhook: webhook.url, free=True),
]


def _result(delivery: "WebhookDelivery") -> str | None:
    if not delivery.attempts:
        return None
    last = delivery.attempts[-1]
    return str(last.status) if last.status is not None else last.error


_DELIVERIES: "list[Column[WebhookDelivery]]" = [
    Column("ID", lambda delivery: delivery.id),
    Column("TYPE", lambda delivery: delivery.type),
    Column("STATE", lambda delivery: delivery.state),
    Column("CREATED", lambda delivery: TimeCell(delivery.created_at)),
    Column("ATTEMPTS", lambda delivery: len(delivery.attempts)),
    Column("LAST", _result, free=True),
]
_webhook = click.argument("id_", metavar="WEBHOOK")
_filter = add_options(
    repeatable("--action", "actions", "WORD", "Send events with this action. token.* sends all of a kind."),
    repeatable("--actor", "actors", "ACTOR", "Send events by this actor.", type=ActorParam(may_be_empty=True)),
    repeatable("--group", "groups", "GROUP", "Send events about tokens of this group's members."),
)


@click.group(cls=CommandGroup)
def webhook() -> None:
    """Send events to other services. WEBHOOK is the id of a webhook."""


@webhook.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", required=True, help="Display name.")
@click.option("--to", metavar="URL", required=True, help="URL that gets the events.")
@_filter
@with_client
def create(client: "Client", id_: str | None, as_json: bool, **wanted: Any) -> None:
    """Create a webhook and print its secret once. It gets the events that match from now on.

    Without filters it gets all events. The receiver verifies the signature of each message with the secret.

    Example: watchword webhook create chat --name Chat --to https://chat.example.org/hooks/tokens --action token.revoked
    """
    _show_new(client.create_webhook(webhook_id=id_, **_given(wanted)), json=as_json)


@webhook.command("list")
@limit_flag()
@with_client
def list_webhooks(client: "Client", limit: int, as_json: bool) -> None:
    """List webhooks.

    Example: watchword webhook list
    """
    show_list(client.webhooks(), _COLUMNS, json=as_json, limit=limit, empty="No webhooks.")


@webhook.command()
@_webhook
@with_client
def show(client: "Client", id_: str, as_json: bool) -> None:
    """Show a webhook: its filter, its state and how many deliveries wait.

    Example: watchword webhook show chat
    """
    found = client.get_webhook(id_)
    pairs = {
        "Id": found.id,
        "Name": found.name,
        "Url": found.url,
        "Actions": found.actions or "all",
        "Actors": found.actor_urns or "all",
        "Tokens of": found.group_urns or "all",
        "State": found.state if found.stop_reason is None else f"{found.state} ({found.stop_reason})",
        "Last delivered": TimeCell(found.last_delivered_at, "never"),
        "Waiting": found.waiting,
        "Dropped": found.dropped,
        "Failing since": TimeCell(found.failing_since, "never"),
        "Next attempt": TimeCell(found.next_attempt_at, "at once" if found.state == "ENABLED" else "none"),
        "Old secret until": TimeCell(found.previous_secret_until, "none"),
        "Set": found.set,
        "Created": TimeCell(found.created_at),
        "Created by": found.created_by,
    }
    show_one(pairs, found, json=as_json)


@webhook.command()
@_webhook
@click.option("--name", help="Display name.")
@click.option("--to", metavar="URL", help="URL that gets the events.")
@_filter
@click.option("--enable/--disable", "enabled", default=None, help="Whether events are queued and sent.")
@with_client
def update(client: "Client", id_: str, as_json: bool, **wanted: Any) -> None:
    """Change a webhook: given flags replace its values, the rest stays. --action '' removes the filter by action.

    Enabling a stopped webhook sends the waiting deliveries. A disabled one gets events from now on.

    Example: watchword webhook update chat --action token.created --action token.revoked
    Example: watchword webhook update chat --disable
    """
    need_change(wanted)
    filters = ("actions", "actors", "groups")
    given = _given({name: words for name, words in wanted.items() if name not in filters or words})
    show_result(f"Updated {id_}", client.update_webhook(id_, **given), json=as_json)


@webhook.command()
@_webhook
@with_client
def test(client: "Client", id_: str, as_json: bool) -> None:
    """Send a test message and show the answer; exit with 1 if it was not accepted.

    Example: watchword webhook test chat
    """
    attempt = client.test_webhook(id_)
    pairs = {"Status": attempt.status, "Error": attempt.error, "Milliseconds": attempt.millis, "Answer": attempt.answer}
    show_one(pairs, attempt, json=as_json)
    if not attempt.succeeded:
        raise OperatorError("The receiver did not accept the message. Any status from 200 to 299 accepts it.")


@webhook.command()
@_webhook
@click.option("--overlap", type=DurationParam(), help="How long the old secret signs too. [default: 1d]")
@with_client
def rotate(client: "Client", id_: str, overlap: int | None, as_json: bool) -> None:
    """Replace the secret of a webhook and print the new one once.

    During the overlap each message has two signatures, one by each secret. --overlap 0s ends the old one at once.

    Example: watchword webhook rotate chat --overlap 12h
    """
    span = None if overlap is None else timedelta(milliseconds=overlap)
    _show_new(client.rotate_webhook(id_, overlap=span), json=as_json)


@webhook.command()
@_webhook
@yes_flag
@with_client
def delete(client: "Client", id_: str, yes: bool, as_json: bool) -> None:
    """Delete a webhook and its deliveries.

    Example: watchword webhook delete chat --yes
    """
    found = client.get_webhook(id_)
    waiting = f"{found.waiting:,} waiting {'delivery' if found.waiting == 1 else 'deliveries'}"
    confirm(f"Delete {id_} ({found.name}) and {waiting}?", yes=yes)
    client.delete_webhook(id_)
    show_result(f"Deleted {id_}", {"id": id_, "deleted": True}, json=as_json)


@webhook.command()
@_webhook
@click.option("--waiting", is_flag=True, help="Only those that were not accepted yet.")
@limit_flag(default=100)
@with_client
def deliveries(client: "Client", id_: str, waiting: bool, limit: int, as_json: bool) -> None:
    """List the deliveries of a webhook, newest first. --json has each attempt with its answer.

    Example: watchword webhook deliveries chat --waiting --json
    """
    found = client.webhook_deliveries(id_, state="WAITING" if waiting else None, page_size=page_size(limit))
    show_list(found, _DELIVERIES, json=as_json, limit=limit, empty="No deliveries.")


@webhook.command()
@_webhook
@click.option("--delivery", metavar="ID", help="Send this delivery again.")
@click.option(
    "--since", type=TimeParam(ago=True), help="Send all events since a date, a time, or a duration back such as 1d."
)
@with_client
def replay(client: "Client", id_: str, delivery: str | None, since: datetime | None, as_json: bool) -> None:
    """Send deliveries again: one, all events since a time, or, without a flag, all waiting deliveries.

    A stopped webhook resumes.

    Example: watchword webhook replay chat --since 2d
    Example: watchword webhook replay chat --delivery 1042
    """
    if delivery is not None and since is not None:
        raise WrongUse("Pass --delivery or --since, not both.")
    done = client.replay_webhook(id_, delivery_id=delivery, since=since)
    show_result(f"{done.queued:,} {'delivery' if done.queued == 1 else 'deliveries'} to send.", done, json=as_json)
    if done.until is not None:
        warn(f"Later events had no room. When these are delivered, run again with --since {TimeCell(done.until).iso}")


def _given(wanted: dict[str, Any]) -> dict[str, Any]:
    """Convert flags to arguments of the client. An empty word empties a list."""
    wanted["url"] = wanted.pop("to")
    for name in ("actions", "actors", "groups"):
        if name in wanted:
            wanted[name] = [word for word in wanted[name] if word]
    if "groups" in wanted:
        wanted["groups"] = [full_urn(word, GROUP_PREFIX) for word in wanted["groups"]]
    return wanted


def _show_new(made: "NewWebhook", *, json: bool) -> None:
    if json:
        say_json({"id": made.webhook.id, "secret": made.secret.reveal()})
        return
    say(made.secret.reveal())
    warn(f"This is the secret of the webhook {made.webhook.id}. It is not shown again.")


_KIND = click.Choice([kind.value for kind in MailKind])
_PREFERENCES: "list[Column[MailPreference]]" = [
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
@with_client
def preferences(client: "Client", off: tuple[str, ...], on: tuple[str, ...], as_json: bool) -> None:
    """Show which kinds of mail you want, after switching some off or on, and which of them the server sends.

    Example: watchword mail preferences --off new-network
    """
    if set(off) & set(on):
        raise WrongUse("--off and --on must not name the same kind.")
    found = client.mail_preferences()
    if off or on:
        unwanted = {preference.kind for preference in found if not preference.enabled} | set(off)
        client.set_mail_preferences(sorted(unwanted - set(on)))
        found = client.mail_preferences()
    show_list(found, _PREFERENCES, json=as_json, empty="")


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

"""`watchword webhook` and `watchword mail`."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from watchword import client as api
from watchword.basics.errors import Fault, OperatorError
from watchword.basics.names import GROUP_PREFIX, check_email
from watchword.cli import output as out
from watchword.cli.local import wiring
from watchword.cli.options import (
    actor_or_empty,
    add_options,
    duration,
    format_flags,
    full_urn,
    need_change,
    page_size,
    repeatable,
    time_ago,
    with_settings,
    yes_flag,
)
from watchword.cli.remote import ACTOR, by_id, complete_groups, completes, confirm, with_client, with_list
from watchword.cli.run import CommandGroup, WrongUse
from watchword.notices.mail_rules import MailKind, SendResult, one_line

if TYPE_CHECKING:
    from watchword.settings import Settings

_COLUMNS = out.columns("id, name*, state, waiting, failing_since, created_by, url*")


def _result(delivery: "api.WebhookDelivery") -> str | None:
    if not delivery.attempts:
        return None
    last = delivery.attempts[-1]
    return str(last.status) if last.status is not None else last.error


_DELIVERIES = out.columns(
    "id, type, state, CREATED=created_at",
    out.Column("ATTEMPTS", lambda delivery: len(delivery.attempts)),
    out.Column("LAST", _result, free=True),
)
_complete = completes(lambda client, _: client.webhooks.list(), by_id)
_webhook = click.argument("id_", metavar="WEBHOOK", shell_complete=_complete)
_filter = add_options(
    repeatable("--action", "actions", "WORD", "Send events with this action. token.* sends all of a kind."),
    repeatable("--actor", "actor_urns", "ACTOR", "Send events by this actor.", **ACTOR | {"type": actor_or_empty}),
    repeatable("--group", "group_urns", "GROUP", "Send events about members' tokens.", shell_complete=complete_groups),
)


@click.group(cls=CommandGroup)
def webhook() -> None:
    """WEBHOOK is the id of a webhook."""


@webhook.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", required=True, help="Display name.")
@click.option("--to", metavar="URL", required=True, help="URL that gets the events.")
@_filter
@with_client
def create(client: "api.Client", id_: str | None, **wanted: Any) -> None:
    """Create a webhook and print its secret once. It gets the events that match from now on.

    Without filters it gets all events. The receiver verifies the signature of each message with the secret.

    Example: watchword webhook create chat --name Chat --to https://chat.example.org/hooks/tokens --action token.revoked
    """
    _show_new(client.webhooks.create(id=id_, **_given(wanted)))


@webhook.command("list")
@with_list()
def list_webhooks(client: "api.Client") -> None:
    """List webhooks.

    Example: watchword webhook list
    """
    out.show_list(client.webhooks.list(), _COLUMNS, "No webhooks.")


@webhook.command()
@_webhook
@with_client
def show(client: "api.Client", id_: str) -> None:
    """Show a webhook: its filter, its state and how many deliveries wait.

    Example: watchword webhook show chat
    """
    found = client.webhooks.get(id_)
    pairs = {
        **out.attributes(found, "id, name, url"),
        "Actions": found.actions or "all",
        "Actors": found.actor_urns or "all",
        "Tokens of": found.group_urns or "all",
        "State": found.state if found.stop_reason is None else f"{found.state} ({found.stop_reason})",
        "Last delivered": out.TimeCell(found.last_delivered_at, "never"),
        **out.attributes(found, "waiting, dropped"),
        "Failing since": out.TimeCell(found.failing_since, "never"),
        "Next attempt": out.TimeCell(found.next_attempt_at, "at once" if found.state == "ENABLED" else "none"),
        "Old secret until": out.TimeCell(found.previous_secret_until, "none"),
        **out.attributes(found, "set, Created=created_at, created_by"),
    }
    out.show_one(found, pairs)


@webhook.command()
@_webhook
@click.option("--name", help="Display name.")
@click.option("--to", metavar="URL", help="URL that gets the events.")
@_filter
@click.option("--enable/--disable", "enabled", default=None, help="Whether events are queued and sent.")
@with_client
def update(client: "api.Client", id_: str, **wanted: Any) -> None:
    """Change a webhook: given flags replace its values, the rest stays. --action '' removes the filter by action.

    Enabling a stopped webhook sends the waiting deliveries. A disabled one gets events from now on.

    Example: watchword webhook update chat --action token.created --action token.revoked
    Example: watchword webhook update chat --disable
    """
    need_change(wanted)
    filters = ("actions", "actor_urns", "group_urns")
    given = _given({name: words for name, words in wanted.items() if name not in filters or words})
    out.show_result(f"Updated {id_}", client.webhooks.update(id_, **given))


@webhook.command()
@_webhook
@with_client
def test(client: "api.Client", id_: str) -> None:
    """Send a test message and show the answer; exit with 1 if it was not accepted.

    Example: watchword webhook test chat
    """
    attempt = client.webhooks.test(id_)
    pairs = {"Status": attempt.status, "Error": attempt.error, "Milliseconds": attempt.millis, "Answer": attempt.answer}
    out.show_one(attempt, pairs)
    if not attempt.succeeded:
        raise OperatorError("The receiver did not accept the message. Any status from 200 to 299 accepts it.")


@webhook.command()
@_webhook
@click.option("--overlap", type=duration, help="How long the old secret signs too. [default: 1d]")
@with_client
def rotate(client: "api.Client", id_: str, overlap: int | None) -> None:
    """Replace the secret of a webhook and print the new one once.

    During the overlap each message has two signatures, one by each secret. --overlap 0s ends the old one at once.

    Example: watchword webhook rotate chat --overlap 12h
    """
    span = None if overlap is None else timedelta(milliseconds=overlap)
    _show_new(client.webhooks.rotate(id_, overlap=span))


@webhook.command()
@_webhook
@yes_flag
@with_client
def delete(client: "api.Client", id_: str) -> None:
    """Delete a webhook and its deliveries.

    Example: watchword webhook delete chat --yes
    """
    found = client.webhooks.get(id_)
    waiting = f"{found.waiting:,} waiting {'delivery' if found.waiting == 1 else 'deliveries'}"
    confirm(f"Delete {id_} ({found.name}) and {waiting}?")
    client.webhooks.delete(id_)
    out.show_result(f"Deleted {id_}", {"id": id_, "deleted": True})


@webhook.command()
@_webhook
@click.option("--waiting", is_flag=True, help="Only those that were not accepted yet.")
@with_list()
def deliveries(client: "api.Client", id_: str, waiting: bool) -> None:
    """List the deliveries of a webhook, newest first. --json has each attempt with its answer.

    Example: watchword webhook deliveries chat --waiting --json
    """
    found = client.webhooks.deliveries(id_, state="WAITING" if waiting else None, page_size=page_size())
    out.show_list(found, _DELIVERIES, "No deliveries.")


@webhook.command()
@_webhook
@click.argument("delivery", metavar="[DELIVERY]", required=False)
@click.option("--since", type=time_ago, help="Send all events since a date, a time, or a duration back such as 1d.")
@with_client
def replay(client: "api.Client", id_: str, delivery: str | None, since: datetime | None) -> None:
    """Send deliveries again: the one with the id DELIVERY, all events since a time, or all waiting deliveries.

    A stopped webhook resumes.

    Example: watchword webhook replay chat --since 2d
    Example: watchword webhook replay chat 1042
    """
    if delivery is not None and since is not None:
        raise WrongUse("Pass DELIVERY or --since, not both.")
    done = client.webhooks.replay(id_, delivery_id=delivery, since=since)
    out.show_result(f"{done.queued:,} {'delivery' if done.queued == 1 else 'deliveries'} to send.", done)
    if done.until is not None:
        out.warn(
            f"Later events had no room. When these are delivered, run again with --since {out.TimeCell(done.until).iso}"
        )


def _given(wanted: dict[str, Any]) -> dict[str, Any]:
    """Convert flags to arguments of the client. An empty word empties a list."""
    wanted["url"] = wanted.pop("to")
    for name in ("actions", "actor_urns", "group_urns"):
        if name in wanted:
            wanted[name] = [word for word in wanted[name] if word]
    if "group_urns" in wanted:
        wanted["group_urns"] = [full_urn(word, GROUP_PREFIX) for word in wanted["group_urns"]]
    return wanted


def _show_new(made: "api.NewWebhook") -> None:
    out.show_result(made.secret.reveal(), {"id": made.webhook.id, "secret": made.secret.reveal()})
    if not out.is_data():
        out.warn(f"This is the secret of the webhook {made.webhook.id}. It is not shown again.")


_KIND = click.Choice([kind.value for kind in MailKind])
_PREFERENCES = out.columns(
    "kind",
    out.Column("WANTED", lambda preference: "yes" if preference.enabled else "no"),
    out.Column("SENT", lambda preference: "yes" if preference.sent else "no"),
    "MEANING=description*",
)


@click.group(cls=CommandGroup)
def mail() -> None: ...


@mail.command("list")
@with_list()
def list_preferences(client: "api.Client") -> None:
    """List the kinds of mail: which of them you want, and which the server sends.

    Example: watchword mail list
    """
    out.show_list(client.mail_preferences.list(), _PREFERENCES, "")


@mail.command("update")
@repeatable("--off", "off", "KIND", "Get no more mail of this kind.", type=_KIND)
@repeatable("--on", "on", "KIND", "Get mail of this kind again.", type=_KIND)
@with_client
def update_preferences(client: "api.Client", off: tuple[str, ...], on: tuple[str, ...]) -> None:
    """Choose the kinds of mail that you get; then list them.

    Example: watchword mail update --off new-network
    """
    if set(off) & set(on) or not off + on:
        raise WrongUse("Pass --off KIND, --on KIND or both, for different kinds.")
    found = client.mail_preferences.list()
    unwanted = {preference.kind for preference in found if not preference.enabled} | set(off)
    client.mail_preferences.update(sorted(unwanted - set(on)))
    out.show_list(client.mail_preferences.list(), _PREFERENCES, "")


@mail.command("test")
@click.argument("address", metavar="ADDRESS")
@format_flags
@with_settings("smtp_url", "smtp_from", "smtp_ca_file", "public_url")
def send_test(address: str, settings: "Settings") -> None:
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
    out.show_result(f"Sent a test mail to {address}", {"address": address, "sent": True})

"""`watchword webhook`."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import Moment, Span, add_options, json_flag, list_flags, page_size, repeatable, yes_flag
from watchword.cli.output import Column, When, json_text, say, show_list, show_one, warn
from watchword.cli.remote import confirm, full_urn, with_client
from watchword.cli.run import Group, WrongUse
from watchword.client.records import from_millis
from watchword.domain.errors import OperatorError
from watchword.domain.names import GROUP_PREFIX

if TYPE_CHECKING:
    from watchword.client import Client, NewWebhook, WebhookDelivery, WebhookInfo

_COLUMNS: "list[Column[WebhookInfo]]" = [
    Column("ID", lambda webhook: webhook.id),
    Column("NAME", lambda webhook: webhook.name, free=True),
    Column("STATE", lambda webhook: webhook.state),
    Column("WAITING", lambda webhook: webhook.waiting),
    Column("FAILING SINCE", lambda webhook: When(webhook.failing_since)),
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
    Column("CREATED", lambda delivery: When(delivery.created_at)),
    Column("ATTEMPTS", lambda delivery: len(delivery.attempts)),
    Column("LAST", _result, free=True),
]
_webhook = click.argument("id_", metavar="WEBHOOK")
_filter = add_options(
    repeatable("--action", "actions", "WORD", "Send events with this action. token.* sends all of a kind."),
    repeatable("--actor", "actors", "URN", "Send events by this actor."),
    repeatable("--group", "groups", "GROUP", "Send events about tokens of this group's members."),
)


@click.group(cls=Group)
def webhook() -> None:
    """Send events to other services. WEBHOOK is the id of a webhook."""


@webhook.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", required=True, help="Display name.")
@click.option("--to", metavar="URL", required=True, help="URL that gets the events.")
@_filter
@json_flag
@with_client
def create(client: "Client", id_: str | None, as_json: bool, **wanted: Any) -> None:
    """Create a webhook and print its secret once. It gets the events that match from now on.

    Without filters it gets all events. The receiver verifies the signature of each message with the secret.

    Example: watchword webhook create chat --name Chat --to https://chat.example.org/hooks/tokens --action token.revoked
    """
    _show_new(client.create_webhook(id=id_, **_given(wanted)), json=as_json)


@webhook.command("list")
@list_flags()
@with_client
def list_webhooks(client: "Client", limit: int, as_json: bool) -> None:
    """List webhooks.

    Example: watchword webhook list
    """
    show_list(client.webhooks(), _COLUMNS, json=as_json, limit=limit, empty="No webhooks.")


@webhook.command()
@_webhook
@json_flag
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
        "Last delivered": When(found.last_delivered_at, "never"),
        "Waiting": found.waiting,
        "Dropped": found.dropped,
        "Failing since": When(found.failing_since, "never"),
        "Next attempt": When(found.next_attempt_at, "at once" if found.state == "ENABLED" else "none"),
        "Old secret until": When(found.previous_secret_until, "none"),
        "Set": found.set,
        "Created": When(found.created_at),
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
def update(client: "Client", id_: str, **wanted: Any) -> None:
    """Change a webhook: given flags replace its values, the rest stays. --action '' removes the filter by action.

    Enabling a stopped webhook sends the waiting deliveries. A disabled one gets events from now on.

    Example: watchword webhook update chat --action token.created --action token.revoked
    Example: watchword webhook update chat --disable
    """
    filters = ("actions", "actors", "groups")
    given = _given({name: words for name, words in wanted.items() if name not in filters or words})
    client.update_webhook(id_, **given)
    say(f"Updated {id_}")


@webhook.command()
@_webhook
@json_flag
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
@click.option("--overlap", type=Span(), help="How long the old secret signs too. [default: 1d]")
@json_flag
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
def delete(client: "Client", id_: str, yes: bool) -> None:
    """Delete a webhook and its deliveries.

    Example: watchword webhook delete chat --yes
    """
    found = client.get_webhook(id_)
    waiting = f"{found.waiting:,} waiting {'delivery' if found.waiting == 1 else 'deliveries'}"
    confirm(f"Delete {id_} ({found.name}) and {waiting}?", yes=yes)
    client.delete_webhook(id_)
    say(f"Deleted {id_}")


@webhook.command()
@_webhook
@click.option("--waiting", is_flag=True, help="Only those that were not accepted yet.")
@list_flags(default=20)
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
@click.option("--since", type=Moment(ago=True), help="Send all events since a date, time, or span back such as 1d.")
@with_client
def replay(client: "Client", id_: str, delivery: str | None, since: int | None) -> None:
    """Send deliveries again: one, all events since a time, or without a flag the waiting ones. A stopped one resumes.

    Example: watchword webhook replay chat --since 2d
    Example: watchword webhook replay chat --delivery 1042
    """
    if delivery is not None and since is not None:
        raise WrongUse("Pass --delivery or --since, not both.")
    when = None if since is None else from_millis(since)
    done = client.replay_webhook(id_, delivery=delivery, since=when)
    say(f"{done.queued:,} {'delivery' if done.queued == 1 else 'deliveries'} to send.")
    if done.until is not None:
        warn(f"Later events had no room. When these are delivered, run again with --since {When(done.until).iso}")


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
        say(json_text({"id": made.webhook.id, "secret": made.secret.reveal()}))
        return
    say(made.secret.reveal())
    warn(f"This is the secret of the webhook {made.webhook.id}. It is not shown again.")

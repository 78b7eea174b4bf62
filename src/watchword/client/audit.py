"""The audit log, and the webhooks that send its events to other services."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from watchword.basics.secret import Secret
from watchword.client.records import Json, Record, to_millis
from watchword.client.requests import (
    PAGE_SIZE,
    ApiRequest,
    Listing,
    ask,
    ask_tuple,
    iso,
    list_by_cursor,
    list_records,
    lists,
    require_true,
    sends,
    word_lists,
)

_WEBHOOK_ID = {"id": "webhook_id"}


class EventInfo(Record):
    """One entry of the audit log. `target_name` is the name that the target had; `names` has the names of actors by
    urn.
    """

    id: str
    at: datetime
    action: str
    actor_urn: str
    actor_name: str | None
    token_id: str | None
    target: str
    target_name: str | None
    names: Json
    peer: str
    request_id: str
    detail: Json


class EventAction(Record):
    """An action that the audit log records; `description` explains it."""

    name: str
    description: str
    kind: str


class WebhookInfo(Record):
    """A subscription to events."""

    id: str
    name: str
    url: str
    actions: tuple[str, ...]
    actor_urns: tuple[str, ...]
    group_urns: tuple[str, ...]
    state: str
    stop_reason: str | None
    created_at: datetime
    created_by: str
    created_by_name: str | None
    set: str | None
    last_delivered_at: datetime | None
    waiting: int
    dropped: int
    failing_since: datetime | None
    next_attempt_at: datetime | None
    previous_secret_until: datetime | None


class NewWebhook(Record):
    """A webhook and its secret, which the server shows only this once."""

    webhook: WebhookInfo
    secret: Secret[str]


class WebhookAttempt(Record):
    """One attempt to deliver a message. `answer` is the beginning of the receiver's answer."""

    at: datetime
    millis: int
    succeeded: bool
    status: int | None
    error: str | None
    answer: str | None


class WebhookDelivery(Record):
    """A message to a webhook, and the latest attempts to deliver it."""

    id: str
    message_id: str
    event_id: str | None
    type: str
    state: str
    created_at: datetime
    delivered_at: datetime | None
    payload: str
    attempts: tuple[WebhookAttempt, ...]


class WebhookReplay(Record):
    """How many deliveries are sent again; `until` is where to go on if not all could be queued."""

    queued: int
    until: datetime | None


class AuditMethods:
    @lists
    def events(
        self,
        *,
        actors: Iterable[str] = (),
        actions: Iterable[str] = (),
        targets: Iterable[str] = (),
        about: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = PAGE_SIZE,
    ) -> Listing[EventInfo]:
        """List the events of the audit log, newest first, at or after `since` and before `until`. `about` selects
        events that target or name an actor, or target one of its tokens. Needs View Audit Log.
        """
        wanted: dict[str, Any] = {"count": page_size}
        lists = word_lists(actions=actions, targets=targets, actors=actors, about=about)
        wanted |= {name: words for name, words in lists.items() if words}
        times = {"since": since, "until": until}
        wanted |= {name: to_millis(name, when) for name, when in times.items() if when is not None}
        return list_by_cursor("listEvents", "events", EventInfo, "ListEventsInput", wanted)

    @sends
    def event_actions(self) -> ApiRequest[tuple[EventAction, ...]]:
        """Get all actions that the audit log records."""
        return ask_tuple("listEventActions", EventAction)

    @sends
    def create_webhook(
        self,
        name: str,
        url: str,
        *,
        webhook_id: str | None = None,
        actions: Iterable[str] = (),
        actors: Iterable[str] = (),
        groups: Iterable[str] = (),
        enabled: bool = True,
    ) -> ApiRequest[NewWebhook]:
        """Create a webhook, which gets the events that match from now on. An empty filter matches all. Needs Manage
        Webhooks and View Audit Log.
        """
        wanted = {
            "id": webhook_id,
            "name": name,
            "url": url,
            "enabled": enabled,
            **word_lists(actions=actions, actors=actors, groups=groups),
        }
        variables = {"input: CreateWebhookInput!": wanted}
        return ask("createWebhook", NewWebhook, variables, mutation=True, arguments=_WEBHOOK_ID)

    @lists
    def webhooks(self, *, page_size: int = PAGE_SIZE) -> Listing[WebhookInfo]:
        """List webhooks."""
        return list_records("listWebhooks", "webhooks", WebhookInfo, "ListWebhooksInput", page_size, key=("id",))

    @sends
    def get_webhook(self, webhook_id: str) -> ApiRequest[WebhookInfo]:
        """Get a webhook."""
        return ask("getWebhook", WebhookInfo, {"id: String!": webhook_id}, arguments=_WEBHOOK_ID)

    @sends
    def update_webhook(
        self,
        webhook_id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        actions: Iterable[str] | None = None,
        actors: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        enabled: bool | None = None,
    ) -> ApiRequest[WebhookInfo]:
        """Change a webhook; None stays as it is. Enabling a stopped one sends the waiting deliveries."""
        lists = word_lists(actions=actions, actors=actors, groups=groups)
        wanted = {"name": name, "url": url, "enabled": enabled, **lists}
        variables = {"id: String!": webhook_id, "input: UpdateWebhookInput!": wanted}
        return ask("updateWebhook", WebhookInfo, variables, mutation=True, arguments=_WEBHOOK_ID)

    @sends
    def delete_webhook(self, webhook_id: str) -> ApiRequest[None]:
        """Delete a webhook and its deliveries."""
        return ask("deleteWebhook", require_true, {"id: String!": webhook_id}, arguments=_WEBHOOK_ID, mutation=True)

    @sends
    def rotate_webhook(self, webhook_id: str, *, overlap: timedelta | str | None = None) -> ApiRequest[NewWebhook]:
        """Replace the secret of a webhook. The old one signs too during the overlap (default: a day)."""
        variables = {"id: String!": webhook_id, "overlap: String": iso("overlap", overlap)}
        return ask("rotateWebhookSecret", NewWebhook, variables, mutation=True, arguments=_WEBHOOK_ID)

    @sends
    def test_webhook(self, webhook_id: str) -> ApiRequest[WebhookAttempt]:
        """Send a test message and return the receiver's answer."""
        return ask("testWebhook", WebhookAttempt, {"id: String!": webhook_id}, arguments=_WEBHOOK_ID, mutation=True)

    @lists
    def webhook_deliveries(
        self, webhook_id: str, *, state: str | None = None, page_size: int = PAGE_SIZE
    ) -> Listing[WebhookDelivery]:
        """List the deliveries of a webhook, newest first. `state` is WAITING or DELIVERED."""
        wanted = {"id": webhook_id, "state": state, "count": page_size}
        listed = ("listWebhookDeliveries", "deliveries", WebhookDelivery, "ListWebhookDeliveriesInput!")
        return list_by_cursor(*listed, wanted, _WEBHOOK_ID)

    @sends
    def replay_webhook(
        self, webhook_id: str, *, delivery_id: str | None = None, since: datetime | None = None
    ) -> ApiRequest[WebhookReplay]:
        """Send a delivery again, or all events since a time, or with neither the waiting ones."""
        when = None if since is None else to_millis("since", since)
        variables = {"input: ReplayWebhookInput!": {"id": webhook_id, "deliveryId": delivery_id, "since": when}}
        return ask("replayWebhook", WebhookReplay, variables, mutation=True, arguments=_WEBHOOK_ID)

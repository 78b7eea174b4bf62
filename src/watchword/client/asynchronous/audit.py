"""The audit log, and the webhooks that send its events to other services."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from watchword.client.answers import (
    EventAction,
    EventInfo,
    NewWebhook,
    WebhookAttempt,
    WebhookDelivery,
    WebhookInfo,
    WebhookReplay,
)
from watchword.client.asynchronous.lists import AsyncResults
from watchword.client.asynchronous.namespace import PAGE_SIZE, AsyncNamespace
from watchword.client.records import to_millis
from watchword.client.requests import ask, ask_tuple, iso, named, require_true, word_lists


class AsyncEvents(AsyncNamespace):
    """The audit log."""

    def list(
        self,
        *,
        actor_urns: Iterable[str] = (),
        actions: Iterable[str] = (),
        targets: Iterable[str] = (),
        about_urns: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncResults[EventInfo]:
        """List the events of the audit log, newest first, at or after `since` and before `until`. `about_urns` selects
        events that target or name an actor, or target one of its tokens. Needs View Audit Log.
        """
        lists = word_lists(actions=actions, targets=targets, actor_urns=actor_urns, about_urns=about_urns)
        wanted: dict[str, Any] = {name: words for name, words in lists.items() if words}
        times = {"since": since, "until": until}
        wanted |= {name: to_millis(name, when) for name, when in times.items() if when is not None}
        return self._list_by_cursor("listEvents", "events", EventInfo, "ListEventsInput", page_size, wanted)

    async def actions(self) -> tuple[EventAction, ...]:
        """Get all actions that the audit log records."""
        return await self._send(ask_tuple("listEventActions", EventAction))


class AsyncWebhooks(AsyncNamespace):
    """Webhooks: where events are sent, and the deliveries."""

    async def create(
        self,
        name: str,
        url: str,
        *,
        id: str | None = None,
        actions: Iterable[str] = (),
        actor_urns: Iterable[str] = (),
        group_urns: Iterable[str] = (),
        enabled: bool = True,
    ) -> NewWebhook:
        """Create a webhook, which gets the events that match from now on. An empty filter matches all. Needs Manage
        Webhooks and View Audit Log.
        """
        lists = word_lists(actions=actions, actor_urns=actor_urns, group_urns=group_urns)
        wanted = {**named(id=id, name=name, url=url, enabled=enabled), **lists}
        return await self._send(ask("createWebhook", NewWebhook, {"input: CreateWebhookInput!": wanted}, mutation=True))

    def list(self, *, page_size: int = PAGE_SIZE) -> AsyncResults[WebhookInfo]:
        """List webhooks."""
        return self._list("listWebhooks", "webhooks", WebhookInfo, "ListWebhooksInput", page_size, key=("id",))

    async def get(self, id: str) -> WebhookInfo:
        """Get a webhook."""
        return await self._send(ask("getWebhook", WebhookInfo, {"id: String!": id}))

    async def update(
        self,
        id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        actions: Iterable[str] | None = None,
        actor_urns: Iterable[str] | None = None,
        group_urns: Iterable[str] | None = None,
        enabled: bool | None = None,
    ) -> WebhookInfo:
        """Change a webhook; None stays as it is. Enabling a stopped one sends the waiting deliveries."""
        lists = word_lists(actions=actions, actor_urns=actor_urns, group_urns=group_urns)
        variables = {
            "id: String!": id,
            "input: UpdateWebhookInput!": {**named(name=name, url=url, enabled=enabled), **lists},
        }
        return await self._send(ask("updateWebhook", WebhookInfo, variables, mutation=True))

    async def delete(self, id: str) -> None:
        """Delete a webhook and its deliveries."""
        await self._send(ask("deleteWebhook", require_true, {"id: String!": id}, mutation=True))

    async def rotate(self, id: str, *, overlap: timedelta | str | None = None) -> NewWebhook:
        """Replace the secret of a webhook. The old one signs too during the overlap (default: a day)."""
        variables = {"id: String!": id, "overlap: String": iso("overlap", overlap)}
        return await self._send(ask("rotateWebhookSecret", NewWebhook, variables, mutation=True))

    async def test(self, id: str) -> WebhookAttempt:
        """Send a test message and return the receiver's answer."""
        return await self._send(ask("testWebhook", WebhookAttempt, {"id: String!": id}, mutation=True))

    def deliveries(
        self, id: str, *, state: str | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncResults[WebhookDelivery]:
        """List the deliveries of a webhook, newest first. `state` is WAITING or DELIVERED."""
        listed = ("listWebhookDeliveries", "deliveries", WebhookDelivery, "ListWebhookDeliveriesInput!")
        return self._list_by_cursor(*listed, page_size, {"id": id, "state": state})

    async def replay(self, id: str, *, delivery_id: str | None = None, since: datetime | None = None) -> WebhookReplay:
        """Send a delivery again, or all events since a time, or with neither the waiting ones."""
        when = None if since is None else to_millis("since", since)
        variables = {"input: ReplayWebhookInput!": named(id=id, delivery_id=delivery_id, since=when)}
        return await self._send(ask("replayWebhook", WebhookReplay, variables, mutation=True))

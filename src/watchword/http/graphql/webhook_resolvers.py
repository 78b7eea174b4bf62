"""GraphQL resolvers of webhooks."""

from collections.abc import Sequence
from typing import Any

from watchword.domain.actors import Grant
from watchword.domain.filters import check_page_size
from watchword.domain.secret import Secret
from watchword.domain.webhooks import (
    Attempt,
    Delivery,
    Webhook,
    WebhookChange,
    WebhookState,
    declared_webhook,
    is_wanted,
)
from watchword.http.graphql.context import Info, Json, change_json, page_of, record_json


async def get_webhook(_: Any, info: Info, id: str) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    return await _one_json(info, grant, await service.get(grant, id))


async def list_webhooks(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    page = page_of(input or {})
    async with info.context.searching:
        found = await service.list(grant, **page)
    return page | {"total": found.total, "webhooks": await _webhooks_json(info, grant, found.rows)}


async def list_webhook_deliveries(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    count = check_page_size(input.get("count"))
    async with info.context.searching:
        found = await service.deliveries(grant, input["id"], input.get("state"), input.get("cursor"), count)
        info.context.show(len(found.deliveries))
    rows = [_delivery_json(one) for one in found.deliveries]
    return {"deliveries": rows, "cursor": rows[-1]["id"] if found.more else None}


async def create_webhook(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    return await _new_json(info, grant, *await service.create(grant, input))


async def update_webhook(_: Any, info: Info, id: str, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    return await _one_json(info, grant, await service.update(grant, id, input))


async def delete_webhook(_: Any, info: Info, id: str) -> bool:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    await service.delete(grant, id)
    return True


async def rotate_webhook_secret(_: Any, info: Info, id: str, overlap: str | None = None) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    return await _new_json(info, grant, *await service.rotate(grant, id, overlap))


async def test_webhook(_: Any, info: Info, id: str) -> Json:  # noqa: PT019 - not a test
    service, grant = await info.context.authorized(info.context.services.webhooks)
    async with info.context.searching:
        return _attempt_json(await service.test(grant, id))


async def replay_webhook(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.webhooks)
    async with info.context.searching:
        replayed = await service.replay(
            grant, input["id"], input.get("deliveryId"), input.get("since"), info.context.time_left()
        )
    return replayed._asdict()


async def _webhooks_json(info: Info, grant: Grant, webhooks: Sequence[Webhook]) -> list[Json]:
    names = await info.context.names(one.created_by for one in webhooks)
    last = await info.context.services.webhooks.last_deliveries(grant, [one.id for one in webhooks])
    return [
        _webhook_json(one) | {"createdByName": names.get(one.created_by), "lastDeliveredAt": last.get(one.id)}
        for one in webhooks
    ]


async def _one_json(info: Info, grant: Grant, webhook: Webhook) -> Json:
    return (await _webhooks_json(info, grant, [webhook]))[0]


def _webhook_json(webhook: Webhook) -> Json:
    reason = webhook.stop_reason
    return record_json(
        webhook,
        "id name url created_at created_by waiting dropped failing_since",
        actions=webhook.filter.actions,
        actorUrns=webhook.filter.actors,
        groupUrns=webhook.filter.groups,
        state=webhook.state.value,
        stopReason=None if reason is None else reason.value,
        set=webhook.set_name,
        nextAttemptAt=webhook.due_at or None if webhook.state is WebhookState.ENABLED else None,
        previousSecretUntil=webhook.previous_until,
    )


def webhook_change_json(change: WebhookChange) -> Json:
    def shown(webhook: Webhook) -> Json:
        return declared_webhook(webhook) | {"enabled": is_wanted(webhook), "set": webhook.set_name}

    return change_json(change, "id", shown)


async def _new_json(info: Info, grant: Grant, webhook: Webhook, secret: Secret[str]) -> Json:
    return {"webhook": await _one_json(info, grant, webhook), "secret": secret.reveal()}


def _delivery_json(delivery: Delivery) -> Json:
    return record_json(
        delivery,
        "type payload delivered_at",
        id=str(delivery.number),
        messageId=delivery.message,
        eventId=None if delivery.event_seq is None else str(delivery.event_seq),
        state=delivery.state.value,
        createdAt=delivery.made_at,
        attempts=[_attempt_json(one) for one in delivery.attempts],
    )


def _attempt_json(attempt: Attempt) -> Json:
    return record_json(attempt, "at millis succeeded status error answer")

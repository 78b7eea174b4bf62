"""GraphQL resolvers of webhooks."""

from collections.abc import Sequence
from typing import Any

from watchword.authority.callers import Grant
from watchword.basics.paging import check_page_size
from watchword.basics.secret import Secret
from watchword.http.graphql.context import Info, page_of
from watchword.http.graphql.shapes import Json, Shape
from watchword.notices.webhook_rules import Webhook, WebhookState
from watchword.notices.webhook_service import Webhooks

_ATTEMPT = Shape("at millis succeeded status error answer")
_DELIVERY = Shape(
    "type payload delivered_at id=number messageId=message eventId=event_seq state=state.value createdAt=made_at"
    " attempts",
    id=str,
    eventId=str,
    attempts=[_ATTEMPT],
)
_WEBHOOK = Shape(
    "id name url created_at created_by createdByName@created_by waiting dropped failing_since actions=filter.actions"
    " actorUrns=filter.actors groupUrns=filter.groups state=state.value stopReason=stop_reason.value set=set_name"
    " previousSecretUntil=previous_until",
    nextAttemptAt=lambda webhook: webhook.due_at or None if webhook.state is WebhookState.ENABLED else None,
)


async def get_webhook(_: Any, info: Info, id: str) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    return await _one_json(info, grant, await service.get(grant, id))


async def list_webhooks(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    page = page_of(input or {})
    async with info.context.searching:
        found = await service.list(grant, **page)
    return page | {"total": found.total, "webhooks": await _webhooks_json(info, grant, found.rows)}


async def list_webhook_deliveries(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    count = check_page_size(input.get("count"))
    async with info.context.searching:
        found = await service.deliveries(grant, input["id"], input.get("state"), input.get("cursor"), count)
        info.context.show(len(found.deliveries))
    rows = [_DELIVERY(one) for one in found.deliveries]
    return {"deliveries": rows, "cursor": rows[-1]["id"] if found.more else None}


async def create_webhook(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    return await _new_json(info, grant, *await service.create(grant, input))


async def update_webhook(_: Any, info: Info, id: str, input: Json) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    return await _one_json(info, grant, await service.update(grant, id, input))


async def delete_webhook(_: Any, info: Info, id: str) -> bool:
    service, grant = await info.context.authorized(Webhooks)
    await service.delete(grant, id)
    return True


async def rotate_webhook_secret(_: Any, info: Info, id: str, overlap: str | None = None) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    return await _new_json(info, grant, *await service.rotate(grant, id, overlap))


async def test_webhook(_: Any, info: Info, id: str) -> Json:  # noqa: PT019 - not a test
    service, grant = await info.context.authorized(Webhooks)
    async with info.context.searching:
        return _ATTEMPT(await service.test(grant, id))


async def replay_webhook(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Webhooks)
    async with info.context.searching:
        replayed = await service.replay(
            grant, input["id"], input.get("deliveryId"), input.get("since"), info.context.time_left()
        )
    return replayed._asdict()


async def _webhooks_json(info: Info, grant: Grant, webhooks: Sequence[Webhook]) -> list[Json]:
    last = await info.context.of(Webhooks).last_deliveries(grant, [one.id for one in webhooks])
    return [one | {"lastDeliveredAt": last.get(one["id"])} for one in await info.context.shown(_WEBHOOK, *webhooks)]


async def _one_json(info: Info, grant: Grant, webhook: Webhook) -> Json:
    return (await _webhooks_json(info, grant, [webhook]))[0]


async def _new_json(info: Info, grant: Grant, webhook: Webhook, secret: Secret[str]) -> Json:
    return {"webhook": await _one_json(info, grant, webhook), "secret": secret.reveal()}

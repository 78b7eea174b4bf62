"""Webhooks: create, look up, change, test, rotate, delete; their deliveries, and the sender of these."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from traceback import extract_tb
from typing import Any

from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import Fault, invalid
from watchword.domain.events import Cursor, CursorLost
from watchword.domain.names import check_lower_id, check_name
from watchword.domain.policies import PolicyDeclaration, Privilege
from watchword.domain.ports import Clock, MessageClient, Seal, WebhookStore
from watchword.domain.secret import Secret
from watchword.domain.webhooks import (
    CURSOR,
    FILTER_FIELDS,
    FIRST_RETRY,
    SECRET_BYTES,
    TEST_TYPE,
    Attempt,
    Delivery,
    DeliveryCounts,
    DeliveryPage,
    DeliveryState,
    Replayed,
    Webhook,
    WebhookPage,
    WebhookState,
    check_filter,
    check_overlap,
    message_body,
    secret_text,
    signed_headers,
)
from watchword.service.authority import Authority
from watchword.service.background import outages_suppressed

MANAGE = Privilege.MANAGE_WEBHOOKS
AUDIT = (Privilege.VIEW_AUDIT_LOG,)
"""Required too: a webhook reads the audit log."""
BATCH = 500
"""Events that one transaction of a replay looks at."""


@dataclass(frozen=True, slots=True)
class Webhooks:
    _store: WebhookStore
    _authority: Authority
    _seal: Seal
    _client: MessageClient
    _clock: Clock
    _new_id: Callable[[], str]
    _randomness: Callable[[int], bytes]

    async def authorize(self, caller: Caller) -> Grant:
        return await self._authority.authorize(caller, MANAGE, also=AUDIT)

    async def create(self, grant: Grant, fields: Mapping[str, Any]) -> tuple[Webhook, Secret[str]]:
        grant.expect(MANAGE, also=AUDIT)
        id_ = fields.get("id")
        webhook_id = self._new_id() if id_ is None else check_lower_id(id_, "id")
        name, filter_ = check_name(fields["name"]), check_filter(fields)
        await self._client.check(fields["url"])
        secret, sealed = self._new_secret(webhook_id)
        state = WebhookState.DISABLED if fields.get("enabled") is False else WebhookState.ENABLED
        wanted = Webhook(webhook_id, name, fields["url"], filter_, state, sealed, 0, grant.caller.actor)
        made = await self._authority.change(grant, self._store.add_webhook, wanted)
        return made, secret

    async def get(self, grant: Grant, webhook_id: str) -> Webhook:
        grant.expect(MANAGE, also=AUDIT)
        return await self._store.webhook(check_lower_id(webhook_id, "id"))

    async def list(self, grant: Grant, start: int, count: int) -> WebhookPage:
        grant.expect(MANAGE, also=AUDIT)
        return await self._store.webhooks(start, count)

    async def last_deliveries(self, grant: Grant, webhook_ids: Sequence[str]) -> Mapping[str, int]:
        grant.expect(MANAGE, also=AUDIT)
        return await self._store.last_deliveries(webhook_ids)

    async def update(self, grant: Grant, webhook_id: str, fields: Mapping[str, Any]) -> Webhook:
        """Change a webhook. What is absent or null stays as it is."""
        grant.expect(MANAGE, also=AUDIT)
        check_lower_id(webhook_id, "id")
        name, url, enabled = (fields.get(word) for word in ("name", "url", "enabled"))
        if name is not None:
            check_name(name)
        if url is not None:
            await self._client.check(url)
        wanted = check_filter(fields).fields()
        words = {field: wanted[field] for field in FILTER_FIELDS if fields.get(field) is not None}
        return await self._authority.change(
            grant, self._store.change_webhook, webhook_id, name=name, url=url, filter=words, enabled=enabled
        )

    async def rotate(self, grant: Grant, webhook_id: str, overlap: str | None) -> tuple[Webhook, Secret[str]]:
        grant.expect(MANAGE, also=AUDIT)
        span = check_overlap(overlap)
        secret, sealed = self._new_secret(check_lower_id(webhook_id, "id"))
        made = await self._authority.change(grant, self._store.rotate_webhook, webhook_id, sealed, span)
        return made, secret

    async def delete(self, grant: Grant, webhook_id: str) -> None:
        grant.expect(MANAGE, also=AUDIT)
        check_lower_id(webhook_id, "id")
        await self._authority.change(grant, self._store.delete_webhook, webhook_id)

    async def test(self, grant: Grant, webhook_id: str) -> Attempt:
        """Send a message at once, and return the receiver's answer."""
        webhook = await self.get(grant, webhook_id)
        now, name = self._clock(), f"msg_{webhook.id}_test_{self._new_id()}"
        data = {"version": 1, "webhook": {"id": webhook.id, "name": webhook.name}}
        body = message_body(TEST_TYPE, now, data).encode()
        headers = signed_headers(open_secrets(self._seal, webhook, now), name, now // 1_000, body)
        return await self._client.send(webhook.url, headers, body)

    async def deliveries(
        self, grant: Grant, webhook_id: str, state: str | None, cursor: str | None, count: int
    ) -> DeliveryPage:
        grant.expect(MANAGE, also=AUDIT)
        before = None if cursor is None else _number(cursor, "cursor")
        wanted = None if state is None else DeliveryState(state)
        return await self._store.deliveries(check_lower_id(webhook_id, "id"), wanted, before, count)

    async def replay(
        self, grant: Grant, webhook_id: str, delivery: str | None, since: int | None, seconds: float
    ) -> Replayed:
        """Send one delivery again, or all events since a time, or else the waiting ones. A stopped webhook resumes."""
        grant.expect(MANAGE, also=AUDIT)
        check_lower_id(webhook_id, "id")
        if delivery is not None and since is not None:
            raise invalid("since", "Pass since or deliveryId, not both.")
        if since is None:
            number = None if delivery is None else _number(delivery, "deliveryId")
            waiting = await self._authority.change(grant, self._store.replay_delivery, webhook_id, number)
            return Replayed(waiting if number is None else 1, None)
        return await self._replay_since(grant, webhook_id, since, seconds)

    async def _replay_since(self, grant: Grant, webhook_id: str, since: int, seconds: float) -> Replayed:
        began, queued, position = time.monotonic(), 0, Cursor(since, -1)
        while True:
            number, next_ = await self._authority.change(
                grant, self._store.replay_events, webhook_id, since, position, BATCH
            )
            queued += number
            if next_ is None:
                return Replayed(queued, None)
            if next_ == position or time.monotonic() - began > seconds:
                return Replayed(queued, next_.at)
            position = next_

    def _new_secret(self, webhook_id: str) -> tuple[Secret[str], bytes]:
        sealed = sealed_secret(self._seal, self._randomness, webhook_id)
        return secret_text(self._seal.open(sealed, _label(webhook_id))), sealed


def sealed_secret(seal: Seal, randomness: Callable[[int], bytes], webhook_id: str) -> bytes:
    """A new one."""
    return seal.seal(Secret(randomness(SECRET_BYTES)), _label(webhook_id))


def with_secrets(declared: PolicyDeclaration, new_secret: Callable[[str], bytes]) -> PolicyDeclaration:
    """Each declared webhook with a secret, for those that are new."""
    return replace(
        declared, webhooks=tuple(replace(one, sealed_secret=new_secret(one.id)) for one in declared.webhooks)
    )


def open_secrets(seal: Seal, webhook: Webhook, now: int) -> list[Secret[bytes]]:
    """The secrets that sign now, the newest first."""
    sealed = [webhook.sealed_secret]
    if webhook.sealed_previous is not None and (webhook.previous_until or 0) > now:
        sealed.append(webhook.sealed_previous)
    return [seal.open(one, _label(webhook.id)) for one in sealed]


def _label(webhook_id: str) -> str:
    return f"webhook:{webhook_id}"


def _number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise invalid(field, f"{field} must come from a list of deliveries.")
    return int(text)


POLL_SECONDS = 1.0
IDLE_SECONDS = 5.0  # while there is no webhook
BUSY_SECONDS = 0.25
LEASE_MILLIS = 2_000
RENEW_SECONDS = 0.5
MAX_AT_ONCE = 32
EVENTS = 500
DELIVERIES = 20
COUNT_SECONDS = 30.0


class DeliverySender:
    """Queues deliveries for new events, and sends them.

    Every worker of every instance runs one. The lease of its cursor in the store decides which of them works; idle
    workers only read. Events are queued, and the cursor moved, in one transaction. A delivery is sent again until its
    result is recorded: at least once. The next delivery of a webhook waits for that, so the order is kept; a process
    that lost the lease can at most repeat the delivery that was on its way.
    """

    def __init__(
        self,
        store: WebhookStore,
        seal: Seal,
        client: MessageClient,
        clock: Clock,
        holder: str,
    ) -> None:
        self._store = store
        self._seal = seal
        self._client = client
        self._clock = clock
        self._holder = holder
        self.count: Callable[[str], None] = lambda _: None
        """Called with the result of each attempt, for the metrics."""
        self.log: Callable[[str, str], None] = lambda _, __: None
        """Called with the id of a webhook and a bug that was met with it."""
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._held_until = 0.0
        self._sending: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            pause = POLL_SECONDS
            with suppress(CursorLost), outages_suppressed():
                has_work = await self._store.has_deliveries()
                if has_work:
                    await self._work()
                elif has_work is None:
                    pause = IDLE_SECONDS
            await asyncio.sleep(pause * (0.75 + random.random() / 2))  # noqa: S311 - no secret

    async def keep_counting(self, publish: Callable[[DeliveryCounts], None]) -> None:
        """Update the numbers of the metrics until cancelled."""
        while True:
            with outages_suppressed():
                publish(await self._store.delivery_counts())
            await asyncio.sleep(COUNT_SECONDS)

    async def _work(self) -> None:
        """Send until there is no more to do or the lease is lost."""
        seq = await self._renew()
        renewing = asyncio.ensure_future(self._keep_renewing())
        try:
            while not renewing.done():
                events = await self._store.events_after(seq, EVENTS)
                if events:
                    await self._store.queue_events(self._holder, events)
                    seq = events[-1].seq
                for webhook in await self._store.due_webhooks():
                    if webhook.id not in self._sending:
                        self._sending[webhook.id] = asyncio.ensure_future(self._send_queue(webhook))
                if not self._sending and not events:
                    return
                pause = 0 if events else BUSY_SECONDS
                done, _ = await asyncio.wait(
                    [renewing, *self._sending.values()], timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
                self._sending = {id_: task for id_, task in self._sending.items() if task not in done}
                for task in done:
                    task.result()
        finally:
            tasks = [renewing, *self._sending.values()]
            self._sending = {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(Fault):
                await self._store.release_cursor(CURSOR, self._holder)

    async def _renew(self) -> int:
        began = time.monotonic()
        seq = await self._store.lease_cursor(CURSOR, self._holder, LEASE_MILLIS)
        if seq is None:
            raise CursorLost
        self._held_until = began + LEASE_MILLIS / 1_000
        return seq

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await self._renew()

    async def _send_queue(self, webhook: Webhook) -> None:
        try:
            while batch := await self._store.waiting_deliveries(webhook.id, DELIVERIES):
                for delivery in batch:
                    after = await self._send(webhook, delivery)
                    if after is None:
                        return
                    webhook = after
        except CursorLost:
            pass
        except Exception as bug:  # noqa: BLE001 - of one webhook
            if not (isinstance(bug, Fault) and bug.is_outage):
                self._log_bug(webhook, bug)
                await asyncio.sleep(FIRST_RETRY / 1_000)  # other webhooks go on

    def _log_bug(self, webhook: Webhook, bug: Exception) -> None:
        """Without the message, which may have the URL."""
        where = extract_tb(bug.__traceback__)[-1]
        self.log(webhook.id, f"bug: {type(bug).__name__} in {where.name}, line {where.lineno} of {where.filename}")

    async def _send(self, webhook: Webhook, delivery: Delivery) -> Webhook | None:
        """Returns the webhook as it is now; None: send nothing more for now."""
        async with self._slots:
            if time.monotonic() > self._held_until:
                raise CursorLost
            attempt = await self._attempt(webhook, delivery)
        after = await self._store.record_attempt(self._holder, delivery, attempt, random.random())  # noqa: S311
        self.count("delivered" if attempt.succeeded else "failed")
        return after if attempt.succeeded and after and after.state is WebhookState.ENABLED else None

    async def _attempt(self, webhook: Webhook, delivery: Delivery) -> Attempt:
        now = self._clock()
        try:
            body = delivery.payload.encode()
            secrets = open_secrets(self._seal, webhook, now)
            headers = signed_headers(secrets, delivery.message, now // 1_000, body)
            return await self._client.send(webhook.url, headers, body)
        except Exception as bug:  # noqa: BLE001 - of one webhook
            self._log_bug(webhook, bug)
            return Attempt(now, 0, None, "internal error", None)

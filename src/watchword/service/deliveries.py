"""The sender of webhooks: queues deliveries for new events, and sends them.

Every worker of every instance runs one. The lease of its cursor in the store decides which of them works; idle workers
only read. Events are queued, and the cursor moved, in one transaction. A delivery is sent again until its result is
recorded: at least once. The next delivery of a webhook waits for that, so the order is kept; a process that lost the
lease can at most repeat the delivery that was on its way.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from traceback import extract_tb

from watchword.domain.errors import Fault
from watchword.domain.events import CursorLost
from watchword.domain.ports import Clock, MessageClient, Seal, WebhookStore
from watchword.domain.webhooks import (
    CURSOR,
    FIRST_RETRY,
    Attempt,
    Delivery,
    DeliveryCounts,
    Webhook,
    WebhookState,
    signed_headers,
)
from watchword.service.webhooks import open_secrets

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
    def __init__(
        self,
        store: WebhookStore,
        seal: Seal,
        client: Callable[[], MessageClient],
        clock: Clock,
        holder: str,
    ) -> None:
        self._store = store
        self._seal = seal
        self._client = client
        self._clock = clock
        self._holder = holder
        self.count: Callable[[str], None] = _uncounted
        """Called with the result of each attempt, for the metrics."""
        self.log: Callable[[str, str], None] = _unlogged
        """Called with the id of a webhook and a bug that was met with it."""
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._held_until = 0.0
        self._sending: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            pause = POLL_SECONDS
            try:
                has_work = await self._store.has_deliveries()
                if has_work:
                    await self._work()
                elif has_work is None:
                    pause = IDLE_SECONDS
            except CursorLost:
                pass
            except Fault as fault:
                if not fault.is_outage:
                    raise
            await asyncio.sleep(pause * (0.75 + random.random() / 2))  # noqa: S311 - no secret

    async def keep_counting(self, publish: Callable[[DeliveryCounts], None]) -> None:
        """For the metrics, until cancelled."""
        while True:
            try:
                publish(await self._store.delivery_counts())
            except Fault as fault:
                if not fault.is_outage:
                    raise
            await asyncio.sleep(COUNT_SECONDS)

    async def _work(self) -> None:
        """Until there is no more to do, or the lease is lost."""
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
        with suppress(CursorLost):
            try:
                while batch := await self._store.waiting_deliveries(webhook.id, DELIVERIES):
                    for delivery in batch:
                        after = await self._send(webhook, delivery)
                        if after is None:
                            return
                        webhook = after
            except CursorLost:
                raise
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
            return await self._client().send(webhook.url, headers, body)
        except Exception as bug:  # noqa: BLE001 - of one webhook
            self._log_bug(webhook, bug)
            return Attempt(now, 0, None, "internal error", None)


def _uncounted(_: str) -> None:
    pass


def _unlogged(_: str, __: str) -> None:
    pass

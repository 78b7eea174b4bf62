"""Sends webhooks: queues deliveries for new events, and sends them in order."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from traceback import extract_tb

from watchword.basics.background import outages_suppressed
from watchword.basics.errors import Fault
from watchword.basics.secret import Seal
from watchword.basics.times import Clock
from watchword.journal.events import CursorLost
from watchword.notices import webhook_rules as rules
from watchword.notices.webhook_client import WebhookClient
from watchword.notices.webhook_rules import CURSOR, Attempt, Delivery, Webhook, WebhookState
from watchword.notices.webhook_service import open_secrets
from watchword.notices.webhook_store import WebhookStore

POLL_SECONDS = 1.0
IDLE_SECONDS = 5.0  # while there is no webhook
BUSY_SECONDS = 0.25
LEASE_MILLIS = 2_000
RENEW_SECONDS = 0.5
MAX_AT_ONCE = 32
EVENTS = 500
DELIVERIES = 20
COUNT_SECONDS = 30.0


@dataclass(slots=True)
class DeliverySender:
    """Every worker of every instance runs one. The lease of its cursor in the store decides which of them works; idle
    workers only read. Events are queued, and the cursor moved, in one transaction. A delivery is sent again until its
    result is recorded: at least once. The next delivery of a webhook waits for that, so the order is kept; a process
    that lost the lease can at most repeat the delivery that was on its way.
    """

    _store: WebhookStore
    _seal: Seal
    _client: WebhookClient
    _clock: Clock
    _holder: str
    _: KW_ONLY
    count: Callable[[str], None]
    """Called with the result of each attempt."""
    log: Callable[[str, str], None]
    """Called with the id of a webhook and a bug that was met with it."""
    _slots: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MAX_AT_ONCE))
    _held_until: float = 0.0
    _sending: dict[str, asyncio.Task[None]] = field(default_factory=dict)

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

    async def keep_counting(self, publish: Callable[[rules.DeliveryCounts], None]) -> None:
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
                await asyncio.sleep(rules.FIRST_RETRY / 1_000)  # other webhooks go on

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
            headers = rules.signed_headers(secrets, delivery.message, now // 1_000, body)
            return await self._client.send(webhook.url, headers, body)
        except Exception as bug:  # noqa: BLE001 - of one webhook
            self._log_bug(webhook, bug)
            return Attempt(now, 0, None, "internal error", None)

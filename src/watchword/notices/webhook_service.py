"""Webhooks: create, look up, change, test, rotate, delete, and their deliveries."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import invalid
from watchword.basics.names import check_lower_id, check_name
from watchword.basics.secret import Seal, Secret
from watchword.basics.times import Clock
from watchword.journal.events import Cursor
from watchword.notices import webhook_rules as rules
from watchword.notices.webhook_client import WebhookClient
from watchword.notices.webhook_rules import Attempt, Webhook, WebhookState
from watchword.notices.webhook_store import WebhookStore

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
    _client: WebhookClient
    _clock: Clock
    _new_id: Callable[[], str]
    _randomness: Callable[[int], bytes]

    async def authorize(self, caller: Caller) -> Grant:
        return await self._authority.authorize(caller, MANAGE, also=AUDIT)

    async def create(self, grant: Grant, fields: Mapping[str, Any]) -> tuple[Webhook, Secret[str]]:
        grant.expect(MANAGE, also=AUDIT)
        id_ = fields.get("id")
        webhook_id = self._new_id() if id_ is None else check_lower_id(id_, "id")
        name, filter_ = check_name(fields["name"]), rules.check_filter(fields)
        await self._client.check(fields["url"])
        secret, sealed = self._new_secret(webhook_id)
        state = WebhookState.DISABLED if fields.get("enabled") is False else WebhookState.ENABLED
        wanted = Webhook(webhook_id, name, fields["url"], filter_, state, sealed, 0, grant.caller.actor)
        made = await self._authority.change(grant, self._store.add_webhook, wanted)
        return made, secret

    async def get(self, grant: Grant, webhook_id: str) -> Webhook:
        grant.expect(MANAGE, also=AUDIT)
        return await self._store.webhook(check_lower_id(webhook_id, "id"))

    async def list(self, grant: Grant, start: int, count: int) -> rules.WebhookPage:
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
        wanted = rules.check_filter(fields).fields()
        words = {field: wanted[field] for field in rules.FILTER_FIELDS if fields.get(field) is not None}
        return await self._authority.change(
            grant, self._store.change_webhook, webhook_id, name=name, url=url, filter=words, enabled=enabled
        )

    async def rotate(self, grant: Grant, webhook_id: str, overlap: str | None) -> tuple[Webhook, Secret[str]]:
        grant.expect(MANAGE, also=AUDIT)
        span = rules.check_overlap(overlap)
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
        body = rules.message_body(rules.TEST_TYPE, now, data).encode()
        headers = rules.signed_headers(open_secrets(self._seal, webhook, now), name, now // 1_000, body)
        return await self._client.send(webhook.url, headers, body)

    async def deliveries(
        self, grant: Grant, webhook_id: str, state: str | None, cursor: str | None, count: int
    ) -> rules.DeliveryPage:
        grant.expect(MANAGE, also=AUDIT)
        before = None if cursor is None else _number(cursor, "cursor")
        wanted = None if state is None else rules.DeliveryState(state)
        return await self._store.deliveries(check_lower_id(webhook_id, "id"), wanted, before, count)

    async def replay(
        self, grant: Grant, webhook_id: str, delivery: str | None, since: int | None, seconds: float
    ) -> rules.Replayed:
        """Send one delivery again, or all events since a time, or else the waiting ones. A stopped webhook resumes."""
        grant.expect(MANAGE, also=AUDIT)
        check_lower_id(webhook_id, "id")
        if delivery is not None and since is not None:
            raise invalid("since", "Pass since or deliveryId, not both.")
        if since is None:
            number = None if delivery is None else _number(delivery, "deliveryId")
            waiting = await self._authority.change(grant, self._store.replay_delivery, webhook_id, number)
            return rules.Replayed(waiting if number is None else 1, None)
        return await self._replay_since(grant, webhook_id, since, seconds)

    async def _replay_since(self, grant: Grant, webhook_id: str, since: int, seconds: float) -> rules.Replayed:
        began, queued, position = time.monotonic(), 0, Cursor(since, -1)
        while True:
            number, next_ = await self._authority.change(
                grant, self._store.replay_events, webhook_id, since, position, BATCH
            )
            queued += number
            if next_ is None:
                return rules.Replayed(queued, None)
            if next_ == position or time.monotonic() - began > seconds:
                return rules.Replayed(queued, next_.at)
            position = next_

    def _new_secret(self, webhook_id: str) -> tuple[Secret[str], bytes]:
        sealed = sealed_secret(self._seal, self._randomness, webhook_id)
        return rules.secret_text(self._seal.open(sealed, _label(webhook_id))), sealed


def sealed_secret(seal: Seal, randomness: Callable[[int], bytes], webhook_id: str) -> bytes:
    return seal.seal(Secret(randomness(rules.SECRET_BYTES)), _label(webhook_id))


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

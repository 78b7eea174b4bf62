"""Webhooks: create, look up, change, test, rotate, delete; their deliveries, and sending them again."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import invalid
from watchword.domain.events import Cursor
from watchword.domain.policies import PolicyDeclaration, Privilege
from watchword.domain.ports import Clock, MessageClient, Seal, WebhookStore
from watchword.domain.secret import Secret
from watchword.domain.webhooks import (
    SECRET_BYTES,
    TEST_TYPE,
    Attempt,
    DeliveryPage,
    DeliveryState,
    Replayed,
    Webhook,
    WebhookPage,
    WebhookState,
    check_filter,
    check_overlap,
    check_webhook_id,
    check_webhook_name,
    message_body,
    secret_text,
    signed_headers,
)
from watchword.service.authority import Authority

T = TypeVar("T")

BATCH = 500
"""Events that one transaction of a replay looks at."""


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Needs two privileges: a webhook reads the audit log."""

    _store: WebhookStore
    _authority: Authority
    _seal: Seal
    _client: Callable[[], MessageClient]
    _clock: Clock
    _new_id: Callable[[], str]
    _randomness: Callable[[int], bytes]

    async def authorize(self, caller: Caller) -> Grant:
        return _checked(await self._authority.authorize(caller, Privilege.MANAGE_WEBHOOKS))

    async def create(self, grant: Grant, asked: Mapping[str, Any]) -> tuple[Webhook, Secret[str]]:
        _checked(grant)
        id_ = asked.get("id")
        webhook_id = self._new_id() if id_ is None else check_webhook_id(id_)
        name, filter_ = check_webhook_name(asked["name"]), check_filter(*_words(asked))
        await self._client().check(asked["url"])
        secret, sealed = self._new_secret(webhook_id)
        state = WebhookState.DISABLED if asked.get("enabled") is False else WebhookState.ENABLED
        wanted = Webhook(webhook_id, name, asked["url"], filter_, state, sealed, 0, grant.caller.actor)
        made = await self._write(grant, lambda grant: self._store.add_webhook(grant.precondition, wanted))
        return made, secret

    async def get(self, grant: Grant, webhook_id: str) -> Webhook:
        _checked(grant)
        return await self._store.webhook(check_webhook_id(webhook_id))

    async def list(self, grant: Grant, start: int, count: int) -> WebhookPage:
        _checked(grant)
        return await self._store.webhooks(start, count)

    async def last_deliveries(self, grant: Grant, webhook_ids: Sequence[str]) -> Mapping[str, int]:
        _checked(grant)
        return await self._store.last_deliveries(webhook_ids)

    async def update(self, grant: Grant, webhook_id: str, asked: Mapping[str, Any]) -> Webhook:
        """What is absent or null stays as it is."""
        before = await self.get(grant, webhook_id)
        name, url, enabled = (asked.get(word) for word in ("name", "url", "enabled"))
        if name is not None:
            check_webhook_name(name)
        if url is not None:
            await self._client().check(url)
        filter_ = None
        if any(asked.get(word) is not None for word in _FILTER):
            known = before.filter
            kept = {"actions": known.actions, "actorUrns": known.actors, "groupUrns": known.groups}
            filter_ = check_filter(
                *_words(kept | {word: asked[word] for word in _FILTER if asked.get(word) is not None})
            )
        return await self._write(
            grant,
            lambda grant: self._store.change_webhook(
                grant.precondition, webhook_id, name=name, url=url, filter=filter_, enabled=enabled
            ),
        )

    async def rotate(self, grant: Grant, webhook_id: str, overlap: str | None) -> tuple[Webhook, Secret[str]]:
        _checked(grant)
        span = check_overlap(overlap)
        secret, sealed = self._new_secret(check_webhook_id(webhook_id))
        made = await self._write(
            grant, lambda grant: self._store.rotate_webhook(grant.precondition, webhook_id, sealed, span)
        )
        return made, secret

    async def delete(self, grant: Grant, webhook_id: str) -> None:
        _checked(grant)
        check_webhook_id(webhook_id)
        await self._write(grant, lambda grant: self._store.delete_webhook(grant.precondition, webhook_id))

    async def test(self, grant: Grant, webhook_id: str) -> Attempt:
        """Send a message at once, and return the receiver's answer."""
        webhook = await self.get(grant, webhook_id)
        now, name = self._clock(), f"msg_{webhook.id}_test_{self._new_id()}"
        data = {"version": 1, "webhook": {"id": webhook.id, "name": webhook.name}}
        body = message_body(TEST_TYPE, now, data).encode()
        headers = signed_headers(open_secrets(self._seal, webhook, now), name, now // 1_000, body)
        return await self._client().send(webhook.url, headers, body)

    async def deliveries(
        self, grant: Grant, webhook_id: str, state: str | None, cursor: str | None, count: int
    ) -> DeliveryPage:
        _checked(grant)
        before = None if cursor is None else _number(cursor, "cursor")
        wanted = None if state is None else DeliveryState(state)
        return await self._store.deliveries(check_webhook_id(webhook_id), wanted, before, count)

    async def replay(
        self, grant: Grant, webhook_id: str, delivery: str | None, since: int | None, seconds: float
    ) -> Replayed:
        """Send one delivery again, or all events since a time, or else what waits. A stopped webhook sends again."""
        _checked(grant)
        check_webhook_id(webhook_id)
        if delivery is not None and since is not None:
            raise invalid("since", "Pass since or deliveryId, not both.")
        if since is None:
            number = None if delivery is None else _number(delivery, "deliveryId")
            waiting = await self._write(
                grant, lambda grant: self._store.replay_delivery(grant.precondition, webhook_id, number)
            )
            return Replayed(waiting if number is None else 1, None)
        return await self._replay_since(grant, webhook_id, since, seconds)

    async def _replay_since(self, grant: Grant, webhook_id: str, since: int, seconds: float) -> Replayed:
        began, queued, position = time.monotonic(), 0, Cursor(since, -1)

        def queue(grant: Grant) -> Awaitable[tuple[int, Cursor | None]]:
            return self._store.replay_events(grant.precondition, webhook_id, since, position, BATCH)

        while True:
            number, next_ = await self._write(grant, queue)
            queued += number
            if next_ is None:
                return Replayed(queued, None)
            if next_ == position or time.monotonic() - began > seconds:
                return Replayed(queued, next_.at)
            position = next_

    async def _write(self, grant: Grant, action: Callable[[Grant], Awaitable[T]]) -> T:
        return await self._authority.write(grant, lambda grant: action(_checked(grant)))

    def _new_secret(self, webhook_id: str) -> tuple[Secret[str], bytes]:
        sealed = sealed_secret(self._seal, self._randomness, webhook_id)
        return secret_text(self._seal.open(sealed, _label(webhook_id))), sealed


_FILTER = ("actions", "actorUrns", "groupUrns")


def _words(asked: Mapping[str, Any]) -> list[Any]:
    return [asked.get(word) or () for word in _FILTER]


def _checked(grant: Grant) -> Grant:
    grant.expect(Privilege.MANAGE_WEBHOOKS)
    grant.require(Privilege.VIEW_AUDIT_LOG)
    return grant


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

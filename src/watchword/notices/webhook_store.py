"""Webhooks and their deliveries.

Every change of a subscription, and every batch of events that is queued, holds the lock WEBHOOKS: a subscription that
is created gets each later event once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from watchword.authority.declared_parts import Change
from watchword.authority.declared_parts_store import StoredPart
from watchword.authority.privileges import Privilege, Require
from watchword.authority.store import check_precondition, groups_by_actor
from watchword.basics.errors import Fault, Reason
from watchword.database import rows
from watchword.database.transaction import Transaction, page, snapshot, transaction
from watchword.journal.events import Action, Cursor, CursorLost, Detail, Event, KeptEvent
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.journal.store import EventStore, event_of, last_settled, move_cursor, write_events
from watchword.notices import webhook_rules as rules
from watchword.notices.webhook_rules import CURSOR, MAX_QUEUE, Attempt, Delivery, DeliveryState, Webhook, WebhookState

WEBHOOKS = "webhooks"
"""The name of a lock."""
_PLAIN = (
    "sealed_secret, created_at, created_by, sealed_previous, previous_until, after_seq, failing_since, failures,"
    " due_at, dropped"
)
COLUMNS = f"id, name, url, actions, actors, groups, state, {_PLAIN}, stopped_because, set_name"
_WAITING = "SELECT count(*) FROM webhook_deliveries WHERE webhook = webhooks.id AND state = 'WAITING'"
_SHOWN = f"{COLUMNS}, ({_WAITING})"
_SELECT = f"SELECT {_SHOWN} FROM webhooks"
_GET = f"{_SELECT} WHERE id = $1"
_ADD = rows.insert("webhooks", COLUMNS)
_SAVE = (
    f"UPDATE webhooks SET {', '.join(f'{c} = ${n + 1}' for n, c in enumerate(COLUMNS.split(', ')) if n)} WHERE id = $1"
)
_QUEUEING = "state IN ('ENABLED', 'STOPPED')"
_LAST_EVENT = "(SELECT coalesce(max(seq), 0) FROM events)"
_START_CURSOR = f"""
INSERT INTO event_cursors (name, seq) VALUES ('{CURSOR}', $1)
ON CONFLICT (name) DO UPDATE SET seq = excluded.seq"""
_IS_DUE = """state = 'ENABLED' AND due_at <= (SELECT now_ms()) AND EXISTS (
    SELECT 1 FROM webhook_deliveries AS d WHERE d.webhook = webhooks.id AND d.state = 'WAITING')"""
_HAS_WORK = f"""
SELECT NOT EXISTS (SELECT 1 FROM event_cursors WHERE name = '{CURSOR}' AND held_until > (SELECT now_ms())) AND (
    EXISTS (SELECT 1 FROM webhooks WHERE {_QUEUEING})
        AND {_LAST_EVENT} > coalesce((SELECT seq FROM event_cursors WHERE name = '{CURSOR}'), 0)
    OR EXISTS (SELECT 1 FROM webhooks WHERE {_IS_DUE})),
    EXISTS (SELECT 1 FROM webhooks)"""
_DUE = f"SELECT {COLUMNS}, 0 FROM webhooks WHERE {_IS_DUE} ORDER BY due_at, id"
_HAS_LEASE = f"SELECT 1 FROM event_cursors WHERE name = '{CURSOR}' AND holder = $1 AND held_until > (SELECT now_ms())"

DELIVERY = "number, webhook, message, event_seq, type, payload, state, made_at, delivered_at, attempts"
_QUEUE = """
INSERT INTO webhook_deliveries (webhook, message, event_seq, type, payload, state, made_at, attempts)
VALUES ($1, $2, $3, $4, $5, 'WAITING', $6, '[]')"""
_NEXT = f"SELECT {DELIVERY} FROM webhook_deliveries WHERE webhook = $1 AND state = 'WAITING' ORDER BY number LIMIT $2"
_LIST = (
    f"SELECT {DELIVERY} FROM webhook_deliveries WHERE webhook = $1 AND number < $2 {{}} ORDER BY number DESC LIMIT $3"
)
_LAST = """
SELECT id, (
    SELECT delivered_at FROM webhook_deliveries AS d WHERE d.webhook = webhooks.id AND d.state = 'DELIVERED'
    ORDER BY number DESC LIMIT 1)
FROM webhooks WHERE id {}"""
_COUNTS = f"""
SELECT coalesce(sum(waiting), 0), coalesce(sum(waiting) FILTER (WHERE failing_since IS NOT NULL), 0),
    count(stopped_because)
FROM (
    SELECT failing_since, stopped_because, ({_WAITING}) AS waiting FROM webhooks
    WHERE state <> 'DISABLED' OR stopped_because IS NOT NULL) AS queues"""
_SINCE = f"""
SELECT {rows.EVENT}, seq FROM events
WHERE (at, seq) > ($1::bigint, $2::bigint) AND seq <= (SELECT seq FROM event_cursors WHERE name = '{CURSOR}')
ORDER BY at, seq LIMIT $3"""
_PRUNE_OLD = """
DELETE FROM webhook_deliveries WHERE number IN (
    SELECT number FROM webhook_deliveries WHERE made_at < $1 ORDER BY made_at LIMIT $2)
RETURNING webhook, state"""
_PRUNE_MANY = f"""
DELETE FROM webhook_deliveries WHERE number IN (
    SELECT number FROM webhook_deliveries WHERE webhook = $1 AND state = 'DELIVERED' AND number <= (
        SELECT number FROM webhook_deliveries WHERE webhook = $1 AND state = 'DELIVERED'
        ORDER BY number DESC LIMIT 1 OFFSET {rules.MAX_KEPT})
    ORDER BY number LIMIT $2)"""


class WebhookStore(EventStore):
    """WEBHOOK_NOT_FOUND where an id names none."""

    @transaction
    async def add_webhook(self, tx: Transaction, precondition: WritePrecondition, webhook: Webhook) -> Webhook:
        """It gets events from now on. ALREADY_EXISTS, TOO_MANY_WEBHOOKS."""
        now = await check_precondition(tx, precondition, exclusive=[WEBHOOKS])
        if await tx.fetchrow(_GET, webhook.id) is not None:
            raise Fault(Reason.ALREADY_EXISTS, "id is already in use by a webhook. Choose another.", field="id")
        if await tx.fetchval("SELECT count(*) FROM webhooks") >= rules.MAX_WEBHOOKS:
            raise rules.too_many_webhooks()
        made = await put_new(tx, replace(webhook, created_at=now))
        await write_events(tx, precondition, [_event(Action.WEBHOOK_CREATED, made)], now)
        return made

    async def webhook(self, webhook_id: str) -> Webhook:
        return _webhook(await self._db.row(_GET, webhook_id))

    @snapshot
    async def webhooks(self, tx: Transaction, start: int, count: int) -> rules.WebhookPage:
        """By name."""
        total, found = await page(tx, _SHOWN, "webhooks", "name, id", start, count)
        return rules.WebhookPage(total, tuple(_webhook(row) for row in found))

    async def last_deliveries(self, webhook_ids: Sequence[str]) -> dict[str, int]:
        """When each of these last delivered a message that is still stored."""
        found = await self._db.fetch(_LAST.format(self._db.dialect.any_of("$1")), list(webhook_ids))
        return {id_: at for id_, at in found if at is not None}

    @transaction
    async def change_webhook(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        webhook_id: str,
        *,
        name: str | None,
        url: str | None,
        filter: Mapping[str, tuple[str, ...]],  # noqa: A002 - the schema's word
        enabled: bool | None,
    ) -> Webhook:
        """With None nothing changes, nor does a field of the filter that is absent. A disabled webhook gets events from
        now on; a stopped one resumes its queue.
        """
        now = await check_precondition(tx, precondition, exclusive=[WEBHOOKS])
        found = await _locked(tx, webhook_id)
        if found.set_name is not None and ((name, url) != (None, None) or filter):
            raise Fault(
                Reason.POLICY_DECLARED_ELSEWHERE,
                f"The policy set {found.set_name} declares this webhook. Change its policy file.",
                set=found.set_name,
            )
        merged = rules.EventFilter(*{**found.filter.fields(), **filter}.values())
        changed = replace(found, name=name or found.name, url=url or found.url, filter=merged)
        changed = await switched(tx, changed, enabled=enabled)
        if changed == found:
            return found
        await save(tx, changed)
        await write_events(tx, precondition, [_event(Action.WEBHOOK_UPDATED, changed)], now)
        return changed

    @transaction
    async def rotate_webhook(
        self, tx: Transaction, precondition: WritePrecondition, webhook_id: str, sealed: bytes, overlap: int
    ) -> Webhook:
        """The old secret signs too for `overlap` milliseconds."""
        now = await check_precondition(tx, precondition, exclusive=[WEBHOOKS])
        found = await _locked(tx, webhook_id)
        kept = (found.sealed_secret, now + overlap) if overlap else (None, None)
        changed = replace(found, sealed_secret=sealed, sealed_previous=kept[0], previous_until=kept[1])
        await save(tx, changed)
        event = Event(Action.WEBHOOK_SECRET_ROTATED, webhook_id, {"name": found.name, "previousUntil": kept[1]})
        await write_events(tx, precondition, [event], now)
        return changed

    @transaction
    async def delete_webhook(self, tx: Transaction, precondition: WritePrecondition, webhook_id: str) -> None:
        now = await check_precondition(tx, precondition, exclusive=[WEBHOOKS])
        found = await _locked(tx, webhook_id)
        await remove(tx, webhook_id)
        event = Event(Action.WEBHOOK_DELETED, webhook_id, {"name": found.name, "waiting": found.waiting})
        await write_events(tx, precondition, [event], now)

    async def deliveries(
        self, webhook_id: str, state: DeliveryState | None, before: int | None, count: int
    ) -> rules.DeliveryPage:
        """Newest first, with numbers below `before`."""
        await self.webhook(webhook_id)
        of_state = "" if state is None else f"AND state = '{state.value}'"
        highest = 2**63 - 1 if before is None else before
        found = await self._db.fetch(_LIST.format(of_state), webhook_id, highest, count + 1)
        return rules.DeliveryPage(tuple(_delivery(row) for row in found[:count]), len(found) > count)

    @transaction
    async def replay_delivery(
        self, tx: Transaction, precondition: WritePrecondition, webhook_id: str, number: int | None
    ) -> int:
        """Send this delivery again, or with None the waiting ones; return how many wait now. WEBHOOK_DISABLED,
        DELIVERY_NOT_FOUND, QUEUE_FULL.
        """
        now = await check_precondition(tx, precondition, exclusive=[WEBHOOKS])
        found = await _resumed(tx, webhook_id)
        again = 0
        if number is not None:
            sql = f"SELECT {DELIVERY} FROM webhook_deliveries WHERE webhook = $1 AND number = $2"
            row = await tx.fetchrow(sql, webhook_id, number)
            if row is None:
                raise Fault(Reason.DELIVERY_NOT_FOUND, "There is no delivery of this webhook with this id.")
            one = _delivery(row)
            if one.state is DeliveryState.DELIVERED:
                if found.waiting >= MAX_QUEUE:
                    raise Fault(Reason.QUEUE_FULL, f"{MAX_QUEUE:,} deliveries wait, the maximum. Try again later.")
                await tx.execute(_QUEUE, webhook_id, one.message, one.event_seq, one.type, one.payload, now)
                again = 1
        event = Event(Action.WEBHOOK_REPLAYED, webhook_id, {"name": found.name, "waiting": found.waiting + again})
        await write_events(tx, precondition, [event], now)
        return found.waiting + again

    @transaction
    async def replay_events(
        self, tx: Transaction, precondition: WritePrecondition, webhook_id: str, since: int, after: Cursor, most: int
    ) -> tuple[int, Cursor | None]:
        """Queue again matches among the next `most` events by time, except those already waiting. The first call has
        `Cursor(since, -1)`. Returns how many were queued and where to go on: where it was if there is no room; None at
        the end. WEBHOOK_DISABLED.
        """
        now = await check_precondition(tx, precondition, exclusive=[WEBHOOKS])
        found = await _resumed(tx, webhook_id, dropped=0)
        if after == Cursor(since, -1):
            replayed = Event(Action.WEBHOOK_REPLAYED, webhook_id, {"name": found.name, "since": since})
            await write_events(tx, precondition, [replayed], now)
        events = [event_of(row) for row in await tx.fetch(_SINCE, after.at, after.seq, most)]
        known = await _known(tx, events)
        waiting = {
            seq
            for (seq,) in await tx.fetch(
                f"""SELECT event_seq FROM webhook_deliveries WHERE webhook = $1 AND state = 'WAITING'
                AND event_seq {tx.dialect.any_number("$2")}""",
                webhook_id,
                [event.seq for event in events],
            )
        }
        queued: list[tuple[Any, ...]] = []
        room = MAX_QUEUE - found.waiting
        for event in events:
            if event.seq not in waiting and found.filter.matches(event, known.token_groups(event)):
                if len(queued) == room:
                    break
                queued.append(_queued(found, event, known, now))
            after = Cursor(event.at, event.seq)
        await tx.executemany(_QUEUE, queued)
        return len(queued), None if len(events) < most and (not events or after.seq == events[-1].seq) else after

    # The sender

    async def has_deliveries(self) -> bool | None:
        """Whether events are to be queued, or a delivery may be sent now, and no process has the lease. None: there is
        no webhook.
        """
        row = await self._db.row(_HAS_WORK)
        assert row is not None
        has_work, has_webhooks = row
        return bool(has_work) if has_webhooks else None

    @transaction
    async def queue_events(self, tx: Transaction, holder: str, events: Sequence[KeptEvent]) -> None:
        """Queue the deliveries of these events, and move the cursor after them. A webhook without room stops.
        `CursorLost` unless this holder has the lease.
        """
        await tx.lock(exclusive=[WEBHOOKS])
        now = await tx.now()
        known = await _known(tx, events)
        queued: list[tuple[Any, ...]] = []
        stopped: list[Event] = []
        for row in await tx.fetch(f"{_SELECT} WHERE {_QUEUEING} ORDER BY id {tx.dialect.for_update}"):
            webhook = _webhook(row)
            matching = [
                event
                for event in events
                if event.seq > webhook.after_seq and webhook.filter.matches(event, known.token_groups(event))
            ]
            room = max(0, MAX_QUEUE - webhook.waiting)
            queued += [_queued(webhook, event, known, now) for event in matching[:room]]
            if len(matching) > room:
                full = replace(webhook, dropped=webhook.dropped + len(matching) - room)
                if webhook.state is WebhookState.ENABLED:
                    full = replace(full, state=WebhookState.STOPPED, stop_reason=rules.StopReason.QUEUE_FULL)
                    stopped.append(_stopped(full))
                await save(tx, full)
        await tx.executemany(_QUEUE, queued)
        await write_events(tx, system_precondition("webhooks"), stopped, now)
        await move_cursor(tx, CURSOR, holder, events[-1].seq)

    async def due_webhooks(self) -> tuple[Webhook, ...]:
        """Those with a delivery that may be sent now, the longest due first."""
        return tuple(_webhook(row) for row in await self._db.fetch(_DUE))

    async def waiting_deliveries(self, webhook_id: str, most: int) -> tuple[Delivery, ...]:
        """In their order."""
        return tuple(_delivery(row) for row in await self._db.fetch(_NEXT, webhook_id, most))

    @transaction
    async def record_attempt(
        self, tx: Transaction, holder: str, delivery: Delivery, attempt: Attempt, jitter: float
    ) -> Webhook | None:
        """The result of sending it. Returns the webhook as it is now; None: it was deleted. `CursorLost` unless this
        holder has the lease.
        """
        if await tx.fetchval(_HAS_LEASE, holder) is None:
            raise CursorLost
        row = await tx.fetchrow(f"{_GET} {tx.dialect.for_update}", delivery.webhook)
        if row is None:
            return None  # deleted meanwhile
        webhook, now = _webhook(row), await tx.now()
        kept = (*delivery.attempts, attempt)[-rules.MAX_ATTEMPTS_KEPT :]
        state, at = (DeliveryState.DELIVERED, now) if attempt.succeeded else (DeliveryState.WAITING, None)
        sql = "UPDATE webhook_deliveries SET state = $2, delivered_at = $3, attempts = $4 WHERE number = $1"
        await tx.execute(sql, delivery.number, state.value, at, rows.json_text(kept))
        changed = rules.after_attempt(webhook, attempt, now, jitter)
        if changed != webhook and webhook.state is WebhookState.ENABLED:
            await save(tx, changed)
            if changed.state is not WebhookState.ENABLED:
                await write_events(tx, system_precondition("webhooks"), [_stopped(changed)], now)
            return changed
        return webhook

    @snapshot
    async def delivery_counts(self, tx: Transaction) -> rules.DeliveryCounts:
        row = await tx.fetchrow(_COUNTS)
        assert row is not None
        return rules.DeliveryCounts(*map(int, row))

    @transaction
    async def prune_deliveries(self, tx: Transaction, before: int, most: int) -> int:
        """Delete at most `most` deliveries that were made before this time, or are more than MAX_KEPT delivered ones of
        a webhook; returns how many.
        """
        ids = await tx.fetch(f"SELECT id FROM webhooks ORDER BY id {tx.dialect.for_update}")  # before deliveries
        deleted = await tx.fetch(_PRUNE_OLD, before, most)
        pruned, dropped = len(deleted), Counter(id_ for id_, state in deleted if state == DeliveryState.WAITING.value)
        await tx.executemany("UPDATE webhooks SET dropped = dropped + $2 WHERE id = $1", list(dropped.items()))
        for (webhook_id,) in ids:
            if pruned < most:
                pruned += await tx.execute(_PRUNE_MANY, webhook_id, most - pruned)
        return pruned


async def find_webhooks(tx: Transaction) -> tuple[Webhook, ...]:
    return tuple(_webhook(row) for row in await tx.fetch(f"{_SELECT} ORDER BY id"))


async def apply_webhooks(
    tx: Transaction, precondition: WritePrecondition, changes: Sequence[Change[Webhook]], require: Require, now: int
) -> list[Event]:
    events: list[Event] = []
    for change in changes:
        require(Privilege.MANAGE_WEBHOOKS)
        require(Privilege.VIEW_AUDIT_LOG)
        if (wanted := change.after) is None:
            await remove(tx, change.name)
            events.append(Event(Action.WEBHOOK_DELETED, change.name, {"name": change.newest.name}))
        elif change.before is None:
            made = await put_new(tx, replace(wanted, created_at=now, created_by=precondition.actor))
            events.append(_event(Action.WEBHOOK_CREATED, made))
        else:
            before = await _locked(tx, change.name)
            changed = replace(before, name=wanted.name, url=wanted.url, filter=wanted.filter, set_name=wanted.set_name)
            enabled = None if rules.is_wanted(before) == rules.is_wanted(wanted) else rules.is_wanted(wanted)
            changed = await switched(tx, changed, enabled=enabled)
            await save(tx, changed)
            events.append(_event(Action.WEBHOOK_UPDATED, changed))
    if events and await tx.fetchval("SELECT count(*) FROM webhooks") > rules.MAX_WEBHOOKS:
        raise rules.too_many_webhooks()
    return events


STORED_WEBHOOKS = StoredPart(
    rules.WEBHOOK_PART, find=lambda tx, *_: find_webhooks(tx), apply=apply_webhooks, locks=lambda _: [WEBHOOKS]
)


async def put_new(tx: Transaction, webhook: Webhook) -> Webhook:
    """Add a subscription that gets events from now on."""
    webhook = await _from_now(tx, webhook)
    await tx.execute(_ADD, *_values(webhook))
    return webhook


async def save(tx: Transaction, webhook: Webhook) -> None:
    await tx.execute(_SAVE, *_values(webhook))


async def remove(tx: Transaction, webhook_id: str) -> None:
    await tx.execute("DELETE FROM webhook_deliveries WHERE webhook = $1", webhook_id)
    await tx.execute("DELETE FROM webhooks WHERE id = $1", webhook_id)


async def switched(tx: Transaction, webhook: Webhook, *, enabled: bool | None) -> Webhook:
    """A disabled subscription gets events from now on; a stopped one resumes its queue."""
    if enabled is False:
        return replace(webhook, state=WebhookState.DISABLED, stop_reason=None)
    if enabled is None or webhook.state is WebhookState.ENABLED:
        return webhook
    return rules.resumed(await _from_now(tx, webhook) if webhook.state is WebhookState.DISABLED else webhook)


async def _from_now(tx: Transaction, webhook: Webhook) -> Webhook:
    start = await last_settled(tx)
    if not await tx.fetchval(f"SELECT count(*) FROM webhooks WHERE {_QUEUEING} AND id <> $1", webhook.id):
        # No event was queued recently; the cursor may lag.
        await tx.execute(_START_CURSOR, start)
    return replace(webhook, after_seq=start)


async def _locked(tx: Transaction, webhook_id: str) -> Webhook:
    """Lock until the commit, also against the sender."""
    return _webhook(await tx.fetchrow(f"{_GET} {tx.dialect.for_update}", webhook_id))


async def _resumed(tx: Transaction, webhook_id: str, **fields: Any) -> Webhook:
    found = await _locked(tx, webhook_id)
    if found.state is WebhookState.DISABLED:
        raise Fault(Reason.WEBHOOK_DISABLED, "The webhook is disabled. Enable it first.")
    changed = replace(rules.resumed(found), **fields)
    await save(tx, changed)
    return changed


async def _known(tx: Transaction, events: Sequence[KeptEvent]) -> rules.KnownNames:
    any_of = tx.dialect.any_of
    targets = list({event.target for event in events})
    urns = list({event.actor for event in events}.union(targets))
    sql = f"SELECT id, name, actor_urn FROM tokens WHERE id {any_of('$1')}"
    tokens = {id_: rules.TokenName(name, actor) for id_, name, actor in await tx.fetch(sql, targets)}
    names = await tx.fetch(
        f"""SELECT urn, display_name FROM actors WHERE urn {any_of("$1")} AND display_name IS NOT NULL
        UNION ALL SELECT urn, name FROM service_accounts WHERE urn {any_of("$1")}
        UNION ALL SELECT urn, name FROM groups WHERE urn {any_of("$1")}
        UNION ALL SELECT urn, name FROM policies WHERE urn {any_of("$1")}
        UNION ALL SELECT id, name FROM webhooks WHERE id {any_of("$1")}""",
        urns,
    )
    actors = {actor for event in events if (actor := rules.token_actor(event, tokens)) is not None}
    groups = {actor: frozenset(urns) for actor, urns in (await groups_by_actor(tx, actors)).items()}
    return rules.KnownNames({row[0]: row[1] for row in names}, tokens, groups)


def _queued(webhook: Webhook, event: KeptEvent, known: rules.KnownNames, now: int) -> tuple[Any, ...]:
    message = rules.message_id(webhook.id, event.seq)
    return webhook.id, message, event.seq, event.action, rules.payload(event, known), now


def _event(action: Action, webhook: Webhook) -> Event:
    detail: dict[str, Detail] = {"name": webhook.name, "host": webhook.host, "state": webhook.state.value}
    return Event(action, webhook.id, detail | {name: list(words) for name, words in webhook.filter.fields().items()})


def _stopped(webhook: Webhook) -> Event:
    assert webhook.stop_reason is not None
    detail = {"name": webhook.name, "reason": webhook.stop_reason.value, "ownerUrn": webhook.created_by}
    return Event(Action.WEBHOOK_STOPPED, webhook.id, {**detail})


def _values(webhook: Webhook) -> tuple[Any, ...]:
    lists = map(rows.json_text, webhook.filter.fields().values())
    plain = [getattr(webhook, name) for name in _PLAIN.split(", ")]
    reason = None if webhook.stop_reason is None else webhook.stop_reason.value
    return (webhook.id, webhook.name, webhook.url, *lists, webhook.state.value, *plain, reason, webhook.set_name)


def _webhook(row: rows.Row | None) -> Webhook:
    if row is None:
        raise Fault(Reason.WEBHOOK_NOT_FOUND, "There is no webhook with this id.")
    id_, name, url, actions, actors, groups, state, *plain, reason, set_name, waiting = row
    of_filter = rules.EventFilter(*(tuple(orjson.loads(words)) for words in (actions, actors, groups)))
    stop_reason = None if reason is None else rules.StopReason(reason)
    return Webhook(*(id_, name, url, of_filter, WebhookState(state), *plain, stop_reason, set_name, waiting))


def _delivery(row: rows.Row) -> Delivery:
    number, webhook, message, seq, type_, body, state, made_at, delivered_at, attempts = row
    kept = tuple(Attempt(**attempt) for attempt in orjson.loads(attempts))
    return Delivery(number, webhook, message, seq, type_, body, DeliveryState(state), made_at, delivered_at, kept)

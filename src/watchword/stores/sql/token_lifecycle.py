"""The life of a token: created, rotated, first used, noticed before it expires, revoked with its relatives, purged
after its retention.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from operator import attrgetter

from watchword.domain.actors import WritePrecondition, no_account, system_precondition
from watchword.domain.bulk_revocation import (
    MOST,
    MOST_ACTORS,
    Receipt,
    Revocation,
    RevocationPreview,
    Selection,
    Share,
    TokenVisibility,
    check_confirmed,
    check_count,
    receipt,
)
from watchword.domain.errors import Stale
from watchword.domain.events import Action, Detail, Event
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.idempotency import KEPT, IdempotencyRecord
from watchword.domain.lifetimes import ExpiringPage, ExpiringToken
from watchword.domain.networks import MAX_NETWORKS
from watchword.domain.ports import Issue, Repeated, Use
from watchword.domain.tokens import TokenRecord, TokenType
from watchword.stores import rows
from watchword.stores.sql.counts import add_uses
from watchword.stores.sql.search import chosen
from watchword.stores.sql.transaction import (
    KEYS,
    TOKENS,
    SqlPart,
    Transaction,
    actor_lock,
    check_precondition,
    delete_oldest,
    family_lock,
    idempotency_lock,
    snapshot,
    transaction,
    write_events,
)

LARGE_FAMILY = 2_000
"""A larger family is revoked under the lock of all families, and may take longer than an answer usually may."""

GET = f"SELECT {rows.TOKEN} FROM tokens WHERE id = $1"
KEY_IN_USE = "SELECT kid FROM keys ORDER BY seq DESC LIMIT 1"
SUSPENDED = "SELECT 1 FROM actors WHERE urn = $1 AND status = 'SUSPENDED'"
_ACCOUNT = "SELECT 1 FROM service_accounts WHERE urn = $1 AND deleted_at IS NULL"
# A successor that was never used has no children: it can be revoked alone.
_PARENT = "SELECT expires_at FROM tokens WHERE id = $1 AND revoked_at IS NULL AND grace IS NULL"
GET_IDEMPOTENCY = f"SELECT {rows.RETRY} FROM retries WHERE actor = $1 AND digest = $2 AND created_at > $3"
_PUT_IDEMPOTENCY = rows.put("retries", rows.RETRY, "actor, digest")
TOTAL = "SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'actor' AND urn = $1"
# Bounded by its LIMIT, and asked only of an actor with that many tokens that are not revoked.
_LIVE_OF = """
SELECT count(*) FROM (
    SELECT 1 FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL AND expires_at IS NULL
    UNION ALL
    SELECT 1 FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL AND expires_at > $2
    LIMIT $3) AS live"""
_LIVE_UP_TO = """
SELECT count(*) FROM (
    SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) LIMIT $2) AS live"""

MEMBER = "id, actor_urn, replaces, replaced_by, revoked_at, expires_at"
_member = attrgetter(*MEMBER.split(", "))
# What decides whether and how a token may be rotated.
_rotation_state = attrgetter("expires_at", "revoked_at", "replaced_by", "replaced_at", "grace")
# The old token, and every token derived from it. An expired successor that was never used is among them: its full
# expiry must not be later than its parent's.
_LINE = """
WITH RECURSIVE line (id) AS (
    SELECT id FROM tokens WHERE id = $1
    UNION SELECT t.id FROM line AS l JOIN tokens AS t ON t.parent = l.id
    WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2 OR t.grace IS NOT NULL))
SELECT id FROM line"""
_SHORTEN = """
UPDATE tokens SET expires_at = CASE WHEN expires_at <= $2 THEN expires_at ELSE $2 END,
    full_end = CASE WHEN grace IS NULL OR full_end <= $2 THEN full_end ELSE $2 END
WHERE id {any_of} AND revoked_at IS NULL AND (
    expires_at IS NULL OR expires_at > $2 OR (grace IS NOT NULL AND (full_end IS NULL OR full_end > $2)))"""
# Counts grow; a time never moves back, and the network is that of the latest use.
_USE = """
UPDATE tokens SET use_count = use_count + $2,
    last_network = CASE WHEN coalesce(last_used_at, 0) <= $3 THEN $4 ELSE last_network END,
    last_used_at = CASE WHEN coalesce(last_used_at, 0) <= $3 THEN $3 ELSE last_used_at END
WHERE id = $1"""
_LONG_REVOKED = "SELECT id FROM tokens WHERE revoked_at IS NOT NULL AND revoked_at < $1 ORDER BY revoked_at LIMIT $2"
_LONG_EXPIRED = """
SELECT id FROM tokens WHERE revoked_at IS NULL AND expires_at < $1 ORDER BY expires_at NULLS FIRST LIMIT $2"""


_ORPHANS = "SELECT id FROM tokens WHERE created_with {0} AND NOT (id {0}) LIMIT $2"


class _LargeFamily(Exception):
    """More than LARGE_FAMILY tokens are revoked together."""


class SqlTokens(SqlPart):
    async def get_token(self, token_id: str) -> TokenRecord | None:
        row = await self._db.row(GET, token_id)
        return None if row is None else rows.token_of(row)

    @transaction
    async def rotate_token(
        self, tx: Transaction, precondition: WritePrecondition, seen: TokenRecord, successor: TokenRecord, issue: Issue
    ) -> int:
        changed = [family_lock(seen.family), family_lock(successor.id)]
        if issue.idempotency is not None:
            changed.append(idempotency_lock(issue.idempotency))
        relied = [TOKENS, KEYS, actor_lock(successor.actor_urn)]
        now = await check_precondition(tx, precondition, shared=relied, exclusive=changed)
        await check_issue(tx, successor, issue, now)
        old = await _get(tx, seen.id)
        if old is None or _rotation_state(old) != _rotation_state(seen) or not old.is_live(now):
            raise Stale
        await keep_idempotency(tx, issue)
        unused = [] if old.replaced_by is None else [old.replaced_by]
        await tx.take_slot()
        await tx.lock_tokens([old.id, *unused])
        revoked = await revoke(tx, precondition, unused, now, reason=old.id, lock_rows=False) if unused else 0
        await add(tx, precondition, successor, now)
        await tx.execute("UPDATE tokens SET replaced_by = $2 WHERE id = $1", old.id, successor.id)
        return revoked

    @transaction
    async def note_first_use(self, tx: Transaction, precondition: WritePrecondition, token_id: str) -> None:
        await tx.lock(shared=[TOKENS], exclusive=[family_lock(await tx.root_of(token_id))])
        now = await tx.now()
        new = await _get(tx, token_id)
        if new is None or new.grace is None or new.replaces is None or not new.is_live(now):
            return
        old, end = new.replaces, now + new.grace
        line = await _line(tx, old, now)
        await tx.lock_tokens([*line, new.id])
        await tx.execute("UPDATE tokens SET expires_at = full_end, grace = NULL WHERE id = $1", new.id)
        await tx.execute("UPDATE tokens SET replaced_at = $2 WHERE id = $1", old, now)
        await _shorten(tx, line, end)
        detail = {"name": await tx.fetchval("SELECT name FROM tokens WHERE id = $1", old), "successor": new.id}
        await write_events(tx, precondition, [Event(Action.TOKEN_REPLACED, old, {**detail, "endsBy": end})], now)

    async def get_idempotency_record(self, actor: str, digest: str) -> IdempotencyRecord | None:
        sql = GET_IDEMPOTENCY.replace("$3", f"(SELECT now_ms()) - {KEPT}")
        row = await self._db.confirmed_row(sql, actor, digest)
        return None if row is None else IdempotencyRecord(*row)

    @transaction
    async def note_replay(self, tx: Transaction, precondition: WritePrecondition, record: TokenRecord) -> bool:
        now = await check_precondition(tx, precondition, shared=[TOKENS, family_lock(record.family)])
        found = await _get(tx, record.id)
        if found is None or not found.is_live(now):
            return False
        event = Event(Action.TOKEN_REPLAYED, found.id, {"name": found.name, "actorUrn": found.actor_urn})
        await write_events(tx, precondition, [event], now)
        return True

    @transaction
    async def update_token(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        token_id: str,
        visible: TokenVisibility | None,
        *,
        name: str | None,
        description: str | None,
    ) -> TokenRecord:
        locks = {"shared": [TOKENS], "exclusive": [family_lock(await tx.root_of(token_id))]}
        now = await check_precondition(tx, precondition, **locks)
        old = await _get(tx, token_id)
        if old is None or (visible is not None and not visible.covers(old)):
            raise rows.no_token("change")
        if old.revoked_at is not None:
            raise rows.already_revoked(old.revoked_at)
        new = old._replace(
            name=old.name if name is None else name,
            description=old.description if description is None else description or None,
        )
        fields = [word for word in ("name", "description") if getattr(old, word) != getattr(new, word)]
        if not fields:
            return old
        await tx.execute(
            "UPDATE tokens SET name = $2, description = $3 WHERE id = $1", old.id, new.name, new.description
        )
        detail: dict[str, Detail] = {"actorUrn": old.actor_urn, "name": new.name, "fields": fields}
        if old.name != new.name:
            detail["oldName"] = old.name
        await write_events(tx, precondition, [Event(Action.TOKEN_UPDATED, old.id, detail)], now)
        return new

    async def revoke_token(
        self, precondition: WritePrecondition, token_id: str, visible: TokenVisibility | None, *, cascade: bool = False
    ) -> Revocation:
        work = partial(
            self._revoke_token, precondition=precondition, token_id=token_id, visible=visible, cascade=cascade
        )
        if not cascade:
            try:
                return await self._db.write(partial(work, many=False))
            except _LargeFamily:
                pass
        return await self._db.write_long(partial(work, many=True))

    async def _revoke_token(
        self,
        tx: Transaction,
        *,
        precondition: WritePrecondition,
        token_id: str,
        visible: TokenVisibility | None,
        cascade: bool,
        many: bool,
    ) -> Revocation:
        """Revoke under the lock of the token's family; with `many`, of all families."""
        root = None if many else await tx.root_of(token_id)
        locks = {"exclusive": [TOKENS]} if many else {"shared": [TOKENS], "exclusive": [family_lock(root)]}
        now = await check_precondition(tx, precondition, **locks)
        record = await _get(tx, token_id)
        if record is None or (visible is not None and not visible.covers(record)):
            raise rows.no_token()
        if root not in (None, record.family):
            raise rows.no_token()  # created since the lock was taken: it did not exist when the request came
        if record.revoked_at is not None and not cascade:
            raise rows.already_revoked(record.revoked_at)
        most = MOST if cascade else sys.maxsize if many else LARGE_FAMILY
        ids = await revoked_together(tx, [_member(record)], now, cascade=cascade, expired=True, most=most)
        if not ids:
            raise rows.already_revoked(record.revoked_at or now)
        if cascade:
            check_count(len(ids))
        if len(ids) > most:
            raise _LargeFamily
        number = await revoke(tx, precondition, list(ids), now, reason=token_id, lock_rows=not many)
        return Revocation(now, number)

    @transaction
    async def withdraw_token(self, tx: Transaction, precondition: WritePrecondition, token_id: str) -> int:
        root = await tx.root_of(token_id)
        now = await check_precondition(tx, precondition, shared=[TOKENS], exclusive=[family_lock(root)])
        return await revoke(tx, precondition, [token_id], now)

    async def revoke_tokens(
        self, precondition: WritePrecondition, selection: Selection, seconds: float = SEARCH_SECONDS
    ) -> Receipt:
        where, bound = chosen(selection, self._db.dialect)
        matching = f"SELECT {MEMBER} FROM tokens WHERE {where} LIMIT {MOST + 1:d}"

        async def look(tx: Transaction) -> list[str]:
            return [row[0] for row in await tx.search(matching, *bound)]

        found = None if selection.is_plain else await self._db.scan(look, seconds)

        async def work(tx: Transaction) -> Receipt:
            now = await check_precondition(tx, precondition, exclusive=[TOKENS])
            if found is None:
                seeds = await tx.search(matching, *bound)
            else:
                seeds = [row for row in await _members(tx, found) if selection.cascade or row[4] is None]
            affected = await revoked_together(tx, seeds, now, cascade=selection.cascade, expired=False, most=MOST)
            await _check_selected(tx, selection, len(affected), now, selection.at_most)
            ids = sorted(affected)
            made = receipt(ids, now)
            if ids:
                await revoke(tx, precondition, ids, now, lock_rows=False)
                await write_events(tx, precondition, [_many_revoked(selection, made)], now)
            return made

        return await self._db.write_long(work)

    async def revocation_preview(self, selection: Selection, seconds: float = SEARCH_SECONDS) -> RevocationPreview:
        where, bound = chosen(selection, self._db.dialect)

        async def work(tx: Transaction) -> RevocationPreview:
            began = time.thread_time()
            now = await tx.now()
            seeds = await tx.search(f"SELECT {MEMBER} FROM tokens WHERE {where} LIMIT {MOST + 1:d}", *bound)
            affected = await revoked_together(tx, seeds, now, cascade=selection.cascade, expired=False, most=MOST)
            await _check_selected(tx, selection, len(affected), now)
            actors = sorted(Counter(affected.values()).items(), key=lambda share: (-share[1], share[0]))
            shares = tuple(Share(*share) for share in actors[:MOST_ACTORS])
            return RevocationPreview(len(affected), shares, time.thread_time() - began)

        return await self._db.scan(work, seconds)

    @transaction
    async def record_uses(self, tx: Transaction, uses: Mapping[str, Use]) -> None:
        await tx.lock(shared=[TOKENS])
        await tx.lock_tokens(list(uses))
        await tx.executemany(_USE, [(i, use.count, use.last, use.network) for i, use in uses.items()])
        await _note_networks(tx, uses)
        await add_uses(tx, uses)

    @transaction
    async def purge_tokens(self, tx: Transaction, before: int, most: int) -> int:
        await tx.lock(shared=[TOKENS])
        await tx.take_slot()
        # A row that another transaction has locked is left for the next purge.
        skip, any_of = tx.dialect.skip_locked, tx.dialect.any_of("$1")
        ids = [row[0] for row in await tx.fetch(f"{_LONG_REVOKED} {skip}", before, most)]
        ids += [row[0] for row in await tx.fetch(f"{_LONG_EXPIRED} {skip}", before, most - len(ids))]
        # A token created with a purged one now counts as created with the creator of that one: a cascade still finds
        # it. That creator may be purged too, and so on. A token may have created any number: what is more than `most`
        # is left for the next call, and so is its creator.
        left = most
        while found := await tx.fetch(_ORPHANS.format(any_of), ids, left + 1):
            orphans = [row[0] for row in found[:left]]
            await tx.lock_tokens(orphans)
            await tx.execute(
                f"""UPDATE tokens SET created_with = (
                    SELECT creator.created_with FROM tokens AS creator WHERE creator.id = tokens.created_with)
                WHERE id {any_of}""",
                orphans,
            )
            if len(found) > left:
                return most
            left -= len(found)
        await tx.execute(f"DELETE FROM tokens WHERE id {any_of}", ids)
        for table in ("expiry_notices", "token_networks", "token_uses"):
            await tx.execute(f"DELETE FROM {table} WHERE token_id {any_of}", ids)
        # DataHub's own row has expired by then, and does not bring the token back.
        await delete_oldest(tx, "imported_tokens", "id", "expires_at", before, most)
        return len(ids)

    @transaction
    async def purge_idempotency_records(self, tx: Transaction, most: int) -> int:
        return await delete_oldest(tx, "retries", "actor, digest", "created_at", await tx.now() - KEPT + 1, most)


async def _note_networks(tx: Transaction, uses: Mapping[str, Use]) -> None:
    """Write an event for each network that a token is used from for the first time, except the networks of its first
    uses. Of a token with MAX_NETWORKS, which roams, no more are stored.
    """
    any_of = tx.dialect.any_of("$1")
    known: dict[str, set[str]] = {}
    sql = f"SELECT token_id, network FROM token_networks WHERE token_id {any_of}"
    for token_id, network in await tx.fetch(sql, list(uses)):
        known.setdefault(token_id, set()).add(network)
    new = {token_id: _new_networks(use, known.get(token_id, set())) for token_id, use in uses.items()}
    unknown = [token_id for token_id, networks in new.items() if networks]
    if not unknown:
        return
    now = await tx.now()
    events: list[Event] = []
    added: list[tuple[str, str, int]] = []
    for token_id, name, actor in await tx.fetch(f"SELECT id, name, actor_urn FROM tokens WHERE id {any_of}", unknown):
        added += [(token_id, network, now) for network in new[token_id]]
        if token_id in known:
            detail: dict[str, Detail] = {"name": name, "actorUrn": actor}
            events += [
                Event(Action.TOKEN_NEW_NETWORK, token_id, {**detail, "network": network}) for network in new[token_id]
            ]
    await tx.executemany("INSERT INTO token_networks (token_id, network, first_at) VALUES ($1, $2, $3)", added)
    await write_events(tx, system_precondition("usage"), events, now)


def _new_networks(use: Use, known: set[str]) -> list[str]:
    return sorted({use.network, *use.others} - known)[: max(0, MAX_NETWORKS - len(known))]


async def check_new(tx: Transaction, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> int:
    """Raise unless this token may be created now; record the request's idempotency key. Returns the time."""
    now = await check_precondition(tx, precondition)
    await check_issue(tx, record, issue, now)
    await check_room(tx, record.actor_urn, issue.max_live, now)
    await keep_idempotency(tx, issue)
    return now


async def check_issue(tx: Transaction, record: TokenRecord, issue: Issue, now: int) -> None:
    """Raise unless this token may be added now."""
    idempotency = issue.idempotency
    if idempotency is not None and await tx.fetchrow(
        GET_IDEMPOTENCY, idempotency.actor, idempotency.digest, now - KEPT
    ):
        raise Repeated
    if await tx.fetchval(KEY_IN_USE) != issue.kid:
        raise Stale
    if record.type is TokenType.SERVICE_ACCOUNT and not await tx.fetchval(_ACCOUNT, record.actor_urn):
        raise no_account()
    if await tx.fetchval(SUSPENDED, record.actor_urn):
        raise rows.actor_suspended()
    if record.parent is not None:
        found = await tx.fetchrow(_PARENT, record.parent)
        if found is None or not _expires_by(record, found[0]):
            raise Stale


async def keep_idempotency(tx: Transaction, issue: Issue) -> None:
    """Store the key after all checks, so that a rejected request changes nothing."""
    if issue.idempotency is not None:
        await tx.execute(_PUT_IDEMPOTENCY, *astuple(issue.idempotency))


async def check_room(tx: Transaction, actor: str, max_live: int, now: int) -> None:
    if await tx.fetchval(TOTAL, actor) < max_live:
        return
    if await tx.fetchval(_LIVE_OF, actor, now, max_live) >= max_live:
        raise rows.no_room(max_live)


async def add(tx: Transaction, precondition: WritePrecondition, record: TokenRecord, now: int) -> None:
    await tx.insert_token(record)
    await write_events(tx, precondition, [rows.created(record)], now)


async def shorten(tx: Transaction, token_id: str, end: int, now: int) -> None:
    """Let a token, and every token derived from it, expire by this time. Under the lock of its family."""
    line = await _line(tx, token_id, now)
    await tx.lock_tokens(line)
    await _shorten(tx, line, end)


async def _line(tx: Transaction, token_id: str, now: int) -> list[str]:
    return [row[0] for row in await tx.fetch(_LINE, token_id, now)]


async def _shorten(tx: Transaction, line: Sequence[str], end: int) -> None:
    await tx.execute(_SHORTEN.format(any_of=tx.dialect.any_of("$1")), list(line), end)


async def revoke(
    tx: Transaction,
    precondition: WritePrecondition,
    ids: Sequence[str],
    now: int,
    *,
    reason: str | None = None,
    lock_rows: bool = True,
    detail: dict[str, Detail] | None = None,
) -> int:
    """Revoke just these, each with its event; returns how many were not revoked yet. `reason` is the token they are
    revoked with; `detail` is added to each event. A transaction that has the lock of all families need not lock their
    rows.
    """
    await tx.take_slot()
    if lock_rows:
        await tx.lock_tokens(ids)
    revoked = await tx.mark_revoked(ids, now)
    more = ({"byPossession": True} if precondition.by_possession else {}) | (detail or {})
    events: list[Event] = []
    for token_id, actor, name in revoked:
        cause = {} if reason in (None, token_id) else {"with": reason}
        events.append(Event(Action.TOKEN_REVOKED, token_id, {"name": name, "actorUrn": actor, **cause, **more}))
    await write_events(tx, precondition, events, now)
    return len(revoked)


async def revoked_together(
    tx: Transaction, seeds: Iterable[rows.Row], now: int, *, cascade: bool, expired: bool, most: int
) -> dict[str, str]:
    """Which tokens are revoked with these rows of MEMBER, themselves included: id and actor of each, at most
    `most` + 1.

    These are the live ones derived from them and the other token of a rotation while both are live; with `cascade` also
    the ones created with them. With `expired` the seeds are revoked although they are expired. A cascade also follows
    dead tokens to the ones created with them and to their successors, so that revoking one does not hide the others.
    """
    known: set[str] = set()
    affected: dict[str, str] = {}
    frontier = list(seeds)
    are_seeds = True
    while frontier and len(affected) <= most:
        parents, partners = [], set()
        for token_id, actor, replaces, replaced_by, revoked_at, expires_at in frontier:
            if token_id in known:
                continue
            known.add(token_id)
            live = revoked_at is None and (expires_at is None or expires_at > now)
            if live or (are_seeds and expired and revoked_at is None):
                affected[token_id] = actor
            parents.append(token_id)
            if replaced_by is not None and (live or cascade):
                partners.add(replaced_by)
            if replaces is not None and live:
                partners.add(replaces)
        frontier = await _relatives(tx, parents, now, cascade=cascade) if parents else []
        if unknown := sorted(partners - known):
            frontier += await _members(tx, unknown)
        are_seeds = False
    return dict(list(affected.items())[: most + 1]) if len(affected) > most else affected


async def _relatives(tx: Transaction, ids: Sequence[str], now: int, *, cascade: bool) -> list[rows.Row]:
    """The live tokens derived from these; with `cascade` also those created with them."""
    live = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"
    if len(ids) == 1 and not cascade:  # as in most revocations: no list to unpack
        return list(await tx.fetch(f"SELECT {MEMBER} FROM tokens WHERE parent = $1 AND {live}", ids[0], now))
    any_of = tx.dialect.any_of("$1")
    derived = f"SELECT {MEMBER} FROM tokens WHERE parent {any_of} AND parent IS NOT NULL AND {live}"
    created = f"SELECT {MEMBER} FROM tokens WHERE created_with {any_of} AND created_with IS NOT NULL"
    return [*await tx.fetch(derived, list(ids), now), *(await tx.fetch(created, list(ids)) if cascade else ())]


async def _members(tx: Transaction, ids: Sequence[str]) -> list[rows.Row]:
    return list(await tx.fetch(f"SELECT {MEMBER} FROM tokens WHERE id {tx.dialect.any_of('$1')}", list(ids)))


async def _check_selected(
    tx: Transaction, selection: Selection, count: int, now: int, at_most: int | None = None
) -> None:
    check_count(count, at_most)
    if not selection.may_be_all:
        check_confirmed(selection, count, spares=await tx.fetchval(_LIVE_UP_TO, now, count + 1) > count)


async def _get(tx: Transaction, token_id: str) -> TokenRecord | None:
    row = await tx.fetchrow(GET, token_id)
    return None if row is None else rows.token_of(row)


def _expires_by(record: TokenRecord, parent_end: int | None) -> bool:
    end = record.expires_at if record.grace is None else record.full_end
    return parent_end is None or (end is not None and end <= parent_end)


def _many_revoked(selection: Selection, made: Receipt) -> Event:
    detail: dict[str, Detail] = {
        "count": made.count,
        "ids": None if selection.ids is None else len(selection.ids),
        "filters": [f"{f.field.word} {'not ' * f.negated}{f.condition.value}" for f in selection.filters],
        "cascade": selection.cascade,
    }
    return Event(Action.TOKENS_REVOKED, made.digest, detail)


EXPIRY = "expiry"
"""The name of a lock."""
_TOKEN = "id, created_at, expires_at, (SELECT min(days) FROM expiry_notices WHERE token_id = tokens.id)"  # noqa: S105
# The notice of a token stands for those derived from it and for its unused successor, which end with it.
_TOLD = """parent IS NULL AND replaced_at IS NULL AND grace IS NULL
    AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = tokens.actor_urn AND status = 'SUSPENDED')"""
# In the order of the index on the expiry of tokens that are not revoked, read backwards.
_SAME_END = f"""
SELECT {_TOKEN}, {_TOLD} FROM tokens
WHERE revoked_at IS NULL AND expires_at = $1 AND id < $2 ORDER BY expires_at NULLS FIRST, id DESC LIMIT $3"""
_LATER_END = f"""
SELECT {_TOKEN}, {_TOLD} FROM tokens
WHERE revoked_at IS NULL AND expires_at > $1 AND expires_at <= $2 ORDER BY expires_at NULLS FIRST, id DESC LIMIT $3"""
_DUE = f"""
SELECT {_TOKEN}, name, actor_urn, owner_urn, (SELECT created_by FROM service_accounts WHERE urn = tokens.actor_urn)
FROM tokens WHERE id {{any_of}} AND revoked_at IS NULL AND {_TOLD}"""


class SqlExpiry(SqlPart):
    @snapshot
    async def expiring_page(
        self, tx: Transaction, after: tuple[int, str] | None, within: int, most: int
    ) -> ExpiringPage:
        now = await tx.now()
        end, last = after or (now, "")
        found = list(await tx.fetch(_SAME_END, end, last, most))
        found += await tx.fetch(_LATER_END, end, now + within, most - len(found))
        page = tuple(ExpiringToken(*row[:4]) for row in found if row[4])
        return ExpiringPage(now, page, (found[-1][2], found[-1][0]) if len(found) == most else None)

    @transaction
    async def note_expiring(self, tx: Transaction, ids: Sequence[str], thresholds: Sequence[int]) -> int:
        await tx.lock(exclusive=[EXPIRY])
        now = await tx.now()
        notices: list[tuple[str, int]] = []
        events: list[Event] = []
        for row in await tx.fetch(_DUE.format(any_of=tx.dialect.any_of("$1")), list(ids)):
            token, (name, actor, owner, account_owner) = ExpiringToken(*row[:4]), row[4:]
            days = token.due(thresholds, now)
            if days is None:
                continue
            detail: dict[str, Detail] = {"name": name, "actorUrn": actor, "ownerUrn": owner}
            if account_owner is not None:
                detail["accountOwnerUrn"] = account_owner
            notices.append((token.id, days))
            events.append(
                Event(Action.TOKEN_EXPIRING, token.id, {**detail, "days": days, "expiresAt": token.expires_at})
            )
        await tx.executemany("INSERT INTO expiry_notices (token_id, days) VALUES ($1, $2)", notices)
        await write_events(tx, system_precondition("expiry"), events, now)
        return len(events)

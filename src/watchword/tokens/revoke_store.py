"""Revoking tokens: one with its relatives, a set of requests, a selection.

Requests that wait together are a set, and one request is a set of one. Each has its own outcome.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import NamedTuple

from watchword.authority.store import CLOCK, HELD, check_precondition, relied_on
from watchword.basics.errors import Stale
from watchword.basics.paging import SEARCH_SECONDS
from watchword.database import rows
from watchword.database.transaction import TOKENS, Dialect, SqlPart, Transaction, family_lock, transaction
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events, write_events_of
from watchword.tokens.bulk_revocation import (
    MOST,
    MOST_ACTORS,
    Receipt,
    Revocation,
    RevocationPreview,
    Selection,
    Share,
    TokenVisibility,
    check_count,
    receipt,
    unconfirmed,
)
from watchword.tokens.rows import TOKEN, token_of, token_reader
from watchword.tokens.rules import TokenRecord, already_revoked, no_token
from watchword.tokens.search_store import chosen

LARGE_FAMILY = 2_000
"""A larger family is revoked under the lock of all families, and may take longer than an answer usually may."""

MEMBER = "id, actor_urn, replaces, replaced_by, revoked_at, expires_at"
_LIVE_UP_TO = """
SELECT count(*) FROM (
    SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) LIMIT $2) AS live"""
_WANTED = ("id", "actor", "bearer")
_COLUMNS, _record = token_reader(
    frozenset({"name", "type", "actor_urn", "owner_urn", "expires_at", "revoked_at", "root", "replaces", "replaced_by"})
)
_FACTS = f"""
SELECT n, now, (SELECT policy_version FROM state WHERE one = 1), {HELD},
    (SELECT 1 FROM tokens AS child
     WHERE child.parent = wanted.id AND child.parent IS NOT NULL AND child.revoked_at IS NULL LIMIT 1),
    {rows.columns("found", _COLUMNS)}
FROM {CLOCK} CROSS JOIN {{wanted}} {{found}}"""


@cache
def _facts_sql(dialect: Dialect) -> str:
    return _FACTS.replace("{found}", dialect.left_lookup("tokens", "tokens.id = wanted.id"))


class TokenToRevoke(NamedTuple):
    """A token to revoke, and the request."""

    by: WritePrecondition
    id: str
    visible: TokenVisibility | None


class LargeFamily(Exception):
    """More than LARGE_FAMILY tokens are revoked together."""


async def revoke_set(tx: Transaction, wanted: Sequence[TokenToRevoke]) -> list[Exception | Revocation]:
    """Revoke those that may be revoked, each with its relatives; returns why each of the others may not."""
    shared = {TOKENS}.union(*(relied_on(one.by) for one in wanted))
    bearers = {one.by.bearer_id for one in wanted}
    held = await tx.lock(shared=shared, bearers=bearers, families=[one.id for one in wanted], slot=True)
    found = await tx.fetch_each(
        _facts_sql(tx.dialect), _WANTED, [(one.id, one.by.actor, one.by.bearer_id) for one in wanted]
    )
    now: int = found[0][1]
    outcomes: list[Exception | Revocation] = []
    revoked: dict[str, int] = {}
    """The tokens that are revoked, and the number of the request that each is revoked by."""
    for number, (one, (_, _, version, is_held, has_child, *row)) in enumerate(zip(wanted, found, strict=True)):
        record = None if row[0] is None else _record(row)
        is_current = is_held and version == one.by.policy_version and one.by.bearer_id not in revoked
        if not (one.by.is_unconditional or is_current):
            outcomes.append(Stale())
        elif record is None or (one.visible is not None and not one.visible.covers(record)):
            outcomes.append(no_token())
        elif held is not None and held.families[number] != family_lock(record.root or record.id):
            # Created since the lock was taken: it did not exist when the request came.
            outcomes.append(no_token())
        elif record.id in revoked or record.revoked_at is not None:
            outcomes.append(already_revoked(now if record.revoked_at is None else record.revoked_at))
        else:
            ids = [record.id]
            if has_child or record.replaces is not None or record.replaced_by is not None:
                seeds = [_member(record)]
                together = await revoked_together(tx, seeds, now, cascade=False, expired=True, most=LARGE_FAMILY)
                ids = [token_id for token_id in together if token_id not in revoked]
            if len(ids) > LARGE_FAMILY:
                outcomes.append(LargeFamily())
            else:
                revoked |= dict.fromkeys(ids, number)
                outcomes.append(Revocation(now, len(ids)))
    if revoked:
        events = []
        for token_id, actor, name in await tx.mark_revoked(sorted(revoked), now, lock_rows=True):
            by, seed, _ = wanted[revoked[token_id]]
            events.append((by, _revoked(by, token_id, actor, name, reason=seed)))
        await write_events_of(tx, events, now)
    return outcomes


class RevocationStore(SqlPart):
    async def revoke_token(
        self, precondition: WritePrecondition, token_id: str, visible: TokenVisibility | None, *, cascade: bool = False
    ) -> Revocation:
        """Revoke a token; returns when, and how many. Revoked with it are the live tokens derived from it, and the
        token it replaces or that replaces it while the older of the two is live; with `cascade` also the live tokens
        created with any of them. Each has its event. TOKEN_NOT_FOUND if the token does not exist or is not visible;
        ALREADY_REVOKED; TOO_MANY_AT_ONCE if a cascade would revoke more than MOST.
        """
        wanted = TokenToRevoke(precondition, token_id, visible)
        if not cascade:
            try:
                return await self._db.write_together(revoke_set, wanted)
            except LargeFamily:
                pass
        return await self._db.write_long(partial(_revoke_many, wanted=wanted, cascade=cascade))

    @transaction
    async def withdraw_token(self, tx: Transaction, precondition: WritePrecondition, token_id: str) -> int:
        """Revoke a token that its caller never received, and no other: the token it would replace stays valid. Returns
        how many were revoked: 0 if it already was.
        """
        now = await check_precondition(tx, precondition, shared=[TOKENS], families=[token_id])
        return await revoke(tx, precondition, [token_id], now)

    async def revoke_tokens(
        self, precondition: WritePrecondition, selection: Selection, seconds: float = SEARCH_SECONDS
    ) -> Receipt:
        """Revoke all selected live tokens, and the tokens that are revoked with them, in one transaction. A selection
        that needs a search is searched first, under a deadline (DEADLINE). Each token has its event, and there is one
        for all. TOO_MANY_AT_ONCE, MORE_THAN_ALLOWED_FOR, or INVALID_FIELD if it selects everything without saying so.
        """
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
        """What `revoke_tokens` would revoke, whatever `at_most` is; otherwise the same errors."""
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


async def _revoke_many(tx: Transaction, *, wanted: TokenToRevoke, cascade: bool) -> Revocation:
    """Revoke a token with many relatives, or with those created with it, under the lock of all families."""
    by, token_id, visible = wanted
    now = await check_precondition(tx, by, exclusive=[TOKENS])
    row = await tx.fetchrow(f"SELECT {TOKEN} FROM tokens WHERE id = $1", token_id)
    record = None if row is None else token_of(row)
    if record is None or (visible is not None and not visible.covers(record)):
        raise no_token()
    if record.revoked_at is not None and not cascade:
        raise already_revoked(record.revoked_at)
    most = MOST if cascade else sys.maxsize
    ids = await revoked_together(tx, [_member(record)], now, cascade=cascade, expired=True, most=most)
    if not ids:
        raise already_revoked(record.revoked_at or now)
    if cascade:
        check_count(len(ids))
    return Revocation(now, await revoke(tx, by, list(ids), now, reason=token_id, lock_rows=False))


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
    revoked = await tx.mark_revoked(ids, now, lock_rows=lock_rows)
    events = [_revoked(precondition, *row, reason=reason, detail=detail) for row in revoked]
    await write_events(tx, precondition, events, now)
    return len(revoked)


def _revoked(
    by: WritePrecondition,
    token_id: str,
    actor: str,
    name: str,
    *,
    reason: str | None,
    detail: dict[str, Detail] | None = None,
) -> Event:
    cause = {} if reason in (None, token_id) else {"with": reason}
    possession = {"byPossession": True} if by.by_possession else {}
    return Event(
        Action.TOKEN_REVOKED, token_id, {"name": name, "actorUrn": actor, **cause, **possession, **(detail or {})}
    )


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
    any_of = tx.dialect.any_of("$1")
    derived = f"""SELECT {MEMBER} FROM tokens WHERE parent {any_of} AND parent IS NOT NULL
        AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"""
    created = f"SELECT {MEMBER} FROM tokens WHERE created_with {any_of} AND created_with IS NOT NULL"
    return [*await tx.fetch(derived, list(ids), now), *(await tx.fetch(created, list(ids)) if cascade else ())]


async def _members(tx: Transaction, ids: Sequence[str]) -> list[rows.Row]:
    return list(await tx.fetch(f"SELECT {MEMBER} FROM tokens WHERE id {tx.dialect.any_of('$1')}", list(ids)))


def _member(record: TokenRecord) -> rows.Row:
    """The values of MEMBER."""
    return record.id, record.actor_urn, record.replaces, record.replaced_by, record.revoked_at, record.expires_at


async def _check_selected(
    tx: Transaction, selection: Selection, count: int, now: int, at_most: int | None = None
) -> None:
    """A request that would revoke every live token must say so."""
    check_count(count, at_most)
    if count and not selection.may_be_all and await tx.fetchval(_LIVE_UP_TO, now, count + 1) <= count:
        raise unconfirmed()


def _many_revoked(selection: Selection, made: Receipt) -> Event:
    detail: dict[str, Detail] = {
        "count": made.count,
        "ids": None if selection.ids is None else len(selection.ids),
        "filters": [f"{f.field.word} {'not ' * f.negated}{f.condition.value}" for f in selection.filters],
        "cascade": selection.cascade,
    }
    return Event(Action.TOKENS_REVOKED, made.digest, detail)

"""The life of a token: created, rotated, first used, noticed before it expires, revoked with its relatives, purged
after its retention.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter

from watchword.authority.callers import Bearer
from watchword.authority.store import check_precondition, relied_on
from watchword.basics.errors import Stale
from watchword.basics.networks import MAX_NETWORKS
from watchword.basics.paging import SEARCH_SECONDS
from watchword.basics.times import Clock
from watchword.database.transaction import (
    KEYS,
    TOKENS,
    Transaction,
    actor_lock,
    delete_oldest,
    family_lock,
    snapshot,
    transaction,
)
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.journal.store import EventStore, write_events
from watchword.tokens.bulk_revocation import TokenVisibility
from watchword.tokens.counts import Use
from watchword.tokens.counts_store import UsageStore, add_uses
from watchword.tokens.create_store import RETRY, CreationStore, NewToken, add, check_new
from watchword.tokens.filters import Page, Search
from watchword.tokens.idempotency import KEPT, IdempotencyRecord
from watchword.tokens.lifetimes import ExpiringPage, ExpiringToken
from watchword.tokens.revoke_store import RevocationStore, revoke
from watchword.tokens.rows import TOKEN, idempotency_lock, token_of
from watchword.tokens.rules import Issue, TokenRecord, already_revoked, no_token

GET = f"SELECT {TOKEN} FROM tokens WHERE id = $1"
GET_IDEMPOTENCY = f"SELECT {RETRY} FROM retries WHERE actor = $1 AND digest = $2 AND created_at > $3"
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


class TokenStore(CreationStore, RevocationStore, UsageStore, EventStore):
    clock: Clock
    """By which tokens are created and expire."""

    @abstractmethod
    async def find_bearer(self, token_id: str) -> Bearer | None:
        """The token with this id and the state of its actor, in one read. Costs the same at any size."""

    @property
    @abstractmethod
    def find_bearer_now(self) -> Callable[[str], Bearer | None] | None:
        """`find_bearer` without waiting. It returns None for an unknown token, and where the store must be waited for.
        None: this store must always be waited for.
        """

    @abstractmethod
    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        """Rows and total from one snapshot; DEADLINE if that takes longer."""

    async def suspended_among(self, actors: Collection[str]) -> frozenset[str]:
        sql = f"SELECT urn FROM actors WHERE status = 'SUSPENDED' AND urn {self._db.dialect.any_of('$1')}"
        return frozenset(urn for (urn,) in await self.fetch_of(actors, sql))

    async def get_token(self, token_id: str) -> TokenRecord | None:
        row = await self._db.row(GET, token_id)
        return None if row is None else token_of(row)

    @transaction
    async def rotate_token(
        self, tx: Transaction, precondition: WritePrecondition, seen: TokenRecord, successor: TokenRecord, issue: Issue
    ) -> int:
        """Add the successor of a token. An earlier successor that was never used is revoked; returns how many were.
        `Stale` if the token is not as it was seen, or the signing key has changed; `Repeated` as above. The limit on
        the number of tokens does not apply.
        """
        changed = [family_lock(seen.family), family_lock(successor.id)]
        if issue.idempotency is not None:
            changed.append(idempotency_lock(issue.idempotency))
        relied = [TOKENS, KEYS, actor_lock(successor.actor_urn), *relied_on(precondition)]
        await tx.lock(shared=relied, exclusive=changed, bearers=[precondition.bearer_id], slot=True)
        new = NewToken(precondition, successor, issue)
        now = await check_new(tx, new, room=False)
        old = await _get(tx, seen.id)
        if old is None or _rotation_state(old) != _rotation_state(seen) or not old.is_live(now):
            raise Stale
        unused = [] if old.replaced_by is None else [old.replaced_by]
        await tx.lock_tokens([old.id, *unused])
        revoked = await revoke(tx, precondition, unused, now, reason=old.id, lock_rows=False) if unused else 0
        await add(tx, [new], now)
        await tx.execute("UPDATE tokens SET replaced_by = $2 WHERE id = $1", old.id, successor.id)
        return revoked

    @transaction
    async def note_first_use(self, tx: Transaction, precondition: WritePrecondition, token_id: str) -> None:
        """Note the first use of a successor: it gets its full lifetime, and the token it replaces, with all tokens
        derived from it, expires after the grace period. Does nothing if it was used before, is revoked or has expired.
        """
        await tx.lock(shared=[TOKENS], families=[token_id])
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
        """The record of a request with this idempotency key, if it is less than a day old."""
        sql = GET_IDEMPOTENCY.replace("$3", f"(SELECT now_ms()) - {KEPT}")
        row = await self._db.confirmed_row(sql, actor, digest)
        return None if row is None else IdempotencyRecord(*row)

    @transaction
    async def note_replay(self, tx: Transaction, precondition: WritePrecondition, record: TokenRecord) -> bool:
        """Write the event of a token that is returned again for its idempotency key. False, and no event, if the token
        is revoked or has expired.
        """
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
        """Change the name and description of a token; None stays, an empty description is removed. Returns the record.
        TOKEN_NOT_FOUND and ALREADY_REVOKED as in `revoke_token`.
        """
        now = await check_precondition(tx, precondition, shared=[TOKENS], families=[token_id])
        old = await _get(tx, token_id)
        if old is None or (visible is not None and not visible.covers(old)):
            raise no_token("change")
        if old.revoked_at is not None:
            raise already_revoked(old.revoked_at)
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

    @transaction
    async def record_uses(self, tx: Transaction, uses: Mapping[str, Use]) -> None:
        """Add to the counts of uses, by token id, in all and on the day of the last use. Never moves a time back."""
        await tx.lock(shared=[TOKENS])
        await tx.lock_tokens(list(uses))
        await tx.executemany(_USE, [(i, use.count, use.last, use.network) for i, use in uses.items()])
        await _note_networks(tx, uses)
        await add_uses(tx, uses)

    @transaction
    async def purge_tokens(self, tx: Transaction, before: int, most: int) -> int:
        """Delete at most `most` tokens that were revoked or expired before this time; returns how many. A token
        created with a deleted one counts as created with the creator of that one: at most `most` are changed. If there
        are more, none is deleted yet, and it returns `most`: call it again.
        """
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
        """Delete at most `most` idempotency records that are older than a day; returns how many."""
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


async def shorten(tx: Transaction, token_id: str, end: int, now: int) -> None:
    """Let a token, and every token derived from it, expire by this time. Under the lock of its family."""
    line = await _line(tx, token_id, now)
    await tx.lock_tokens(line)
    await _shorten(tx, line, end)


async def _line(tx: Transaction, token_id: str, now: int) -> list[str]:
    return [row[0] for row in await tx.fetch(_LINE, token_id, now)]


async def _shorten(tx: Transaction, line: Sequence[str], end: int) -> None:
    await tx.execute(_SHORTEN.format(any_of=tx.dialect.any_of("$1")), list(line), end)


async def _get(tx: Transaction, token_id: str) -> TokenRecord | None:
    row = await tx.fetchrow(GET, token_id)
    return None if row is None else token_of(row)


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


class ExpiryStore(EventStore):
    @snapshot
    async def expiring_page(
        self, tx: Transaction, after: tuple[int, str] | None, within: int, most: int
    ) -> ExpiringPage:
        """Return live tokens that expire within `within` milliseconds, soonest first, of `most` tokens read: without
        those derived, replaced, or awaiting their first use, and those of suspended actors. `after` comes from the
        previous page.
        """
        now = await tx.now()
        end, last = after or (now, "")
        found = list(await tx.fetch(_SAME_END, end, last, most))
        found += await tx.fetch(_LATER_END, end, now + within, most - len(found))
        page = tuple(ExpiringToken(*row[:4]) for row in found if row[4])
        return ExpiringPage(now, page, (found[-1][2], found[-1][0]) if len(found) == most else None)

    @transaction
    async def note_expiring(self, tx: Transaction, ids: Sequence[str], thresholds: Sequence[int]) -> int:
        """Write the event of each of these tokens whose notice is due, and note the threshold; returns how many."""
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

"""New tokens: what must hold for one to be created, and how a set of them is added.

Requests that wait together are a set, and one request is a set of one. Each has its own outcome. The facts of all come
from one statement; the rules are here, for both databases.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from typing import NamedTuple

from watchword.authority.store import CLOCK, HELD, check_precondition, relied_on
from watchword.basics.errors import Fault, Reason, Stale
from watchword.basics.names import no_account
from watchword.database import rows
from watchword.database.transaction import KEYS, TOKENS, SqlPart, Transaction, actor_lock, family_lock
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.journal.store import write_events_of
from watchword.tokens.idempotency import KEPT, Repeated
from watchword.tokens.revoke_store import revoke
from watchword.tokens.rows import created_event, idempotency_lock, insert_tokens
from watchword.tokens.rules import Issue, TokenRecord, TokenType, actor_suspended, no_room

_NEVER = 2**62
RETRY = "actor, digest, kid, token_id, created_at, expires_at"
_PUT_IDEMPOTENCY = rows.put("retries", RETRY, "actor, digest")
_WANTED = ("id", "actor", "bearer", "urn", "account", "parent", "retry_actor", "retry_digest")
# Scalar subqueries: each is one lookup in an index, whatever the sizes of the tables were when the plan was made. An
# unused successor has no children: it may be revoked alone.
_FACTS = f"""
SELECT n, now, (SELECT policy_version FROM state WHERE one = 1), {HELD},
    (SELECT kid FROM keys ORDER BY seq DESC LIMIT 1),
    (SELECT 1 FROM tokens WHERE id = wanted.id),
    (SELECT created_at FROM retries WHERE actor = retry_actor AND digest = retry_digest),
    account IS NULL OR coalesce((SELECT deleted_at IS NULL FROM service_accounts WHERE urn = account), false),
    coalesce((SELECT status FROM actors WHERE urn = wanted.urn), ''),
    (SELECT CASE WHEN revoked_at IS NULL AND grace IS NULL THEN coalesce(expires_at, {_NEVER}) END
     FROM tokens WHERE id = wanted.parent),
    (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'actor' AND urn = wanted.urn)
FROM {CLOCK} CROSS JOIN {{wanted}}"""
# Bounded by its LIMIT, and asked only of an actor with that many tokens that are not revoked.
_LIVE_OF = """
SELECT count(*) FROM (
    SELECT 1 FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL AND expires_at IS NULL
    UNION ALL
    SELECT 1 FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL AND expires_at > $2
    LIMIT $3) AS live"""


class NewToken(NamedTuple):
    """A token to create, and the request that creates it."""

    by: WritePrecondition
    record: TokenRecord
    issue: Issue


class _Facts(NamedTuple):
    """What the database knows of a new token."""

    n: int
    now: int
    policy_version: int
    held: bool
    kid: str
    in_use: bool
    repeated_at: int | None
    has_account: bool
    status: str
    parent_end: int | None
    total: int


class CreationStore(SqlPart):
    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        """Add a new token. `Stale` if the signing key has changed, or the parent (the bearer) expires before the token
        or was never used; TOO_MANY_TOKENS beyond `max_live`; ACTOR_SUSPENDED if the token's actor is suspended;
        ACCOUNT_NOT_FOUND if the service account does not exist; `Repeated` if the idempotency key was used less than a
        day ago.
        """

        async def undo(tx: Transaction) -> None:
            system = system_precondition("undelivered", precondition.request_id)
            own = [family_lock(record.id), family_lock(record.family)]
            now = await check_precondition(tx, system, shared=[TOKENS], exclusive=own)
            await revoke(tx, system, [record.id], now)

        # No client holds a token committed after its request failed. With an idempotency key the request is retried.
        may_undo = undo if issue.idempotency is None else None
        await self._db.write_together(create, NewToken(precondition, record, issue), may_undo)


async def create(tx: Transaction, wanted: Sequence[NewToken]) -> list[Exception | None]:
    """Add those that may be created; returns why each of the others may not."""
    near = await _lock(tx, wanted)
    facts = await _facts_of(tx, wanted)
    room = _Room(tx, near)
    ids: set[str] = set()
    keys: set[tuple[str, str]] = set()
    outcomes: list[Exception | None] = []
    for new, fact in zip(wanted, facts, strict=True):
        kept = new.issue.idempotency
        key = None if kept is None else (kept.actor, kept.digest)
        in_use = fact.in_use or new.record.id in ids
        repeated_at = fact.now if key in keys else fact.repeated_at
        problem = _objection(new, fact._replace(in_use=in_use, repeated_at=repeated_at))
        problem = problem or await room.objection(new, fact)
        if problem is None:
            ids.add(new.record.id)
            if key is not None:
                keys.add(key)
        outcomes.append(problem)
    added = [new for new, problem in zip(wanted, outcomes, strict=True) if problem is None]
    if added:
        await add(tx, added, facts[0].now)
    return outcomes


async def check_new(tx: Transaction, new: NewToken, *, room: bool) -> int:
    """Raise unless this token may be added now, under locks that its caller took. Returns the time."""
    (fact,) = await _facts_of(tx, [new])
    problem = _objection(new, fact)
    if problem is None and room:
        problem = await _Room(tx, None).objection(new, fact)
    if problem is not None:
        raise problem
    return fact.now


async def add(tx: Transaction, added: Sequence[NewToken], now: int) -> None:
    """Add these, each with its event and its idempotency key."""
    kept = [astuple(new.issue.idempotency) for new in added if new.issue.idempotency is not None]
    if kept:
        await tx.executemany(_PUT_IDEMPOTENCY, kept)
    await insert_tokens(tx, [new.record for new in added])
    await write_events_of(tx, [(new.by, created_event(new.record)) for new in added], now)


async def _lock(tx: Transaction, wanted: Sequence[NewToken]) -> Sequence[str] | None:
    """Lock what the rules rest on. Returns the actors whose limit is locked exclusively; None: there are no locks."""
    shared = {KEYS, TOKENS}
    exclusive = set()
    for by, record, issue in wanted:
        shared |= {actor_lock(record.actor_urn), *relied_on(by)}
        exclusive.add(family_lock(record.id))  # against a withdrawal
        if issue.idempotency is not None:
            exclusive.add(idempotency_lock(issue.idempotency))
    families = {new.by.bearer_id for new in wanted} | {new.record.parent for new in wanted}
    limits: dict[str, int] = {}
    for _, record, issue in wanted:
        limit = _shared_limit(issue.max_live)
        limits[record.actor_urn] = min(limit, limits.get(record.actor_urn, limit))
    held = await tx.lock(shared=shared, exclusive=exclusive, bearers=families, limits=limits, slot=True)
    return None if held is None else held.near


async def _facts_of(tx: Transaction, wanted: Sequence[NewToken]) -> list[_Facts]:
    values = []
    for by, record, issue in wanted:
        account = record.actor_urn if record.type is TokenType.SERVICE_ACCOUNT else None
        retry = (None, None) if issue.idempotency is None else (issue.idempotency.actor, issue.idempotency.digest)
        values.append((record.id, by.actor, by.bearer_id, record.actor_urn, account, record.parent, *retry))
    return list(map(_Facts._make, await tx.fetch_each(_FACTS, _WANTED, values)))


def _objection(new: NewToken, fact: _Facts) -> Exception | None:
    """Why the token may not be created, apart from the limit."""
    by, record, issue = new
    if fact.in_use:
        return _taken(new)
    if not (by.is_unconditional or (fact.held and fact.policy_version == by.policy_version)):
        return Stale()
    if fact.repeated_at is not None and fact.repeated_at > fact.now - KEPT:
        return Repeated()
    if fact.kid != issue.kid:
        return Stale()
    if not fact.has_account:
        return no_account()
    if fact.status == "SUSPENDED":
        return actor_suspended()
    if record.parent is not None and not _ends_by(record, fact.parent_end):
        return Stale()
    return None


def _ends_by(record: TokenRecord, parent_end: int | None) -> bool:
    end = record.expires_at if record.grace is None else record.full_end
    return parent_end is not None and (_NEVER if end is None else end) <= parent_end


def _taken(new: NewToken) -> Exception:
    """The same idempotency key gives the same id."""
    if new.issue.idempotency is not None:
        return Repeated()
    return Fault(Reason.INTERNAL, "Internal server error.", cause=f"the id {new.record.id} is in use")


def _shared_limit(max_live: int) -> int:
    """Up to how many tokens of an actor its creates share the lock of the limit. The rest is more than can be created
    at the same time.
    """
    return max_live - max(1_000, max_live // 2)


class _Room:
    """Counts the tokens of actors while a set is checked."""

    def __init__(self, tx: Transaction, near: Sequence[str] | None) -> None:
        self._tx = tx
        self._near = near
        self._live: dict[tuple[str, int], int] = {}
        self._accepted: Counter[str] = Counter()

    async def objection(self, new: NewToken, fact: _Facts) -> Exception | None:
        actor, most = new.record.actor_urn, new.issue.max_live
        if self._near is not None and actor not in self._near and fact.total > _shared_limit(most):
            return Stale()  # it came near the limit before the lock was taken
        if fact.total + self._accepted[actor] >= most:
            if (actor, most) not in self._live:
                self._live[actor, most] = await self._tx.fetchval(_LIVE_OF, actor, fact.now, most)
            if self._live[actor, most] + self._accepted[actor] >= most:
                return no_room(most)
        self._accepted[actor] += 1
        return None

"""What a transaction sees of its database, and what every write does first and last.

Each transaction is a coroutine over `Transaction`, written once for both databases, with `$1` parameters. A driver runs
it: SQLite's writer thread to its end without a pause, PostgreSQL's on a connection of the pool. What the two databases
say differently has a name in `Dialect`.
"""

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Reason, Stale, too_often
from watchword.domain.events import Event, counts_as_change
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.idempotency import IdempotencyRecord
from watchword.domain.lifetimes import DAY
from watchword.domain.ports import Clock
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows

T = TypeVar("T")
Observe = Callable[[str, float], None]
"""Called with the name and the seconds of each access."""
LONG_SECONDS = 60.0
"""What `write_long` may take."""
FEW_KEYS = 100

# Names of locks. PostgreSQL takes them in one order; SQLite has one writer and takes none.
POLICIES = "policies"
KEYS = "keys"
RETENTION = "retention"
"""Rules and holds: shared by all that start to remove rows."""
TOKENS = "tokens"
"""Every token family: shared by all that change a token, exclusive for changes to many families."""


def ignore(operation: str, seconds: float) -> None:
    """An observer that records nothing."""


def actor_lock(urn: str) -> str:
    return f"actor:{urn}"


def family_lock(root: str | None) -> str:
    """A token family, by the id of its oldest token."""
    return f"token:{root}"


def idempotency_lock(record: IdempotencyRecord) -> str:
    return f"idempotency:{record.digest}{record.actor}"


@dataclass(frozen=True, eq=False)
class Dialect:
    """Pieces of SQL that differ. Values stay parameters."""

    for_update: str
    """At the end of a SELECT: lock the rows until the commit."""
    skip_locked: str
    """The same, without those that another transaction has locked."""
    next_policy_version: str
    policy_users: str
    """Joined to `policies`: a row `named` with a `value` for each user a policy names."""
    any_of: Callable[[str], str]
    """After a column: equals one of the list of texts bound to this parameter."""
    any_number: Callable[[str], str]
    """The same for a list of numbers."""
    each_of: Callable[[str, str], str]
    """A table with one column `value`, of the list bound to this parameter, whose values have this type."""
    folded: Callable[[str], str]
    """The text in lower case."""
    position: Callable[[str, str], str]
    """Where the second text begins in the first, from 1; 0: nowhere."""
    ends_with: Callable[[str, str], str]
    json_member: Callable[[str, str], str]
    """The text of a member of the JSON object in this column; NULL if it has none."""
    json_array: Callable[[str, str], str]
    """The JSON text of an array of a column, from a source (`table WHERE …`)."""
    json_rows: Callable[[str], str]
    """The JSON text of an array of rows, each an array of these columns, in the order in which they are read."""
    json_objects: Callable[[Sequence[str]], str]
    """The same from the rows of `page`, each an object of these columns, which are all it has."""
    stored_total: Callable[[str, str], str]
    """How many tokens of a kind and urn are not revoked."""
    read_one_index: str
    """Run before a count of all tokens, so that it reads an index and not the table, in one process."""
    by_index: Callable[[str], str]
    """After a table: read it by this index, where the planner would take the table."""
    event_writers: str | None
    """A query for the other running transactions that may have written an event; None if numbers are given in the
    order of commits.
    """


class Transaction(Protocol):
    dialect: Dialect

    @property
    def clock(self) -> Clock | None:
        """What `now` reads; None: the database's clock."""

    async def execute(self, sql: str, *bound: Any) -> int:
        """Returns how many rows were changed."""

    async def executemany(self, sql: str, bound: Iterable[Sequence[Any]]) -> None: ...

    async def fetch(self, sql: str, *bound: Any) -> Sequence[rows.Row]: ...

    async def fetchrow(self, sql: str, *bound: Any) -> rows.Row | None: ...

    async def fetchval(self, sql: str, *bound: Any) -> Any: ...

    async def search(self, sql: str, *bound: Any) -> Sequence[rows.Row]:
        """A `fetch` that is planned for the values it brings."""

    def stream(self, sql: str, *bound: Any, prefetch: int = 100) -> AsyncIterator[rows.Row]: ...

    async def now(self) -> int: ...

    async def lock(
        self, *, shared: Iterable[str] = (), exclusive: Iterable[str] = (), bearer: str | None = None
    ) -> None:
        """Hold these locks until the commit, and share that of the bearer's family."""

    async def root_of(self, token_id: str) -> str | None:
        """The oldest token of its family, which never changes, for the lock of the family; of a token that does not
        exist, itself. None in a database without locks.
        """

    async def take_slot(self) -> None:
        """Before the first change to the number of tokens, and before `lock_tokens`."""

    async def lock_tokens(self, ids: Sequence[str]) -> None:
        """Lock these rows until the commit."""

    async def insert_token(self, record: TokenRecord) -> None: ...

    async def insert_tokens(self, records: Sequence[TokenRecord]) -> None: ...

    async def mark_revoked(self, ids: Sequence[str], now: int) -> Sequence[rows.Row]:
        """Revoke those that are not revoked yet; returns the id, actor and name of each."""


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


class Database(Protocol):
    dialect: Dialect

    async def row(self, sql: str, *bound: Any) -> rows.Row | None:
        """The row that one statement finds, or None."""

    async def fetch(self, sql: str, *bound: Any) -> Sequence[rows.Row]: ...

    async def confirmed_row(self, sql: str, *bound: Any) -> rows.Row | None:
        """The same of what may show the outcome of an earlier request: a row that a failover may still undo is not
        returned.
        """

    async def scan(self, work: Work[T], seconds: float = SEARCH_SECONDS) -> T:
        """Several reads on one snapshot, under a deadline."""

    async def write(self, work: Work[T]) -> T:
        """One transaction, durable when this returns. The work may run again if its first run changed nothing."""

    async def write_long(self, work: Work[T]) -> T:
        """A write that may take longer than an answer usually may."""


class SqlPart:
    """A part of the store: what it does with some of the tables."""

    _db: Database

    def run(self, way: str, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Runs the work by this method of the database."""
        method: Callable[[Work[T]], Coroutine[Any, Any, T]] = getattr(self._db, way)
        return method(work)

    async def fetch_of(self, keys: Collection[str], sql: str, *bound: Any) -> Sequence[rows.Row]:
        """The rows of these keys, the first parameter. Those of many are not read on the event loop."""
        if len(keys) <= FEW_KEYS:
            return await self._db.fetch(sql, list(keys), *bound)
        return await self._db.scan(lambda tx: tx.fetch(sql, list(keys), *bound))


Part = TypeVar("Part", bound=SqlPart)
P = ParamSpec("P")
Method = Callable[Concatenate[Part, P], Coroutine[Any, Any, T]]


def _runs_by(method: str) -> Callable[[Method[Part, Concatenate[Transaction, P], T]], Method[Part, P, T]]:
    def decorate(work: Method[Part, Concatenate[Transaction, P], T]) -> Method[Part, P, T]:
        @wraps(work)
        async def run(part: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = await part.run(method, lambda tx: work(part, tx, *args, **kwargs))
            return result

        return run

    return decorate


# A method that gets a transaction, which its callers do not give: it is run by the database's method of this name.
transaction = _runs_by("write")
long_transaction = _runs_by("write_long")
snapshot = _runs_by("scan")

# Policy version, actor and bearer of the precondition, and the time if it is known.
PRECONDITION_SQL = """
(SELECT policy_version FROM state WHERE one = 1) = $1::bigint
   AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = $2::text AND status = 'SUSPENDED')
   AND ($3::text IS NULL OR EXISTS (
        SELECT 1 FROM tokens
        WHERE id = $3::text AND actor_urn = $2::text AND revoked_at IS NULL
          AND (expires_at IS NULL OR expires_at > (SELECT coalesce($4::bigint, now_ms())))))"""
_CHECK = f"SELECT {PRECONDITION_SQL}, coalesce($4::bigint, now_ms())"
ADD_EVENT = rows.insert("events", rows.EVENT)
# When the actor may make a whole burst again. A later time than a burst ahead comes from a clock that was set back.
_COUNT_CHANGE = """
INSERT INTO change_rates (actor_urn, full_at) VALUES ($1, $2::bigint + $3::bigint)
ON CONFLICT (actor_urn) DO UPDATE SET full_at = $3::bigint + CASE
    WHEN change_rates.full_at > $2::bigint + $4::bigint THEN $2::bigint + $4::bigint - $3::bigint
    WHEN change_rates.full_at > $2::bigint THEN change_rates.full_at ELSE $2::bigint END
RETURNING full_at"""


async def check_precondition(
    tx: Transaction, precondition: WritePrecondition, *, shared: Iterable[str] = (), exclusive: Iterable[str] = ()
) -> int:
    """Lock what the write relies on and what it changes; raise `Stale` unless the bearer is live, its actor is not
    suspended and the policies are of the same version. Returns the time.
    """
    relied = list(shared)
    if not precondition.is_unconditional:
        relied += [POLICIES, actor_lock(precondition.actor)]
    if precondition.bearer_id is not None:
        relied.append(TOKENS)
    await tx.lock(shared=relied, exclusive=exclusive, bearer=precondition.bearer_id)
    if precondition.is_unconditional:
        return await tx.now()
    # Spares SQLite the call back into Python for now_ms(): 5 of the 110 µs of a new token.
    known = None if tx.clock is None else tx.clock()
    row = await tx.fetchrow(_CHECK, precondition.policy_version, precondition.actor, precondition.bearer_id, known)
    assert row is not None
    holds, now = row
    if not holds:
        raise Stale
    return int(now)


async def write_events(tx: Transaction, precondition: WritePrecondition, events: Sequence[Event], now: int) -> None:
    by = precondition
    if by.daily_changes and counts_as_change(events):
        await _count_change(tx, by, now)
    values = [
        (now, by.actor, by.bearer_id, e.action.value, e.target, by.peer, by.request_id, rows.json_text(e.detail))
        for e in events
    ]
    if len(values) == 1:  # as in most writes: cheaper than a list of one
        await tx.execute(ADD_EVENT, *values[0])
    else:
        await tx.executemany(ADD_EVENT, values)


async def _count_change(tx: Transaction, by: WritePrecondition, now: int) -> None:
    """Half of the daily changes at once, and the other half over the day: never more in any 24 hours. The row stays
    locked until the commit, so that instances share the count.
    """
    interval = max(2 * DAY // by.daily_changes, 1)
    burst = max(DAY, interval)
    full_at: int = await tx.fetchval(_COUNT_CHANGE, by.actor, now, interval, burst)
    wait = full_at - now - burst
    if wait > 0:
        message = f"An actor may make {by.daily_changes:,} changes a day, half of them at once."
        raise too_often(Reason.TOO_MANY_CHANGES, wait, message)


async def page(
    tx: Transaction, columns: str, source: str, order: str, start: int, count: int, bound: Sequence[Any] = ()
) -> tuple[int, Sequence[rows.Row]]:
    """How many rows a source has (`table WHERE …`, with these values), and some of them in this order."""
    total = await tx.fetchval(f"SELECT count(*) FROM {source}", *bound)
    part = f"LIMIT ${len(bound) + 1} OFFSET ${len(bound) + 2}"
    return total, await tx.fetch(f"SELECT {columns} FROM {source} ORDER BY {order} {part}", *bound, count, start)


async def groups_by_actor(tx: Transaction, actors: Iterable[str]) -> dict[str, list[str]]:
    """The groups of those of these actors that have some."""
    groups: dict[str, list[str]] = {}
    sql = f"SELECT actor_urn, group_urn FROM group_members WHERE actor_urn {tx.dialect.any_of('$1')}"
    for actor, group in await tx.fetch(sql, list(actors)):
        groups.setdefault(actor, []).append(group)
    return groups


async def delete_oldest(tx: Transaction, table: str, key: str, time: str, before: int, most: int) -> int:
    """Delete at most `most` rows whose time is before this one. Rows that another transaction has locked stay."""
    oldest = f"SELECT {key} FROM {table} WHERE {time} < $1 ORDER BY {time} LIMIT $2 {tx.dialect.skip_locked}"
    # As a subquery, PostgreSQL may run it once for each row of the table, and so delete more.
    delete = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM oldest)"
    return await tx.execute(f"WITH oldest AS MATERIALIZED ({oldest}) {delete}", before, most)

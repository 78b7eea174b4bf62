"""What a transaction sees of its database, and what every write does first and last.

Each transaction is a coroutine over `Transaction`, written once for both databases, with `$1` parameters. A driver runs
it: SQLite's writer thread to its end without a pause, PostgreSQL's on a connection of the pool. What the two databases
say differently has a name in `Dialect`.
"""

from abc import ABC
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from watchword.basics.paging import SEARCH_SECONDS
from watchword.basics.times import Clock
from watchword.database import rows

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
    each_row: Callable[[Sequence[str], int], str]
    """A table `wanted` with the columns `n`, from 1, and these, which are texts. Its rows are bound from this parameter
    on, by `fetch_each`.
    """
    left_lookup: Callable[[str, str], str]
    """A left join of at most one row of this table, which this condition finds by an index."""
    folded: Callable[[str], str]
    """The text in lower case."""
    stored_folded: Callable[[str | None], str | None] | None
    """What is stored beside a name or description, for `folded`; None: nothing."""
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
    one_process: str
    """Run before a count of all tokens, so that it occupies one process."""
    by_index: Callable[[str], str]
    """After a table: read it by this index, where the planner would take the table."""
    event_writers: str | None
    """A query for the other running transactions that may have written an event; None if numbers are given in the
    order of commits.
    """


class Locked(NamedTuple):
    """What was found when locks were taken."""

    families: Sequence[str]
    """The lock of the family of each token that was named."""
    near: Sequence[str]
    """The actors whose number of tokens is locked exclusively."""


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

    async def fetch_each(self, sql: str, names: Sequence[str], each: Sequence[rows.Row]) -> Sequence[rows.Row]:
        """A row for each of these, in their order: `{wanted}` in the statement is a table of them with these columns.
        Parameter 1 is the time, if it is known.
        """

    async def search(self, sql: str, *bound: Any) -> Sequence[rows.Row]:
        """A `fetch` that is planned for the values it brings."""

    def stream(self, sql: str, *bound: Any, prefetch: int = 100) -> AsyncIterator[rows.Row]: ...

    async def now(self) -> int: ...

    async def lock(
        self,
        *,
        shared: Iterable[str] = (),
        exclusive: Iterable[str] = (),
        bearers: Iterable[str | None] = (),
        families: Sequence[str] = (),
        limits: Mapping[str, int] = MappingProxyType({}),
        slot: bool = False,
    ) -> Locked | None:
        """Hold these locks until the commit: those with these names; shared, those of the families of these bearers;
        exclusively, those of the families of these tokens; and those of the numbers of tokens of these actors: shared
        up to this number, exclusively above it. A token that does not exist is its own family. With `slot` as
        `take_slot` too. None in a database without locks.
        """

    async def take_slot(self) -> None:
        """Before the first change to the number of tokens, and before `lock_tokens`."""

    async def lock_tokens(self, ids: Sequence[str]) -> None:
        """Lock these rows until the commit."""

    async def insert_rows(self, table: str, names: str, values: Sequence[rows.Row]) -> None:
        """PostgreSQL gets the rows of all calls since the last other statement in one, before the next or with the
        mark.
        """

    async def mark_revoked(self, ids: Sequence[str], now: int, *, lock_rows: bool) -> Sequence[rows.Row]:
        """Revoke those that are not revoked yet; returns the id, actor and name of each. Locks their rows first, unless
        the transaction has the lock of all families. Call `take_slot` before.
        """


Work = Callable[[Transaction], Coroutine[Any, Any, T]]
Item = TypeVar("Item")
SetWork = Callable[[Transaction, Sequence[Item]], Coroutine[Any, Any, Sequence[Exception | T]]]
"""Writes a set. It returns what became of each; an exception is raised to the caller of that one."""


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

    async def write_together(self, work: SetWork[Item, T], item: Item, undo: Work[Any] | None = None) -> T:
        """One item of a set: those that wait together are written in one transaction. `undo` runs if the commit
        succeeded, or may have, after its caller got OUTCOME_UNKNOWN.
        """

    async def write_long(self, work: Work[T]) -> T:
        """A write that may take longer than an answer usually may."""


class SqlPart(ABC):
    """A part of the store: what it does with some of the tables."""

    _db: Database

    @property
    def database(self) -> Database:
        return self._db

    async def node_id(self) -> str:
        """The part before the colon in the id of every operation of this store. Never changes."""
        row = await self._db.row("SELECT node_id FROM state")
        assert row is not None
        return str(row[0])

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
            result: T = await getattr(part.database, method)(lambda tx: work(part, tx, *args, **kwargs))
            return result

        return run

    return decorate


# A method that gets a transaction, which its callers do not give: it is run by the database's method of this name.
transaction = _runs_by("write")
long_transaction = _runs_by("write_long")
snapshot = _runs_by("scan")


async def page(
    tx: Transaction, columns: str, source: str, order: str, start: int, count: int, bound: Sequence[Any] = ()
) -> tuple[int, Sequence[rows.Row]]:
    """How many rows a source has (`table WHERE …`, with these values), and some of them in this order."""
    total = await tx.fetchval(f"SELECT count(*) FROM {source}", *bound)
    part = f"LIMIT ${len(bound) + 1} OFFSET ${len(bound) + 2}"
    return total, await tx.fetch(f"SELECT {columns} FROM {source} ORDER BY {order} {part}", *bound, count, start)


async def delete_oldest(tx: Transaction, table: str, key: str, time: str, before: int, most: int) -> int:
    """Delete at most `most` rows whose time is before this one. Rows that another transaction has locked stay."""
    oldest = f"SELECT {key} FROM {table} WHERE {time} < $1 ORDER BY {time} LIMIT $2 {tx.dialect.skip_locked}"
    # As a subquery, PostgreSQL may run it once for each row of the table, and so delete more.
    delete = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM oldest)"
    return await tx.execute(f"WITH oldest AS MATERIALIZED ({oldest}) {delete}", before, most)

"""The cost of SQLite store operations, from SQLite's counters instead of a clock."""

from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import apsw
import apsw.ext

from bench.fill import filled_actor, filled_id, is_revoked
from tests.support.strategies import numbered_id
from watchword.basics.times import Clock
from watchword.database.sqlite.database import SqliteTransaction
from watchword.database.transaction import Transaction
from watchword.journal.preconditions import system_precondition
from watchword.stores.sqlite import SqliteStore, open_store
from watchword.tokens.counts import Use
from watchword.tokens.filters import Condition, Field, Filter, Search
from watchword.tokens.rules import Issue, TokenRecord, TokenType

SYSTEM = system_precondition("a test")


class Run(Protocol):
    def __call__(self, coro: Coroutine[Any, Any, Any], /) -> Any: ...


@dataclass(frozen=True)
class Cost:
    steps: int
    """Instructions of SQLite's virtual machine."""
    scanned: int
    """Rows of full table scans."""
    sorted: int
    pages: int
    """Pages read from the cache or disk; reveals index scans."""
    statements: tuple[str, ...]


class Watched:
    """A store whose statements are counted."""

    def __init__(self, run: Run, path: Path, clock: Clock) -> None:
        self._run = run
        self.store: SqliteStore = open_store(path, clock)
        self.path = path
        database = self.store._db
        self._connections: list[apsw.Connection] = [database._reader, run(database.write(_connection))]
        self._seen: list[dict[str, Any]] = []
        for connection in self._connections:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._seen.append)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.trace_v2(0, None)
        self._run(self.store.close())

    def cost(self, work: Coroutine[Any, Any, Any]) -> Cost:
        self._seen.clear()
        before = self._pages()
        self._run(work)
        seen = list(self._seen)

        def total(counter: str) -> int:
            return sum(event["stmt_status"][f"SQLITE_STMTSTATUS_{counter}"] for event in seen)

        statements = tuple(dict.fromkeys(str(event["sql"]) for event in seen))
        return Cost(total("VM_STEP"), total("FULLSCAN_STEP"), total("SORT"), self._pages() - before, statements)

    def plan(self, cost: Cost) -> list[str]:
        """The query plans of the statements."""
        steps: list[str] = []
        with closing(apsw.Connection(str(self.path))) as file:
            file.create_scalar_function("now_ms", lambda *_: 0, 0)
            reader, _ = self._connections
            for (view,) in reader.execute("SELECT sql FROM temp.sqlite_master WHERE type = 'view'"):
                file.execute(view.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))
            for statement in cost.statements:
                if statement.split()[:2] == ["CREATE", "TEMP"]:
                    file.execute(statement)
                if statement.split()[0] in {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}:
                    bound = (None,) * apsw.ext.query_info(file, statement).bindings_count
                    steps += [str(row[3]) for row in file.execute(f"EXPLAIN QUERY PLAN {statement}", bound)]
        return steps

    def _pages(self) -> int:
        counters = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        return sum(connection.status(counter)[0] for connection in self._connections for counter in counters)


async def _connection(tx: Transaction) -> apsw.Connection:
    assert isinstance(tx, SqliteTransaction)
    return tx.connection


def operations(
    now: int, actors: int, unused: int, kid: str = "kid-1"
) -> dict[str, Callable[[SqliteStore], Coroutine[Any, Any, Any]]]:
    """Operations of constant cost, on a store made by `fill`. `unused` is the number of the new token."""
    actor = filled_actor(3, actors)
    assert not is_revoked(3)
    assert not is_revoked(5)
    made = TokenRecord(
        id=numbered_id(unused),
        type=TokenType.PERSONAL,
        name="one more",
        description=None,
        actor_urn=actor,
        owner_urn=actor,
        created_at=now,
        expires_at=now + 90 * 86_400_000,
    )

    def listing(field: Field | None, count: int) -> Callable[[SqliteStore], Coroutine[Any, Any, Any]]:
        filters = () if field is None else (Filter(field, Condition.EQUAL, (actor,)),)
        own = None if field is None else (field, actor)
        return lambda store: store.search(Search(count=count, filters=filters, own=own))

    return {
        "find_bearer": lambda store: store.find_bearer(filled_id(7)),
        "find_bearer of an unknown token": lambda store: store.find_bearer("x" * 44),
        "actor_snapshot": lambda store: store.actor_snapshot(actor),
        "add_token": lambda store: store.add_token(SYSTEM, made, Issue(kid, 10_000)),
        "revoke_token": lambda store: store.revoke_token(SYSTEM, filled_id(5), None),
        "record_uses": lambda store: store.record_uses({filled_id(7): Use(now, 1, "10.0.0.0/24")}),
        "first page of all": listing(None, 20),
        "first page of an actor": listing(Field.ACTOR_URN, 20),
        "first page of an owner": listing(Field.OWNER_URN, 20),
        "total of all": listing(None, 0),
        "total of an actor": listing(Field.ACTOR_URN, 0),
        "total of an owner": listing(Field.OWNER_URN, 0),
        "probe": lambda store: store.probe(),
        "policies": lambda store: store.policies(),
    }

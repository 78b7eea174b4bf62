"""The PostgreSQL driver: a point read, a search, a transaction, a single statement. All within one deadline.

- What certainly changed nothing is retried while there is time: the server restarted, a connection was cut.
- A commit that got no answer is resolved by a look-up: each transaction writes a mark, which is there only if it
  committed.
- A failover may undo what the primary shows while a synchronous standby has not confirmed it. So what a look-up finds,
  and what a write is refused for, is answered after the standby has confirmed all that was read.
- With confirmed reads (`domain/stores.py`) every read is confirmed before it is used.
- A caller that goes away cuts nothing off: a transaction that has begun is brought to its end, within the deadline.
- An instance that is stopped within a transaction loses it, and its locks, before those that wait for them time out
  (`HOLDING_SHARE`).
"""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.filters import SEARCH_SECONDS
from watchword.stores import rows
from watchword.stores.postgres.connections import (
    DIALECT,
    DRIVER_ERRORS,
    LIST_STANDBYS,
    SEARCHING,
    SNAPSHOT,
    STANDBYS,
    Connection,
    ConnectionBackoff,
    Unconfirmed,
    is_lost,
    store_fault,
)
from watchword.stores.sql.transaction import LONG_SECONDS, Dialect, Observe, Work

T = TypeVar("T")
Query = Callable[[Connection], Awaitable[T]]
Doubt = Callable[[rows.Row], bool]

SEARCHES = 4
"""Concurrent searches, or half of the pool: they must leave connections for other requests."""
IDLE_SECONDS = 300.0
LOOK_AGAIN = 0.02


class Lost(Exception):
    """A write got no answer: whether it was done is not known. `cause` is the driver's error."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Locked(Exception):
    """A statement did not get a lock in the time it was given. It changed nothing."""


class PostgresDatabase:
    dialect: Dialect = DIALECT

    def __init__(self, backoff: ConnectionBackoff, pool: Any, observe: Observe) -> None:
        self.timeout = backoff.place.timeout
        self._confirms_reads = backoff.place.reads_confirmed
        self._backoff = backoff
        self._pool = pool
        self._observe = observe
        self._searches = asyncio.Semaphore(max(1, min(SEARCHES, backoff.place.pool // 2)))
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.was_full = False
        """Whether a write found the disk full, and none has shown since that there is room again."""

    async def row(self, sql: str, *bound: Any) -> rows.Row | None:
        return await self.read(lambda c: c.fetchrow(sql, *bound))

    async def confirmed_row(self, sql: str, *bound: Any) -> rows.Row | None:
        async def look(connection: Connection) -> rows.Row | None:
            row = await connection.fetchrow(sql, *bound)
            if row is not None and not self._confirms_reads:
                await connection.confirm()
            return row

        return await self.read(look)

    async def fetch(self, sql: str, *bound: Any) -> list[rows.Row]:
        return await self.read(lambda c: c.fetch(sql, *bound))

    async def read(self, query: Query[T]) -> T:
        return await self._timed("read", self._again(self._once, query))

    async def scan(self, work: Work[T], seconds: float = SEARCH_SECONDS) -> T:
        """A search in one snapshot under a deadline of its own, which counts the wait for its turn too."""

        async def search() -> T:
            deadline = time.monotonic() + seconds
            try:
                async with asyncio.timeout(seconds), self._searches:
                    return await self._again(self._in_snapshot, work, deadline)
            except TimeoutError as error:
                raise rows.too_slow() from error
            except Fault as fault:
                if time.monotonic() >= deadline - 0.05 or isinstance(fault.__cause__, pg.QueryCanceledError):
                    raise rows.too_slow() from fault
                raise

        return await self._timed("scan", search())

    async def write(self, work: Work[T]) -> T:
        return await self._timed("write", self._again(self._in_transaction, work))

    async def write_long(self, work: Work[T]) -> T:
        seconds = max(LONG_SECONDS, self.timeout)

        async def long(connection: Connection) -> T:
            for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
                await connection.execute(f"SET LOCAL {name} = {int(seconds * 1000):d}")
            return await work(connection)

        return await self._timed("write", self._again(self._in_transaction, long, time.monotonic() + seconds))

    def deadline(self) -> float:
        """By when a request that comes now must be answered."""
        return time.monotonic() + self.timeout

    async def call(
        self, statement: str, *bound: Any, deadline: float | None = None, doubt: Doubt = lambda _: False
    ) -> Any:
        """One statement that is a transaction of its own. `Lost` if it got no answer, `Locked` if it got no lock. If
        `doubt(row)`, an earlier statement may have caused the row: it is returned after the standby has confirmed it.
        """
        if self._confirms_reads:
            # Do nothing if no standby would confirm it. Other lists are checked afterwards.
            statement = f"{statement} WHERE {STANDBYS} NOT IN ('', '*')"

        async def work(connection: Connection) -> Any:
            row: Any = await connection.fetchrow(statement, *bound)
            if row is None:  # no standby would have confirmed it, and it was not done
                raise store_fault(Unconfirmed("no synchronous standby is named"))
            try:
                if doubt(row):
                    await connection.confirm()
                elif self._confirms_reads:
                    connection.check_standbys(await connection.fetchval(LIST_STANDBYS))
            except DRIVER_ERRORS as error:  # the statement itself is committed
                raise Lost(error) from error
            return row

        async def once(connection: Connection, work: Query[Any], deadline: float) -> Any:
            try:
                return await work(connection)
            except asyncio.CancelledError as error:  # past the deadline
                raise Lost(TimeoutError()) from error
            except pg.LockNotAvailableError as error:
                raise Locked from error
            except DRIVER_ERRORS as error:
                if is_lost(error):
                    raise Lost(error) from error
                raise

        return await self._timed("write", self._again(once, work, deadline))

    async def close(self) -> None:
        """Finish what has begun."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.timeout + 1)
        try:
            async with asyncio.timeout(1):
                await self._pool.close()
        except DRIVER_ERRORS:
            self._pool.terminate()
            await asyncio.sleep(0)

    async def _timed(self, what: str, work: Awaitable[T]) -> T:
        """In a task of its own, so that a caller that goes away does not interrupt it."""
        if self._closed:
            if asyncio.iscoroutine(work):
                work.close()
            raise rows.stopping()
        began = time.perf_counter()
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        finally:
            self._observe(what, time.perf_counter() - began)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the caller got it, or went away

    async def _again(
        self,
        attempt: Callable[[Connection, Query[T], float], Awaitable[T]],
        work: Query[T],
        deadline: float | None = None,
    ) -> T:
        deadline = self.deadline() if deadline is None else deadline
        while True:
            try:
                return await self._attempt(attempt, work, deadline)
            except OperatorError as error:
                raise store_fault(error) from error
            except DRIVER_ERRORS as error:
                fault = store_fault(error)
                self.was_full = self.was_full or isinstance(error, pg.DiskFullError)
                # A statement that took too long would take too long again.
                final = fault.reason is Reason.INTERNAL or isinstance(error, pg.QueryCanceledError | pg.DiskFullError)
                pause = LOOK_AGAIN * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
                if final or time.monotonic() + pause >= deadline:
                    raise fault from error
                await asyncio.sleep(pause)

    async def _attempt(
        self, attempt: Callable[[Connection, Query[T], float], Awaitable[T]], work: Query[T], deadline: float
    ) -> T:
        try:
            proxy = await self._pool.acquire(timeout=max(deadline - time.monotonic(), 0.001))
        except TimeoutError as error:
            raise store_fault(self._backoff.problem or error) from error
        connection: Connection | None = None
        try:
            connection = proxy.watch()
            self._backoff.check_timeline(connection)
            async with asyncio.timeout(deadline - time.monotonic()):
                return await attempt(connection, work, deadline)
        except BaseException as error:
            if self._confirms_reads and is_lost(error):
                self._backoff.doubt(error)
            # A connection that was left in the middle of something is not used again.
            answered = not is_lost(error) and not isinstance(error, Lost | asyncio.CancelledError)
            if connection is not None and (
                not answered or (not connection.is_closed() and connection.is_in_transaction())
            ):
                if self._confirms_reads:
                    await connection.cancel_wait()
                connection.terminate()
            raise
        finally:
            if connection is not None:
                connection.unwatch()
            await self._pool.release(proxy)

    async def _once(self, connection: Connection, work: Query[T], deadline: float) -> T:
        result = await work(connection)
        await self._confirm_read(connection)
        return result

    async def _confirm_read(self, connection: Connection) -> None:
        if self._confirms_reads:
            began = time.perf_counter()
            try:
                await connection.confirm()
            except BaseException:
                self._observe("unconfirmed", time.perf_counter() - began)
                raise
            self._observe("confirm", time.perf_counter() - began)

    async def _in_snapshot(self, connection: Connection, work: Query[T], deadline: float) -> T:
        left = max(int((deadline - time.monotonic()) * 1000), 1)
        await connection.execute(f"{SNAPSHOT}; SET LOCAL statement_timeout = {left:d}; {SEARCHING}")
        result = await self._or_roll_back(connection, work)
        await connection.execute("COMMIT")
        await self._confirm_read(connection)
        return result

    async def _in_transaction(self, connection: Connection, work: Query[T], deadline: float) -> T:
        await connection.execute("BEGIN")
        result = await self._or_roll_back(connection, work)
        mark = secrets.token_hex(16)
        names = await connection.fetchval(f"SELECT {STANDBYS}, write_mark($1)", mark)
        connection.check_standbys(names)
        try:
            await connection.execute("COMMIT")
            await connection.check_unchanged(names)
        except asyncio.CancelledError as error:  # past the deadline
            raise unknown_outcome(TimeoutError()) from error
        except DRIVER_ERRORS as error:
            if not is_lost(error):
                raise
            connection.terminate()
            if not await self._was_committed(mark, deadline, error):
                raise
        return result

    @staticmethod
    async def _or_roll_back(connection: Connection, work: Query[T]) -> T:
        try:
            return await work(connection)
        except asyncio.CancelledError:
            raise  # past the deadline: a server that does not answer would not answer a ROLLBACK either
        except BaseException as error:
            if not is_lost(error) and not connection.is_closed():
                await connection.execute("ROLLBACK")
            if isinstance(error, Fault):
                await connection.confirm()
            raise

    async def _was_committed(self, mark: str, deadline: float, lost: BaseException) -> bool:
        """Whether a transaction whose commit got no answer was committed; looked up until the deadline."""

        async def look(connection: Connection) -> bool:
            found = bool(await connection.fetchval("SELECT has_mark($1)", mark))
            if found and not self._confirms_reads:
                await connection.confirm()
            return found

        with suppress(asyncio.CancelledError):  # past the deadline
            while time.monotonic() < deadline - LOOK_AGAIN:
                try:
                    return await self._attempt(self._once, look, deadline)
                except (*DRIVER_ERRORS, OperatorError, Fault):
                    await asyncio.sleep(LOOK_AGAIN)
        raise unknown_outcome(lost)


def unknown_outcome(error: BaseException) -> Fault:
    return rows.unknown_outcome(f"{type(error).__name__}: {error}")


async def make_pool(backoff: ConnectionBackoff) -> Any:
    """A pool that opens no connection before it is needed."""

    async def connect(*_: Any, **__: Any) -> Connection:
        connection = await backoff.connect()
        connection.unwatch()
        return connection

    async def keep(_: Any) -> None:
        """Settings stay: only we use a session, and always with the same settings."""

    return await asyncpg.create_pool(
        min_size=0,
        max_size=backoff.place.pool,
        max_queries=1_000_000_000,
        max_inactive_connection_lifetime=IDLE_SECONDS,
        connect=connect,
        reset=keep,
    )


CONCURRENT = 2
MOST = 32
"""Writes in one commit: each takes a few locks, and the database has a bounded number of them."""
TURNS = 3
"""Turns of the event loop for which the first write waits for others. While nothing else happens they take no time."""
PATIENCE = "100ms"
"""How long a batch waits for a lock."""
LEFT = 0.25
"""Share of the timeout that must be left when a statement is sent."""

Job = tuple[tuple[Any, ...], float, asyncio.Future[tuple[Any, ...]]]


class WriteBatcher:
    """One statement makes all writes of a kind that wait together, in one commit; each has its own outcome.

    As with SQLite's writer, no request is answered before the commit is on disk. If the statement fails because of one
    of them, each is tried alone. So is each if the statement does not get its locks soon, and then they wait beside the
    batches: what another session has locked must not delay the others.
    """

    def __init__(self, database: PostgresDatabase, statement: str, done: str, *, has_patience: bool = False) -> None:
        """The statement takes an array for each value of a write, and returns one row of arrays, the first of which has
        the outcomes. `done` is that of a write that was made; any other rests on what was read, and is confirmed. With
        `has_patience` its last value is how long it waits for a lock.
        """
        self._has_patience = has_patience
        self._db = database
        self._statement = statement
        self._done = done
        self._waiting: list[Job] = []
        self._gathering = False
        self._under_way: set[asyncio.Task[None]] = set()
        self._alone: set[asyncio.Task[None]] = set()
        """Writes that wait for a lock."""

    async def write(self, bound: tuple[Any, ...], deadline: float) -> tuple[Any, ...]:
        """The outcome. `Lost` if it is unknown; the `Fault` that failed the whole batch."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, ...]] = loop.create_future()
        self._waiting.append((bound, deadline, answer))
        if not self._gathering:
            self._gathering = True
            loop.call_soon(self._gather, TURNS - 1)
        return await answer

    async def finish(self) -> None:
        """Finish what was handed in; each has its deadline."""
        while self._waiting or self._under_way or self._alone:
            if self._under_way or self._alone:
                await asyncio.wait(self._under_way | self._alone)
            else:
                await asyncio.sleep(0)

    def _gather(self, turns: int) -> None:
        if turns and len(self._waiting) < MOST:
            asyncio.get_running_loop().call_soon(self._gather, turns - 1)
        else:
            self._gathering = False
            self._pump()

    def _pump(self) -> None:
        self._refuse_late()
        while self._waiting and len(self._under_way) < CONCURRENT:
            sealed, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            task = asyncio.get_running_loop().create_task(self._send(sealed))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _refuse_late(self) -> None:
        """Fail the requests with too little time left for the commit, which must not be cut short for the others."""
        soon = time.monotonic() + LEFT * self._db.timeout
        for job in [job for job in self._waiting if job[1] < soon]:
            self._waiting.remove(job)
            _refuse(job, store_fault(TimeoutError("too many writes are waiting")))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._pump()

    async def _send(self, sealed: list[Job], *, alone: bool = False) -> None:
        columns: list[Any] = [list(column) for column in zip(*(bound for bound, _, _ in sealed), strict=True)]
        if self._has_patience:
            columns.append("0" if alone else PATIENCE)
        try:
            deadline = min(deadline for _, deadline, _ in sealed)
            outcomes = await self._db.call(
                self._statement,
                *columns,
                deadline=deadline,
                doubt=lambda row: any(outcome != self._done for outcome in row[0]),
            )
        except Fault as fault:
            if fault.reason is Reason.INTERNAL and len(sealed) > 1:
                for job in sealed:
                    await self._send([job])
                return
            for job in sealed:
                _refuse(job, Fault(fault.reason, fault.message, cause=fault.cause))
        except Locked as locked:
            for job in sealed:
                if alone:
                    _refuse(job, store_fault(locked.__cause__ or locked))
                else:
                    task = asyncio.get_running_loop().create_task(self._send([job], alone=True))
                    self._alone.add(task)
                    task.add_done_callback(self._alone.discard)
        except Lost as lost:
            for job in sealed:
                _refuse(job, Lost(lost.cause))
        else:
            for (_, _, answer), outcome in zip(sealed, zip(*outcomes, strict=True), strict=True):
                if not answer.done():
                    answer.set_result(outcome)


def _refuse(job: Job, error: Exception) -> None:
    _, _, answer = job
    if not answer.done():
        answer.set_exception(error)

"""The PostgreSQL driver: a point read, a search, a transaction, a set of writes. All within one deadline.

- What certainly changed nothing is retried while there is time: the server restarted, a connection was cut.
- A commit that got no answer is resolved by a look-up: each transaction writes a mark, which is there only if it
  committed.
- A failover may undo what the primary shows while a synchronous standby has not confirmed it. So what a look-up finds,
  and what a write is refused for, is answered after the standby has confirmed all that was read.
- With confirmed reads (`database/urls.py`) every read is confirmed before it is used.
- A caller that goes away cuts nothing off: a transaction that has begun is brought to its end, within the deadline.
- An instance that is stopped within a transaction loses it, and its locks, before those that wait for them time out
  (`HOLDING_SHARE`).
"""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.basics.paging import SEARCH_SECONDS
from watchword.database import rows
from watchword.database.faults import stopping, too_slow, unknown_outcome
from watchword.database.postgres.connections import SEARCHING, SNAPSHOT, Connection
from watchword.database.postgres.dialect import DIALECT
from watchword.database.postgres.errors import DRIVER_ERRORS, is_lost, store_fault
from watchword.database.postgres.hosts import ConnectionBackoff
from watchword.database.transaction import LONG_SECONDS, Dialect, Item, Observe, SetWork, Work

T = TypeVar("T")
Query = Callable[[Connection], Awaitable[T]]

SEARCHES = 4
"""Concurrent searches, or half of the pool: they must leave connections for other requests."""
IDLE_SECONDS = 300.0
LOOK_AGAIN = 0.02
TRY_AGAIN = 1.0


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
        self._batchers: dict[Any, WriteBatcher] = {}
        """By the work of `write_together`."""
        self._later: set[asyncio.Task[None]] = set()
        """What is written after a request, until it is done."""
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
                raise too_slow() from error
            except Fault as fault:
                if time.monotonic() >= deadline - 0.05 or isinstance(fault.__cause__, pg.QueryCanceledError):
                    raise too_slow() from fault
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

    async def write_together(self, work: SetWork[Item, T], item: Item, undo: Work[Any] | None = None) -> T:
        batcher = self._batchers.setdefault(work, WriteBatcher(self, work))
        try:
            result: T = await batcher.write(item, self.deadline())
        except Fault as fault:
            if undo is not None and fault.reason is Reason.OUTCOME_UNKNOWN:
                self.keep_trying(lambda: self.write(undo))
            raise
        return result

    async def write_set(
        self, work: SetWork[Item, T], items: Sequence[Item], deadline: float, *, patient: bool
    ) -> Sequence[Exception | T]:
        """A set in one transaction. `Locked` if it does not get a lock soon, unless it is patient."""

        async def once(connection: Connection, query: Query[Any], deadline: float) -> Any:
            begin = "BEGIN" if patient else f"BEGIN; SET LOCAL lock_timeout = '{PATIENCE}'"
            try:
                return await self._in_transaction(connection, query, deadline, begin)
            except pg.LockNotAvailableError as error:
                if patient:
                    raise
                raise Locked from error

        outcomes: Sequence[Exception | T]
        outcomes = await self._timed("write", self._again(once, lambda tx: work(tx, items), deadline))
        return outcomes

    def keep_trying(self, write: Callable[[], Awaitable[Any]]) -> None:
        async def keep_trying() -> None:
            while True:
                try:
                    await write()
                except Fault:
                    await asyncio.sleep(TRY_AGAIN)
                else:
                    return

        task = asyncio.get_running_loop().create_task(keep_trying())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def close(self) -> None:
        """Finish what has begun."""
        for batcher in self._batchers.values():
            await batcher.finish()
        if self._later:
            await asyncio.wait(self._later, timeout=self.timeout)
        for task in list(self._later):
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
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
            raise stopping()
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
            answered = not is_lost(error) and not isinstance(error, asyncio.CancelledError)
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

    async def _in_transaction(self, connection: Connection, work: Query[T], deadline: float, begin: str = "BEGIN") -> T:
        mark = secrets.token_hex(16)

        async def work_and_finish(connection: Connection) -> tuple[T, str]:
            return await work(connection), await connection.finish(mark)

        await connection.execute(begin)
        result, names = await self._or_roll_back(connection, work_and_finish)
        connection.check_standbys(names)
        try:
            await connection.execute("COMMIT")
            await connection.check_unchanged(names)
        except asyncio.CancelledError as error:  # past the deadline
            raise _lost(TimeoutError()) from error
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
                await connection.roll_back()
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
        raise _lost(lost)


def _lost(error: BaseException) -> Fault:
    return unknown_outcome(f"{type(error).__name__}: {error}")


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


MOST = 32
"""Writes in one commit: each takes a few locks, and the database has a bounded number of them."""
TURNS = 3
"""Turns of the event loop for which a batch waits for more writes. While nothing else happens they take no time."""
TURNS_AFTER_MANY = 10
"""The same after a batch of several: the clients that it answered send their next writes. What a transaction costs, six
statements and their answers, is shared by more of them.
"""
PATIENCE = "100ms"
"""How long a batch waits for a lock."""
LEFT = 0.25
"""Share of the timeout that must be left when a statement is sent."""

Job = tuple[Any, float, asyncio.Future[Any]]


class WriteBatcher:
    """One transaction makes all writes of a kind that wait together; each has its own outcome.

    As with SQLite's writer, no request is answered before the commit is on disk. If the transaction fails because of
    one of them, each is tried alone. So is each if it does not get its locks soon, and then they wait beside the
    batches: what another session has locked must not delay the others.
    """

    def __init__(self, database: PostgresDatabase, work: SetWork[Any, Any]) -> None:
        self._db = database
        self._work = work
        self._waiting: list[Job] = []
        self._batches: asyncio.Task[None] | None = None
        """Runs while writes wait."""
        self._alone: set[asyncio.Task[None]] = set()
        """Writes that wait for a lock."""

    async def write(self, item: Any, deadline: float) -> Any:
        """What became of it; the `Fault` that failed the whole batch."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((item, deadline, answer))
        if self._batches is None:
            self._batches = loop.create_task(self._send_batches())
        return await answer

    async def finish(self) -> None:
        """Finish what was handed in; each has its deadline."""
        while under_way := {*self._alone, *filter(None, [self._batches])}:
            await asyncio.wait(under_way)

    async def _send_batches(self) -> None:
        turns = TURNS
        while self._waiting:
            for _ in range(turns):
                if len(self._waiting) < MOST:
                    await asyncio.sleep(0)
            self._refuse_late()
            sealed, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            turns = TURNS if len(sealed) <= 1 else TURNS_AFTER_MANY
            if sealed:
                await self._send(sealed)
        self._batches = None

    def _refuse_late(self) -> None:
        """Fail the requests with too little time left for the commit, which must not be cut short for the others."""
        soon = time.monotonic() + LEFT * self._db.timeout
        for job in [job for job in self._waiting if job[1] < soon]:
            self._waiting.remove(job)
            _refuse(job, store_fault(TimeoutError("too many writes are waiting")))

    async def _send(self, sealed: list[Job], *, alone: bool = False) -> None:
        deadline = min(deadline for _, deadline, _ in sealed)
        try:
            outcomes = await self._db.write_set(self._work, [item for item, _, _ in sealed], deadline, patient=alone)
        except Locked:
            for job in sealed:
                task = asyncio.get_running_loop().create_task(self._send([job], alone=True))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
        except Exception as error:  # noqa: BLE001 - a defect in one must not fail the others
            is_defect = not isinstance(error, Fault) or error.reason is Reason.INTERNAL
            for job in sealed:
                if is_defect and len(sealed) > 1:
                    await self._send([job])
                else:
                    _refuse(job, _own(error))
        else:
            for job, outcome in zip(sealed, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    _refuse(job, outcome)
                elif not job[2].done():
                    job[2].set_result(outcome)


def _own(error: Exception) -> Exception:
    """An error of each job its own: to raise one changes it."""
    return Fault(error.reason, error.message, cause=error.cause) if isinstance(error, Fault) else error


def _refuse(job: Job, error: Exception) -> None:
    _, _, answer = job
    if not answer.done():
        answer.set_exception(error)

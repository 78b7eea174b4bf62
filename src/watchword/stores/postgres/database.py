"""Ways to the database besides verification: a point read, a snapshot, a search, a write. All within one deadline.

- What surely changed nothing is tried again while there is time: the server was restarted, a connection was cut.
- A commit that got no answer is resolved by looking: each transaction leaves a mark, which is there just if it took
  place.
- What the primary shows may be undone by a failover while a synchronous standby has not confirmed it. So what a look-up
  finds, and what a write is refused for, is answered once the standby has confirmed all that was read.
- Nothing is cut off because a caller went away: what was begun is brought to its end, within the deadline.
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
from watchword.stores.postgres.connections import (
    DRIVER_ERRORS,
    SEARCHING,
    SNAPSHOT,
    Connection,
    Row,
    is_lost,
    store_fault,
)
from watchword.stores.postgres.doorstep import ConnectionBackoff
from watchword.stores.postgres.replication import CONFIRM

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]
Doubt = Callable[[Row], bool]
Observe = Callable[[str, float], None]

SEARCHES = 4
"""That run at once, or half of the pool: they must leave connections for others."""
IDLE_SECONDS = 300.0
LOOK_AGAIN = 0.02


class Lost(Exception):
    """A write got no answer: whether it was done is not known. `why` is the driver's error."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(str(why))
        self.why = why


class Database:
    def __init__(self, doorstep: ConnectionBackoff, pool: Any, observe: Observe) -> None:
        self.timeout = doorstep.place.timeout
        self._doorstep = doorstep
        self._pool = pool
        self._observe = observe
        self._searches = asyncio.Semaphore(max(1, min(SEARCHES, doorstep.place.pool // 2)))
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.was_full = False
        """Whether a write met a full disk, and none has shown since that there is room again."""

    async def row(self, statement: str, *bound: Any) -> Any:
        """The one row of a point read, or None."""
        return await self.read(lambda c: c.fetchrow(statement, *bound))

    async def confirmed_row(self, statement: str, *bound: Any) -> Any:
        """The same of what may tell the outcome of an earlier request."""

        async def look(connection: Connection) -> Any:
            row = await connection.fetchrow(statement, *bound)
            if row is not None:
                await connection.execute(CONFIRM)
            return row

        return await self.read(look)

    async def rows(self, statement: str, *bound: Any) -> list[Any]:
        """What one statement finds: one state of the database."""
        return await self.read(lambda c: c.fetch(statement, *bound))

    async def read(self, work: Work[T]) -> T:
        return await self._timed("read", self._again(self._once, work))

    async def snapshot(self, work: Work[T]) -> T:
        """Several reads on one state."""
        return await self._timed("read", self._again(self._in_snapshot, work))

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

    async def write(self, work: Work[T], deadline: float | None = None) -> T:
        """Run the work in a transaction; return when it is durable. The work may run again when it changed nothing."""
        return await self._timed("write", self._again(self._in_transaction, work, deadline))

    def deadline(self) -> float:
        """Until when whoever asks now must be answered."""
        return time.monotonic() + self.timeout

    async def call(
        self, statement: str, *bound: Any, deadline: float | None = None, doubt: Doubt = lambda _: False
    ) -> Any:
        """One statement that is a transaction of its own. `Lost` when it got no answer. A row of which there is a doubt
        whether this statement made it so is confirmed first.
        """

        async def work(connection: Connection) -> Any:
            row: Any = await connection.fetchrow(statement, *bound)
            if doubt(row):
                await connection.execute(CONFIRM)
            return row

        async def once(connection: Connection, work: Work[Any], deadline: float) -> Any:
            try:
                return await work(connection)
            except asyncio.CancelledError as error:  # its time was up
                raise Lost(TimeoutError()) from error
            except DRIVER_ERRORS as error:
                if is_lost(error):
                    raise Lost(error) from error
                raise

        return await self._timed("write", self._again(once, work, deadline))

    async def close(self) -> None:
        """Bring to its end what was begun."""
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
        """Apart from whoever waits for it, so that it is never left half-way."""
        if self._closed:
            if asyncio.iscoroutine(work):
                work.close()
            raise Fault(Reason.STOPPING, "The service is stopping.")
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
            task.exception()  # whoever waited was told, or went away

    async def _again(
        self,
        attempt: Callable[[Connection, Work[T], float], Awaitable[T]],
        work: Work[T],
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
                # A statement that was cut off for its time would be cut off again.
                final = fault.reason is Reason.INTERNAL or isinstance(error, pg.QueryCanceledError | pg.DiskFullError)
                pause = LOOK_AGAIN * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
                if final or time.monotonic() + pause >= deadline:
                    raise fault from error
                await asyncio.sleep(pause)

    async def _attempt(
        self, attempt: Callable[[Connection, Work[T], float], Awaitable[T]], work: Work[T], deadline: float
    ) -> T:
        try:
            connection = await self._pool.acquire(timeout=max(deadline - time.monotonic(), 0.001))
        except TimeoutError as error:
            raise store_fault(self._doorstep.problem or error) from error
        raw = _raw(connection)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await attempt(raw, work, deadline)
        except BaseException as error:
            # What is left in the middle of something is not used again.
            told = not is_lost(error) and not isinstance(error, Lost | asyncio.CancelledError)
            if not told or (not raw.is_closed() and raw.is_in_transaction()):
                raw.terminate()
            raise
        finally:
            await self._pool.release(connection)

    async def _once(self, connection: Connection, work: Work[T], deadline: float) -> T:
        return await work(connection)

    async def _in_snapshot(self, connection: Connection, work: Work[T], deadline: float) -> T:
        left = max(int((deadline - time.monotonic()) * 1000), 1)
        await connection.execute(f"{SNAPSHOT}; SET LOCAL statement_timeout = {left:d}; {SEARCHING}")
        result = await self._or_roll_back(connection, work)
        await connection.execute("COMMIT")
        return result

    async def _in_transaction(self, connection: Connection, work: Work[T], deadline: float) -> T:
        await connection.execute("BEGIN")
        result = await self._or_roll_back(connection, work)
        mark = secrets.token_hex(16)
        await connection.execute("SELECT leave_mark($1)", mark)
        try:
            await connection.execute("COMMIT")
        except asyncio.CancelledError as error:  # its time was up
            raise unknown_outcome(TimeoutError()) from error
        except DRIVER_ERRORS as error:
            if not is_lost(error):
                raise
            connection.terminate()
            if not await self._was_committed(mark, deadline, error):
                raise
        return result

    @staticmethod
    async def _or_roll_back(connection: Connection, work: Work[T]) -> T:
        try:
            return await work(connection)
        except asyncio.CancelledError:
            raise  # its time is up, and a server that does not answer would not answer this either
        except BaseException as error:
            if not is_lost(error) and not connection.is_closed():
                await connection.execute("ROLLBACK")
            if isinstance(error, Fault):
                await connection.execute(CONFIRM)
            raise

    async def _was_committed(self, mark: str, deadline: float, lost: BaseException) -> bool:
        """What became of a transaction whose commit got no answer; looked up for as long as there is time."""

        async def look(connection: Connection) -> bool:
            found = bool(await connection.fetchval("SELECT has_mark($1)", mark))
            if found:
                await connection.execute(CONFIRM)
            return found

        with suppress(asyncio.CancelledError):  # its time was up
            while time.monotonic() < deadline - LOOK_AGAIN:
                try:
                    return await self._attempt(self._once, look, deadline)
                except (*DRIVER_ERRORS, OperatorError, Fault):
                    await asyncio.sleep(LOOK_AGAIN)
        raise unknown_outcome(lost)


def unknown_outcome(error: BaseException) -> Fault:
    return Fault(
        Reason.OUTCOME_UNKNOWN,
        "The store did not say in time whether this was done. Look before you try again.",
        why=f"{type(error).__name__}: {error}",
    )


def too_slow() -> Fault:
    return Fault(
        Reason.DEADLINE, "The search took too long; narrow it with actorUrn or ownerUrn, or ask for less at once."
    )


def _raw(connection: Any) -> Connection:
    """The connection behind the pool's proxy, which costs a call each time."""
    raw: Connection = connection._con  # noqa: SLF001
    return raw


async def make_pool(doorstep: ConnectionBackoff) -> Any:
    """Opens nothing before it is needed."""

    async def connect(*_: Any, **__: Any) -> Connection:
        return await doorstep.connect()

    async def keep(connection: Any) -> None:
        """Settings stay: a session is only ever used by us, and always set alike."""
        connection.watch()

    return await asyncpg.create_pool(
        min_size=0,
        max_size=doorstep.place.pool,
        max_queries=1_000_000_000,
        max_inactive_connection_lifetime=IDLE_SECONDS,
        connect=connect,
        reset=keep,
    )

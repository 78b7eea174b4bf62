"""Verification on PostgreSQL, by shared reads: one statement answers all verifications that wait together.

- A batch is closed before its statement is sent, so every request in it came before the database read. The next batch
  fills meanwhile.
- The statement is one, autocommitted, on the primary: it sees everything that was committed before it began. It returns
  all that a verdict needs, and the database's time. No answer is cached. With confirmed reads (`database/urls.py`)
  it also waits for the standbys.
- A second connection takes over while the first is slow. A batch without an answer is read again: a read changes
  nothing. A request without an answer in time fails; no token is accepted without an answer.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from watchword.authority.callers import Bearer
from watchword.authority.limits import readable
from watchword.basics.errors import Fault, Reason
from watchword.database import rows
from watchword.database.faults import stopping
from watchword.database.postgres.connections import MESSAGE, READING_MANY_TOKENS, STANDBYS, Connection
from watchword.database.postgres.errors import DRIVER_ERRORS, store_fault
from watchword.database.postgres.hosts import ConnectionBackoff
from watchword.database.postgres.maintenance import lock_as_running
from watchword.database.transaction import Observe

LANES = 2
MOST = 512
SLOW = 0.02
"""Seconds without an answer after which the other lane takes the next batch."""
STALLED = 0.25
"""Share of the timeout after which a lane is closed and its batch is read again."""
LOOK = 0.05

# Not EXISTS, which PostgreSQL 18 may plan as a hash of all suspended actors whatever the session's settings are.
BEARER = """t.id, t.actor_urn, t.expires_at, t.revoked_at,
       coalesce((SELECT a.status = 'SUSPENDED' FROM actors AS a WHERE a.urn = t.actor_urn), false),
       ARRAY(SELECT m.group_urn FROM group_members AS m WHERE m.actor_urn = t.actor_urn),
       (SELECT policy_version FROM state WHERE one = 1),
       (SELECT now_ms()),
       t.limits, t.grace IS NOT NULL, t.parent IS NOT NULL"""
STATEMENT = f"""
SELECT {BEARER}
FROM unnest($1::text[]) AS wanted (id) JOIN tokens AS t ON t.id = wanted.id
"""

# The read and its confirmation in one transaction: its commit, which the standbys confirm, comes after the read. It has
# one row at least, so that unknown tokens are confirmed too.
CONFIRMED_STATEMENT = f"""
WITH found AS MATERIALIZED ({STATEMENT})
SELECT {STANDBYS}, found.*
FROM (SELECT {MESSAGE}) AS message LEFT JOIN found ON TRUE
"""

Answer = asyncio.Future[Bearer | None]
Batch = dict[str, list[tuple[Answer, float]]]
"""By token id: the futures that wait for it, and since when."""


class DatabaseClock:
    """The database's time: what it last said, and what has passed since by the monotonic clock. Instances may disagree
    about the time; the database they share does not. A verdict uses the time that came with its own read.
    """

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def set(self, now: int) -> None:
        self._ahead = now * 1_000_000 - time.monotonic_ns()

    def __call__(self) -> int:
        return (time.monotonic_ns() + self._ahead) // 1_000_000


def bearer_of(row: rows.Row) -> Bearer:
    """Of a row of BEARER."""
    token_id, actor, expires_at, revoked_at, suspended, groups, version, now, limits, *kinds = row
    snapshot = (suspended, tuple(groups), version)
    return Bearer(token_id, actor, expires_at, revoked_at, *snapshot, now, readable(limits, token_id), *kinds)


class _Lane:
    """One connection, and the batch it reads."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.ask: Any = None
        self.batch: Batch | None = None
        self.since = 0.0
        self.task: asyncio.Task[None] | None = None

    @property
    def is_free(self) -> bool:
        return self.connection is not None and self.batch is None

    def give_up(self) -> None:
        """Close the connection; a late answer on it is ignored."""
        if self.connection is not None:
            self.connection.terminate()
        self.connection = self.ask = self.batch = None


class VerifyBatcher:
    def __init__(self, backoff: ConnectionBackoff, clock: DatabaseClock, observe: Observe) -> None:
        self._backoff = backoff
        self._clock = clock
        self._observe = observe
        self._timeout = backoff.place.timeout
        self._confirms_reads = backoff.place.reads_confirmed
        self._waiting: Batch = {}
        self._lanes = tuple(_Lane() for _ in range(LANES))
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._pump_soon = False
        self._last_problem: BaseException | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._openers = {self._loop.create_task(self._open(lane)) for lane in self._lanes}

    def find(self, token_id: str) -> Answer:
        answer: Answer = self._loop.create_future()
        if self._closed:
            answer.set_exception(stopping())
        elif not token_id.isascii() or "\0" in token_id:
            answer.set_result(None)  # not an id, and it would make the whole batch fail
        else:
            self._waiting.setdefault(token_id, []).append((answer, self._loop.time()))
            if not self._pump_soon:
                # After all requests that the loop reads in this turn, so that they share a batch.
                self._pump_soon = True
                self._loop.call_soon(self._pump)
        return answer

    async def close(self) -> None:
        """Answer the waiting requests, then stop."""
        self._closed = True
        those = [answer for same in self._waiting.values() for answer, _ in same]
        those += [answer for lane in self._lanes for same in (lane.batch or {}).values() for answer, _ in same]
        if those:
            await asyncio.wait(those, timeout=self._timeout)
        self._refuse(self._waiting, stopping)
        if self._watch is not None:
            self._watch.cancel()
        tasks = [*self._openers, *(lane.task for lane in self._lanes if lane.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes:
            self._refuse(lane.batch or {}, stopping)
            if self._confirms_reads and lane.connection is not None:
                await lane.connection.cancel_wait()
            lane.give_up()
        await asyncio.sleep(0)  # lets the loop release the closed transports

    def _pump(self) -> None:
        """Send the waiting batch if a lane is free."""
        self._pump_soon = False
        if not self._waiting:
            return
        if self._watch is None:
            self._watch = self._loop.call_later(LOOK, self._look)
        for lane in self._lanes:
            if lane.is_free and lane.connection is not None and self._backoff.is_outdated(lane.connection):
                self._reopen(lane)
            if lane.is_free:
                self._send(lane)
                return
            if lane.batch is not None and self._loop.time() - lane.since < SLOW:
                return  # its answer is about to come: let the next batch fill

    def _send(self, lane: _Lane) -> None:
        if len(self._waiting) <= MOST:
            sealed, self._waiting = self._waiting, {}
        else:
            first = list(self._waiting)[:MOST]
            sealed = {token_id: self._waiting.pop(token_id) for token_id in first}
        lane.batch, lane.since = sealed, self._loop.time()
        lane.task = self._loop.create_task(self._ask(lane, lane.ask, sealed))

    async def _ask(self, lane: _Lane, ask: Any, sealed: Batch) -> None:
        try:
            found = await ask(list(sealed))
        except DRIVER_ERRORS as error:
            if lane.batch is sealed:
                self._failed(lane, sealed, error)
            return
        if lane.batch is not sealed:
            return  # the lane was closed meanwhile, and the batch is read again
        self._observe("verify", self._loop.time() - lane.since)
        if self._confirms_reads:
            self._observe("confirm", self._loop.time() - lane.since)
        lane.batch = None
        self._pump()  # send the next batch before answering this one
        if found:
            self._clock.set(found[0][7])
        for row in found:
            same = sealed.pop(row[0])
            try:
                bearer = bearer_of(row)
            except Exception as error:  # noqa: BLE001 - a row that cannot be read fails for its own callers alone
                _fail(same, error)
            else:
                _settle(same, bearer)
        for unknown in sealed.values():
            _settle(unknown, None)

    def _failed(self, lane: _Lane, sealed: Batch, error: BaseException) -> None:
        self._last_problem = error
        if store_fault(error).reason is Reason.INTERNAL:
            lane.batch = None
            self._refuse(sealed, lambda: store_fault(error))
        else:
            if self._confirms_reads:
                self._backoff.doubt(error)
            self._reopen(lane)
        self._pump()

    def _reopen(self, lane: _Lane, *, stalled: bool = False) -> None:
        """Put its batch back into the queue."""
        if lane.batch is not None:
            if self._confirms_reads:
                self._observe("unconfirmed", self._loop.time() - lane.since)
            later, self._waiting = self._waiting, dict(lane.batch)  # a new dict: a late answer does not match it
            for token_id, same in later.items():
                self._waiting.setdefault(token_id, []).extend(same)
        if stalled and self._confirms_reads and lane.connection is not None and lane.task is not None:
            lane.task.cancel()
            self._openers.add(closing := self._loop.create_task(lane.connection.cancel_wait()))
            closing.add_done_callback(self._openers.discard)
            lane.connection = None
        lane.give_up()
        if not self._closed:
            self._openers.add(self._loop.create_task(self._open(lane)))

    async def _open(self, lane: _Lane) -> None:
        while not self._closed or self._waiting:
            try:
                lane.connection, lane.ask = await self._opened()
                break
            except Exception as error:  # noqa: BLE001 - a lane never gives up
                self._last_problem = error
                await asyncio.sleep(LOOK)  # pause even if connecting worked and the rest failed
        task = asyncio.current_task()
        assert task is not None
        self._openers.discard(task)
        self._pump()

    async def _opened(self) -> tuple[Connection, Any]:
        connection = await self._backoff.connect(READING_MANY_TOKENS)
        try:
            async with asyncio.timeout(self._timeout):
                await lock_as_running(connection, self._backoff.place)
                if self._confirms_reads:
                    ask: Any = partial(_ask_confirmed, connection)
                else:
                    ask = (await connection.prepare(STATEMENT)).fetch
                self._clock.set(await connection.fetchval("SELECT now_ms()"))
        except BaseException:
            connection.terminate()
            raise
        return connection, ask

    def _look(self) -> None:
        """While requests wait: reopen lanes that hang, and fail requests that are past their deadline."""
        now = self._loop.time()
        for lane in self._lanes:
            stalled = lane.batch is not None and now - lane.since > STALLED * self._timeout
            if stalled and self._confirms_reads:
                self._backoff.doubt(TimeoutError())
            if stalled or (
                lane.connection is not None
                and (lane.connection.is_closed() or self._backoff.is_outdated(lane.connection))
            ):
                self._reopen(lane, stalled=stalled)
        late = {
            token_id: [one for one in same if now - one[1] > self._timeout] for token_id, same in self._waiting.items()
        }
        self._refuse(late, lambda: store_fault(self._last_problem or TimeoutError()))
        kept = {token_id: [o for o in same if not o[0].done()] for token_id, same in self._waiting.items()}
        self._waiting = {token_id: same for token_id, same in kept.items() if same}
        busy = self._waiting or any(lane.batch is not None for lane in self._lanes)
        self._watch = self._loop.call_later(LOOK, self._look) if busy else None
        self._pump()

    @staticmethod
    def _refuse(those: Batch, fault: Callable[[], Fault]) -> None:
        for same in those.values():
            _fail(same, fault())


async def _ask_confirmed(connection: Connection, ids: list[str]) -> list[tuple[Any, ...]]:
    found: list[Any] = await connection.fetch(CONFIRMED_STATEMENT, ids)
    names = found[0][0]
    connection.check_standbys(names)
    await connection.check_unchanged(names)
    return [row[1:] for row in found if row[1] is not None]


def _fail(same: list[tuple[Answer, float]], error: Exception) -> None:
    for answer, _ in same:
        if not answer.done():
            answer.set_exception(error)


def _settle(same: list[tuple[Answer, float]], bearer: Bearer | None) -> None:
    for answer, _ in same:
        if not answer.done():  # the caller may have gone away
            answer.set_result(bearer)

"""Verification by shared reads: all verifications that wait together are answered by one statement.

- A batch is sealed before its statement is sent, so everyone in it asked before the database looked. While it is under
  way the next one gathers.
- The statement is one, autocommitted, on the primary: it sees everything that was committed before it began. It brings
  all a verdict rests on, and the database's clock. No answer is kept.
- A second lane takes over while the first is slow. Whoever was in a batch that got no answer is asked for again: a read
  changes nothing. Whom nobody answered in time is told so; nobody is ever accepted without an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from watchword.domain.actors import Bearer
from watchword.domain.errors import Fault, Reason
from watchword.domain.token_limits import unpacked
from watchword.stores.postgres.clock import DatabaseClock
from watchword.stores.postgres.connections import (
    DRIVER_ERRORS,
    READING_MANY_TOKENS,
    Connection,
    store_fault,
)
from watchword.stores.postgres.doorstep import ConnectionBackoff
from watchword.stores.postgres.running import join

LANES = 2
MOST = 512
SLOW = 0.02
"""After so many seconds without an answer the other lane takes the next batch."""
STALLED = 0.25
"""After this share of the time in which an answer must come, a lane is given up and its batch asked for again."""
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
"""  # noqa: S608 - literal pieces

Answer = asyncio.Future[Bearer | None]
Batch = dict[str, list[tuple[Answer, float]]]
"""By its id, who wants to know of a token, and since when."""
Observe = Callable[[str, float], None]


class _Lane:
    """One connection, and the batch it is asked for."""

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
        """Never to be heard of again: what the old connection may still say is not listened to."""
        if self.connection is not None:
            self.connection.terminate()
        self.connection = self.ask = self.batch = None


class VerifyBatcher:
    def __init__(self, doorstep: ConnectionBackoff, clock: DatabaseClock, observe: Observe) -> None:
        self._doorstep = doorstep
        self._clock = clock
        self._observe = observe
        self._timeout = doorstep.place.timeout
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
            answer.set_exception(_stopping())
        elif not token_id.isascii() or "\0" in token_id:
            answer.set_result(None)  # what cannot be an id is none, and must not spoil the batch
        else:
            self._gather(token_id, answer, self._loop.time())
            if not self._pump_soon:
                # After all that was read from the network in this turn: they travel together.
                self._pump_soon = True
                self._loop.call_soon(self._pump)
        return answer

    async def close(self) -> None:
        """Answer those who wait, then end."""
        self._closed = True
        those = [answer for same in self._waiting.values() for answer, _ in same]
        those += [answer for lane in self._lanes for same in (lane.batch or {}).values() for answer, _ in same]
        if those:
            await asyncio.wait(those, timeout=self._timeout)
        self._refuse(self._waiting, _stopping)
        if self._watch is not None:
            self._watch.cancel()
        tasks = [*self._openers, *(lane.task for lane in self._lanes if lane.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes:
            self._refuse(lane.batch or {}, _stopping)
            lane.give_up()
        await asyncio.sleep(0)  # the loop's turn, in which what was ended is let go of

    def _gather(self, token_id: str, answer: Answer, since: float) -> None:
        same = self._waiting.get(token_id)
        if same is None:
            self._waiting[token_id] = [(answer, since)]
        else:
            same.append((answer, since))

    def _pump(self) -> None:
        """Send what waits, where a lane is free for it."""
        self._pump_soon = False
        if not self._waiting:
            return
        if self._watch is None:
            self._watch = self._loop.call_later(LOOK, self._look)
        for lane in self._lanes:
            if lane.is_free:
                self._send(lane)
                return
            if lane.batch is not None and self._loop.time() - lane.since < SLOW:
                return  # its answer is about to come, and what gathers until then goes as one

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
            rows = await ask(list(sealed))
        except DRIVER_ERRORS as error:
            if lane.batch is sealed:
                self._failed(lane, sealed, error)
            return
        if lane.batch is not sealed:
            return  # given up meanwhile, and asked for again
        self._observe("verify", self._loop.time() - lane.since)
        lane.batch = None
        self._pump()  # the next batch is on its way before this one's callers are served
        if rows:
            self._clock.set(rows[0][7])
        for row in rows:
            token_id, actor, expires_at, revoked_at, suspended, groups, version, now, limits, *kinds = row
            snapshot = (suspended, tuple(groups), version)
            bearer = Bearer(token_id, actor, expires_at, revoked_at, *snapshot, now, unpacked(limits), *kinds)
            _settle(sealed.pop(token_id), bearer)
        for unknown in sealed.values():
            _settle(unknown, None)

    def _failed(self, lane: _Lane, sealed: Batch, error: BaseException) -> None:
        self._last_problem = error
        if store_fault(error).reason is Reason.INTERNAL:
            lane.batch = None
            self._refuse(sealed, lambda: store_fault(error))
        else:
            self._reopen(lane)
        self._pump()

    def _wait_again(self, sealed: Batch) -> None:
        later, self._waiting = self._waiting, dict(sealed)  # another, so that no late answer is taken for its own
        for token_id, same in later.items():
            self._waiting.setdefault(token_id, []).extend(same)

    def _reopen(self, lane: _Lane) -> None:
        """Whoever was still in its batch is asked for again."""
        if lane.batch is not None:
            self._wait_again(lane.batch)
        lane.give_up()
        if not self._closed:
            self._openers.add(self._loop.create_task(self._open(lane)))

    async def _open(self, lane: _Lane) -> None:
        while not self._closed or self._waiting:
            try:
                lane.connection, lane.ask = await self._opened()
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, a lane is not given up for good
                self._last_problem = error
                await asyncio.sleep(LOOK)  # one that is let in and then refused must not knock without a pause
        task = asyncio.current_task()
        assert task is not None
        self._openers.discard(task)
        self._pump()

    async def _opened(self) -> tuple[Connection, Any]:
        connection = await self._doorstep.connect(READING_MANY_TOKENS)
        try:
            async with asyncio.timeout(self._timeout):
                await join(connection, self._doorstep.place)
                ask = (await connection.prepare(STATEMENT)).fetch
                self._clock.set(await connection.fetchval("SELECT now_ms()"))
        except BaseException:
            connection.terminate()
            raise
        return connection, ask

    def _look(self) -> None:
        """Once in a while, as long as anybody waits: give up what hangs, answer whom nobody answered in time."""
        now = self._loop.time()
        for lane in self._lanes:
            if (lane.batch is not None and now - lane.since > STALLED * self._timeout) or (
                lane.connection is not None and lane.connection.is_closed()
            ):
                self._reopen(lane)
        late = {
            token_id: [one for one in same if now - one[1] > self._timeout] for token_id, same in self._waiting.items()
        }
        self._refuse(late, self._too_late)
        kept = {token_id: [o for o in same if not o[0].done()] for token_id, same in self._waiting.items()}
        self._waiting = {token_id: same for token_id, same in kept.items() if same}
        busy = self._waiting or any(lane.batch is not None for lane in self._lanes)
        self._watch = self._loop.call_later(LOOK, self._look) if busy else None
        self._pump()

    def _too_late(self) -> Fault:
        problem = self._last_problem
        return store_fault(TimeoutError() if problem is None else problem)

    @staticmethod
    def _refuse(those: Batch, fault: Callable[[], Fault]) -> None:
        for same in those.values():
            for answer, _ in same:
                if not answer.done():
                    answer.set_exception(fault())


def _settle(same: list[tuple[Answer, float]], bearer: Bearer | None) -> None:
    for answer, _ in same:
        if not answer.done():  # whoever went away meanwhile holds up nobody
            answer.set_result(bearer)


def _stopping() -> Fault:
    return Fault(Reason.STOPPING, "The service is stopping.")

"""One statement makes all writes of a kind that wait together, in one commit; each has its own outcome.

As with SQLite's writer, no request is answered before the commit is on disk. If the statement fails because of one of
them, each is tried alone. So is each if the statement does not get its locks soon, and then they wait beside the
batches: what another session has locked must not delay the others.
"""

import asyncio
import time
from typing import Any

from watchword.domain.errors import Fault, Reason
from watchword.stores.postgres.connections import store_fault
from watchword.stores.postgres.database import Locked, Lost, PostgresDatabase

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
                _refuse(job, Fault(fault.reason, fault.message, why=fault.why))
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
                _refuse(job, Lost(lost.why))
        else:
            for (_, _, answer), outcome in zip(sealed, zip(*outcomes, strict=True), strict=True):
                if not answer.done():
                    answer.set_result(outcome)


def _refuse(job: Job, error: Exception) -> None:
    _, _, answer = job
    if not answer.done():
        answer.set_exception(error)

"""One statement adds all new tokens that wait together, in one commit; each has its own outcome.

As with SQLite's writer, no request is answered before the commit is on disk. If the statement fails because of one of
them, each is tried alone.
"""

import asyncio
import time
from typing import Any

from watchword.domain.errors import Fault, Reason
from watchword.stores.postgres.connections import store_fault
from watchword.stores.postgres.database import Lost, PostgresDatabase

CONCURRENT = 2
MOST = 32
"""Tokens in one commit: each takes a few locks, and the database has a bounded number of them."""
LEFT = 0.25
"""Share of the timeout that must be left when a statement is sent."""
ADD = """SELECT add_tokens(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::text[],
    $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::bigint[], $23::bigint[], $24::text[],
    $25::text[], $26::text[], $27::text[], $28::text[], $29::text[])"""

Job = tuple[tuple[Any, ...], float, asyncio.Future[str]]


class CreateBatcher:
    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._waiting: list[Job] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def add(self, bound: tuple[Any, ...], deadline: float) -> str:
        """The outcome. `Lost` if it is unknown; the `Fault` that failed the whole batch."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((bound, deadline, answer))
        self._pump()
        return await answer

    async def finish(self) -> None:
        """Finish what was handed in; each has its deadline."""
        while self._waiting or self._under_way:
            await asyncio.wait(self._under_way)

    def _pump(self) -> None:
        self._refuse_late()
        while self._waiting and len(self._under_way) < CONCURRENT:
            sealed, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            task = asyncio.get_running_loop().create_task(self._send(sealed))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _refuse_late(self) -> None:
        """Fail the requests with too little time left for the commit, which must not be cut short for the others. All
        have the same timeout, so the first in the queue are the first to be late.
        """
        soon = time.monotonic() + LEFT * self._db.timeout
        while self._waiting and self._waiting[0][1] < soon:
            _refuse(self._waiting.pop(0), store_fault(TimeoutError("too many creates are waiting")))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._pump()

    async def _send(self, sealed: list[Job]) -> None:
        columns = [list(column) for column in zip(*(bound for bound, _, _ in sealed), strict=True)]
        try:
            deadline = min(deadline for _, deadline, _ in sealed)
            (outcomes,) = await self._db.call(ADD, *columns, deadline=deadline, doubt=lambda row: "there" in row[0])
        except Fault as fault:
            if fault.reason is Reason.INTERNAL and len(sealed) > 1:
                for job in sealed:
                    await self._send([job])
                return
            for job in sealed:
                _refuse(job, Fault(fault.reason, fault.message, why=fault.why))
        except Lost as lost:
            for job in sealed:
                _refuse(job, Lost(lost.why))
        else:
            for (_, _, answer), outcome in zip(sealed, outcomes, strict=True):
                if not answer.done():
                    answer.set_result(outcome)


def _refuse(job: Job, error: Exception) -> None:
    _, _, answer = job
    if not answer.done():
        answer.set_exception(error)

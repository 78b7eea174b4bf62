"""The writer: all writes of a process go through one thread, and those that wait together share one commit.

A job that fails leaves the others alone. Most that fail have changed nothing. If one has, the batch is rolled back and
runs again, each job in a savepoint of its own. No caller is answered before the commit is on disk; if it fails, every
job of the batch fails, and nothing was changed.

Jobs of the same work that follow each other are its set: it is called once, with the items of all.

The jobs of one turn of the event loop are handed to the thread together: to wake it costs more than most jobs.

The queue has a bounded length, and a caller waits for a bounded time. A job that has not begun by then is withdrawn. A
job that has begun, in a commit that the disk does not finish, has an unknown outcome.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any

import apsw

from watchword.basics.errors import Fault, Reason
from watchword.database.faults import stopping, unknown_outcome
from watchword.database.sqlite.connections import store_fault
from watchword.database.sqlite.file import transaction

WriteSet = Callable[[apsw.Connection, Sequence[Any]], Sequence[Any]]
"""Writes these items; returns what became of each, an exception if it is to be raised."""

MAX_BATCH = 256
MAX_WAITING = 2_000
WRITE_SECONDS = 10.0
"""Longer than a busy disk takes for a flush, shorter than most clients wait."""


class _Stage(Enum):
    WAITING = "not begun"
    WITHDRAWN = "never begins"
    BEGUN = "may be committed or not"
    OVER = "the result or error is known"


@dataclass(slots=True, eq=False)
class _Job:
    work: WriteSet
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    deadline: float
    item: Any = None
    undo: WriteSet | None = None
    stage: _Stage = _Stage.WAITING
    given_up: bool = False
    result: Any = None
    error: BaseException | None = None


class _HalfDone(Exception):
    """A job failed after it changed something."""


class Writer:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._gathered: list[_Job] = []
        """The jobs of this turn of the event loop."""
        self._waiting: deque[_Job] = deque()
        """Handed to the thread, and not taken yet."""
        self._wake = threading.Event()
        self._unanswered: set[_Job] = set()
        self._timer: asyncio.TimerHandle | None = None
        """At the earliest deadline of the unanswered jobs, or before it."""
        self._closed = False
        self._stages = threading.Lock()
        """Protects the stage of every job."""
        self._thread = threading.Thread(target=self._run, name="watchword-writer", daemon=True)
        self._thread.start()

    async def run(self, work: WriteSet, seconds: float, undo: WriteSet | None = None, item: Any = None) -> Any:
        """Run the work in a transaction; return when it is durable. `undo` runs if the commit succeeded after its
        caller got OUTCOME_UNKNOWN.
        """
        if self._closed:
            raise stopping()
        if len(self._gathered) + len(self._waiting) >= MAX_WAITING:
            raise Fault(Reason.STORE_UNAVAILABLE, "Too many writes are waiting. Nothing was changed.")
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), loop.time() + seconds, item, undo)
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append(job)
        self._unanswered.add(job)
        self._watch_deadline(job)
        try:
            return await job.future
        finally:
            self._unanswered.discard(job)

    def _hand_over(self) -> None:
        self._waiting.extend(self._gathered)
        self._gathered.clear()
        self._wake.set()

    def _watch_deadline(self, job: _Job) -> None:
        """One timer serves all jobs: a deadline rarely passes."""
        if self._timer is not None:
            if self._timer.when() <= job.deadline:
                return
            self._timer.cancel()
        self._timer = job.loop.call_at(job.deadline, self._check_deadlines, job.loop)

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for job in self._unanswered:
            if job.deadline > now:
                self._watch_deadline(job)
            elif not job.future.done():
                self._give_up(job)

    def _give_up(self, job: _Job) -> None:
        with self._stages:
            if job.stage is _Stage.WAITING:
                job.stage = _Stage.WITHDRAWN
                fault = Fault(Reason.STORE_UNAVAILABLE, "The store did not answer in time. Nothing was changed.")
            elif job.stage is _Stage.BEGUN:
                job.given_up = True
                fault = unknown_outcome("the disk did not finish a commit in time")
            else:
                return  # its answer is on the way
        job.future.set_exception(fault)

    async def close(self, seconds: float) -> None:
        """Finish what was handed in, then stop. Waits for that as long as this."""
        self._hand_over()
        self._closed = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, seconds)

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while batch := self._next_batch():
            while batch:
                try:
                    connection = connection or self._connect()
                    self._commit_together(connection, batch)
                except apsw.Error as error:
                    fault = store_fault(error)
                    for job in batch:
                        job.error = fault
                    if not isinstance(error, apsw.BusyError | apsw.FullError):
                        # After a disk error the state of the old connection is not trusted.
                        _close(connection)
                        connection = None
                to_undo = self._finish(batch)
                _answer(batch)
                batch = to_undo
        _close(connection)

    def _finish(self, batch: list[_Job]) -> list[_Job]:
        """Returns the jobs that undo those committed after their callers gave up."""
        with self._stages:
            for job in batch:
                if job.stage is not _Stage.WITHDRAWN:
                    job.stage = _Stage.OVER
        return [
            _Job(job.undo, job.loop, job.future, job.deadline)
            for job in batch
            if job.given_up and job.error is None and job.undo is not None
        ]

    def _next_batch(self) -> list[_Job]:
        """Waits for a job; empty when the writer is closed and nothing is left."""
        waiting = self._waiting
        while not waiting and not self._closed:
            self._wake.wait()
            self._wake.clear()
        return [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]

    def _commit_together(self, connection: apsw.Connection, batch: list[_Job]) -> None:
        try:
            with transaction(connection):
                self._attempt_all(connection, batch, _attempt)
        except _HalfDone:
            with transaction(connection):
                self._attempt_all(connection, batch, _attempt_in_savepoint)

    def _attempt_all(
        self, connection: apsw.Connection, batch: list[_Job], attempt: Callable[[apsw.Connection, list[_Job]], None]
    ) -> None:
        for _, those in groupby(batch, lambda job: job.work):
            if begun := [job for job in those if self._begin(job)]:
                attempt(connection, begun)

    def _begin(self, job: _Job) -> bool:
        with self._stages:
            if job.stage is _Stage.WITHDRAWN:
                return False
            job.stage = _Stage.BEGUN
            return True


def _attempt(connection: apsw.Connection, jobs: list[_Job]) -> None:
    changes = connection.total_changes()
    if not _work(connection, jobs) and (len(jobs) > 1 or connection.total_changes() != changes):
        raise _HalfDone


def _attempt_in_savepoint(connection: apsw.Connection, jobs: list[_Job]) -> None:
    for job in jobs:
        connection.execute("SAVEPOINT job")
        if not _work(connection, [job]):
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")


def _work(connection: apsw.Connection, jobs: list[_Job]) -> bool:
    """Whether it was done; otherwise all of these have its error."""
    failed: Exception
    try:
        outcomes = jobs[0].work(connection, [job.item for job in jobs])
    except apsw.Error as error:
        failed = store_fault(error)
        if failed.reason is not Reason.INTERNAL or not connection.in_transaction:
            raise
    except Exception as error:  # noqa: BLE001 - a refusal of one job, or a defect in it, must not fail the others
        failed = error
    else:
        for job, outcome in zip(jobs, outcomes, strict=True):
            is_error = isinstance(outcome, Exception)
            job.result, job.error = (None, outcome) if is_error else (outcome, None)
        return True
    for job in jobs:
        job.result, job.error = None, failed
    return False


def _answer(batch: list[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _close(connection: apsw.Connection | None) -> None:
    if connection is not None:
        connection.close(True)

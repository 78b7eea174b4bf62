"""The writer: all writes of a process go through one thread, and those that wait together share one commit.

Each job runs in a savepoint of its own, so that one that fails leaves the others alone. No caller is answered before
the commit is on disk; if it fails, every job of the batch fails, and nothing was changed.

The queue has a bounded length, and a caller waits for a bounded time. A job that has not begun by then is withdrawn. A
job that has begun, in a commit that the disk does not finish, has an unknown outcome.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import apsw

from watchword.domain.errors import Fault, Reason, Stale
from watchword.stores import rows
from watchword.stores.sqlite.connections import store_fault

T = TypeVar("T")
Write = Callable[[apsw.Connection], T]

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
    work: Write[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    undo: Write[Any] | None = None
    stage: _Stage = _Stage.WAITING
    given_up: bool = False
    result: Any = None
    error: BaseException | None = None


class Writer:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._stages = threading.Lock()
        """Protects the stage of every job."""
        self._thread = threading.Thread(target=self._run, name="watchword-writer", daemon=True)
        self._thread.start()

    async def run(self, work: Write[T], seconds: float, undo: Write[Any] | None = None) -> T:
        """Run the work in a transaction; return when it is durable. `undo` runs if the commit succeeded after its
        caller got OUTCOME_UNKNOWN.
        """
        if self._closed:
            raise rows.stopping()
        if self._jobs.qsize() >= MAX_WAITING:
            raise Fault(Reason.STORE_UNAVAILABLE, "Too many writes are waiting. Nothing was changed.")
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), undo)
        self._jobs.put(job)
        result: T
        try:
            async with asyncio.timeout(seconds):
                result = await job.future
        except TimeoutError:
            if not job.future.cancelled():
                raise  # raised by the work itself
            result = self._give_up(job)
        return result

    def _give_up(self, job: _Job) -> Any:
        with self._stages:
            if job.stage is _Stage.WAITING:
                job.stage = _Stage.WITHDRAWN
                raise Fault(Reason.STORE_UNAVAILABLE, "The store did not answer in time. Nothing was changed.")
            if job.stage is _Stage.BEGUN:
                job.given_up = True
                raise rows.unknown_outcome("the disk did not finish a commit in time")
        if job.error is not None:
            raise job.error
        return job.result

    async def close(self) -> None:
        """Finish what was handed in, then stop."""
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        stopping = False
        while not stopping:
            batch, stopping = self._next_batch()
            if not batch:
                break
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
            _Job(job.undo, job.loop, job.future)
            for job in batch
            if job.given_up and job.error is None and job.undo is not None
        ]

    def _next_batch(self) -> tuple[list[_Job], bool]:
        batch: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) >= MAX_BATCH:
                return batch, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit_together(self, connection: apsw.Connection, batch: list[_Job]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in batch:
                if self._begin(job):
                    _attempt(connection, job)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _begin(self, job: _Job) -> bool:
        with self._stages:
            if job.stage is not _Stage.WAITING:
                return False
            job.stage = _Stage.BEGUN
            return True


def _attempt(connection: apsw.Connection, job: _Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.work(connection)
    except apsw.Error as error:
        fault = store_fault(error)
        if fault.reason is not Reason.INTERNAL or not connection.in_transaction:
            raise
        job.error = fault
    except (Fault, Stale) as refusal:
        job.error = refusal
    except Exception as defect:  # noqa: BLE001 - a defect in one job must not fail the others
        job.error = defect
    if job.error is not None:
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


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

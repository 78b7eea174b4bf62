"""The one worker on an index's file: tasks in turn, a batch each; chores when no task has anything to do.

Whatever it did is committed together with how far it has come, so that it may be killed at any moment: the next one
goes on from there, loses nothing and repeats nothing.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from watchword.engines.embedded import tasks
from watchword.engines.embedded.chores import Housekeeping
from watchword.engines.embedded.file import connect, index_fault, transact
from watchword.engines.embedded.stride import AdaptiveBatchSize
from watchword.engines.embedded.tasks import Order, Progress
from watchword.engines.embedded.work import WORKERS, Batch

CACHE_MIB = 32
CHECKPOINT_PAGES = 2_000
GAP_SECONDS = 0.002
"""Between two transactions, so that who waits for the lock gets it."""
LOOK_SECONDS, LOOK_SECONDS_IDLE = 0.005, 0.05
TRIES = 7
FIRST_RETRY_SECONDS = 0.05
CHORES_PAUSE_SECONDS = 5.0
RESERVE_BYTES = 64 * 1024 * 1024
"""A copy ends before the disk is full, when nothing could be written any more: not that it has failed, nor what would
make room, nor a token.
"""

Complain = Callable[[str], None]


class Worker:
    def __init__(self, path: Path, clock: Callable[[], int], complain: Complain) -> None:
        self._connection = connect(path, cache_mib=CACHE_MIB, checkpoint_pages=CHECKPOINT_PAGES)
        self._folder = path.parent
        self._clock = clock
        self._complain = complain
        self._stride = AdaptiveBatchSize()
        self._chores = Housekeeping(self._connection, self._stride, clock)
        self._last = 0
        self._due: dict[int, float] = {}
        self._failed: dict[int, int] = {}
        self._no_chores_before = 0.0

    def run(self) -> None:
        wait = LOOK_SECONDS
        while True:
            seen = self._version()
            if self._turn():
                wait = LOOK_SECONDS
                time.sleep(GAP_SECONDS)
                continue
            wait = self._rest(seen, wait)

    def _version(self) -> int:
        """Another number whenever another connection has changed the file."""
        version: int = self._connection.execute("PRAGMA data_version").get
        return version

    def _rest(self, seen: int, wait: float) -> float:
        """Until something has changed or a pause is over."""
        due = min(self._due.values(), default=float("inf"))
        while self._version() == seen and (now := time.monotonic()) < due:
            time.sleep(min(wait, due - now))
            wait = min(LOOK_SECONDS_IDLE, wait * 1.2)
            if self._chores.are_due():
                break
        return wait

    def _turn(self) -> bool:
        """One batch of the next task, or one chore; whether there was anything to do."""
        number = self._next()
        if number is None:
            return self._chore()
        self._last = number
        self._due.pop(number, None)
        try:
            self._step(number)
            self._failed.pop(number, None)
        except apsw.Error as error:
            self._try_again(number, error)
        except Exception as defect:  # noqa: BLE001 - a task that meets a defect must not keep the others waiting
            self._complain(f"task {number}: {defect!r}")
            self._end(number, "A defect of the search index ended the task; its log says which.")
        return True

    def _chore(self) -> bool:
        if time.monotonic() < self._no_chores_before:
            return False
        try:
            return self._chores.do_one()
        except apsw.Error as error:
            self._complain(f"chores: {index_fault(error).why}")
            self._no_chores_before = time.monotonic() + CHORES_PAUSE_SECONDS
            return False

    def _next(self) -> int | None:
        """The unfinished task after the last one, in a circle, that does not pause. One that is to be cancelled is
        always meant.
        """
        now = time.monotonic()
        found = self._connection.execute("SELECT number, cancel_asked FROM tasks WHERE ended_at IS NULL")
        unfinished: list[Any] = found.fetchall()
        self._due = {number: self._due[number] for number, _ in unfinished if number in self._due}
        ready = [number for number, cancel in unfinished if cancel or self._due.get(number, 0.0) <= now]
        return min(ready, key=lambda number: (number <= self._last, number), default=None)

    def _step(self, number: int) -> None:
        read = tasks.read(self._connection, number)
        if read is None:
            return
        order, progress = read
        worker = WORKERS[order.kind]
        stopped, error = self._stop(number, order)
        if stopped:
            self._end(number, error)
            return
        if progress.total is None:
            progress.total = transact(self._connection, lambda c: worker.count(c, order), "DEFERRED")
        began = time.monotonic()
        limit = self._limit(order)
        batch = worker.look(self._connection, order, progress, limit)
        self._connection.execute("BEGIN IMMEDIATE")
        held = time.monotonic()
        try:
            self._commit(number, order, progress, batch, began)
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._due.pop(number, None)
            raise
        self._stride.note(order.kind, len(batch.places), time.monotonic() - held)

    def _limit(self, order: Order) -> int:
        """A throttled task pauses for a second at most, rather than seldom and for long."""
        most = order.batch if order.rate < 0 else min(order.batch, max(1, int(order.rate)))
        return self._stride.rows(order.kind, most)

    def _commit(self, number: int, order: Order, progress: Progress, batch: Batch, began: float) -> None:
        c = self._connection
        stopped, error = self._stop(number, order)
        if stopped:
            tasks.end(c, number, self._clock(), error)
            c.execute("COMMIT")
            return
        WORKERS[order.kind].do(c, order, progress, batch)
        progress.batches += 1
        progress.stage, progress.at_time, progress.at_place = batch.stage, batch.at_time, batch.at_place
        progress.up_to = batch.up_to
        pause = 0.0
        if not batch.last and order.rate > 0:
            # By the rows that are its business: whoever writes faster than this must not keep it busy for ever.
            pause = max(0.0, len(batch.places) / order.rate - (time.monotonic() - began))
        progress.pause_millis = round(pause * 1_000)
        progress.throttled_millis += progress.pause_millis
        progress.resume_at = self._clock() + progress.pause_millis
        tasks.save(c, number, progress)
        if batch.last:
            tasks.end(c, number, self._clock())
        elif pause:
            self._due[number] = time.monotonic() + pause
        c.execute("COMMIT")

    def _stop(self, number: int, order: Order) -> tuple[bool, str | None]:
        """Whether the task must not go on, asked inside the transaction that would do so, and why."""
        row = self._connection.execute(
            "SELECT cancel_asked FROM tasks WHERE number = ? AND ended_at IS NULL", (number,)
        ).fetchone()
        if row is None or row[0]:
            return True, tasks.CANCELLED
        written = WORKERS[order.kind].writes(order)
        for index in (order.source, order.target):
            if index is None:
                continue
            name, blocked = self._connection.execute(
                "SELECT name, blocked FROM indices WHERE number = ?", (index,)
            ).fetchone() or (None, 0)
            if name is None:
                return True, "An index that the task works on was dropped meanwhile."
            if blocked and index == written:
                return True, f"The index {name} refuses writes: a block is on it."
        if order.target is not None and shutil.disk_usage(self._folder).free < RESERVE_BYTES:
            mib = RESERVE_BYTES // (1024 * 1024)
            return True, f"There is no room for the copy: less than {mib} MiB would be left of the disk."
        return False, None

    def _try_again(self, number: int, error: apsw.Error) -> None:
        """A few times, more and more seldom; then the task has failed, which is noted. Where not even that can be
        noted, this process ends, and whoever started it sees that.
        """
        fault = index_fault(error)
        failed = self._failed[number] = self._failed.get(number, 0) + 1
        self._complain(f"task {number}: {fault.why}")
        if isinstance(error, apsw.BusyError) or failed < TRIES:
            self._due[number] = time.monotonic() + min(5.0, FIRST_RETRY_SECONDS * 2 ** min(failed, 10))
            self._note_retry(number)
            return
        self._end(number, fault.message)

    def _end(self, number: int, error: str | None) -> None:
        transact(self._connection, lambda c: tasks.end(c, number, self._clock(), error))

    def _note_retry(self, number: int) -> None:
        try:
            self._connection.execute("UPDATE tasks SET retries = retries + 1 WHERE number = ?", (number,))
        except apsw.Error as error:
            # A count that is too low harms nobody.
            self._complain(f"task {number}: the retry is not counted: {error}")

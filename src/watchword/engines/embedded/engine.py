"""The search engine of its own, on one file: what is asked is a short statement in a thread; what takes long is a task
of the engine's process.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from watchword.domain.engine import Marks, Pace
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import Histogram, IndexSize, Resolved, Row, RowCount
from watchword.domain.tasks import TaskId, TaskStatus
from watchword.engines.embedded import documents, indices, tasks
from watchword.engines.embedded.file import connect, index_fault, refusal, transact
from watchword.engines.embedded.tasks import Kind, Order

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

THREADS = 4
ANSWER_SECONDS = 20.0
STEPS_BETWEEN_LOOKS = 50_000
LOOK_SECONDS = 0.02
STUCK_SECONDS = 30.0
"""A task that is waited for and does not move for so long has nobody who works on it."""


class EmbeddedEngine:
    def __init__(self, path: Path, node: str, clock: Callable[[], int]) -> None:
        self._path = path
        self.node = node
        self._clock = clock
        self._closed = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="watchword-index")
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []

    async def probe(self) -> str:
        await self._read(lambda c: c.execute("SELECT node FROM meta").get, seconds=1.0)
        return f"embedded {apsw.sqlite_lib_version()}"

    async def resolve(self, name: str) -> Resolved | None:
        return await self._read(lambda c: indices.resolve(c, name))

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        return await self._read(lambda c: indices.sizes(c, head, ending))

    async def count(self, index: str, until: int) -> RowCount:
        def count(c: apsw.Connection) -> RowCount:
            found = indices.named(c, index)
            old = c.execute(
                "SELECT count(*) FROM documents WHERE index_number = ? AND time <= ?", (found.number, until)
            ).get
            return RowCount(found.rows, old, found.bytes)

        return await self._read(count)

    async def histogram(self, index: str, spans: int) -> Histogram:
        return await self._read(lambda c: documents.histogram(c, indices.named(c, index), spans))

    # Tasks.

    async def start_delete(self, index: str, until: int, pace: Pace) -> TaskId:
        return await self._start(Kind.DELETE, index, None, until, pace)

    async def start_copy(self, source: str, target: str, until: int, pace: Pace) -> TaskId:
        return await self._start(Kind.COPY, source, target, until, pace)

    async def start_catch_up(
        self, source: str, target: str, until: int, since: Marks, pace: Pace, *, over: bool = False
    ) -> tuple[TaskId, ...]:
        """What was written after the marks is newer, whatever its version: it goes over the target's in any case."""
        if len(since) != 1:
            raise refusal(f"An index here has one mark; {len(since)} were given.")
        return (await self._start(Kind.CATCH_UP, source, target, until, pace, since[0]),)

    async def task(self, task: TaskId) -> TaskStatus | None:
        if task.node != self.node:
            return None
        return await self._read(lambda c: tasks.status(c, task, self._clock()))

    async def cancel(self, task: TaskId) -> None:
        if task.node == self.node:
            await self._write(lambda c: tasks.ask_to_cancel(c, task.number))

    async def running(self, tag: str) -> tuple[TaskId, ...]:
        found = await self._read(lambda c: tasks.running(c, tag))
        return tuple(TaskId(self.node, number) for number in found)

    # Copying without loss.

    async def marks(self, index: str) -> Marks:
        return (await self._read(lambda c: indices.named(c, index).last),)

    async def make_like(self, source: str, target: str) -> None:
        def make(c: apsw.Connection) -> None:
            indices.named(c, source)
            if indices.find(c, target) is not None:
                raise refusal(f"There is an index {target} already.")
            indices.make(c, target, self._new_id())

        await self._write(make)

    async def block(self, index: str) -> None:
        await self._write(lambda c: indices.block(c, index, on=True))

    async def unblock(self, index: str) -> None:
        def unblock(c: apsw.Connection) -> None:
            if indices.find(c, index) is not None:
                indices.block(c, index, on=False)

        await self._write(unblock)

    async def is_blocked(self, index: str) -> bool:
        return await self._read(lambda c: bool(indices.named(c, index).blocked))

    async def flush(self, index: str) -> None:
        """Every commit is on disk when it returns."""

    async def reconcile(self, source: str, target: str, until: int) -> int:
        task = await self._start(Kind.RECONCILE, source, target, until, Pace(""))
        try:
            status = await self._finished(task)
        except BaseException:
            # Whoever waited does so no more. Not awaited: it may be that we are cancelled.
            self._threads.submit(self._forget, task)
            raise
        if status.error is not None:
            raise refusal(f"{target} could not be compared with {source}: {status.error}")
        return status.counters.deleted

    async def swap(self, name: str, source: str, target: str) -> None:
        def swap(c: apsw.Connection) -> None:
            new = indices.swap(c, name, source, target)
            # From here on the target is written by others, and is nobody's copy any more.
            tasks.end_writers(c, new.number, self._clock(), f"cancelled: {target} is in use now")

        await self._write(swap)

    async def withdraw(self, target: str) -> bool:
        return await self._write(lambda c: indices.withdraw(c, target))

    async def drop(self, index: str) -> None:
        await self._write(lambda c: indices.drop(c, index))

    # Filling.

    async def make(self, name: str) -> None:
        def make(c: apsw.Connection) -> None:
            if indices.resolve(c, name) is None:
                indices.make(c, name, self._new_id())

        await self._write(make)

    async def write(self, name: str, rows: Sequence[Row]) -> None:
        def write(c: apsw.Connection) -> None:
            found = indices.resolve(c, name)
            if found is None:
                raise refusal(f"There is no index {name}.")
            documents.put(c, indices.writable(c, found.concrete).number, rows, self._new_id)

        await self._write(write)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close(True)

    # How.

    @staticmethod
    def _new_id() -> str:
        """Twenty characters, as search engines make them up."""
        return secrets.token_urlsafe(15)

    async def _start(
        self, kind: Kind, source: str, target: str | None, until: int, pace: Pace, since: int = 0
    ) -> TaskId:
        def start(c: apsw.Connection) -> int:
            origin = indices.named(c, source) if target is not None else indices.writable(c, source)
            goal = None if target is None else indices.writable(c, target).number
            if goal == origin.number:
                raise refusal(f"{source} cannot be copied into itself.")
            tag, batch, rate = pace
            order = Order(kind, tag or None, origin.number, goal, until, since, origin.last, max(1, batch), rate)
            return tasks.add(c, order, self._clock())

        return TaskId(self.node, await self._write(start))

    async def _finished(self, task: TaskId) -> TaskStatus:
        before, moved = None, time.monotonic()
        while True:
            status = await self.task(task)
            if status is None:
                raise Fault(Reason.INDEX_UNAVAILABLE, "The search index lost a task.", why=f"{task} is not there")
            if status.completed:
                return status
            if status.counters != before:
                before, moved = status.counters, time.monotonic()
            elif time.monotonic() - moved > STUCK_SECONDS:
                raise Fault(
                    Reason.INDEX_UNAVAILABLE,
                    "The search index could not be asked in time.",
                    why=f"nothing works on {task}: is the engine's process running?",
                )
            await asyncio.sleep(LOOK_SECONDS)

    def _forget(self, task: TaskId) -> None:
        with suppress(Fault):
            self._in_thread(
                lambda c: transact(c, lambda c: tasks.ask_to_cancel(c, task.number)), time.monotonic() + ANSWER_SECONDS
            )

    async def _read(self, work: Work[T], seconds: float = ANSWER_SECONDS) -> T:
        return await self._run(lambda c: transact(c, work, "DEFERRED"), seconds)

    async def _write(self, work: Work[T]) -> T:
        return await self._run(lambda c: transact(c, work), ANSWER_SECONDS)

    async def _run(self, work: Work[T], seconds: float) -> T:
        if self._closed:
            raise Fault(Reason.STOPPING, "The service is stopping.")
        deadline = time.monotonic() + seconds
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._in_thread, work, deadline)

    def _in_thread(self, work: Work[T], deadline: float) -> T:
        try:
            connection = self._connection()
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
            return work(connection)
        except apsw.Error as error:
            raise index_fault(error) from error

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path)
            self._connections.append(connection)
        return connection

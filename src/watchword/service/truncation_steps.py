"""Steps of a truncation: the lease they run under, what both strategies share, and deletion.

The lease: every change of the record carries its fence, and a heartbeat renews it. Before a call to the index the lease
must have been confirmed within the last second. An instance that was suspended for a while finds out here that another
one has taken over, and makes no call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from watchword.domain.engine import UNTHROTTLED, Engine, Pace
from watchword.domain.errors import Fault, Reason
from watchword.domain.operations import CancelAsked, EngineTask, LeaseLost, Operation, Plan, PostCheck, State, Work
from watchword.domain.ports import Clock, OperationStore
from watchword.domain.tasks import Counters, TaskId, TaskStatus

T = TypeVar("T")

LEASE_MILLIS = 10_000
HEARTBEAT_SECONDS = 3.0
CONFIRM_SECONDS = 1.0
DOUBT_SECONDS = 4.0
UNAVAILABLE_SECONDS = 900.0
"""How long an index may be unavailable before an operation fails."""
CANCEL_SECONDS = 120.0
MAX_ATTEMPTS = 7
SAVE_SECONDS = 1.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class OperationFailed(Exception):
    """The operation cannot succeed. The message is for the caller who started it."""


class TaskLost(Exception):
    """A task of the engine is gone or has failed."""


class Lease:
    def __init__(self, store: OperationStore, operation: Operation) -> None:
        self._store = store
        self.operation = operation
        self._saving = asyncio.Lock()
        self._confirmed = time.monotonic()
        self._lost = False

    async def save(self, state: State | None = None, **changes: Any) -> None:
        async with self._saving:
            if self._lost:
                raise LeaseLost
            began = time.monotonic()
            work = replace(self.operation.work, **changes)
            changed = replace(self.operation, state=state or self.operation.state, work=work)
            try:
                self.operation = await self._store.save_operation(changed, LEASE_MILLIS)
            except LeaseLost:
                self._lost = True
                raise
            self._confirmed = began

    async def act(self, call: Callable[[], Awaitable[T]]) -> T:
        if time.monotonic() - self._confirmed > CONFIRM_SECONDS:
            await self.save()
        if self._lost or time.monotonic() - self._confirmed > DOUBT_SECONDS:
            raise LeaseLost
        return await call()

    @property
    def surely_holds(self) -> bool:
        """By the clock of this process, without asking the store."""
        return not self._lost and time.monotonic() - self._confirmed < LEASE_MILLIS / 1_000 - 1

    async def release(self) -> None:
        """Let another instance take the operation immediately."""
        self._lost = True  # the heartbeat must not renew it
        with suppress(LeaseLost, CancelAsked, Fault):
            await self._store.save_operation(self.operation, 0)

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        heartbeat = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            heartbeat.cancel()
            with suppress(asyncio.CancelledError):
                await heartbeat

    async def _beat(self) -> None:
        while not self._lost:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            with suppress(Fault, LeaseLost):
                await self.save()


@dataclass(slots=True)
class TruncationSteps:
    lease: Lease
    engine: Engine
    tag: str
    rate: float
    clock: Clock
    failed_clean_ups: int = field(default=0, kw_only=True)

    @property
    def operation(self) -> Operation:
        return self.lease.operation

    @property
    def plan(self) -> Plan:
        return self.operation.plan

    @property
    def work(self) -> Work:
        return self.operation.work

    @property
    def source(self) -> str:
        assert self.work.source is not None
        return self.work.source

    async def clean_up(self) -> State | None:
        """Undo what can be undone. Returns DONE where the operation has succeeded after all."""
        await self.stop_tasks()
        return None

    async def unblock_on_stop(self) -> None:
        """The service stops: do not leave writes blocked."""

    async def unblock_without_store(self) -> None:
        """The store cannot be written: do not leave writes blocked."""

    def pace(self, *, throttled: bool) -> Pace:
        return Pace(self.tag, self.plan.batch_size, self.rate if throttled else UNTHROTTLED)

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while the index is unavailable. Only for calls that may be repeated."""
        deadline = time.monotonic() + UNAVAILABLE_SECONDS
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.lease.act(call)
            except Fault as fault:
                if fault.reason is not Reason.INDEX_UNAVAILABLE:
                    raise
                if self.work.ending is None and time.monotonic() > deadline:
                    raise OperationFailed("The search index was unavailable for too long.") from fault
            self.check_interrupted()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def check_interrupted(self) -> None:
        """Raises where a caller cancelled the operation, or its timeout has passed."""
        if self.operation.state is State.SWAPPING or self.work.ending is not None:
            return
        if self.operation.cancel_asked_at is not None:
            raise CancelAsked
        limit, began = self.plan.timeout_seconds, self.operation.started_at
        if limit is not None and began is not None and self.clock() - began > limit * 1_000:
            raise OperationFailed(f"The operation took longer than timeoutSeconds ({limit}).")

    async def start(self, purpose: str, call: Callable[[], Awaitable[TaskId | tuple[TaskId, ...]]]) -> list[EngineTask]:
        """A task whose start was not answered may run all the same. `stop_tasks` finds it by its tag."""
        try:
            started = await self.lease.act(call)
        except Fault as fault:
            if fault.reason is Reason.INDEX_UNAVAILABLE:
                raise TaskLost("the index did not confirm the start of a task") from fault
            raise
        ids = started if isinstance(started, tuple) else (started,)
        tasks = [EngineTask(one, purpose, Counters()) for one in ids]
        await self.lease.save(tasks=(*self.work.tasks, *tasks))
        return tasks

    async def watch(self, task: EngineTask, *, counted: bool = True) -> TaskStatus:
        """Wait until the task has succeeded. With `counted`, its rows are the operation's progress."""
        saved = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            status = await self.ask(lambda: self.engine.task(task.id))
            if status is None or status.tag != self.tag:
                raise TaskLost(f"the engine's task {task.id} is gone")
            if status.completed or time.monotonic() - saved >= SAVE_SECONDS:
                await self._save_progress(task, status, counted=counted)
                saved = time.monotonic()
            self.check_interrupted()
            if status.completed:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
        if status.failed:
            raise TaskLost(f"the engine's task {task.id} ended with: {status.error or status.failures[0]}")
        return status

    async def stop_tasks(self) -> None:
        """Cancel every task of this operation and wait until none runs."""
        deadline = time.monotonic() + CANCEL_SECONDS
        while running := await self.ask(lambda: self.engine.running(self.tag)):
            if time.monotonic() > deadline and self.work.ending is None:
                raise OperationFailed("A task in the search index does not end although it was cancelled.")
            for task in running:
                await self.ask(partial(self.engine.cancel, task))
            await asyncio.sleep(FIRST_PAUSE * 2)
        if not self.work.unfinished:
            return
        work = self.work
        for one in work.unfinished:
            # Its final counters.
            status = await self.ask(partial(self.engine.task, one.id))
            if status is not None and status.tag == self.tag:
                work = work.with_status(one, status)
        await self.lease.save(tasks=tuple(one._replace(completed=True) for one in work.tasks))

    async def retry(self, reason: str, state: State | None = None, **changes: Any) -> None:
        await self.stop_tasks()
        attempts = self.work.attempts + 1
        if attempts >= MAX_ATTEMPTS:
            raise OperationFailed(f"{MAX_ATTEMPTS} attempts failed; the last one: {reason}.")
        await self.lease.save(state, attempts=attempts, note=f"retrying: {reason}", **changes)
        await asyncio.sleep(FIRST_PAUSE * 2**attempts)

    async def _save_progress(self, task: EngineTask, status: TaskStatus, *, counted: bool) -> None:
        changes: dict[str, Any] = {"tasks": self.work.with_status(task, status).tasks}
        if counted:
            changes["phase_at"] = self.work.phase_at or self.clock() - status.run_time_nanos // 1_000_000
            changes["rows_done"] = status.counters.done
            changes["rows_to_do"] = max(status.counters.total, status.counters.done)
        await self.lease.save(**changes)


class Deletion(TruncationSteps):
    """The engine deletes the old rows in batches."""

    @property
    def rows_to_do(self) -> int:
        return self.plan.rows_to_delete

    async def run(self) -> None:
        task = next(iter(self.work.unfinished), None)
        try:
            if task is None:
                # A task that was started but not recorded would go on unseen.
                await self.stop_tasks()
                pace = self.pace(throttled=True)
                [task] = await self.start(
                    "delete", lambda: self.engine.start_delete(self.source, self.plan.until, pace)
                )
            await self.watch(task)
        except TaskLost as lost:
            await self.retry(str(lost))
        else:
            await self.lease.save(State.VERIFYING, note="counting the rows left")

    async def verify(self) -> None:
        count = await self.ask(lambda: self.engine.count(self.source, self.plan.until))
        if count.old and self.work.attempts + 1 < MAX_ATTEMPTS:
            # The task skips rows that change while it runs, and rows written after its start.
            await self.retry(f"{count.old} old rows were left", State.RUNNING)
            return
        await self.lease.save(State.DONE, check=PostCheck(count.total, count.old), note=None)

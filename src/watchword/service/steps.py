"""What the steps of an operation have in common: asking the index with patience, starting tasks and watching them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from watchword.domain.engine import UNTHROTTLED, Engine, Pace
from watchword.domain.errors import Fault, Reason
from watchword.domain.operations import EngineTask, Operation, Plan, State, Work
from watchword.domain.ports import Clock
from watchword.domain.tasks import Counters, TaskId, TaskStatus
from watchword.service.leases import Lease

T = TypeVar("T")

PATIENCE_SECONDS = 900.0
"""How long an index may be away before an operation gives up."""
QUIET_SECONDS = 120.0
MAX_ATTEMPTS = 7
SAVE_SECONDS = 1.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class OperationFailed(Exception):
    """The operation cannot come to its end; the message says why, to whoever asked for it."""


class Lost(Exception):
    """A task of the engine is gone or has failed: what it did cannot be relied on. The message says which."""


@dataclass(slots=True)
class Steps:
    lease: Lease
    engine: Engine
    tag: str
    rate: float
    clock: Clock

    @property
    def operation(self) -> Operation:
        return self.lease.operation

    @property
    def plan(self) -> Plan:
        return self.operation.plan

    @property
    def work(self) -> Work:
        return self.lease.work

    @property
    def source(self) -> str:
        assert self.work.source is not None
        return self.work.source

    def pace(self, *, throttled: bool) -> Pace:
        return Pace(self.tag, self.plan.batch_size, self.rate if throttled else UNTHROTTLED)

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """What may be asked again without harm: an index that is away for a while is waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.lease.act(call())
            except Fault as fault:
                if fault.reason is not Reason.INDEX_UNAVAILABLE:
                    raise
                if self.work.ending is None and time.monotonic() > deadline:
                    raise OperationFailed("The search index was away for too long.") from fault
            self.heed()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def heed(self) -> None:
        """Stop where somebody asked for it, or where the time that was given is over."""
        if self.operation.state is State.SWAPPING or self.work.ending is not None:
            return
        self.lease.heed_cancel()
        limit, began = self.plan.timeout_seconds, self.operation.started_at
        if limit is not None and began is not None and self.clock() - began > limit * 1_000:
            raise OperationFailed(f"It was not done within timeoutSeconds ({limit}).")

    async def start(self, purpose: str, call: Callable[[], Awaitable[TaskId | tuple[TaskId, ...]]]) -> list[EngineTask]:
        """When the answer is lost the task may have begun all the same: it is found by its tag, and ended, before it is
        begun again.
        """
        try:
            began = await self.lease.act(call())
        except Fault as fault:
            if fault.reason is Reason.INDEX_UNAVAILABLE:
                raise Lost("whether a task began is not known") from fault
            raise
        tasks = [EngineTask(one, purpose, Counters()) for one in (began if isinstance(began, tuple) else (began,))]
        await self.lease.save(tasks=(*self.work.tasks, *tasks))
        return tasks

    async def watch(self, task: EngineTask, *, counted: bool = True) -> TaskStatus:
        """Until it has ended well; `Lost` otherwise. Its rows are the operation's progress where they are `counted`."""
        saved = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            status = await self.ask(lambda: self.engine.task(task.id))
            if status is None or status.tag != self.tag:
                raise Lost(f"the engine's task {task.id} is gone")
            if status.completed or time.monotonic() - saved >= SAVE_SECONDS:
                await self._progress(task, status, counted=counted)
                saved = time.monotonic()
            self.heed()
            if status.completed:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
        if status.failed:
            first = status.error or status.failures[0]
            raise Lost(f"the engine's task {task.id} ended with: {first}")
        return status

    async def quiet(self) -> None:
        """No task of this operation runs any more."""
        deadline = time.monotonic() + QUIET_SECONDS
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
            # What it had done to its last row counts.
            status = await self.ask(partial(self.engine.task, one.id))
            if status is not None and status.tag == self.tag:
                work = work.with_status(one, status)
        await self.lease.save(tasks=tuple(one._replace(completed=True) for one in work.tasks))

    async def anew(self, why: str, state: State | None = None, **changes: Any) -> None:
        """Count another attempt, with nothing of the last one under way; too many are hopeless."""
        await self.quiet()
        attempts = self.work.attempts + 1
        if attempts >= MAX_ATTEMPTS:
            raise OperationFailed(f"It was tried {MAX_ATTEMPTS} times; the last time, {why}.")
        await self.lease.save(state, attempts=attempts, note=f"tried again: {why}", **changes)
        await asyncio.sleep(FIRST_PAUSE * 2**attempts)

    async def _progress(self, task: EngineTask, status: TaskStatus, *, counted: bool) -> None:
        work = self.work.with_status(task, status)
        if counted:
            begun = work.phase_at or self.clock() - status.run_time_nanos // 1_000_000
            rows = max(status.counters.total, status.counters.done)
            work = replace(work, rows_done=status.counters.done, rows_to_do=rows, phase_at=begun)
        await self.lease.save(
            tasks=work.tasks, rows_done=work.rows_done, rows_to_do=work.rows_to_do, phase_at=work.phase_at
        )

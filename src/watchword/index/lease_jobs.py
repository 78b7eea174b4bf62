"""What both strategies of a truncation need: the lease they run under, tasks of the engine, pauses and retries.

The lease: every change of the record carries its fence, and a heartbeat renews it. Before a call to the index the lease
must have been confirmed within the last second. An instance that was suspended for a while finds out here that another
one has taken over, and makes no call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar
from zoneinfo import ZoneInfo

from watchword.basics.errors import Fault, Reason
from watchword.basics.times import Clock, iso
from watchword.index import rules as ops
from watchword.index.engine import UNTHROTTLED, Counters, Engine, Pace, TaskId, TaskStatus
from watchword.index.rules import CancelRequested, EngineTask, LeaseLost, Operation, Plan, State
from watchword.index.schedules import parse_window
from watchword.index.store import OperationStore

P = ParamSpec("P")
T = TypeVar("T")

LEASE_MILLIS = 10_000
HEARTBEAT_SECONDS = 3.0
CONFIRM_SECONDS = 1.0
DOUBT_SECONDS = 4.0
UNAVAILABLE_SECONDS = 900.0  # how long an index may be unavailable before an operation fails
CANCEL_SECONDS = 120.0
MAX_ATTEMPTS = 7
SAVE_SECONDS = 1.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
PAUSED = "paused until"


class OperationFailed(Exception):
    """The operation cannot succeed. The message is for the caller who started it."""


class TaskLost(Exception):
    """A task of the engine is gone or has failed."""


@dataclass(slots=True)
class Lease:
    _store: OperationStore
    operation: Operation
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _confirmed: float = field(default_factory=time.monotonic)
    _lost: bool = False

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

    async def act(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        if time.monotonic() - self._confirmed > CONFIRM_SECONDS:
            await self.save()
        if self._lost or time.monotonic() - self._confirmed > DOUBT_SECONDS:
            raise LeaseLost
        return await call(*args, **kwargs)

    @property
    def surely_holds(self) -> bool:
        """By the clock of this process, without asking the store."""
        return not self._lost and time.monotonic() - self._confirmed < LEASE_MILLIS / 1_000 - 1

    async def release(self, not_before: int = 0) -> None:
        """Let another instance take the operation, immediately or from this moment on."""
        self._lost = True  # the heartbeat must not renew it
        async with self._saving:  # a renewal that is on its way ends first
            with suppress(LeaseLost, CancelRequested, Fault):
                await self._store.save_operation(self.operation, 0, not_before)

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
    pausing: bool = field(default=False, kw_only=True)
    paused_until: int | None = field(default=None, kw_only=True)

    @property
    def operation(self) -> Operation:
        return self.lease.operation

    @property
    def plan(self) -> Plan:
        return self.operation.plan

    @property
    def work(self) -> ops.OperationProgress:
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

    def progress(self, work: ops.OperationProgress, now: Counters) -> dict[str, int]:
        """By the task that works now."""
        return {"rows_done": now.done, "rows_to_do": max(now.total, now.done)}

    def pace(self, *, throttled: bool) -> Pace:
        return Pace(self.tag, self.plan.batch_size, self.rate if throttled else UNTHROTTLED)

    async def ask(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeat a call while the index is unavailable. Only for calls that may be repeated."""
        deadline = time.monotonic() + UNAVAILABLE_SECONDS
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.lease.act(call, *args, **kwargs)
            except Fault as fault:
                if fault.reason is not Reason.INDEX_UNAVAILABLE:
                    raise
                if self.work.ending is None and time.monotonic() > deadline:
                    raise OperationFailed("The search index was unavailable for too long.") from fault
            self.check_interrupted()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    @property
    def opens_at(self) -> int:
        """When it may work: now, or at the next opening of its window."""
        now, plan = self.clock(), self.plan
        return now if plan.window is None else parse_window(plan.window).next_opening(now, ZoneInfo(plan.time_zone))

    async def pause(self) -> None:
        """Stop the tasks until the window opens."""
        await self.stop_tasks()
        opens_at = self.opens_at
        await self.lease.save(note=f"{PAUSED} {iso(opens_at)}")
        self.paused_until = opens_at

    def check_interrupted(self) -> None:
        """Raises where a caller cancelled the operation, its timeout has passed, or its window is closed."""
        if self.operation.state is State.SWAPPING or self.work.ending is not None:
            return
        if self.operation.cancel_requested_at is not None:
            raise CancelRequested
        limit, began = self.plan.timeout_seconds, self.operation.started_at
        if limit is not None and began is not None and self.clock() - began > limit * 1_000:
            raise OperationFailed(f"The operation took longer than timeoutSeconds ({limit}).")
        if self.plan.window is not None and not self.pausing and self.opens_at > self.clock():
            raise ops.WindowClosed

    async def start(
        self, purpose: str, call: Callable[P, Awaitable[TaskId | tuple[TaskId, ...]]], *args: P.args, **kwargs: P.kwargs
    ) -> list[EngineTask]:
        """A task whose start was not answered may run all the same. `stop_tasks` finds it by its tag."""
        try:
            started = await self.lease.act(call, *args, **kwargs)
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
            status = await self.ask(self.engine.task, task.id)
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
        while running := await self.ask(self.engine.running, self.tag):
            if time.monotonic() > deadline and self.work.ending is None:
                raise OperationFailed("A task in the search index does not end although it was cancelled.")
            for task in running:
                await self.ask(self.engine.cancel, task)
            await asyncio.sleep(FIRST_PAUSE * 2)
        if not self.work.unfinished:
            return
        work = self.work
        for one in work.unfinished:
            # Its final counters.
            status = await self.ask(self.engine.task, one.id)
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
        work = self.work.with_status(task, status)
        changes: dict[str, Any] = {"tasks": work.tasks}
        if counted:
            changes["phase_at"] = self.work.phase_at or self.clock() - status.run_time_nanos // 1_000_000
            changes |= self.progress(work, status.counters)
        await self.lease.save(**changes)

"""Truncation, step by step: the lease it runs under; its two strategies, deletion and copy and swap; and the supervisor
that drives each operation to its end.

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

from watchword.domain.engine import (
    UNTHROTTLED,
    Checkpoints,
    ClusterEngine,
    Counters,
    DeletionPage,
    Engine,
    Pace,
    TaskId,
    TaskStatus,
)
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import Resolved, copy_name, is_index_or_copy
from watchword.domain.lifetimes import iso
from watchword.domain.operations import (
    CancelRequested,
    EngineTask,
    LeaseLost,
    Operation,
    OperationProgress,
    Plan,
    PostCheck,
    State,
    Strategy,
    WindowClosed,
)
from watchword.domain.ports import Clock, OperationStore
from watchword.domain.retention import parse_window
from watchword.service.background import outages_suppressed

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
BLOCK_SECONDS = 30.0  # how long writes may be blocked
CATCH_UP_ROUNDS = 3
FEW_ROWS = 1_000
SWAP_PAUSE = 0.5
LATE_SECONDS = 10.0  # how long a request of a former lease holder may still arrive
PAUSED = "paused until"
_REPLACED = "The index was replaced by another one."


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
    def work(self) -> OperationProgress:
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

    def progress(self, work: OperationProgress, now: Counters) -> dict[str, int]:
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
            raise WindowClosed

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


class Deletion(TruncationSteps):
    """The engine deletes the old rows in batches."""

    @property
    def rows_to_do(self) -> int:
        return self.plan.rows_to_delete

    def progress(self, work: OperationProgress, now: Counters) -> dict[str, int]:
        """With `keep_last` by all tasks so far: there is one for each page."""
        if self.plan.keep_last is None:
            return super().progress(work, now)
        done = work.counters.done
        return {"rows_done": done, "rows_to_do": max(self.plan.rows_to_delete, done)}

    async def run(self) -> None:
        task = next(iter(self.work.unfinished), None)
        try:
            if task is not None:
                await self.watch(task)
            if self.plan.keep_last is not None:
                await self._delete_pages(self.plan.keep_last)
            elif task is None:
                # A task that was started but not recorded would go on unseen.
                await self.stop_tasks()
                await self._delete()
        except TaskLost as lost:
            await self.retry(str(lost))
        else:
            await self.lease.save(State.VERIFYING, after=None, note="counting the rows left")

    async def _delete_pages(self, keep_last: int) -> None:
        """Page after page. The record has where the current one begins: it is deleted again after a crash, which finds
        what is left of it.
        """
        await self.stop_tasks()
        while True:
            page = await self.ask(self.engine.deletion_page, self.source, self.plan.until, keep_last, self.work.after)
            if page.rows is not None:
                await self._delete(page)
            self.check_interrupted()
            if page.after is None:
                return
            await self.lease.save(after=page.after, tasks=self.work.folded())

    async def _delete(self, page: DeletionPage | None = None) -> None:
        pace = self.pace(throttled=True)
        [task] = await self.start("delete", self.engine.start_delete, self.source, self.plan.until, pace, page)
        await self.watch(task)

    async def verify(self) -> None:
        count = await self.ask(self.engine.count, self.source, self.plan.until, self.plan.keep_last)
        if count.old and self.work.attempts + 1 < MAX_ATTEMPTS:
            # The task skips rows that change while it runs, and rows written after its start.
            await self.retry(f"{count.old} old rows were left", State.RUNNING)
            return
        await self.lease.save(State.DONE, check=PostCheck(count.total, count.old), note=None)


@dataclass(slots=True)
class CopyAndSwap(TruncationSteps):
    """On a cluster: copy the rows that stay, catch up with the source, swap the copy in.

    No reader ever sees an empty or half-filled index: until the swap all reads go to the source, and after it to a copy
    whose rows were counted against the source while writes were blocked.

    Safe against an instance that was suspended and continues after another one has finished:

    - A copy is abandoned before the next one is made: either a swap to it has succeeded, or none ever will. Its name is
      never reused.
    - From SWAPPING the operation either completes, or abandons the copy before it unblocks writes: a late swap fails.
    - Every call names concrete indices.
    """

    engine: ClusterEngine
    compared: bool = False  # this instance counted the copy, in this lease
    swap_tried: bool = False

    @property
    def rows_to_do(self) -> int:
        return self.plan.rows - self.plan.rows_to_delete

    @property
    def target(self) -> str:
        assert self.work.target is not None
        return self.work.target

    async def run(self) -> None:
        await self._unblock()
        await self._empty_trash()
        if self.work.copied:
            # A task of the former lease holder may write older rows over newer ones.
            await self.stop_tasks()
        if self.work.target is not None and not self.work.made:
            # It is unknown whether it exists. It is empty, so make another one.
            await self._abandon_copy("the index did not confirm that the copy was created")
            return
        if self.work.target is None and not await self._make_copy():
            return
        try:
            if not self.work.copied:
                await self._copy()
            for _ in range(CATCH_UP_ROUNDS):
                if await self._catch_up() < FEW_ROWS:
                    break
        except TaskLost as lost:
            # The rows already in the copy are right and are not copied again.
            await self.retry(str(lost))
        else:
            await self.lease.save(State.VERIFYING, note="catching up with the index")

    async def _make_copy(self) -> bool:
        await self._check_source()
        checkpoints = await self.ask(self.engine.checkpoints, self.source)
        target = copy_name(self.plan.index, self.clock())
        # Recorded before it exists, so that the next lease holder can remove it.
        await self.lease.save(target=target, checkpoints=checkpoints, phase_at=None)
        try:
            await self.lease.act(self.engine.make_like, self.source, target)
        except Fault as fault:
            if fault.reason is Reason.INDEX_UNAVAILABLE:
                return False
            raise
        await self.lease.save(made=True)
        return True

    async def _copy(self) -> None:
        task = next((one for one in self.work.unfinished if one.purpose == "copy"), None)
        if task is None:
            # A task that was started but not recorded would go on unseen.
            await self.stop_tasks()
            pace, until = self.pace(throttled=True), self.plan.until
            [task] = await self.start("copy", self.engine.start_copy, self.source, self.target, until, pace)
        await self.watch(task)
        await self.lease.save(copied=True)

    async def _catch_up(self) -> int:
        """Copy rows written since the checkpoints, and move these; returns the number of rows."""
        since = self.work.checkpoints
        assert since is not None
        checkpoints = await self.ask(self.engine.checkpoints, self.source)
        if checkpoints == since:
            return 0
        if len(checkpoints) != len(since):
            raise OperationFailed(_REPLACED)
        ended = await self._copy_since(since, overwrite=False)
        if any(status.counters.version_conflicts for status in ended):
            # A row that was deleted and written again starts at version 1, so the copy's older row looks newer.
            ended += await self._copy_since(since, overwrite=True)
        await self.lease.save(checkpoints=checkpoints)
        return sum(status.counters.created + status.counters.updated for status in ended)

    async def _copy_since(self, since: Checkpoints, *, overwrite: bool) -> list[TaskStatus]:
        call, until, pace = self.engine.start_catch_up, self.plan.until, self.pace(throttled=False)
        tasks = await self.start("catch up", call, self.source, self.target, until, since, pace, overwrite=overwrite)
        return [await self.watch(task, counted=False) for task in tasks]

    async def verify(self) -> None:
        await self._unblock()
        await self.stop_tasks()
        await self._check_source()
        try:
            await self._catch_up()
            await self.ask(self.engine.flush, self.target)
            if self.work.attempts:
                # Removing deleted rows is slow. Most of it is done here, before writes are blocked.
                await self.ask(self.engine.reconcile, self.source, self.target, self.plan.until)
            check = await self._compare_while_blocked()
        except TaskLost as lost:
            await self._unblock()
            await self.retry(str(lost))
            return
        if check is not None and check.passed:
            self.compared, self.swap_tried = True, False
            await self.lease.save(State.SWAPPING, check=check, note="swapping the copy in")
            return
        await self._unblock()
        if check is None:
            await self.retry(f"the last rows took longer than {BLOCK_SECONDS:.0f} seconds while writes were blocked")
        else:
            found = f"the copy had {check.rows} rows ({check.rows_left} old ones) instead of {check.expected}"
            await self.retry(found, State.RUNNING, copied=False)

    async def _compare_while_blocked(self) -> PostCheck | None:
        await self.lease.save(blocked_at=self.clock(), note="writes are blocked for the last rows")
        try:
            async with asyncio.timeout(BLOCK_SECONDS):
                await self.ask(self.engine.block, self.source)
                await self.stop_tasks()
                await self._catch_up()
                # So that the rows counted now survive a node that fails before the swap.
                await self.ask(self.engine.flush, self.target)
                source = await self.ask(self.engine.count, self.source, self.plan.until)
                copy = await self.ask(self.engine.count, self.target, self.plan.until)
                expected = source.total - source.old
                if copy.total != expected or copy.old:
                    await self.ask(self.engine.reconcile, self.source, self.target, self.plan.until)
                    await self.ask(self.engine.flush, self.target)
                    copy = await self.ask(self.engine.count, self.target, self.plan.until)
                return PostCheck(copy.total, copy.old, expected)
        except TimeoutError:
            return None

    async def swap(self) -> None:
        current = await self.ask(self.engine.resolve, self.plan.index)
        if current is not None and current.concrete == self.work.target:
            await self._finish()
        elif self._blocked_too_long() or not await self._is_unchanged(current):
            await self._abandon_copy("the index changed before the swap")
        else:
            self.swap_tried = True
            try:
                await self.lease.act(self.engine.swap, self.plan.index, self.source, self.target)
            except Fault as fault:
                if fault.reason is not Reason.INDEX_UNAVAILABLE:
                    await self._abandon_copy(f"the index rejected the swap ({fault.message})")
                else:
                    await asyncio.sleep(SWAP_PAUSE)

    async def clean_up(self) -> State | None:
        if self.operation.state is not State.SWAPPING:
            await self._unblock()
        if self.work.target is not None:
            if not await self.ask(self.engine.abandon, self.target):
                await self._remove_source()
                return State.DONE
            await self._to_trash(None)
        await self._unblock()
        await self.stop_tasks()
        await self._empty_trash()
        return None

    async def unblock_on_stop(self) -> None:
        if self.operation.state is State.VERIFYING:
            await self._unblock()

    async def unblock_without_store(self) -> None:
        if self.operation.state is State.VERIFYING and self.work.blocked_at is not None and self.lease.surely_holds:
            await self.engine.unblock(self.source)

    def _blocked_too_long(self) -> bool:
        """A swap that another instance left behind is tried once in any case."""
        blocked = self.work.blocked_at
        return self.swap_tried and blocked is not None and self.clock() - blocked > BLOCK_SECONDS * 1_000

    async def _is_unchanged(self, current: Resolved | None) -> bool:
        """Whether no write can have happened since the copy was counted."""
        if not self._is_source(current) or not await self.ask(self.engine.is_blocked, self.source):
            return False
        if self.compared:
            return True
        copy = await self.ask(self.engine.count, self.target, self.plan.until)
        if self.work.check is None or copy.total != self.work.check.rows:
            return False
        return await self.ask(self.engine.checkpoints, self.source) == self.work.checkpoints

    async def _finish(self) -> None:
        await self._remove_source()
        if self.operation.fence > 1 and self.source == self.plan.index:
            await self._undo_late_block()
        await self.lease.save(State.DONE, note=None)

    async def _undo_late_block(self) -> None:
        """A block sent by the former lease holder may arrive late, by a name that now leads to the copy."""
        deadline = time.monotonic() + LATE_SECONDS
        while time.monotonic() < deadline:
            if await self.ask(self.engine.is_blocked, self.target):
                await self.ask(self.engine.unblock, self.target)
            await asyncio.sleep(SWAP_PAUSE)

    async def _remove_source(self) -> None:
        """After the swap. If the name was the index itself, the swap has removed the source."""
        if self.source != self.plan.index and self.source not in self.work.trash:
            await self.lease.save(trash=(*self.work.trash, self.source), blocked_at=None)
        await self._empty_trash()
        await self.lease.save(blocked_at=None)

    async def _check_source(self) -> None:
        if not self._is_source(await self.ask(self.engine.resolve, self.plan.index)):
            raise OperationFailed(_REPLACED)

    def _is_source(self, current: Resolved | None) -> bool:
        return current is not None and (current.concrete, current.uuid) == (self.source, self.work.source_uuid)

    async def _abandon_copy(self, reason: str) -> None:
        """Begin again with another copy, unless a swap to this one has succeeded, which the next step finds out.

        No swap can succeed after the copy was abandoned, so writes may be unblocked.
        """
        self.compared = False
        if self.work.target is not None:
            if not await self.ask(self.engine.abandon, self.target):
                return
            await self._to_trash(State.RUNNING)
        await self._unblock()
        await self._empty_trash()
        await self.retry(reason)

    async def _to_trash(self, state: State | None) -> None:
        work = self.work
        if work.target is not None:
            await self.lease.save(
                state, trash=(*work.trash, work.target), target=None, checkpoints=None, made=False, copied=False
            )

    async def _empty_trash(self) -> None:
        if self.work.trash:
            await self.stop_tasks()
        for index in self.work.trash:
            await self.ask(self.engine.drop, index)
            await self.lease.save(trash=tuple(one for one in self.work.trash if one != index))

    async def _unblock(self) -> None:
        if self.work.blocked_at is not None:
            await self.ask(self.engine.unblock, self.source)
            await self.lease.save(blocked_at=None)


POLL_SECONDS = 0.5
IDLE_SECONDS = 5.0  # The longest pause between two polls. Operations planned by this worker start without one.
MAX_CONCURRENT = 8
STOP_SECONDS = 3.0
MAX_CLEAN_UPS = 20  # after this many failed clean-ups the operation ends, and its error names what is left
# This instance stops, or its store is unavailable: the next lease holder continues.
_NOT_THE_OPERATIONS_FAULT = frozenset(
    {Reason.STORE_UNAVAILABLE, Reason.OUTCOME_UNKNOWN, Reason.STOPPING, Reason.DEADLINE}
)

Steps = Deletion | CopyAndSwap
LogProblem = Callable[[str, str], None]  # takes the id of an operation and what went wrong


class Supervisor:
    """Leases unfinished operations and drives each to its end.

    Every worker of every instance runs one. The lease in the store decides which of them works on an operation. When
    that one dies, another continues where it stopped.
    """

    def __init__(
        self, store: OperationStore, engine: Engine, rate: int, clock: Clock, log: LogProblem, home: str = ""
    ) -> None:
        self._store = store
        self._engine = engine
        self._rate = float(rate) or UNTHROTTLED
        self._clock = clock
        self._log = log
        self._home = home
        self._woken = asyncio.Event()
        self._driven: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        pause = POLL_SECONDS
        try:
            while True:
                self._woken.clear()
                with outages_suppressed():
                    await self._lease_operations()
                pause = POLL_SECONDS if self._driven else min(pause * 2, IDLE_SECONDS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), pause)
        except asyncio.CancelledError:
            # The service stops. After a bug in this loop, the driven operations continue.
            for task in self._driven:
                task.cancel()
            await asyncio.gather(*self._driven, return_exceptions=True)
            raise

    async def _lease_operations(self) -> None:
        while len(self._driven) < MAX_CONCURRENT:
            operation = await self._store.lease_operation(LEASE_MILLIS, self._home)
            if operation is None:
                return
            task = asyncio.ensure_future(self._drive(operation))
            self._driven.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._driven.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log("", f"bug: {type(error).__name__}: {error}")

    async def _drive(self, operation: Operation) -> None:
        id_ = f"{await self._store.node_id()}:{operation.number}"
        lease = Lease(self._store, operation)
        steps = self._steps(lease, f"watchword-{id_}")
        async with lease.renewed():
            try:
                while not steps.operation.state.is_over:
                    await self._step(steps, id_)
                    if steps.paused_until is not None:
                        await lease.release(steps.paused_until)
                        return
            except LeaseLost:
                return
            except Fault as fault:
                self._log(id_, fault.for_log)
                with suppress(Fault):
                    await steps.unblock_without_store()
                await lease.release()
            except asyncio.CancelledError:
                with suppress(TimeoutError, LeaseLost, CancelRequested, Fault, OperationFailed):
                    async with asyncio.timeout(STOP_SECONDS):
                        await steps.unblock_on_stop()
                await lease.release()
                raise

    def _steps(self, lease: Lease, tag: str) -> Steps:
        if lease.operation.plan.strategy is Strategy.REINDEX and isinstance(self._engine, ClusterEngine):
            return CopyAndSwap(lease, self._engine, tag, self._rate, self._clock)
        return Deletion(lease, self._engine, tag, self._rate, self._clock)

    async def _step(self, steps: Steps, id_: str) -> None:
        try:
            await _next_step(steps)
        except LeaseLost:
            raise
        except WindowClosed:
            steps.pausing = True
        except CancelRequested:
            await steps.lease.save(ending=State.CANCELLED.value, note="cancelling")
        except OperationFailed as failed:
            await steps.lease.save(ending=State.FAILED.value, error=str(failed), note="cleaning up")
        except Fault as fault:
            if fault.reason in _NOT_THE_OPERATIONS_FAULT:
                raise
            self._log(id_, fault.for_log)
            await _fail(steps, fault.message)
        except Exception as bug:  # noqa: BLE001 - logged, and the operation ends
            self._log(id_, f"bug: {type(bug).__name__}: {bug}")
            await _fail(steps, "Internal error. See the log of the service.")


async def _next_step(steps: Steps) -> None:
    if steps.work.ending is not None:
        state = await steps.clean_up() or State(steps.work.ending)
        await steps.lease.save(state, note=None)
        return
    steps.check_interrupted()
    if steps.pausing:
        await steps.pause()
        return
    if (steps.work.note or "").startswith(PAUSED):
        await steps.lease.save(note=None)
    match steps.operation.state:
        case State.PLANNED:
            await _begin(steps)
        case State.RUNNING:
            await steps.run()
        case State.VERIFYING:
            await steps.verify()
        case State.SWAPPING if isinstance(steps, CopyAndSwap):
            await steps.swap()
        case state:
            raise AssertionError(state)


async def _begin(steps: Steps) -> None:
    """Find the index. An index that was planned as empty and does not exist is done."""
    plan = steps.plan
    resolved = await steps.ask(steps.engine.resolve, plan.index)
    if resolved is None:
        if plan.rows:
            raise OperationFailed("The index is gone.")
        await steps.lease.save(State.DONE, check=PostCheck(0, 0))
        return
    if not is_index_or_copy(plan.index, resolved.concrete):
        raise OperationFailed(f"{plan.index} is an alias of {resolved.concrete}, which is not a copy of it.")
    await steps.lease.save(
        State.RUNNING, source=resolved.concrete, source_uuid=resolved.uuid, rows_to_do=steps.rows_to_do
    )


async def _fail(steps: Steps, error: str) -> None:
    """Start to clean up, or try that again, at most MAX_CLEAN_UPS times."""
    work = steps.work
    if work.ending is None:
        await steps.lease.save(ending=State.FAILED.value, error=error, note="cleaning up")
        return
    await asyncio.sleep(POLL_SECONDS)
    steps.failed_clean_ups += 1
    if steps.failed_clean_ups >= MAX_CLEAN_UPS:
        left = [index for index in (work.target, *work.trash) if index is not None]
        problem = f"{work.error or 'The operation was cancelled.'} Clean-up failed"
        problem += f"; remove these indices by hand: {', '.join(left)}." if left else "."
        if work.blocked_at is not None:
            problem += f" Writes to {work.source} may still be blocked."
        await steps.lease.save(State(work.ending), error=problem, note=None)

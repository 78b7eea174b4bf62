"""Leases unfinished operations and drives each to its end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from watchword.basics.background import outages_suppressed
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import Clock
from watchword.index.engine import UNTHROTTLED, ClusterEngine, Engine
from watchword.index.indices import is_index_or_copy
from watchword.index.lease_jobs import LEASE_MILLIS, PAUSED, Lease, OperationFailed
from watchword.index.rules import CancelRequested, LeaseLost, Operation, PostCheck, State, Strategy, WindowClosed
from watchword.index.store import OperationStore
from watchword.index.truncation_jobs import CopyAndSwap, Deletion

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


@dataclass(slots=True)
class Supervisor:
    """Every worker of every instance runs one. The lease in the store decides which of them works on an operation. When
    that one dies, another continues where it stopped.
    """

    _store: OperationStore
    _engine: Engine
    _rate: int
    _clock: Clock
    _log: LogProblem
    _home: str = ""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _driven: set[asyncio.Task[None]] = field(default_factory=set)

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
        id_ = str(operation.id)
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
        rate = float(self._rate) or UNTHROTTLED
        if lease.operation.plan.strategy is Strategy.REINDEX and isinstance(self._engine, ClusterEngine):
            return CopyAndSwap(lease, self._engine, tag, rate, self._clock)
        return Deletion(lease, self._engine, tag, rate, self._clock)

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
            await _fail(steps, str(failed))
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

"""The supervisor: takes up operations that nobody works on, and drives each to its end under a lease.

Every worker of every instance runs one. Which of them works on an operation is decided in the store, by the lease; when
it dies, another takes the operation up where it stood.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from watchword.domain.engine import UNTHROTTLED, Engine
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import is_own
from watchword.domain.operations import CancelAsked, LeaseLost, Operation, PostCheck, State, Strategy
from watchword.domain.ports import Clock, OperationStore
from watchword.service.copying import Copying
from watchword.service.deletion import Deletion
from watchword.service.leases import LEASE_MILLIS, Lease
from watchword.service.steps import OperationFailed

LOOK_SECONDS = 0.5
IDLE_SECONDS = 5.0
"""The longest pause between two looks of a worker that found nothing. What it plans itself it takes up at once."""
MOST_AT_ONCE = 8
LET_GO_SECONDS = 3.0
MOST_REFUSALS = 20
"""How often the index may refuse a clean-up before what is left of an operation is named and left alone."""
MOST_DEFECTS = 4
"""The same for defects of our own, which do not pass by themselves."""
# The store is away, or this instance stops: not the operation's fault. Whoever takes it up next goes on.
_NOT_ITS_FAULT = frozenset({Reason.STORE_UNAVAILABLE, Reason.OUTCOME_UNKNOWN, Reason.STOPPING, Reason.DEADLINE})

Tell = Callable[[str, str], None]
"""Told the id of an operation and what went wrong with it, for the log."""


class Supervisor:
    def __init__(
        self, store: OperationStore, engine: Engine, rate: int, clock: Clock, tell: Tell, home: str = ""
    ) -> None:
        self._store = store
        self._engine = engine
        self._rate = float(rate) or UNTHROTTLED
        self._clock = clock
        self._tell = tell
        self._home = home
        self._woken = asyncio.Event()
        self._driven: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        pause = LOOK_SECONDS
        try:
            while True:
                self._woken.clear()
                try:
                    await self._take_up()
                except Fault as fault:
                    if not fault.is_outage:
                        raise
                pause = LOOK_SECONDS if self._driven else min(pause * 2, IDLE_SECONDS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), pause)
        except asyncio.CancelledError:
            # The service stops. After a defect of this loop, what it drives goes on.
            for task in self._driven:
                task.cancel()
            await asyncio.gather(*self._driven, return_exceptions=True)
            raise

    async def _take_up(self) -> None:
        while len(self._driven) < MOST_AT_ONCE:
            operation = await self._store.lease_operation(LEASE_MILLIS, self._home)
            if operation is None:
                return
            task = asyncio.ensure_future(self._drive(operation))
            self._driven.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._driven.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell("", f"defect: {type(error).__name__}: {error}")

    async def _drive(self, operation: Operation) -> None:
        tag = f"{await self._store.node_id()}:{operation.number}"
        lease = Lease(self._store, operation)
        kind = Deletion if operation.plan.strategy is Strategy.DELETE_BY_QUERY else Copying
        steps = kind(lease, self._engine, f"watchword-{tag}", self._rate, self._clock)
        async with lease.kept():
            try:
                await self._to_its_end(steps, tag)
            except LeaseLost:
                return
            except Fault as fault:
                self._tell_fault(tag, fault)
                with suppress(Fault):
                    await steps.let_in_at_once()
                await lease.release()
            except asyncio.CancelledError:
                with suppress(TimeoutError, LeaseLost, CancelAsked, Fault, OperationFailed):
                    async with asyncio.timeout(LET_GO_SECONDS):
                        await steps.let_go()
                await lease.release()
                raise

    async def _to_its_end(self, steps: Deletion | Copying, tag: str) -> None:
        refusals = 0
        while not steps.operation.state.is_over:
            try:
                await self._step(steps)
            except LeaseLost:
                raise
            except CancelAsked:
                await steps.lease.save(ending=State.CANCELLED.value, note="being cancelled")
            except OperationFailed as hopeless:
                await steps.lease.save(ending=State.FAILED.value, error=str(hopeless), note="taking back what was made")
            except Fault as fault:
                if fault.reason in _NOT_ITS_FAULT:
                    raise
                self._tell_fault(tag, fault)
                if steps.work.ending is not None:
                    refusals += 1
                    await self._clean_up_again(steps, refusals)
                    continue
                await steps.lease.save(ending=State.FAILED.value, error=fault.message, note="taking back what was made")
            except Exception as defect:  # noqa: BLE001 - said, and the operation does not hang for ever
                self._tell(tag, f"defect: {type(defect).__name__}: {defect}")
                if steps.work.ending is not None:
                    refusals += MOST_REFUSALS // MOST_DEFECTS
                    await self._clean_up_again(steps, refusals)
                    continue
                await steps.lease.save(ending=State.FAILED.value, error="A defect of the service; its log says more.")

    def _tell_fault(self, tag: str, fault: Fault) -> None:
        self._tell(tag, f"{fault.message} {fault.why or ''}".strip())

    async def _clean_up_again(self, steps: Deletion | Copying, refusals: int) -> None:
        """What cannot be removed after some tries is left, and named in the operation's error."""
        await asyncio.sleep(LOOK_SECONDS)
        work = steps.work
        if refusals >= MOST_REFUSALS and work.ending is not None:
            left = [index for index in (work.target, *work.trash) if index is not None]
            told = f"{work.error or 'It was cancelled.'} What was made could not be taken back"
            error = f"{told}: {', '.join(left)}." if left else f"{told}."
            if work.blocked_at is not None:
                error += f" Writes to {work.source} may still be blocked."
            await steps.lease.save(State(work.ending), error=error, note=None)

    async def _step(self, steps: Deletion | Copying) -> None:
        work, state = steps.work, steps.operation.state
        if work.ending is not None:
            other = await steps.clean_up()
            await steps.lease.save(other or State(work.ending), note=None)
            return
        steps.heed()
        match state:
            case State.PLANNED:
                await _begin(steps)
            case State.RUNNING:
                await steps.run()
            case State.VERIFYING:
                await steps.verify()
            case State.SWAPPING:
                await steps.swap()
            case _:
                raise AssertionError(state)


async def _begin(steps: Deletion | Copying) -> None:
    """Find the index; where there is nothing in it to remove, the operation is done."""
    plan = steps.plan
    resolved = await steps.ask(lambda: steps.engine.resolve(plan.index))
    if resolved is None:
        if plan.rows:
            raise OperationFailed("The index is gone.")
        await steps.lease.save(State.DONE, check=PostCheck(0, 0))
        return
    if not is_own(plan.index, resolved.concrete):
        raise OperationFailed("The name leads to an index that is not its own.")
    await steps.lease.save(
        State.RUNNING,
        source=resolved.concrete,
        source_uuid=resolved.uuid,
        rows_to_do=plan.rows_to_delete
        if plan.strategy is Strategy.DELETE_BY_QUERY
        else plan.rows - plan.rows_to_delete,
    )

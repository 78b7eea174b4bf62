"""Truncation by copy: what stays is copied, the copy is brought up to the index, and takes its place in one step.

Nobody ever reads an empty or half-filled index: until the swap all reads go to the source, from then on to a copy that
was counted against it while writes were refused.

What makes it safe against an instance that was stopped, and wakes up when another one has finished:

- A copy is withdrawn before it is given up: either a swap has led to it, or none ever will. Its name is never used
  again.
- SWAPPING goes forward, or withdraws the copy before writes to the source are let in again: a late swap is refused.
- Every call names concrete indices.
"""

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from watchword.domain.engine import Marks
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import Resolved, copy_name
from watchword.domain.operations import PostCheck, State
from watchword.domain.tasks import TaskStatus
from watchword.service.steps import Lost, OperationFailed, Steps

BLOCK_SECONDS = 30.0
"""How long writers may be kept waiting."""
WARM_ROUNDS = 3
FEW_ROWS = 1_000
SWAP_PAUSE = 0.5
LATE_SECONDS = 10.0
"""How long what a former holder had sent is reckoned with."""


@dataclass(slots=True)
class Copying(Steps):
    compared: bool = False
    """By this very instance, a moment ago, and not taken over from another one."""
    tried: bool = False
    """To swap."""

    @property
    def target(self) -> str:
        assert self.work.target is not None
        return self.work.target

    async def run(self) -> None:
        await self._let_writers_in()
        await self._empty_trash()
        if self.work.copied:
            # Whoever had it before may have left a task behind that writes older rows over newer ones.
            await self.quiet()
        if self.work.target is not None and not self.work.made:
            # Whether it is there is not known. Nothing is in it: another one is made.
            await self._give_up_copy("whether the copy was made is not known")
            return
        if self.work.target is None and not await self._make_copy():
            return
        try:
            if not self.work.copied:
                await self._copy()
            for _ in range(WARM_ROUNDS):
                if await self._catch_up() < FEW_ROWS:
                    break
        except Lost as lost:
            # What is in the copy is good: a row that is there already is not copied again.
            await self.anew(str(lost))
        else:
            await self.lease.save(State.VERIFYING, note="bringing the copy up to the index")

    async def _make_copy(self) -> bool:
        await self._check_source()
        marks = await self.ask(lambda: self.engine.marks(self.source))
        target = copy_name(self.plan.index, self.clock())
        # Decided on before it is made: whoever takes over knows what to remove.
        await self.lease.save(target=target, marks=marks, phase_at=None)
        try:
            await self.lease.act(self.engine.make_like(self.source, target))
        except Fault as fault:
            if fault.reason is Reason.INDEX_UNAVAILABLE:
                return False
            raise
        await self.lease.save(made=True)
        return True

    async def _copy(self) -> None:
        task = next((one for one in self.work.unfinished if one.purpose == "copy"), None)
        if task is None:
            # What began without being noted down would go on behind our back.
            await self.quiet()
            pace = self.pace(throttled=True)
            [task] = await self.start(
                "copy", lambda: self.engine.start_copy(self.source, self.target, self.plan.until, pace)
            )
        await self.watch(task)
        await self.lease.save(copied=True)

    async def _catch_up(self) -> int:
        """Copy what was written since the marks, and move them; returns how many rows that were."""
        since = self.work.marks
        assert since is not None
        marks = await self.ask(lambda: self.engine.marks(self.source))
        if marks == since:
            return 0
        if len(marks) != len(since):
            raise OperationFailed("The index was replaced by another one meanwhile.")
        ends = await self._carried_over(since, over=False)
        if any(end.counters.version_conflicts for end in ends):
            # Their older selves look newer: they were deleted and made again, and count from one.
            ends += await self._carried_over(since, over=True)
        await self.lease.save(marks=marks)
        return sum(end.counters.created + end.counters.updated for end in ends)

    async def _carried_over(self, since: Marks, *, over: bool) -> list[TaskStatus]:
        pace = self.pace(throttled=False)
        tasks = await self.start(
            "catch up",
            lambda: self.engine.start_catch_up(self.source, self.target, self.plan.until, since, pace, over=over),
        )
        return [await self.watch(task, counted=False) for task in tasks]

    async def verify(self) -> None:
        await self._let_writers_in()
        await self.quiet()
        await self._check_source()
        try:
            await self._catch_up()
            await self.ask(lambda: self.engine.flush(self.target))
            if self.work.attempts:
                # What was deleted meanwhile is the slow part; most of it need not be done while writers wait.
                await self.ask(lambda: self.engine.reconcile(self.source, self.target, self.plan.until))
            check = await self._compare_while_blocked()
        except Lost as lost:
            await self._let_writers_in()
            await self.anew(str(lost))
            return
        if check is not None and check.passed:
            self.compared, self.tried = True, False
            await self.lease.save(State.SWAPPING, check=check, note="the copy takes the place of the index")
            return
        await self._let_writers_in()
        if check is None:
            await self.anew("the last rows took longer than writers may be kept waiting")
        else:
            told = f"the copy had {check.rows} rows ({check.rows_left} old ones) instead of {check.expected}"
            await self.anew(told, State.RUNNING, copied=False)

    async def _compare_while_blocked(self) -> PostCheck | None:
        await self.lease.save(blocked_at=self.clock(), note="writes are held back for the last rows")
        try:
            async with asyncio.timeout(BLOCK_SECONDS):
                await self.ask(lambda: self.engine.block(self.source))
                await self.quiet()
                await self._catch_up()
                # What is counted now is still there when a node fails before the swap.
                await self.ask(lambda: self.engine.flush(self.target))
                here = await self.ask(lambda: self.engine.count(self.source, self.plan.until))
                there = await self.ask(lambda: self.engine.count(self.target, self.plan.until))
                expected = here.total - here.old
                if there.total != expected or there.old:
                    await self.ask(lambda: self.engine.reconcile(self.source, self.target, self.plan.until))
                    await self.ask(lambda: self.engine.flush(self.target))
                    there = await self.ask(lambda: self.engine.count(self.target, self.plan.until))
                return PostCheck(there.total, there.old, expected)
        except TimeoutError:
            return None

    async def swap(self) -> None:
        leads_to = await self.ask(lambda: self.engine.resolve(self.plan.index))
        if leads_to is not None and leads_to.concrete == self.work.target:
            await self._finish()
        elif self._too_long() or not await self._is_as_it_was(leads_to):
            await self._give_up_copy("the index changed before the copy could take its place")
        else:
            self.tried = True
            try:
                await self.lease.act(self.engine.swap(self.plan.index, self.source, self.target))
            except Fault as fault:
                if fault.reason is not Reason.INDEX_UNAVAILABLE:
                    await self._give_up_copy(f"the swap was refused ({fault.message})")
                else:
                    await asyncio.sleep(SWAP_PAUSE)

    async def clean_up(self) -> State | None:
        if self.operation.state is not State.SWAPPING:
            await self._let_writers_in()
        if self.work.target is not None:
            if not await self.ask(lambda: self.engine.withdraw(self.target)):
                await self._remove_source()
                return State.DONE
            await self._to_trash(None)
        await self._let_writers_in()
        await self.quiet()
        await self._empty_trash()
        return None

    async def let_go(self) -> None:
        """The service stops: writers are not kept waiting for the next start, unless the swap is under way."""
        if self.operation.state is State.VERIFYING:
            await self._let_writers_in()

    async def let_in_at_once(self) -> None:
        """The record cannot be kept, and the lease still holds: writers are not kept waiting for that."""
        if self.operation.state is State.VERIFYING and self.work.blocked_at is not None and self.lease.surely_holds:
            await self.engine.unblock(self.source)

    def _too_long(self) -> bool:
        """It was tried, and writers have waited long enough. What another one left behind is tried once in any case."""
        blocked = self.work.blocked_at
        return self.tried and blocked is not None and self.clock() - blocked > BLOCK_SECONDS * 1_000

    async def _is_as_it_was(self, leads_to: Resolved | None) -> bool:
        """Nothing was written since the copy was counted: the index is the same, refuses writes, and has not moved."""
        if not self._is_source(leads_to) or not await self.ask(lambda: self.engine.is_blocked(self.source)):
            return False
        if self.compared:
            return True
        there = await self.ask(lambda: self.engine.count(self.target, self.plan.until))
        if self.work.check is None or there.total != self.work.check.rows:
            return False
        return await self.ask(lambda: self.engine.marks(self.source)) == self.work.marks

    async def _finish(self) -> None:
        await self._remove_source()
        if self.operation.fence > 1 and self.source == self.plan.index:
            await self._undo_late_block()
        await self.lease.save(State.DONE, note=None)

    async def _undo_late_block(self) -> None:
        """Whoever had it before may have asked to hold writes back by a name that leads to the copy by now."""
        deadline = time.monotonic() + LATE_SECONDS
        while time.monotonic() < deadline:
            if await self.ask(lambda: self.engine.is_blocked(self.target)):
                await self.ask(lambda: self.engine.unblock(self.target))
            await asyncio.sleep(SWAP_PAUSE)

    async def _remove_source(self) -> None:
        """The name leads to the copy. Where it was the source's own, the swap has removed the source with it."""
        if self.source != self.plan.index and self.source not in self.work.trash:
            await self.lease.save(trash=(*self.work.trash, self.source), blocked_at=None)
        await self._empty_trash()
        await self.lease.save(blocked_at=None)

    async def _check_source(self) -> None:
        if not self._is_source(await self.ask(lambda: self.engine.resolve(self.plan.index))):
            raise OperationFailed("The index was replaced by another one meanwhile.")

    def _is_source(self, leads_to: Resolved | None) -> bool:
        return leads_to is not None and (leads_to.concrete, leads_to.uuid) == (self.source, self.work.source_uuid)

    async def _give_up_copy(self, why: str) -> None:
        """Begin again with another copy, unless this one has taken its place after all, which is seen next.

        From the moment it is withdrawn no swap can lead to it, so writers can be let in.
        """
        self.compared = False
        if self.work.target is not None:
            if not await self.ask(lambda: self.engine.withdraw(self.target)):
                return
            await self._to_trash(State.RUNNING)
        await self._let_writers_in()
        await self._empty_trash()
        await self.anew(why)

    async def _to_trash(self, state: State | None) -> None:
        work = self.work
        if work.target is not None:
            await self.lease.save(
                state, trash=(*work.trash, work.target), target=None, marks=None, made=False, copied=False
            )

    async def _empty_trash(self) -> None:
        if self.work.trash:
            await self.quiet()
        for index in self.work.trash:
            await self.ask(partial(self.engine.drop, index))
            await self.lease.save(trash=tuple(one for one in self.work.trash if one != index))

    async def _let_writers_in(self) -> None:
        if self.work.blocked_at is not None:
            await self.ask(lambda: self.engine.unblock(self.source))
            await self.lease.save(blocked_at=None)

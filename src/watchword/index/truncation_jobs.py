"""The two strategies of a truncation: deletion, and copy and swap."""

import asyncio
import time
from dataclasses import dataclass

from watchword.basics.errors import Fault, Reason
from watchword.index.engine import Checkpoints, ClusterEngine, Counters, DeletionPage, TaskStatus
from watchword.index.indices import Resolved, copy_name
from watchword.index.lease_jobs import MAX_ATTEMPTS, OperationFailed, TaskLost, TruncationSteps
from watchword.index.rules import OperationProgress, PostCheck, State

BLOCK_SECONDS = 30.0  # how long writes may be blocked
CATCH_UP_ROUNDS = 3
FEW_ROWS = 1_000
SWAP_PAUSE = 0.5
LATE_SECONDS = 10.0  # how long a request of a former lease holder may still arrive
_REPLACED = "The index was replaced by another one."


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

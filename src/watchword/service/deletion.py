"""Truncation by deletion: the engine takes the old rows out one by one, and the rest is never touched."""

from watchword.domain.operations import PostCheck, State
from watchword.service.steps import MAX_ATTEMPTS, Lost, Steps


class Deletion(Steps):
    async def run(self) -> None:
        task = next((one for one in self.work.unfinished), None)
        try:
            if task is None:
                # What began without being noted down would go on behind our back.
                await self.quiet()
                pace = self.pace(throttled=True)
                [task] = await self.start(
                    "delete", lambda: self.engine.start_delete(self.source, self.plan.until, pace)
                )
            await self.watch(task)
        except Lost as lost:
            await self.anew(str(lost))
        else:
            await self.lease.save(State.VERIFYING, note="counting what is left")

    async def verify(self) -> None:
        count = await self.ask(lambda: self.engine.count(self.source, self.plan.until))
        if count.old and self.work.attempts + 1 < MAX_ATTEMPTS:
            # Rows that changed under way were left out; so are those that were written meanwhile.
            await self.anew(f"{count.old} old rows were left", State.RUNNING)
            return
        await self.lease.save(State.DONE, check=PostCheck(count.total, count.old), note=None)

    async def swap(self) -> None:
        raise AssertionError("a deletion swaps nothing")

    async def let_go(self) -> None:
        """Nothing is held: the engine goes on with its task."""

    async def let_in_at_once(self) -> None:
        """Nobody waits."""

    async def clean_up(self) -> State | None:
        """Take back what can be; returns the state it is in after all, where that is another than was decided."""
        await self.quiet()
        return None

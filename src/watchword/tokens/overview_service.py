"""The overview: how many tokens there are, when they expire, whose they are, and what happened on the last days.

The metrics show the same counts. To count all tokens takes at most 2 % of one core.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from watchword.authority.callers import Grant
from watchword.authority.privileges import Privilege
from watchword.authority.rejections_service import RejectionLog
from watchword.basics.background import RESTS, outages_suppressed
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import Clock
from watchword.journal.day_counts import KEPT_DAYS, DayCount, DayCounter, by_day, day_of, first_kept
from watchword.tokens.counts import CALENDAR_DAYS, COUNT_SECONDS, TokenCounts
from watchword.tokens.counts_store import TokenCountStore
from watchword.tokens.list_service import ACCOUNTS, MANAGE_ALL, MINIMUM

FIRST_SECONDS = 5.0
"""So that a start reads little, however many tokens there are."""
PUBLISH_SECONDS = 60.0


class TokenCounter:
    def __init__(self, store: TokenCountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._latest: TokenCounts | None = None
        self._due = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def counts(self, seconds: float) -> TokenCounts:
        """Return the counts of all tokens. Up to FEW_TOKENS are counted for each caller. More are counted again once
        the numbers are 50 times as old as the count took. A count that exceeds the wait continues; the caller gets the
        previous result.
        """
        if self._latest is None or self._is_small or time.monotonic() >= self._due:
            joins = self._is_counting
            ended = await self._wait_for_count(seconds)
            if joins and ended and self._is_small:
                # It may have begun before the caller's last change. The next one, which all who joined share, did not.
                await self._wait_for_count(seconds)
        if self._latest is None:
            raise Fault(Reason.DEADLINE, "The tokens are being counted, which takes long. Try again in a minute.")
        return self._latest

    async def _wait_for_count(self, seconds: float) -> bool:
        """Join the count that runs, or start one. Returns whether it ended in time."""
        if self._counting is None or not self._is_counting:
            self._counting = asyncio.ensure_future(self._count())
            self._counting.add_done_callback(lambda task: task.cancelled() or task.exception())
        done, _ = await asyncio.wait({self._counting}, timeout=seconds)
        for task in done:
            task.result()
        return bool(done)

    @property
    def _is_counting(self) -> bool:
        return self._counting is not None and not self._counting.done()

    @property
    def _is_small(self) -> bool:
        return self._latest is not None and self._latest.few

    async def publish(self, show: Callable[[TokenCounts, int, int], None]) -> None:
        """Show the counts, and the uses of yesterday and today, at most once a minute, until cancelled. Counts that
        take long are made less often.
        """
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            began = time.monotonic()
            with outages_suppressed():
                counts, today = await self.counts(COUNT_SECONDS), day_of(self._clock())
                uses = await self._store.day_counts(DayCounter.USES, today - 1)
                show(counts, uses.get(today - 1, 0), uses.get(today, 0))
            await asyncio.sleep(max(PUBLISH_SECONDS, RESTS * (time.monotonic() - began)))

    async def _count(self) -> None:
        began = time.monotonic()
        self._latest = await self._store.token_counts()
        ended = time.monotonic()
        self._due = ended + RESTS * (ended - began)


@dataclass(frozen=True, slots=True)
class Overview:
    counts: TokenCounts
    uses: tuple[DayCount, ...]
    expiries: tuple[DayCount, ...]
    denials: tuple[DayCount, ...] | None
    """These two are for callers who may see the audit log."""
    failed_sign_ins: tuple[DayCount, ...] | None


@dataclass(frozen=True, slots=True)
class TokenOverview:
    """The grants are those of `VisibleTokens.authorize`."""

    _store: TokenCountStore
    _counter: TokenCounter
    _rejections: RejectionLog
    _clock: Clock

    async def of_all(self, grant: Grant, seconds: float) -> Overview:
        grant.expect(MINIMUM, ACCOUNTS)
        grant.require(MANAGE_ALL)
        counts = await self._counter.counts(seconds)
        return await self._overview(grant, counts, await self._days(DayCounter.USES))

    async def of_caller(self, grant: Grant, seconds: float) -> Overview:
        """Return the overview of the tokens that act as the caller."""
        grant.expect(MINIMUM, ACCOUNTS)
        grant.require(MINIMUM)
        counts = await self._store.token_counts(grant.caller.actor, seconds)
        return await self._overview(grant, counts, self._last_days(counts.uses))

    async def _overview(self, grant: Grant, counts: TokenCounts, uses: tuple[DayCount, ...]) -> Overview:
        expiries = by_day(counts.expiries, day_of(self._clock()), CALENDAR_DAYS)
        if not grant.may(Privilege.VIEW_AUDIT_LOG):
            return Overview(counts, uses, expiries, None, None)
        await self._rejections.flush()
        denials, failed = [
            await self._days(counter) for counter in (DayCounter.DENIALS, DayCounter.FAILED_AUTHENTICATIONS)
        ]
        return Overview(counts, uses, expiries, denials, failed)

    async def _days(self, counter: DayCounter) -> tuple[DayCount, ...]:
        return self._last_days(await self._store.day_counts(counter, first_kept(self._clock())))

    def _last_days(self, counts: Mapping[int, int]) -> tuple[DayCount, ...]:
        return by_day(counts, first_kept(self._clock()), KEPT_DAYS)

"""The overview: how many tokens there are, when they expire, whose they are, and what happened on the last days.

The metrics show the same counts. Each of the two counts of all tokens takes at most 2 % of one core.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol

from watchword.domain.actors import Caller, Grant
from watchword.domain.counts import (
    CALENDAR_DAYS,
    COUNT_SECONDS,
    KEPT_DAYS,
    UNUSED_DAYS,
    DayCount,
    DayCounter,
    TokenCounts,
    by_day,
    day_of,
    first_kept,
)
from watchword.domain.errors import Fault, Reason
from watchword.domain.lifetimes import DAY
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, TokenCountStore
from watchword.service.audit import RejectionLog
from watchword.service.authority import Authority
from watchword.service.background import PURGE_RESTS, in_batches, outages_suppressed
from watchword.service.tokens import ACCOUNTS, MANAGE_ALL, MINIMUM

FIRST_SECONDS = 5.0
"""So that a start reads little, however many tokens there are."""
PUBLISH_SECONDS = 60.0
LONGEST_PAUSE = 3_600.0


class CountSink(Protocol):
    """Where the counts are published for all workers."""

    def token_counts(self, counts: TokenCounts) -> None: ...

    def token_uses(self, yesterday: int, today: int) -> None: ...

    def unused_tokens(self, number: int) -> None: ...

    def published_unused(self) -> int | None:
        """The last published number, whichever worker counted it."""


class TokenCounter:
    def __init__(self, store: TokenCountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.sink: CountSink | None = None
        """None for commands, which publish nothing."""
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
        return self._latest is not None and self._latest.unused is not None

    def unused(self, counts: TokenCounts) -> int | None:
        """Return the number of unused tokens; None while a large store has not been read through."""
        return counts.unused if counts.unused is not None or self.sink is None else self.sink.published_unused()

    async def publish(self) -> None:
        """Publish the counts at most once a minute, until cancelled. Counts that take long are made less often."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            began = time.monotonic()
            with outages_suppressed():
                counts, today = await self.counts(COUNT_SECONDS), day_of(self._clock())
                uses = await self._store.day_counts(DayCounter.USES, today - 1)
                if self.sink is not None:
                    self.sink.token_counts(counts)
                    self.sink.token_uses(uses.get(today - 1, 0), uses.get(today, 0))
            await asyncio.sleep(max(PUBLISH_SECONDS, PURGE_RESTS * (time.monotonic() - began)))

    async def publish_unused(self) -> None:
        """Read all tokens in small batches, until cancelled; publish the number when all were read. Pauses between two
        passes as long as one took, at least a minute and at most an hour.
        """
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            began = time.monotonic()
            with outages_suppressed():
                unused = await self._unused()
                if self.sink is not None:
                    self.sink.unused_tokens(unused)
            await asyncio.sleep(min(max(PUBLISH_SECONDS, time.monotonic() - began), LONGEST_PAUSE))

    async def _count(self) -> None:
        began = time.monotonic()
        self._latest = await self._store.token_counts()
        ended = time.monotonic()
        self._due = ended + PURGE_RESTS * (ended - began)

    async def _unused(self) -> int:
        unused, last = 0, ""

        async def read(most: int) -> int:
            nonlocal unused, last
            batch = await self._store.unused_tokens(last, most, UNUSED_DAYS * DAY)
            unused, last = unused + batch.unused, batch.last
            return batch.read

        await in_batches(read)
        return unused


@dataclass(frozen=True, slots=True)
class Overview:
    counts: TokenCounts
    unused: int | None
    """None while a large store has not been read through."""
    uses: tuple[DayCount, ...]
    expiries: tuple[DayCount, ...]
    denials: tuple[DayCount, ...] | None
    """These two are for callers who may see the audit log."""
    failed_sign_ins: tuple[DayCount, ...] | None


@dataclass(frozen=True, slots=True)
class TokenOverview:
    _store: TokenCountStore
    _authority: Authority
    _counter: TokenCounter
    _rejections: RejectionLog
    _clock: Clock

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        """Authorize as for lists of tokens."""
        return self._authority.authorize(caller, MINIMUM, ACCOUNTS)

    async def of_all(self, grant: Grant, seconds: float) -> Overview:
        grant.expect(MINIMUM, ACCOUNTS)
        grant.require(MANAGE_ALL)
        counts = await self._counter.counts(seconds)
        return await self._overview(grant, counts, self._counter.unused(counts), await self._days(DayCounter.USES))

    async def of_caller(self, grant: Grant, seconds: float) -> Overview:
        """Return the overview of the tokens that act as the caller."""
        grant.expect(MINIMUM, ACCOUNTS)
        grant.require(MINIMUM)
        counts = await self._store.token_counts(grant.caller.actor, seconds)
        return await self._overview(grant, counts, counts.unused, self._last_days(counts.uses))

    async def _overview(
        self, grant: Grant, counts: TokenCounts, unused: int | None, uses: tuple[DayCount, ...]
    ) -> Overview:
        expiries = by_day(counts.expiries, day_of(self._clock()), CALENDAR_DAYS)
        if not grant.may(Privilege.VIEW_AUDIT_LOG):
            return Overview(counts, unused, uses, expiries, None, None)
        await self._rejections.flush()
        denials, failed = [
            await self._days(counter) for counter in (DayCounter.DENIALS, DayCounter.FAILED_AUTHENTICATIONS)
        ]
        return Overview(counts, unused, uses, expiries, denials, failed)

    async def _days(self, counter: DayCounter) -> tuple[DayCount, ...]:
        return self._last_days(await self._store.day_counts(counter, first_kept(self._clock())))

    def _last_days(self, counts: Mapping[int, int]) -> tuple[DayCount, ...]:
        return by_day(counts, first_kept(self._clock()), KEPT_DAYS)

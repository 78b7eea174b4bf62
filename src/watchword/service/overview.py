"""The overview: how many tokens there are, when they expire, whose they are, and what happened on the last days."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from watchword.domain.actors import Caller, Grant
from watchword.domain.counts import (
    CALENDAR_DAYS,
    KEPT_DAYS,
    DayCount,
    DayCounter,
    TokenCounts,
    by_day,
    day_of,
    first_kept,
)
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, TokenCountStore
from watchword.service.audit import RejectionLog
from watchword.service.authority import Authority
from watchword.service.token_counts import TokenCounter
from watchword.service.tokens import ACCOUNTS, MANAGE_ALL, MINIMUM


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
        """As for lists of tokens."""
        return self._authority.authorize(caller, MINIMUM, ACCOUNTS)

    async def of_all(self, grant: Grant, seconds: float) -> Overview:
        grant.expect(MINIMUM, ACCOUNTS)
        grant.require(MANAGE_ALL)
        counts = await self._counter.counts(seconds)
        return await self._overview(grant, counts, self._counter.unused(counts), await self._days(DayCounter.USES))

    async def of_caller(self, grant: Grant, seconds: float) -> Overview:
        """Of the tokens that act as the caller."""
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

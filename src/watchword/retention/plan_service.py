"""Turns a retention rule into a plan."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from watchword.basics.errors import Fault
from watchword.index.engine import ClusterEngine, Engine
from watchword.index.indices import ENDING, Aspect, IndexNames, IndexSize, RowCount, series_key
from watchword.index.rules import Plan, Truncation
from watchword.index.service import Operations
from watchword.retention.rules import RetentionRule, RetentionState, StoredRule
from watchword.retention.run_rules import SeriesPlan, SeriesRuns, SteadyClock

SPANS = 20
NEVER = 0
"""The end of a plan that removes nothing because no limit is exceeded."""


@dataclass(slots=True)
class RetentionPlanner:
    """Turns a rule into a plan: one moment up to which rows go, never later than now minus `keep`."""

    _engine: Engine
    _operations: Operations
    names: IndexNames
    home: str
    clock: SteadyClock

    async def series(self) -> dict[str, tuple[Aspect, IndexSize]]:
        """Those that have an index. On a cluster two requests, and one for each index."""
        async with self._operations.slot():
            found = await self._engine.sizes(self.names.head, ENDING)
        named = [(self.names.aspect_of(size.name), size) for size in found]
        return {series_key(aspect): (aspect, size) for aspect, size in named if aspect is not None}

    def aspects(self, listed: Mapping[str, tuple[Aspect, IndexSize]], state: RetentionState) -> dict[str, Aspect]:
        """The series that have an index, and those that a rule names."""
        named = [rule.rule.aspect for rule in state.rules]
        ruled = {series_key(one): self.names.written(one) for one in named if one is not None}
        return {key: aspect for key, (aspect, _) in listed.items()} | ruled

    async def plan(self, aspect: Aspect, rule: RetentionRule, until: int | None = None) -> Plan:
        """Plan a run. With `until`, count again up to the same time. Raise CLOCK_JUMPED also if it jumps meanwhile."""
        plan = await self._plan(aspect, rule, self.clock.steady(), until)
        self.clock.steady()
        return plan

    async def _plan(self, aspect: Aspect, rule: RetentionRule, now: int, until: int | None = None) -> Plan:
        async with self._operations.slot():
            index, source = await self._operations.resolve(aspect, needed=False)
            count, end = RowCount(0, 0, 0), now - rule.keep if until is None else until
            if source is not None:
                count, end = await self._count(source, rule, now, until)
        truncation = Truncation(aspect, end, False, keep_last=rule.keep_last, may_copy=rule.window is None)
        can_copy = isinstance(self._engine, ClusterEngine)
        plan = truncation.plan(aspect, index, count, can_copy=can_copy, home=self.home)
        window = None if rule.window is None else str(rule.window)
        return replace(plan, rule=rule.series, window=window, time_zone=rule.time_zone)

    async def _count(self, source: str, rule: RetentionRule, now: int, until: int | None) -> tuple[RowCount, int]:
        if until is None:
            latest = now - rule.keep
            moments = [] if rule.age is None else [now - rule.age]
            if rule.max_rows is not None or rule.max_size is not None:
                whole = await self._engine.count(source, latest)
                beyond = _rows_beyond(rule, whole)
                moment = await self._engine.moment(source, beyond, latest) if beyond else None
                moments += [] if moment is None else [moment]
                if not moments:
                    return replace(whole, old=0), NEVER
            until = min(latest, max(moments))
        return await self._engine.count(source, until, rule.keep_last), until

    async def expect(self, aspect: Aspect) -> None:
        """ASPECT_NOT_FOUND if it has no index and is not known."""
        async with self._operations.slot():
            await self._operations.resolve(aspect)

    async def shown(
        self, aspect: Aspect, size: IndexSize | None, state: RetentionState, runs: SeriesRuns | None
    ) -> SeriesPlan:
        now = self.clock()
        found = SeriesPlan(
            aspect=aspect,
            rows=0 if size is None else size.rows,
            size_bytes=0 if size is None else size.size_bytes,
            rule=(rule := state.rule_of(aspect)),
            hold=state.hold_of(aspect),
            next_due=None if rule is None else _next_due(rule, runs, now),
        )
        if rule is not None:
            plan = await self._plan(aspect, rule.rule, now)
            found = replace(found, plan=plan, rows=plan.rows, size_bytes=plan.size_bytes)
        async with self._operations.slot():
            _, source = await self._operations.resolve(aspect, needed=False)
            return found if source is None else replace(found, histogram=await self._engine.histogram(source, SPANS))


def _next_due(rule: StoredRule, runs: SeriesRuns | None, now: int) -> int | None:
    """Later than every run that was added, even by a clock that was ahead. None: the time zone is not installed."""
    with suppress(Fault):
        return rule.rule.times.next(max(now, rule.changed_at, 0 if runs is None else runs.last_due))
    return None


def _rows_beyond(rule: RetentionRule, count: RowCount) -> int:
    """How many rows are too many. Of a size, rows in proportion to the bytes."""
    by_rows = 0 if rule.max_rows is None else count.total - rule.max_rows
    by_size = 0
    if rule.max_size is not None and count.live_bytes > rule.max_size:
        by_size = -(-count.total * (count.live_bytes - rule.max_size) // count.live_bytes)
    return max(0, by_rows, by_size)

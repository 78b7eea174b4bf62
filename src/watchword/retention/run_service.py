"""Runs of retention rules, as callers see them and ask for them."""

from contextlib import suppress
from dataclasses import dataclass, replace

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY
from watchword.index.indices import Aspect, series_key
from watchword.index.service import SIZES, TRUNCATE
from watchword.retention.jobs import RetentionScheduler
from watchword.retention.plan_service import RetentionPlanner
from watchword.retention.run_rules import MAX_PLANS, PlannedRun, RunPage, SeriesPlan, SeriesSize, ShownRun, outcome
from watchword.retention.run_store import RetentionRunStore


@dataclass(slots=True)
class RetentionRuns:
    _store: RetentionRunStore
    _authority: Authority
    _planner: RetentionPlanner
    _scheduler: RetentionScheduler

    async def authorize(self, caller: Caller, *any_of: Privilege) -> Grant:
        return await self._authority.authorize(caller, *(any_of or (TRUNCATE,)))

    async def plans(self, grant: Grant, series: str | None, start: int, count: int) -> tuple[int, list[SeriesPlan]]:
        """How many series there are, and what a run now would do to these, at most MAX_PLANS of them."""
        grant.expect(TRUNCATE)
        seen = await self._store.retention_snapshot(self._planner.home)
        listed = await self._planner.series()
        aspects = self._planner.aspects(listed, seen.state)
        if series is not None:
            wanted = series_key(series)
            if wanted not in aspects:
                raise Fault(Reason.ASPECT_NOT_FOUND, f"There is no index of {series} and no rule for it.")
            aspects = {wanted: aspects[wanted]}
        waiting = {run.series: run for run in seen.waiting}
        found = []
        for key in sorted(aspects)[start : start + min(count, MAX_PLANS)]:
            size = listed[key][1] if key in listed else None
            plan = await self._planner.shown(aspects[key], size, seen.state, seen.runs.get(key))
            error = self._scheduler.error_of(key, plan.rule)
            found.append(replace(plan, waiting=waiting.get(key), error=error))
        return len(aspects), found

    @property
    def paused_for(self) -> int:
        return self._planner.clock.unsteady_for

    async def runs(self, grant: Grant, series: str | None, start: int, count: int) -> RunPage:
        """Return runs, newest first."""
        grant.expect(TRUNCATE)
        return await self._store.retention_runs(None if series is None else series_key(series), start, count)

    async def sizes(self, grant: Grant, series: str | None, days: int) -> tuple[SeriesSize, ...]:
        grant.expect(SIZES, TRUNCATE)
        after = self._planner.clock() // DAY - days
        return await self._store.series_sizes(self._planner.home, None if series is None else series_key(series), after)

    async def run(self, grant: Grant, aspect: Aspect) -> ShownRun:
        """Run a rule now like a due run: it waits for approval beyond `atMost`, and in mode report it reports."""
        grant.expect(TRUNCATE)
        aspect = self._planner.names.written(aspect)
        rule = (await self._store.retention()).rule_of(aspect)
        if rule is None:
            raise Fault(Reason.RULE_NOT_FOUND, f"There is no retention rule for {aspect}.")
        if rule.rule.aspect is None:
            await self._planner.expect(aspect)
        plan, due = await self._planner.plan(aspect, rule.rule), self._planner.clock()
        planned = PlannedRun(aspect, rule, plan, outcome(rule.rule, plan), self._planner.home, due, by_hand=True)
        added = await self._authority.change(grant, self._store.add_run, planned)
        if added is None:
            raise Fault(Reason.CONTENDED, "The rule changed meanwhile. Retry the request.")
        self._scheduler.begin(added)
        return added

    async def approve(self, grant: Grant, number: int, rows: int) -> ShownRun:
        """It starts at once where this process has the index; otherwise a scheduler that has it starts it."""
        grant.expect(TRUNCATE)
        approved = await self._authority.change(grant, self._store.approve_run, number, rows)
        if approved.run.home != self._planner.home:
            return approved
        with suppress(Fault):  # the scheduler tries again
            return await self._scheduler.start_approved(approved.run) or approved
        self._scheduler.wake()
        return approved

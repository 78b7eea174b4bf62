"""Plans runs of retention rules when they are due, and has them carried out as operations.

Every worker has a scheduler. The store decides which of them plans a run: a lease keeps the others from planning the
same thing, and each moment of a schedule is added once. When nothing is due, a tick is one read of the store.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY
from watchword.index.indices import Aspect, IndexSize, series_key
from watchword.index.schedules import ScheduleTimes
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import system_precondition
from watchword.retention import run_rules as runs
from watchword.retention.plan_service import RetentionPlanner
from watchword.retention.rules import StoredRule
from watchword.retention.run_store import RetentionRunStore

TICK_SECONDS = 30.0
FIRST_TICK_SECONDS = 2.0
LEASE_MILLIS = 60_000
SCHEDULER = system_precondition("retention")
_END_THE_TICK = (Reason.STORE_UNAVAILABLE, Reason.OUTCOME_UNKNOWN, Reason.CLOCK_JUMPED)


@dataclass(slots=True)
class SeriesProblems:
    """What went wrong, by series; '' for what concerns all."""

    log: Callable[[str, str], None]  # takes a series and what went wrong
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By series whose due run could not be planned yet: when it was due, and the error."""

    def note(self, series: str, due_at: int, problem: str | None) -> None:
        if problem is None:
            self.errors.pop(series, None)
        elif self.errors.get(series) != (due_at, problem):
            self.errors[series] = due_at, problem
            self.log(series, problem)

    def failed(self, series: str, due_at: int, fault: Fault) -> None:
        """Note a fault, and raise it if it ends the tick. The next tick tries again."""
        if fault.reason in _END_THE_TICK:
            raise fault
        # One that runs is late, and happens once that is over.
        if fault.reason is not Reason.OPERATION_RUNNING:
            self.note(series, due_at, fault.for_log)


@dataclass(slots=True)
class RuleTimes:
    """The moments of a rule around now."""

    rule: StoredRule
    times: ScheduleTimes
    is_settled: bool = False
    """Whether all runs of the last moment are added."""

    @property
    def is_due(self) -> bool:
        return not self.is_settled and (self.times.last or 0) > self.rule.changed_at


@dataclass(slots=True)
class RetentionScheduler:
    _store: RetentionRunStore
    _planner: RetentionPlanner
    _holder: str
    _wake_supervisor: Callable[[], None]
    _problems: SeriesProblems
    numbers: runs.RetentionNumbers = field(default_factory=runs.RetentionNumbers)
    _times: dict[str, RuleTimes] = field(default_factory=dict)
    _listed: frozenset[str] | None = None
    _measured: int | None = None
    _reported: dict[str, int] = field(default_factory=dict)
    """By series whose event is written: since when it is overdue."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Tick until cancelled. Jitter keeps processes out of step."""
        pause, first = FIRST_TICK_SECONDS, True
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause * (0.5 + random.random()))  # noqa: S311 - no secret
            self._woken.clear()
            try:
                await self.tick(measure=not first)
            except Fault as fault:
                self._problems.note("", 0, fault.for_log)
            else:
                self._problems.note("", 0, None)
            pause, first = TICK_SECONDS, False

    async def tick(self, *, measure: bool = True) -> None:
        """Plan what is due. Anything that fails is tried again at the next tick."""
        clock = self._planner.clock
        clock.check()
        seen, now = await self._store.retention_snapshot(self._planner.home), clock()
        times = await self._times_of(seen.state.rules, now)
        overdue = seen.overdue(times, now, self._listed)
        self.numbers = runs.RetentionNumbers(len(seen.waiting), len(overdue), clock.unsteady_for > 0)
        await self._report_jump(now)
        try:
            if not clock.unsteady_for:
                await self._plan(seen, times, now, measure=measure)
        except Fault as fault:
            await self._report_overdue(overdue)
            if fault.reason is not Reason.CLOCK_JUMPED:
                raise
            self.wake()  # the next tick reports it
        else:
            await self._report_overdue(overdue)

    async def _times_of(self, rules: Iterable[StoredRule], now: int) -> dict[str, ScheduleTimes]:
        """Return the times by rule. Computed only when a rule was changed or a time has passed."""
        found: dict[str, RuleTimes] = {}
        for rule in rules:
            key, kept = rule.rule.key, self._times.get(rule.rule.key)
            if kept is None or kept.rule != rule or not kept.times.is_of(now):
                await asyncio.sleep(0)  # a thousand rules take a second
                try:
                    kept = RuleTimes(rule, rule.rule.times.times(now))
                except Fault as fault:
                    self._problems.note(f"rule {key}", 0, fault.message)
                    continue
                self._problems.note(f"rule {key}", 0, None)
            found[key] = kept
        self._times = found
        return {key: one.times for key, one in found.items()}

    async def _plan(
        self, seen: runs.RetentionSnapshot, times: Mapping[str, ScheduleTimes], now: int, *, measure: bool
    ) -> None:
        stale = [run for run in seen.waiting if not seen.is_current(run)]
        approved = [run for run in seen.waiting if run.approved_at is not None and run not in stale]
        rules = {key for key, one in self._times.items() if one.is_due}
        measures = measure and now // DAY not in (self._measured, seen.measured)
        if not (stale or approved or rules or measures) or not await self._lease():
            return
        for run in stale:
            await self._store.supersede_run(run.number)
        for run in approved:
            try:
                await self.start_approved(run)
            except Fault as fault:
                self._problems.failed(run.series, run.due_at, fault)
            else:
                self._problems.note(run.series, run.due_at, None)
        if rules or measures:
            listed = await self._planner.series()
            self._listed = frozenset(listed)
            if measures:
                await self._measure(listed, now // DAY)
            await self._plan_due(seen, {key: times[key] for key in rules}, listed)

    async def _lease(self) -> bool:
        name = f"retention/{self._planner.home}"
        return await self._store.lease_cursor(name, self._holder, LEASE_MILLIS) is not None

    async def _plan_due(
        self,
        seen: runs.RetentionSnapshot,
        times: Mapping[str, ScheduleTimes],
        listed: dict[str, tuple[Aspect, IndexSize]],
    ) -> None:
        unsettled: set[str] = set()
        for due in seen.due(times, self._planner.aspects(listed, seen.state).values()):
            if not await self._lease():
                return
            if not await self._add(due):
                unsettled.add(due.rule.rule.key)
        for key in times.keys() - unsettled:
            self._times[key].is_settled = True

    async def _add(self, due: runs.DueRun) -> bool:
        """Return whether the run was added, by this scheduler or another."""
        series, home, errors = series_key(due.aspect), self._planner.home, self._problems.errors
        failed = errors.get(series)
        if failed is not None and failed[0] < due.due_at:
            # Its next moment has come: it is over.
            lost = runs.PlannedRun(due.aspect, due.rule, None, runs.RunState.FAILED, home, failed[0], failed[1])
            await self._store.add_run(SCHEDULER, lost)
            del errors[series]
        try:
            plan = await self._planner.plan(due.aspect, due.rule.rule)
            planned = runs.PlannedRun(due.aspect, due.rule, plan, runs.outcome(due.rule.rule, plan), home, due.due_at)
            self.begin(await self._store.add_run(SCHEDULER, planned))
        except Fault as fault:
            self._problems.failed(series, due.due_at, fault)
            return False
        self._problems.note(series, due.due_at, None)
        return True

    async def start_approved(self, run: runs.RetentionRun) -> runs.ShownRun | None:
        """Count again up to the same moment; start unless more rows would go than were approved. None: it was decided
        elsewhere.
        """
        assert run.plan is not None
        plan = await self._planner.plan(run.plan.aspect, run.rule, run.plan.until)
        return self.begin(await self._store.start_approved(SCHEDULER, run, plan))

    def begin(self, run: runs.ShownRun | None) -> runs.ShownRun | None:
        """Wake the supervisor for the operation of a run, where it has one."""
        if run is not None and run.operation is not None:
            self._wake_supervisor()
        return run

    def error_of(self, series: str, rule: StoredRule | None) -> str | None:
        """Why the due run of the series, or any by its rule, could not be planned."""
        errors = self._problems.errors
        found = errors.get(series) or (None if rule is None else errors.get(f"rule {rule.rule.key}"))
        return None if found is None else found[1]

    async def _report_jump(self, now: int) -> None:
        clock = self._planner.clock
        if not clock.jump:
            return
        event = Event(Action.RETENTION_CLOCK_JUMPED, "", {"seconds": clock.jump // 1_000})
        await self._store.note_once(SCHEDULER, [(event, now - runs.STEADY_MILLIS)])
        self._problems.log("", f"The clock jumped ahead by {clock.jump // 1_000} s. No run is planned for an hour.")
        clock.jump = 0

    async def _report_overdue(self, overdue: Mapping[str, runs.OverdueSeries]) -> None:
        """One event for each failure, until the series succeeds or its rule is changed."""
        fresh = {series: one for series, one in overdue.items() if self._reported.get(series) != one.since}
        if fresh:
            await self._store.note_once(SCHEDULER, [self._overdue_event(*one) for one in sorted(fresh.items())])
        self._reported = {series: one.since for series, one in overdue.items()}

    def _overdue_event(self, series: str, one: runs.OverdueSeries) -> tuple[Event, int]:
        error = self.error_of(series, one.rule)
        detail: dict[str, Detail] = {"rule": one.rule.rule.series, "succeededAt": one.succeeded_at, "error": error}
        return Event(Action.RETENTION_OVERDUE, series, detail), one.since

    async def _measure(self, listed: dict[str, tuple[Aspect, IndexSize]], day: int) -> None:
        sizes = [runs.SeriesSize(series, day, size.rows, size.size_bytes) for series, (_, size) in listed.items()]
        await self._store.add_sizes(self._planner.home, sizes)
        self._measured = day

"""Retention: rules and holds, and runs of rules, which are planned when they are due or when a person asks, and carried
out as operations.

Every worker has a scheduler. The store decides which of them plans a run: a lease keeps the others from planning the
same thing, and each moment of a schedule is added once. When nothing is due, a tick is one read of the store.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from watchword.domain.actors import Caller, Grant, system_precondition
from watchword.domain.engine import ClusterEngine, Engine, TaskId
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Detail
from watchword.domain.indices import ENDING, Aspect, IndexNames, IndexSize, RowCount
from watchword.domain.lifetimes import DAY
from watchword.domain.operations import Plan, Truncation
from watchword.domain.policies import Privilege
from watchword.domain.ports import Store
from watchword.domain.retention import (
    MAX_PLANS,
    PERIODS,
    STEADY_MILLIS,
    Hold,
    Mode,
    PlannedRun,
    RetentionNumbers,
    RetentionRule,
    RetentionRun,
    RetentionSnapshot,
    RetentionState,
    RunPage,
    RunState,
    ScheduleTimes,
    SeriesPlan,
    SeriesRuns,
    SeriesSize,
    ShownRun,
    SteadyClock,
    StoredRule,
    outcome,
    series_key,
)
from watchword.service.authority import Authority
from watchword.service.operations import SIZES, TRUNCATE, Operations, TrackedOperation


@dataclass(frozen=True, slots=True)
class Retention:
    """Only callers with Truncate time series index can learn which rules and holds there are."""

    _store: Store
    _authority: Authority

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, TRUNCATE)

    async def state(self, grant: Grant) -> RetentionState:
        grant.expect(TRUNCATE)
        return await self._store.retention()

    async def rule_of(self, grant: Grant, series: str) -> tuple[StoredRule, Hold | None]:
        """The rule of a series, or else that of every series, and the hold in effect."""
        state = await self.state(grant)
        found = state.rule_of(series)
        if found is None:
            raise Fault(Reason.RULE_NOT_FOUND, f"There is no retention rule for {series}, and none for every series.")
        return found, state.hold_of(series)

    async def set_rule(self, grant: Grant, rule: RetentionRule) -> tuple[StoredRule, Hold | None]:
        """The rule as it is stored, and the hold in effect."""
        grant.expect(TRUNCATE)
        stored = await self._authority.write(
            grant, lambda grant: self._store.put_rule(grant.precondition, rule, grant.require)
        )
        return stored, (await self._store.retention()).hold_of(rule.series)

    async def delete_rule(self, grant: Grant, series: str) -> None:
        grant.expect(TRUNCATE)
        await self._authority.write(
            grant, lambda grant: self._store.delete_rule(grant.precondition, series, grant.require)
        )

    async def hold(self, grant: Grant, series: str, reason: str) -> tuple[Hold, list[TrackedOperation]]:
        """Set a hold. Return it and the operations on the series that are still active, which are cancelled."""
        grant.expect(TRUNCATE)
        hold, active = await self._authority.change(grant, self._store.set_hold, series, reason)
        node = await self._store.node_id() if active else ""
        return hold, [TrackedOperation(TaskId(node, one.number), one) for one in active]

    async def release(self, grant: Grant, series: str) -> None:
        """A hold that someone else set needs Release Retention Holds too."""
        grant.expect(TRUNCATE)
        await self._authority.write(
            grant, lambda grant: self._store.release_hold(grant.precondition, series, grant.require)
        )


TICK_SECONDS = 30.0
FIRST_TICK_SECONDS = 2.0
LEASE_MILLIS = 60_000
SPANS = 20
NEVER = 0
"""The end of a plan that removes nothing because no limit is exceeded."""
SCHEDULER = system_precondition("retention")

LogProblem = Callable[[str, str], None]  # takes a series and what went wrong


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
        if rule is None:
            return found
        plan = await self._plan(aspect, rule.rule, now)
        found = replace(found, plan=plan, rows=plan.rows, size_bytes=plan.size_bytes)
        async with self._operations.slot():
            _, source = await self._operations.resolve(aspect, needed=False)
            return found if source is None else replace(found, histogram=await self._engine.histogram(source, SPANS))


def _next_due(rule: StoredRule, runs: SeriesRuns | None, now: int) -> int | None:
    """Later than every run that was added, even by a clock that was ahead. None: the time zone is not installed."""
    with suppress(Fault):
        return rule.rule.next_due(max(now, rule.changed_at, 0 if runs is None else runs.last_due))
    return None


def _rows_beyond(rule: RetentionRule, count: RowCount) -> int:
    """How many rows are too many. Of a size, rows in proportion to the bytes."""
    by_rows = 0 if rule.max_rows is None else count.total - rule.max_rows
    by_size = 0
    if rule.max_size is not None and count.live_bytes > rule.max_size:
        by_size = -(-count.total * (count.live_bytes - rule.max_size) // count.live_bytes)
    return max(0, by_rows, by_size)


class DueRun(NamedTuple):
    aspect: Aspect
    rule: StoredRule
    due_at: int


@dataclass(slots=True)
class RetentionScheduler:
    _store: Store
    _planner: RetentionPlanner
    _holder: str
    _wake_supervisor: Callable[[], None]
    _log: LogProblem
    numbers: RetentionNumbers = field(default_factory=RetentionNumbers)
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By series whose due run could not be planned yet: when it was due, and the error."""
    _settled: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By rule: when it was changed, and the last moment whose runs are all added."""
    _times: dict[str, tuple[StoredRule, ScheduleTimes]] = field(default_factory=dict)
    _listed: frozenset[str] | None = None
    _measured: int | None = None
    _unreported_jump: int = 0
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
                self.note("", 0, fault.for_log)
            else:
                self.note("", 0, None)
            pause, first = TICK_SECONDS, False

    async def tick(self, *, measure: bool = True) -> None:
        """Plan what is due. Anything that fails is tried again at the next tick."""
        clock = self._planner.clock
        if jump := clock.take_jump():
            self._unreported_jump = jump
            self._log("", f"The clock jumped ahead by {jump // 1_000} s. No run is planned for an hour.")
        seen, now = await self._store.retention_snapshot(self._planner.home), clock()
        times = await self._times_of(seen.state.rules, now)
        overdue = self._overdue(seen, times, now)
        self.numbers = RetentionNumbers(len(seen.waiting), len(overdue), clock.unsteady_for > 0)
        await self._report_jump()
        problem = None
        try:
            if not clock.unsteady_for:
                await self._plan(seen, times, now, measure=measure)
        except Fault as fault:
            problem = fault
        await self._report_overdue(seen, overdue)
        if problem is not None and problem.reason is Reason.CLOCK_JUMPED:
            self.wake()  # the next tick reports it
        elif problem is not None:
            raise problem

    async def _times_of(self, rules: Iterable[StoredRule], now: int) -> dict[str, ScheduleTimes]:
        """Return the times by rule. Computed only when a rule was changed or a time has passed."""
        found: dict[str, tuple[StoredRule, ScheduleTimes]] = {}
        for rule in rules:
            kept = self._times.get(rule.rule.key)
            if kept is None or kept[0] != rule or not kept[1].is_of(now):
                await asyncio.sleep(0)  # a thousand rules take a second
                try:
                    kept = rule, rule.rule.times(now)
                except Fault as fault:
                    self.note(f"rule {rule.rule.key}", 0, fault.message)
                    continue
                self.note(f"rule {rule.rule.key}", 0, None)
            found[rule.rule.key] = kept
        self._times = found
        return {key: times for key, (_, times) in found.items()}

    async def _plan(
        self, seen: RetentionSnapshot, times: Mapping[str, ScheduleTimes], now: int, *, measure: bool
    ) -> None:
        stale = [run for run in seen.waiting if not _is_current(run, seen.state)]
        approved = [run for run in seen.waiting if run.approved_at is not None and run not in stale]
        rules = [rule for rule in seen.state.rules if self._is_due(rule, times.get(rule.rule.key))]
        measures = measure and self._measured != now // DAY and seen.measured != now // DAY
        if not (stale or approved or rules or measures) or not await self._lease():
            return
        for run in stale:
            await self._store.supersede_run(run.number)
        for run in approved:
            with self._noting(run.series, run.due_at):
                await self.start_approved(run)
        if rules or measures:
            listed = await self._planner.series()
            self._listed = frozenset(listed)
            if measures:
                await self._measure(listed, now // DAY)
            await self._plan_due(seen, {rule.rule.key: times[rule.rule.key] for rule in rules}, listed)

    async def _lease(self) -> bool:
        return await self._store.lease_retention(self._planner.home, self._holder, LEASE_MILLIS)

    def _is_due(self, rule: StoredRule, times: ScheduleTimes | None) -> bool:
        due = None if times is None else times.last
        if due is None or due <= rule.changed_at:
            return False
        return self._settled.get(rule.rule.key, (0, 0)) < (rule.changed_at, due)

    async def _plan_due(
        self,
        seen: RetentionSnapshot,
        times: Mapping[str, ScheduleTimes],
        listed: dict[str, tuple[Aspect, IndexSize]],
    ) -> None:
        unsettled: set[str] = set()
        for due in self._due(seen, times, listed):
            if not await self._lease():
                return
            if not await self._add(due):
                unsettled.add(due.rule.rule.key)
        for key in times.keys() - unsettled:
            rule, last = seen.state.rule_of(key), times[key].last
            if rule is not None and last is not None:
                self._settled[key] = rule.changed_at, last

    def _due(
        self,
        seen: RetentionSnapshot,
        times: Mapping[str, ScheduleTimes],
        listed: dict[str, tuple[Aspect, IndexSize]],
    ) -> Iterator[DueRun]:
        """One for each series whose rule has a moment that no run has been added for, the longest due first."""
        found = []
        for key, aspect in self._planner.aspects(listed, seen.state).items():
            rule = seen.state.rule_of(aspect)
            if rule is None or rule.rule.key not in times:
                continue
            runs, due = seen.runs.get(key), times[rule.rule.key].last
            after = rule.changed_at if runs is None else max(rule.changed_at, runs.last_due)
            if due is not None and due > after:
                found.append(DueRun(aspect, rule, due))
        yield from sorted(found, key=lambda one: (one.due_at, one.aspect))

    async def _add(self, due: DueRun) -> bool:
        """Return whether the run was added, by this scheduler or another."""
        series = series_key(due.aspect)
        home = self._planner.home
        failed = self.errors.get(series)
        if failed is not None and failed[0] < due.due_at:
            # Its next moment has come: it is over.
            lost = PlannedRun(due.aspect, due.rule, None, RunState.FAILED, home, failed[0], failed[1])
            await self._store.add_run(SCHEDULER, lost)
            del self.errors[series]
        with self._noting(series, due.due_at) as faults:
            plan = await self._planner.plan(due.aspect, due.rule.rule)
            planned = PlannedRun(due.aspect, due.rule, plan, outcome(due.rule.rule, plan), home, due.due_at)
            self.begin(await self._store.add_run(SCHEDULER, planned))
        return not faults

    async def start_approved(self, run: RetentionRun) -> ShownRun | None:
        """Count again up to the same moment; start unless more rows would go than were approved. None: it was decided
        elsewhere.
        """
        assert run.plan is not None
        plan = await self._planner.plan(run.plan.aspect, run.rule, run.plan.until)
        return self.begin(await self._store.start_approved(SCHEDULER, run, plan))

    def begin(self, run: ShownRun | None) -> ShownRun | None:
        """Wake the supervisor for the operation of a run, where it has one."""
        if run is not None and run.operation is not None:
            self._wake_supervisor()
        return run

    @contextmanager
    def _noting(self, series: str, due_at: int) -> Iterator[list[Reason]]:
        """Note a fault as the last error of a series; the next tick tries again. What it yields gets its reason."""
        faults: list[Reason] = []
        try:
            yield faults
        except Fault as fault:
            if fault.reason in _END_THE_TICK:
                raise
            faults.append(fault.reason)
            # One that runs is late, and happens once that is over.
            if fault.reason is not Reason.OPERATION_RUNNING:
                self.note(series, due_at, fault.for_log)
        else:
            self.note(series, due_at, None)

    def error_of(self, series: str, rule: StoredRule | None) -> str | None:
        """Why the due run of the series, or any by its rule, could not be planned."""
        found = self.errors.get(series) or (None if rule is None else self.errors.get(f"rule {rule.rule.key}"))
        return None if found is None else found[1]

    def note(self, series: str, due_at: int, problem: str | None) -> None:
        if problem is None:
            self.errors.pop(series, None)
        elif self.errors.get(series) != (due_at, problem):
            self.errors[series] = due_at, problem
            self._log(series, problem)

    def _overdue(self, seen: RetentionSnapshot, times: Mapping[str, ScheduleTimes], now: int) -> dict[str, StoredRule]:
        """The series, of rules in mode enforce, without a success for three periods. What is held is not overdue."""
        keys = {rule.rule.key for rule in seen.state.rules if rule.rule.aspect is not None}
        keys |= set(seen.runs) if self._listed is None else set(seen.runs) & self._listed
        found = {}
        for key in keys:
            rule, runs = seen.state.rule_of(key), seen.runs.get(key)
            if rule is None or rule.rule.mode is not Mode.ENFORCE or seen.state.hold_of(key) is not None:
                continue
            since = max(rule.changed_at, (runs and runs.succeeded_at) or 0)
            period = times[rule.rule.key].period if rule.rule.key in times else DAY
            # After a run planned by a clock that was ahead, none is due until that time.
            is_ahead = runs is not None and runs.last_due > now + period
            if is_ahead or now - since > PERIODS * period:
                found[key] = rule
        return found

    async def _report_jump(self) -> None:
        """Write the event once for all schedulers."""
        if self._unreported_jump:
            if await self._store.lease_retention(f"clock/{self._planner.home}", self._holder, STEADY_MILLIS):
                await self._store.note_clock_jump(SCHEDULER, self._unreported_jump // 1_000)
            self._unreported_jump = 0

    async def _report_overdue(self, seen: RetentionSnapshot, overdue: dict[str, StoredRule]) -> None:
        """Write the event once for all schedulers."""
        details: dict[str, dict[str, Detail] | None] = dict.fromkeys(seen.reported - overdue.keys())
        for series in overdue.keys() - seen.reported:
            runs = seen.runs.get(series)
            details[series] = {
                "rule": overdue[series].rule.series,
                "succeededAt": None if runs is None else runs.succeeded_at,
                "error": self.error_of(series, overdue[series]),
            }
        if details:
            await self._store.note_overdue(SCHEDULER, self._planner.home, details)

    async def _measure(self, listed: dict[str, tuple[Aspect, IndexSize]], day: int) -> None:
        sizes = [SeriesSize(series, day, size.rows, size.size_bytes) for series, (_, size) in listed.items()]
        await self._store.add_sizes(self._planner.home, sizes)
        self._measured = day


_END_THE_TICK = (Reason.STORE_UNAVAILABLE, Reason.OUTCOME_UNKNOWN, Reason.CLOCK_JUMPED)


def _is_current(run: RetentionRun, state: RetentionState) -> bool:
    """Whether the rule of a run is still what it was."""
    rule = state.rule_of(run.series)
    return rule is not None and rule.rule == run.rule


@dataclass(slots=True)
class RetentionRuns:
    """What callers see of runs, and ask for."""

    _store: Store
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

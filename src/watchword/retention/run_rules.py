"""Runs of retention rules, from the plan to the record in the history, and the clock by which they are planned."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY, HOUR
from watchword.index.holds import Hold
from watchword.index.indices import Aspect, Histogram, series_key
from watchword.index.rules import Operation, Plan
from watchword.index.schedules import ScheduleTimes
from watchword.retention.rules import Mode, RetentionRule, RetentionState, StoredRule

MAX_PLANS = 10
"""Series in one page of plans: each takes ten to twenty-five requests to the search index."""
KEEP_DAYS = 400
"""How long runs and sizes of days are kept."""
MAX_JUMP = 5 * 60_000
STEADY_MILLIS = HOUR
PERIODS = 3
"""A rule that has not succeeded for this many periods is overdue."""


class RunState(Enum):
    REPORTED = "REPORTED"  # the rule reports only
    NOTHING_TO_REMOVE = "NOTHING_TO_REMOVE"
    HELD = "HELD"  # a hold was on the series
    WAITING = "WAITING"  # for a person's approval: it would remove more than the rule's `atMost`
    SUPERSEDED = "SUPERSEDED"  # a later run was planned while this one waited
    STARTED = "STARTED"  # its operation has the rest of the story
    FAILED = "FAILED"  # it could not be planned


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """One run of a rule on one series, at one moment of its schedule or when a person asked."""

    number: int
    home: str  # that of `Plan`
    series: str  # in lower case, as the key of a rule
    due_at: int
    state: RunState
    rule: RetentionRule
    plan: Plan | None
    requested_by: str
    made_at: int
    operation: int | None = None
    approved_by: str | None = None
    approved_at: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SeriesSize:
    """How large a series was on a day, counted in days since 1970 in UTC."""

    series: str
    day: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run before the store has it."""

    aspect: Aspect
    rule: StoredRule
    plan: Plan | None
    state: RunState
    home: str = ""
    due_at: int = 0
    error: str | None = None
    by_hand: bool = False  # due at the time of planning, because a person asked

    @property
    def series(self) -> str:
        return series_key(self.aspect)


def outcome(rule: RetentionRule, plan: Plan) -> RunState:
    """The state of a new run without hold or approval."""
    if not plan.rows_to_delete:
        return RunState.NOTHING_TO_REMOVE
    if rule.mode is Mode.REPORT:
        return RunState.REPORTED
    return RunState.WAITING if plan.share > rule.at_most else RunState.STARTED


class SeriesRuns(NamedTuple):
    """What the store knows of the runs of one series."""

    last_due: int
    succeeded_at: int | None  # when the last one ended that removed all it should, or had nothing to remove


class DueRun(NamedTuple):
    aspect: Aspect
    rule: StoredRule
    due_at: int


class OverdueSeries(NamedTuple):
    rule: StoredRule
    since: int  # the last success, or the change of the rule
    succeeded_at: int | None


@dataclass(frozen=True, slots=True)
class RetentionSnapshot:
    """What the scheduler of one search index needs to know, from one read."""

    state: RetentionState
    runs: Mapping[str, SeriesRuns]  # by series
    waiting: tuple[RetentionRun, ...]
    measured: int | None  # the last day whose sizes are known, counted since 1970

    def is_current(self, run: RetentionRun) -> bool:
        """Whether the rule of a run is still what it was."""
        rule = self.state.rule_of(run.series)
        return rule is not None and rule.rule == run.rule

    def due(self, times: Mapping[str, ScheduleTimes], listed: Iterable[Aspect]) -> list[DueRun]:
        """One run for each of these series whose rule has a moment without a run, the longest due first."""
        found = []
        for aspect in listed:
            rule = self.state.rule_of(aspect)
            if rule is None or rule.rule.key not in times:
                continue
            runs, due = self.runs.get(series_key(aspect)), times[rule.rule.key].last
            after = rule.changed_at if runs is None else max(rule.changed_at, runs.last_due)
            if due is not None and due > after:
                found.append(DueRun(aspect, rule, due))
        return sorted(found, key=lambda one: (one.due_at, one.aspect))

    def overdue(
        self, times: Mapping[str, ScheduleTimes], now: int, listed: frozenset[str] | None
    ) -> dict[str, OverdueSeries]:
        """The series, of rules in mode enforce, without a success for PERIODS periods. What is held is not overdue.

        `listed` are the series that have an index; None: not known.
        """
        keys = {rule.rule.key for rule in self.state.rules if rule.rule.aspect is not None}
        keys |= set(self.runs) if listed is None else set(self.runs) & listed
        found = {}
        for key in keys:
            rule, runs = self.state.rule_of(key), self.runs.get(key)
            if rule is None or rule.rule.mode is not Mode.ENFORCE or self.state.hold_of(key) is not None:
                continue
            succeeded_at = None if runs is None else runs.succeeded_at
            since = max(rule.changed_at, succeeded_at or 0)
            period = times[rule.rule.key].period if rule.rule.key in times else DAY
            # After a run planned by a clock that was ahead, none is due until that time.
            is_ahead = runs is not None and runs.last_due > now + period
            if is_ahead or now - since > PERIODS * period:
                found[key] = OverdueSeries(rule, since, succeeded_at)
        return found


class ShownRun(NamedTuple):
    """A run, and its operation where it has one."""

    run: RetentionRun
    operation: Operation | None

    @property
    def state(self) -> str:
        return self.run.state.value if self.operation is None else self.operation.state.value


class RunPage(NamedTuple):
    total: int
    rows: tuple[ShownRun, ...]


@dataclass(frozen=True, slots=True)
class SeriesPlan:
    """What a run on a series would do now. Without a rule, only its rows are known, and by time."""

    aspect: Aspect
    rows: int
    size_bytes: int
    rule: StoredRule | None = None
    hold: Hold | None = None
    next_due: int | None = None
    plan: Plan | None = None
    histogram: Histogram | None = None
    waiting: RetentionRun | None = None
    error: str | None = None

    @property
    def outcome(self) -> RunState | None:
        if self.hold is not None:
            return RunState.HELD
        return None if self.rule is None or self.plan is None else outcome(self.rule.rule, self.plan)

    def spans(self) -> list[tuple[int, int, int]]:
        """Return for each span: start, rows, and how many would be removed; with `keepLast` that is a maximum."""
        found, plan = self.histogram, self.plan
        if found is None or found.spans is None:
            return []
        left = 0 if plan is None else plan.rows_to_delete
        spans = []
        for start, rows in zip(found.spans.starts(), found.counts, strict=True):
            going = min(rows, left) if plan is not None and start <= plan.until else 0
            left -= going
            spans.append((start, rows, going))
        return spans


@dataclass(slots=True)
class SteadyClock:
    """The clock by which runs are planned: the earlier one of two, unless it has jumped ahead.

    A clock that is ahead would make rows look old. So the time that passes on it is compared with the time since the
    machine was started, which cannot be set. After a jump ahead of more than MAX_JUMP nothing is planned until an hour
    has passed without another one. Plans of runs take the time from `steady`. A restart forgets a jump, and a clock
    that was wrong from the start is not noticed.
    """

    _clock: Callable[[], int]
    _host: Callable[[], int]
    _since_boot: Callable[[], int]
    """All in milliseconds."""
    jump: int = 0
    """The milliseconds of the last jump, until someone who has reported it sets it back."""
    _offset: int | None = None
    _steady_at: int = 0

    def __call__(self) -> int:
        return min(self._clock(), self._host())

    def check(self) -> int:
        """Look for a jump. Returns the time that was checked: another reading might be from after a jump."""
        passed, now = self._since_boot(), self()
        jump = 0 if self._offset is None else now - passed - self._offset
        if self._offset is None or not 0 <= jump <= MAX_JUMP:
            self._offset = now - passed
        if jump > MAX_JUMP:
            self._steady_at, self.jump = passed + STEADY_MILLIS, jump
        return now

    def steady(self) -> int:
        """The time, for the plan of a run. CLOCK_JUMPED while the clock cannot be trusted."""
        now = self.check()
        if left := self.unsteady_for:
            raise Fault(
                Reason.CLOCK_JUMPED,
                "The server's clock jumped ahead. No run is planned until it has been steady for an hour.",
                retryAfter=-(-left // 1_000),
            )
        return now

    @property
    def unsteady_for(self) -> int:
        """How many milliseconds nothing may be planned for; 0: the clock can be trusted."""
        return max(0, self._steady_at - self._since_boot())


class RetentionNumbers(NamedTuple):
    """Numbers for the metrics."""

    waiting: int = 0
    overdue: int = 0
    unsteady: bool = False

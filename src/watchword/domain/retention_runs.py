"""Runs of retention rules: from the plan to the record in the history, and the clock that they may be planned by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import Aspect, Histogram
from watchword.domain.operations import Operation, Plan
from watchword.domain.retention import (
    Hold,
    Mode,
    RetentionRule,
    RetentionRun,
    RetentionState,
    RunState,
    StoredRule,
    series_key,
)

MAX_PLANS = 10
"""Series in one page of plans: each takes ten to twenty-five requests to the search index."""
KEEP_DAYS = 400
"""How long runs and sizes of days are kept."""
MAX_JUMP = 5 * 60_000
STEADY_MILLIS = 3_600_000
PERIODS = 3
"""A rule that has not succeeded for so many periods is overdue."""


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
    """What a run comes to, if nothing holds the series and nobody has approved it."""
    if not plan.rows_to_delete:
        return RunState.NOTHING_TO_REMOVE
    if rule.mode is Mode.REPORT:
        return RunState.REPORTED
    return RunState.WAITING if plan.share > rule.at_most else RunState.STARTED


class SeriesRuns(NamedTuple):
    """What the store knows of the runs of one series."""

    last_due: int
    succeeded_at: int | None  # when the last one ended that removed all it should, or had nothing to remove


@dataclass(frozen=True, slots=True)
class RetentionSnapshot:
    """What the scheduler of one search index needs to know, from one read."""

    state: RetentionState
    runs: Mapping[str, SeriesRuns]  # by series
    waiting: tuple[RetentionRun, ...]
    measured: int | None  # the last day whose sizes are known, counted since 1970
    reported: frozenset[str]  # the series that the audit log has as overdue


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
    """What a run on a series would do now. Without a rule, only its rows are known."""

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
        """Of each span of time: its start, its rows, and how many of them would go; with `keepLast` at most so many."""
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


class SteadyClock:
    """The clock by which runs are planned: the earlier one of two, unless it has jumped ahead.

    A clock that is ahead would make rows look old. So the time that passes on it is compared with the time since the
    machine was started, which nobody sets. After a jump ahead of more than MAX_JUMP nothing is planned until an hour
    has passed without another one. Plans of runs take the time from `steady`. A restart forgets a jump, and a clock
    that was wrong from the start is not noticed.
    """

    def __init__(self, clock: Callable[[], int], host: Callable[[], int], since_boot: Callable[[], int]) -> None:
        """All in milliseconds."""
        self._clock, self._host, self._since_boot = clock, host, since_boot
        self._offset: int | None = None
        self._steady_at: int | None = None
        self._new_jump = 0

    def __call__(self) -> int:
        return min(self._clock(), self._host())

    def steady(self) -> int:
        """The time, for the plan of a run. CLOCK_JUMPED while the clock cannot be trusted."""
        now = self._check()
        if left := self.unsteady_for:
            raise Fault(
                Reason.CLOCK_JUMPED,
                "The server's clock jumped ahead. No run is planned until it has been steady for an hour.",
                retryAfter=-(-left // 1_000),
            )
        return now

    def take_jump(self) -> int:
        """Look at the clocks; returns the milliseconds of a jump, once for each."""
        self._check()
        jump, self._new_jump = self._new_jump, 0
        return jump

    def _check(self) -> int:
        """Returns the time that was checked: another reading might be from after a jump."""
        passed, now = self._since_boot(), self()
        offset = now - passed
        jump = 0 if self._offset is None else offset - self._offset
        if self._offset is None or jump < 0 or jump > MAX_JUMP:
            self._offset = offset
        if jump > MAX_JUMP:
            self._steady_at, self._new_jump = passed + STEADY_MILLIS, jump
        return now

    @property
    def unsteady_for(self) -> int:
        """How many milliseconds nothing may be planned for; 0: the clock can be trusted."""
        return 0 if self._steady_at is None else max(0, self._steady_at - self._since_boot())


class RetentionNumbers(NamedTuple):
    """For the metrics."""

    waiting: int = 0
    overdue: int = 0
    unsteady: bool = False

"""Retention: rules, which say which rows of a time series may go, when, and how many at once; their runs, from the plan
to the record in the history; and rules made from a recipe of `datahub-gc`.

A series is the rows of one aspect. Every rule comes down to one moment, `until`, which is fixed when a run is planned
and never later than then minus `keep`. Time only makes rows older, so no step of a run, however late, removes a row
that is younger than `keep`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from enum import Enum
from itertools import islice, pairwise
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from watchword.domain.engine import MAX_KEEP_LAST
from watchword.domain.errors import Fault, Reason, check_known, check_length, check_whole, invalid
from watchword.domain.indices import DATAHUB_GC_SERIES, Aspect, Histogram, parse_aspect
from watchword.domain.lifetimes import DAY, HOUR, MINUTE, iso, parse_iso, written_iso
from watchword.domain.operations import Operation, Plan
from watchword.domain.policies import ChangeKind, PartPlan, declared_elsewhere

EVERY_SERIES = "*"
FIELDS = (
    "series", "keep", "removeAfter", "maxSize", "maxRows", "keepLast", "schedule", "timeZone", "window", "atMost",
    "mode", "hold",
)  # fmt: skip
DURATIONS = frozenset({"keep", "removeAfter"})
"""The fields that are durations, in ISO 8601."""
MAX_RULES = 1_000
DEFAULT_SCHEDULE = "0 1 * * *"
DEFAULT_AT_MOST = 50.0
MAX_ROWS = 10**15
LONGEST = 36_500 * DAY
MAX_REASON = 500
MAX_SCHEDULE = 200
_UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([1-9]\d{0,5})\s?(kB|MB|GB|TB)", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_LOOK_BACK = (HOUR, *(days * DAY for days in (2, 40, 400, 3_000)))
"""How far back the last moment of a schedule is looked for: that of every hour is found near, that of every 29th of
February far away.
"""


class Mode(Enum):
    REPORT = "REPORT"  # plan and record, remove nothing
    ENFORCE = "ENFORCE"


class Window(NamedTuple):
    """A part of the day in which runs may work: from `opens`, up to `closes`, which may be on the next day."""

    opens: time_of_day
    closes: time_of_day

    def __str__(self) -> str:
        return f"{self.opens:%H:%M}-{self.closes:%H:%M}"

    def is_open(self, now: int, zone: ZoneInfo) -> bool:
        at = _local(now, zone).time()
        if self.opens < self.closes:
            return self.opens <= at < self.closes
        return at >= self.opens or at < self.closes

    def next_opening(self, now: int, zone: ZoneInfo) -> int:
        """The first moment from now on at which it is open."""
        if self.is_open(now, zone):
            return now
        today = _local(now, zone).date()
        for days in range(3):
            opens = datetime.combine(today + timedelta(days=days), self.opens, zone)
            # Where clocks change, a time of day comes twice, or is skipped: then the window opens in between.
            first, last = sorted(_millis(opens.replace(fold=fold)) for fold in (0, 1))
            for at in range(first, last + 1, MINUTE):
                if at > now and self.is_open(at, zone):
                    return at
        raise AssertionError(self)


class ScheduleTimes(NamedTuple):
    """The moments of a schedule around a time."""

    last: int | None  # the last one up to then
    following: int
    period: int

    def is_of(self, now: int) -> bool:
        """Whether they are the moments around this time too."""
        return (self.last or self.following) <= now < self.following


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What is kept of a series. Durations are milliseconds, sizes bytes."""

    series: str  # `entity.aspect`, or `*` for every series without a rule of its own
    keep: int
    remove_after: int | None = None
    max_size: int | None = None
    max_rows: int | None = None
    keep_last: int | None = None
    schedule: str = DEFAULT_SCHEDULE
    time_zone: str = "UTC"
    window: Window | None = None
    at_most: float = DEFAULT_AT_MOST  # percent of the rows
    mode: Mode = Mode.REPORT
    hold: str | None = None

    @property
    def key(self) -> str:
        return self.series.lower()

    @property
    def aspect(self) -> Aspect | None:
        return None if self.series == EVERY_SERIES else parse_aspect(self.series)

    @property
    def zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.time_zone)
        except (OSError, ValueError, KeyError):
            raise invalid("timeZone", f"The time zone {self.time_zone} is not installed on this server.") from None

    @property
    def age(self) -> int | None:
        """Rows that are older go. None: only `maxSize` and `maxRows` remove rows."""
        if self.remove_after is None and self.max_size is None and self.max_rows is None:
            return self.keep
        return self.remove_after

    def last_due(self, after: int, now: int) -> int | None:
        """The last moment of the schedule after one moment and up to another. However many were missed, one is due."""
        for span in _LOOK_BACK:
            begin = max(after, now - span)
            last = None
            for moment in self.moments(begin):
                if moment > now:
                    break
                last = moment
            if last is not None or begin == after:
                return last
        return None

    def next_due(self, now: int) -> int:
        return next(self.moments(now))

    def times(self, now: int) -> ScheduleTimes:
        """The period is the longer one of the current and the one before, or the next where there are none yet."""
        last, following = self.last_due(now - _LOOK_BACK[-1], now), self.next_due(now)
        if last is None:
            return ScheduleTimes(None, following, self.next_due(following) - following)
        before = self.last_due(last - _LOOK_BACK[-1], last - 1)
        return ScheduleTimes(last, following, max(following - last, 0 if before is None else last - before))

    def moments(self, after: int) -> Iterator[int]:
        """Debian cron's rules at the change to and from summer time: what falls into a skipped hour happens right after
        it, what falls into a repeated hour happens once.
        """
        found = map(_millis, CronSim(self.schedule, _local(after, self.zone)))
        # In the second of two equal hours the library begins with moments of the first.
        return (moment for moment in found if moment > after)

    def written(self) -> dict[str, Any]:
        """Return the fields as in a policy file, under the names in FIELDS, without absent ones; see `parse_rule`."""
        ages = {"keep": self.keep, "removeAfter": self.remove_after}
        values: dict[str, Any] = {
            "series": self.series,
            **{name: None if age is None else written_iso(age) for name, age in ages.items()},
            "maxSize": None if self.max_size is None else _written_size(self.max_size),
            "maxRows": self.max_rows,
            "keepLast": self.keep_last,
            "schedule": self.schedule,
            "timeZone": self.time_zone,
            "window": None if self.window is None else str(self.window),
            "atMost": f"{self.at_most:g}%",
            "mode": self.mode.value.lower(),
            "hold": self.hold,
        }
        return {name: value for name, value in values.items() if value is not None}

    def packed(self) -> dict[str, Any]:
        """Plain values, for the store."""
        window = None if self.window is None else str(self.window)
        return asdict(self) | {"window": window, "mode": self.mode.value}

    @classmethod
    def unpacked(cls, content: dict[str, Any]) -> Self:
        window = content["window"]
        return cls(
            **content
            | {"window": None if window is None else parse_window(window, "window"), "mode": Mode(content["mode"])}
        )


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
class Hold:
    """Nothing of the series is removed, by rule or by hand, while it lasts."""

    series: str  # in lower case, or `*`
    reason: str
    set_by: str
    set_at: int
    by_rule: bool = False  # declared by a rule, and released with it

    def __str__(self) -> str:
        what = "Every series" if self.series == EVERY_SERIES else self.series
        return f"{what} is held since {iso(self.set_at)} by {self.set_by}: {self.reason}"

    def refusal(self, message: str) -> Fault:
        """The fault for what the hold forbids. The message follows who set the hold, since when and why."""
        end = "" if self.reason.endswith((".", "!", "?")) else "."
        return Fault(
            Reason.SERIES_HELD,
            f"{self}{end} {message}",
            series=self.series,
            setBy=self.set_by,
            setAt=self.set_at,
            holdReason=self.reason,
        )


@dataclass(frozen=True, slots=True)
class SeriesSize:
    """How large a series was on a day, counted in days since 1970 in UTC."""

    series: str
    day: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredRule:
    rule: RetentionRule
    set_name: str | None  # the policy set that declares it
    changed_at: int  # a schedule counts from here on: no moment before it is due
    changed_by: str


@dataclass(frozen=True, slots=True)
class RetentionState:
    """All that decides what is removed."""

    rules: tuple[StoredRule, ...] = ()
    holds: tuple[Hold, ...] = field(default=())
    _rules: dict[str, StoredRule] = field(init=False, repr=False, compare=False)
    _holds: dict[str, Hold] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rules", {one.rule.key: one for one in self.rules})
        object.__setattr__(self, "_holds", {one.series: one for one in self.holds})

    def rule_of(self, series: Aspect | str) -> StoredRule | None:
        """The rule of the series, or else that of every series."""
        return self._rules.get(series_key(series)) or self._rules.get(EVERY_SERIES)

    def hold_of(self, series: Aspect | str) -> Hold | None:
        return self._holds.get(series_key(series)) or self._holds.get(EVERY_SERIES)


@dataclass(frozen=True, slots=True)
class RuleChange:
    kind: ChangeKind
    series: str
    before: StoredRule | None
    after: RetentionRule | None
    set_name: str | None

    @property
    def key(self) -> str:
        return self.series.lower()


RulePlan = PartPlan[StoredRule, RuleChange]


def plan_rules(
    current: Iterable[StoredRule], declared: Sequence[RetentionRule], set_name: str, *, prune: bool
) -> RulePlan:
    """What turns the current rules into those that a policy set declares. A rule made by the API joins the set; one of
    another set is a conflict.
    """
    kept = {one.rule.key: one for one in current}
    changes: list[RuleChange] = []
    for rule in declared:
        before = kept.pop(rule.key, None)
        if before is None:
            changes.append(RuleChange(ChangeKind.CREATE, rule.series, None, rule, set_name))
        elif before.set_name not in (None, set_name):
            raise declared_elsewhere(f"The retention rule {rule.series}", before.set_name, set_name)
        elif (before.rule, before.set_name) != (rule, set_name):
            changes.append(RuleChange(ChangeKind.UPDATE, rule.series, before, rule, set_name))
    left = tuple(one for one in kept.values() if one.set_name == set_name)
    if not prune:
        return RulePlan(tuple(changes), left)
    gone = (RuleChange(ChangeKind.DELETE, one.rule.series, one, None, None) for one in left)
    return RulePlan((*changes, *gone))


def series_key(series: Aspect | str) -> str:
    return str(series).lower()


def check_series(value: object, where: str = "series") -> str:
    """`entity.aspect` or `*`, in the given spelling."""
    if value == EVERY_SERIES:
        return EVERY_SERIES
    try:
        return str(parse_aspect(value if isinstance(value, str) else ""))
    except ValueError:
        raise invalid(
            where, f"{where} must be entity.aspect, such as dataset.datasetUsageStatistics, or * for every series."
        ) from None


def check_hold_reason(value: object, where: str = "reason") -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_REASON or not value.isprintable():
        raise invalid(where, f"{where} must be printable text of 1 to {MAX_REASON} characters on one line.")
    return value


def check_rules(declared: Sequence[Mapping[str, Any]]) -> tuple[RetentionRule, ...]:
    """The rules that a policy set declares. A fault names the entry of `retention` and the field."""
    check_length(declared, "retention", MAX_RULES)
    rules: dict[str, RetentionRule] = {}
    for index, values in enumerate(declared):
        where = f"retention[{index}]."
        rule = parse_rule(values, where)
        if rule.key in rules:
            raise invalid(f"{where}series", f"{where}series is declared twice; a series has one rule.")
        rules[rule.key] = rule
    return tuple(rules.values())


def parse_rule(written: Mapping[str, Any], where: str = "") -> RetentionRule:
    """Parse plain values under the names in FIELDS. A fault names the field, after the prefix `where`."""
    check_known(written, FIELDS, where)
    given = {name: value for name, value in written.items() if value is not None}
    for needed in ("series", "keep"):
        if needed not in given:
            raise invalid(where + needed, f"{where}{needed} must be given.")
    series = check_series(given["series"], where + "series")
    keep = _duration(given["keep"], where + "keep", 0)
    remove_after = given.get("removeAfter")
    if remove_after is not None:
        remove_after = _duration(remove_after, where + "removeAfter", keep)
    mode = _mode(given.get("mode", Mode.REPORT.value), where + "mode")
    window, hold = given.get("window"), given.get("hold")
    rule = RetentionRule(
        series=series,
        keep=keep,
        remove_after=remove_after,
        max_size=_size(given["maxSize"], where + "maxSize") if "maxSize" in given else None,
        max_rows=check_whole(given["maxRows"], where + "maxRows", 1, MAX_ROWS) if "maxRows" in given else None,
        keep_last=check_whole(given["keepLast"], where + "keepLast", 1, MAX_KEEP_LAST) if "keepLast" in given else None,
        schedule=_schedule(given.get("schedule", DEFAULT_SCHEDULE), where + "schedule"),
        time_zone=_zone(given.get("timeZone", "UTC"), where + "timeZone"),
        window=None if window is None else parse_window(window, where + "window"),
        at_most=_share(given["atMost"], where + "atMost") if "atMost" in given else DEFAULT_AT_MOST,
        mode=mode,
        hold=None if hold is None else check_hold_reason(hold, where + "hold"),
    )
    # Two of any three in a row are in one hour where the schedule has several minutes. UTC has no summer time.
    moments = list(islice(replace(rule, time_zone="UTC").moments(0), 3))
    if not moments:  # such as the 30th of February
        raise invalid(where + "schedule", f"{where}schedule has no moment in the years to come.")
    if any(later - earlier < HOUR for earlier, later in pairwise(moments)):
        raise invalid(where + "schedule", f"{where}schedule must leave at least an hour between runs.")
    return rule


def _duration(value: object, where: str, least: int) -> int:
    length = parse_iso(value if isinstance(value, str) else "", where)
    if not least <= length <= LONGEST:
        raise invalid(where, f"{where} must be {'at least keep, and ' if least else ''}at most P36500D.")
    return length


def _size(value: object, where: str) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise invalid(
            where, f"{where} must be a size from 1kB to 999999TB, such as 500MB; the units are {', '.join(_UNITS)}."
        )
    return int(match[1]) * _UNITS[match[2]]


def _written_size(size: int) -> str:
    """Format a size in the largest unit of which it is a whole number."""
    unit = next(name for name, number in reversed(_UNITS.items()) if size % number == 0)
    return f"{size // _UNITS[unit]}{unit}"


def _share(value: object, where: str) -> float:
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise invalid(where, f"{where} must be a share of the rows from 0% to 100%, such as 20%.")
    return float(match[1])


def _mode(value: object, where: str) -> Mode:
    try:
        return Mode(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise invalid(where, f"{where} must be report or enforce.") from None


def parse_window(value: object, where: str = "window") -> Window:
    match = _WINDOW.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] + match[2] == match[3] + match[4]:
        raise invalid(where, f"{where} must be two different times of day, such as 22:00-06:00.")
    opens, closes = (time_of_day(int(match[n]), int(match[n + 1])) for n in (1, 3))
    return Window(opens, closes)


def _zone(value: object, where: str) -> str:
    try:
        zone = ZoneInfo(value if isinstance(value, str) else "").key
    except (OSError, ValueError, KeyError):
        zone = ""
    if not zone or zone in ("localtime", "posixrules", "Factory") or zone.startswith(("right/", "posix/")):
        # Those differ from machine to machine.
        raise invalid(where, f"{where} must be a time zone such as UTC or Europe/Berlin.")
    return zone


def _schedule(value: object, where: str) -> str:
    if isinstance(value, str) and len(value) <= MAX_SCHEDULE and len(value.split()) == 5:
        try:
            CronSim(value, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            problem = f": {error}"
        else:
            return " ".join(value.split())
    else:
        problem = ""
    raise invalid(where, f"{where} must be five fields of cron, such as 0 1 * * *{problem}.")


def _local(millis: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(millis / 1_000, zone)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


MAX_PLANS = 10
"""Series in one page of plans: each takes ten to twenty-five requests to the search index."""
KEEP_DAYS = 400
"""How long runs and sizes of days are kept."""
MAX_JUMP = 5 * 60_000
STEADY_MILLIS = HOUR
PERIODS = 3
"""A rule that has not succeeded for this many periods is overdue."""


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


class SteadyClock:
    """The clock by which runs are planned: the earlier one of two, unless it has jumped ahead.

    A clock that is ahead would make rows look old. So the time that passes on it is compared with the time since the
    machine was started, which cannot be set. After a jump ahead of more than MAX_JUMP nothing is planned until an hour
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
    """Numbers for the metrics."""

    waiting: int = 0
    overdue: int = 0
    unsteady: bool = False


DATAHUB_GC = "datahub-gc"
"""The ingestion source with which DataHub truncates time series."""
_GC_DAYS = 30
_GC_MAX_DAYS = 36_500
_GC_USED = ("truncate_indices", "truncate_index_older_than_days")
_GC_NOTES = {
    "dry_run": "is not needed: datahub-gc truncates in a dry run too, while a rule removes nothing in the mode report",
    "cleanup_expired_tokens": "is not needed: expired tokens are purged after WATCHWORD_DEAD_TOKEN_DAYS",
    "truncation_watch_until": "is not needed: no program waits for a run",
    "truncation_sleep_between_seconds": "is not needed: no program waits for a run",
}


class ConvertedRecipe(NamedTuple):
    rules: tuple[RetentionRule, ...]
    warnings: tuple[str, ...]


def rules_of_recipe(recipe: Any) -> ConvertedRecipe:
    """The rules that remove what the recipe removes. They only report until someone sets another mode."""
    source = _mapping(_mapping(recipe, "the recipe").get("source"), "source")
    if source.get("type") != DATAHUB_GC:
        raise invalid("source.type", f"source.type must be {DATAHUB_GC}.")
    config = _mapping(source.get("config"), "source.config")
    days = config.get("truncate_index_older_than_days", _GC_DAYS)
    check_whole(days, "source.config.truncate_index_older_than_days", 0, _GC_MAX_DAYS)
    warnings = [
        f"{name} {_GC_NOTES.get(name, 'has no counterpart here. Leave it to datahub-gc')}."
        for name in config
        if name not in _GC_USED
    ]
    if config.get("truncate_indices") is False:
        return ConvertedRecipe((), (*warnings, "truncate_indices is false, so there is no rule to write."))
    schedule = _mapping(recipe.get("schedule"), "schedule")
    timing = {"schedule": schedule.get("interval"), "timeZone": schedule.get("timezone")}
    rules = [parse_rule({"series": series, "keep": f"P{days}D", **timing}) for series in DATAHUB_GC_SERIES]
    return ConvertedRecipe(tuple(rules), tuple(warnings))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None and where != "the recipe":
        return {}
    if not isinstance(value, Mapping):
        raise invalid(where, f"{where} must be a mapping, as in an ingestion recipe.")
    return {str(name): one for name, one in value.items()}

"""Retention rules: which rows of a time series may go, when, and how many at once.

A series is the rows of one aspect. Every rule comes down to one moment, `until`, which is fixed when a run is planned
and never later than then minus `keep`. Time only makes rows older, so no step of a run, however late, removes a row
that is younger than `keep`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self
from zoneinfo import ZoneInfo

from watchword.authority.declared_parts import FieldForm, FileField, Json, ListFields, Part
from watchword.basics.errors import check_known, check_whole, invalid
from watchword.basics.times import DAY, parse_iso, written_iso
from watchword.index.engine import MAX_KEEP_LAST
from watchword.index.holds import Hold, check_hold_reason
from watchword.index.indices import EVERY_SERIES, Aspect, check_series, parse_aspect, series_key
from watchword.index.schedules import Schedule, Window, parse_cron, parse_window, parse_zone

DURATIONS = frozenset({"keep", "removeAfter"})
"""The fields that are durations, in ISO 8601."""
MAX_RULES = 1_000
MAX_ROWS = 10**15
LONGEST = 36_500 * DAY
_UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([1-9]\d{0,5})\s?(kB|MB|GB|TB)", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)


class Mode(Enum):
    REPORT = "REPORT"  # plan and record, remove nothing
    ENFORCE = "ENFORCE"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What is kept of a series. Durations are milliseconds, sizes bytes."""

    series: str  # `entity.aspect`, or `*` for every series without a rule of its own
    keep: int
    remove_after: int | None = None
    max_size: int | None = None
    max_rows: int | None = None
    keep_last: int | None = None
    schedule: str = "0 1 * * *"
    time_zone: str = "UTC"
    window: Window | None = None
    at_most: float = 50.0  # percent of the rows
    mode: Mode = Mode.REPORT
    hold: str | None = None

    @property
    def key(self) -> str:
        return self.series.lower()

    @property
    def aspect(self) -> Aspect | None:
        return None if self.series == EVERY_SERIES else parse_aspect(self.series)

    @property
    def times(self) -> Schedule:
        try:
            return Schedule(self.schedule, ZoneInfo(self.time_zone))
        except (OSError, ValueError, KeyError):
            raise invalid("timeZone", f"The time zone {self.time_zone} is not installed on this server.") from None

    @property
    def age(self) -> int | None:
        """Rows that are older go. None: only `maxSize` and `maxRows` remove rows."""
        if self.remove_after is None and self.max_size is None and self.max_rows is None:
            return self.keep
        return self.remove_after

    def written(self) -> dict[str, Any]:
        """Return the fields as in a policy file, under the names in FIELDS, without absent ones; see `parse_rule`."""
        given = {name: getattr(self, one.attribute) for name, one in _FIELDS.items()}
        return {name: _FIELDS[name].write(value) for name, value in given.items() if value is not None}

    def packed(self) -> dict[str, Any]:
        """Plain values, for the store."""
        window = None if self.window is None else str(self.window)
        return asdict(self) | {"window": window, "mode": self.mode.value}

    @classmethod
    def unpacked(cls, content: dict[str, Any]) -> Self:
        window = None if content["window"] is None else parse_window(content["window"])
        return cls(**content | {"window": window, "mode": Mode(content["mode"])})


@dataclass(frozen=True, slots=True)
class StoredRule:
    rule: RetentionRule
    set_name: str | None  # the policy set that declares it
    changed_at: int = 0  # a schedule counts from here on: no moment before it is due
    changed_by: str = ""


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


def parse_rule(written: Mapping[str, Any]) -> RetentionRule:
    """Parse plain values under the names in FIELDS. A fault names the field."""
    check_known(written, FIELDS)
    given = {name: value for name, value in written.items() if value is not None}
    for needed in ("series", "keep"):
        if needed not in given:
            raise invalid(needed, f"{needed} must be given.")
    rule = RetentionRule(
        **{one.attribute: one.read(given[name], name) for name, one in _FIELDS.items() if name in given}
    )
    for name, length, least in (("keep", rule.keep, 0), ("removeAfter", rule.remove_after, rule.keep)):
        if length is not None and not least <= length <= LONGEST:
            raise invalid(name, f"{name} must be {'at least keep, and ' if least else ''}at most P36500D.")
    return rule


def _duration(value: object, where: str) -> int:
    return parse_iso(value if isinstance(value, str) else "", where)


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


class _Field(NamedTuple):
    """How a field of a rule is read from a policy file, and written into one."""

    attribute: str
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any]


_FIELDS = {
    "series": _Field("series", check_series, str),
    "keep": _Field("keep", _duration, written_iso),
    "removeAfter": _Field("remove_after", _duration, written_iso),
    "maxSize": _Field("max_size", _size, _written_size),
    "maxRows": _Field("max_rows", partial(check_whole, least=1, most=MAX_ROWS), int),
    "keepLast": _Field("keep_last", partial(check_whole, least=1, most=MAX_KEEP_LAST), int),
    "schedule": _Field("schedule", parse_cron, str),
    "timeZone": _Field("time_zone", parse_zone, str),
    "window": _Field("window", parse_window, str),
    "atMost": _Field("at_most", _share, "{:g}%".format),
    "mode": _Field("mode", _mode, lambda mode: mode.value.lower()),
    "hold": _Field("hold", check_hold_reason, str),
}
FIELDS = tuple(_FIELDS)


class RulePart(Part[StoredRule]):
    """Retention rules. That a caller may change them is checked for each change."""

    lists: ClassVar[ListFields] = {
        "retention": {
            name: FileField(
                FieldForm.DURATION if name in DURATIONS else FieldForm.PLAIN, name in {"series", "keep"}, nullable=True
            )
            for name in FIELDS
        }
    }

    most, key_field, unique, title = MAX_RULES, "series", "a series has one rule", "The retention rule {}"

    def parse_entry(self, name: str, given: Json, set_name: str) -> StoredRule:
        return StoredRule(parse_rule(given), set_name)

    def name(self, one: StoredRule) -> str:
        return one.rule.series

    def key(self, one: StoredRule) -> str:
        return one.rule.key

    def written(self, one: StoredRule) -> dict[str, Any]:
        return one.rule.written()


RULE_PART = RulePart()

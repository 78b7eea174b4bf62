"""Filters and sort order of token lists.

Filters are ANDed; the values of one filter are ORed. A missing value never matches, negated or not; only a
negated EXISTS finds it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from watchword.authority.limits import ScopeLimit
from watchword.basics.errors import check_length, invalid
from watchword.basics.names import check_text, own_token_urn
from watchword.basics.paging import DEFAULT_COUNT, LARGEST, MAX_COUNT
from watchword.basics.times import parse_iso
from watchword.tokens.rules import SUSPENDED, TokenRecord, TokenStatus, TokenType

MAX_FILTERS = 20
MAX_VALUES = 300
MAX_CHARACTERS = 50_000  # in all filters of a list
MAX_VALUE = 1_000
MAX_TESTS = 8
TEXT_TESTS = 4  # what a value of `text` counts for: it is compared with several columns
MAX_TESTED = 5_000  # characters of the values that are compared with each token: all but EQUAL and IN
MAX_EFFORT = MAX_TESTS  # full scans over all tokens in one request
MAX_PINNED_EFFORT = 5 * MAX_EFFORT  # scans over the tokens of one actor or owner in one request

Value = str | int


class Condition(Enum):
    __hash__ = object.__hash__  # see Field

    EQUAL = "EQUAL"
    IEQUAL = "IEQUAL"
    IN = "IN"
    CONTAIN = "CONTAIN"
    START_WITH = "START_WITH"
    END_WITH = "END_WITH"
    EXISTS = "EXISTS"
    GREATER_THAN = "GREATER_THAN"
    GREATER_THAN_OR_EQUAL_TO = "GREATER_THAN_OR_EQUAL_TO"
    LESS_THAN = "LESS_THAN"
    LESS_THAN_OR_EQUAL_TO = "LESS_THAN_OR_EQUAL_TO"


_ANY = (Condition.EQUAL, Condition.IN, Condition.EXISTS)
_TEXT = (*_ANY, Condition.IEQUAL, Condition.CONTAIN, Condition.START_WITH, Condition.END_WITH)
_NUMBER = (
    *_ANY,
    Condition.GREATER_THAN,
    Condition.GREATER_THAN_OR_EQUAL_TO,
    Condition.LESS_THAN,
    Condition.LESS_THAN_OR_EQUAL_TO,
)


class FieldKind(NamedTuple):
    conditions: tuple[Condition, ...]
    words: tuple[str, ...] = ()
    numeric: bool = False
    timed: bool = False  # whether the number is a time, which may be given as a duration before now


_text = FieldKind(_TEXT)
_id = FieldKind(_ANY)
_number = FieldKind(_NUMBER, numeric=True)
_time = FieldKind(_NUMBER, numeric=True, timed=True)


class Field(Enum):
    # By identity, which is faster than Enum's hash of the name.
    __hash__ = object.__hash__

    def __init__(self, word: str, kind: FieldKind) -> None:
        self.word = word
        self.kind = kind

    ID = ("id", _text)
    URN = ("urn", _text)
    NAME = ("name", _text)
    DESCRIPTION = ("description", _text)
    ACTOR_URN = ("actorUrn", _text)
    OWNER_URN = ("ownerUrn", _text)
    TOKEN_TYPE = ("tokenType", FieldKind(_ANY, tuple(t.value for t in TokenType)))
    STATUS = ("status", FieldKind(_ANY, tuple(s.value for s in TokenStatus)))
    EFFECTIVE_STATUS = ("effectiveStatus", FieldKind(_ANY, (*(s.value for s in TokenStatus), SUSPENDED)))
    PARENT = ("parentId", _id)
    CREATED_WITH = ("createdWith", _id)
    CREATED_AT = ("createdAt", _time)
    EXPIRES_AT = ("expiresAt", _time)
    LAST_USED_AT = ("lastUsedAt", _time)
    LAST_ACTIVITY_AT = ("lastActivityAt", _time)  # last use, or creation if never used: finds every idle token
    REVOKED_AT = ("revokedAt", _time)
    USE_COUNT = ("useCount", _number)
    LAST_NETWORK = ("lastNetwork", _text)
    SCOPE = ("scope", _id)  # a scope that the token names; missing: the token has no limit of scopes
    # Name, description, id, and the urns and names of actor and owner, in any case.
    TEXT = ("text", FieldKind((Condition.CONTAIN,)))


_STATUSES = (Field.STATUS, Field.EFFECTIVE_STATUS)
_BY_WORD = {field.word: field for field in Field}


class Filter(NamedTuple):
    field: Field
    condition: Condition
    values: tuple[Value, ...]
    negated: bool = False

    def pins(self, field: Field, value: str) -> bool:
        """Whether this filter allows only this value of the field."""
        return (
            self.field is field
            and not self.negated
            and (self.condition is Condition.EQUAL or self.condition is Condition.IN)
            and (self.values == (value,) or set(self.values) == {value})
        )

    @property
    def names_status(self) -> bool:
        return self.field in _STATUSES

    @property
    def is_looked_up(self) -> bool:
        """Whether a value is looked up; otherwise each is compared with each token."""
        return self.condition in (Condition.EQUAL, Condition.IN) and self.field is not Field.SCOPE


def parse_filters(filters: Sequence[Mapping[str, Any]], now: int) -> tuple[Filter, ...]:
    check_filter_sizes([len(one.get("values") or ()) for one in filters])
    return check_tests(tuple(parse_filter(f"filters[{index}]", one, now) for index, one in enumerate(filters)))


def parse_filter(where: str, fields: Mapping[str, Any], now: int) -> Filter:
    """Parse one filter. `where` is its path in the input; durations count back from `now`."""
    field, condition = fields["field"], fields.get("condition")
    known = _BY_WORD.get(field)
    if known is None:
        raise invalid(f"{where}.field", f"{where}.field must be one of: {', '.join(_BY_WORD)}.")
    chosen = Condition(condition) if condition else Condition.EQUAL
    if chosen not in known.kind.conditions:
        allowed = ", ".join(c.value for c in known.kind.conditions)
        raise invalid(f"{where}.condition", f"{where}.condition on {field} must be one of: {allowed}.")
    given = _given(fields)
    if chosen is Condition.EXISTS:
        if given:
            raise invalid(f"{where}.values", f"{where}: EXISTS takes no value.")
    elif not given:
        raise invalid(f"{where}.value", f"{where} needs value or values.")
    parsed = dict.fromkeys(_parse_value(known, text, f"{where}.values", now) for text in given)
    return Filter(known, chosen, tuple(parsed), bool(fields.get("negated")))


def depend_on_now(filters: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of these valid filters has a duration, which counts back from now."""
    return any(_is_duration(_BY_WORD[one["field"]], text) for one in filters for text in _given(one))


def _given(fields: Mapping[str, Any]) -> list[str]:
    value = fields.get("value")
    return [*([value] if value is not None else []), *(fields.get("values") or [])]


def _is_duration(field: Field, text: str) -> bool:
    return field.kind.timed and text.startswith("P")


def _parse_value(field: Field, text: str, where: str, now: int) -> Value:
    check_text(text, where, MAX_VALUE)
    if _is_duration(field, text):
        return now - parse_iso(text, where)
    if field.kind.numeric:
        return _parse_number(text, where, field.kind)
    if field.kind.words and text not in field.kind.words:
        raise invalid(where, f"{where} for {field.word} must be one of: {', '.join(field.kind.words)}.")
    if field is Field.SCOPE:
        return ScopeLimit.check(text, where)
    return own_token_urn(text) if field is Field.URN else text


def _parse_number(text: str, where: str, kind: FieldKind) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19 and abs(int(text)) <= LARGEST:
        return int(text)
    if kind.timed:
        raise invalid(
            where,
            f"{where} must be a whole number of milliseconds since 1970, such as 1767225600000, or an ISO 8601 "
            "duration before now, such as P90D.",
        )
    raise invalid(where, f"{where} must be a whole number, such as 10.")


class SortField(Enum):
    """The fields a list can be sorted by; the id breaks ties, and missing values come last."""

    EXPIRES_AT = Field.EXPIRES_AT
    CREATED_AT = Field.CREATED_AT
    LAST_USED_AT = Field.LAST_USED_AT
    LAST_ACTIVITY_AT = Field.LAST_ACTIVITY_AT
    USE_COUNT = Field.USE_COUNT
    NAME = Field.NAME
    ACTOR_URN = Field.ACTOR_URN
    OWNER_URN = Field.OWNER_URN
    ID = Field.ID


class Sort(NamedTuple):
    field: SortField = SortField.EXPIRES_AT
    descending: bool = True


BY_END = Sort()  # the default order


def parse_sort(field: str, descending: bool) -> Sort:
    for known in SortField:
        if known.value.word == field:
            return Sort(known, descending)
    allowed = ", ".join(known.value.word for known in SortField)
    raise invalid("sort.field", f"sort.field must be one of: {allowed}.")


_PINNED = (Field.ACTOR_URN, Field.OWNER_URN)


@dataclass(frozen=True)
class Search:
    """One page to read. `own` is the server's constraint: (field, the caller's urn). Without slots, for the cached
    properties.
    """

    start: int = 0
    count: int = DEFAULT_COUNT
    filters: tuple[Filter, ...] = ()
    sort: Sort = BY_END
    own: tuple[Field, str] | None = None
    record_fields: frozenset[str] | None = None
    """The record fields the caller reads, so that the store selects no others; None: all. The id is always read."""
    json_fields: tuple[Field, ...] | None = None
    """The rows are wanted as JSON objects of these fields, in this order; None: as records."""

    @cached_property
    def pinned(self) -> str | None:
        """The actor or owner that a filter limits the search to."""
        for f in self.filters:
            if f.field in _PINNED and len(f.values) == 1 and f.pins(f.field, str(f.values[0])):
                return str(f.values[0])
        return None

    @cached_property
    def effort(self) -> int:
        """Scans over all tokens, or over those of the pinned actor; 0 when an index gives the order."""
        unfiltered = len(self.filters) == (0 if self.pinned is None else 1)
        if unfiltered and self.sort == BY_END and self.start <= MAX_COUNT:
            return 0
        return max(1, _tests(self.filters))

    def held_to(self, field: Field, value: str) -> "Search":
        """The search with the server's constraint."""
        own = (field, value)
        return Search(self.start, self.count, self.filters, self.sort, own, self.record_fields, self.json_fields)

    @property
    def shows_revoked(self) -> bool:
        """Whether a filter names a status, and none excludes revoked tokens."""
        named = [f for f in self.filters if f.names_status]
        return bool(named) and all(
            (f.condition is Condition.EXISTS or TokenStatus.REVOKED.value in f.values) != f.negated for f in named
        )


def check_filter_sizes(values: Sequence[int]) -> None:
    check_length(values, "filters", MAX_FILTERS)
    if sum(values) > MAX_VALUES:
        raise invalid("filters.values", f"filters may have at most {MAX_VALUES:,} values together.")


def check_tests(filters: tuple[Filter, ...]) -> tuple[Filter, ...]:
    """EQUAL and IN look a value up, except that of a scope; all others are compared with each token."""
    if _characters(value for f in filters for value in f.values) > MAX_CHARACTERS:
        raise invalid("filters.values", f"filters may have at most {MAX_CHARACTERS:,} characters of values together.")
    if _tests(filters) > MAX_TESTS:
        raise invalid(
            "filters.values",
            f"filters other than EQUAL and IN may have at most {MAX_TESTS} values together. Those of scope count too, "
            f"and one of text counts as {TEXT_TESTS}.",
        )
    if _characters(value for f in filters if not f.is_looked_up for value in f.values) > MAX_TESTED:
        raise invalid(
            "filters.values",
            f"filters other than EQUAL and IN may have at most {MAX_TESTED:,} characters of values together.",
        )
    return filters


def _tests(filters: Iterable[Filter]) -> int:
    """How many values are compared with each token."""
    return sum(len(f.values) * (TEXT_TESTS if f.field is Field.TEXT else 1) for f in filters if not f.is_looked_up)


def check_effort(effort: int, pinned_effort: int) -> None:
    limits = (
        (pinned_effort, MAX_PINNED_EFFORT, "the tokens of one actorUrn or ownerUrn", "Send several requests."),
        (effort, MAX_EFFORT, "all tokens", "Narrow them to an actorUrn or ownerUrn."),
    )
    for used, most, scanned, advice in limits:
        if used > most:
            raise invalid(
                "filters",
                f"The lists of one request may scan {scanned} at most {most} times together: once for each list and "
                f"for each value of other conditions than EQUAL and IN. {advice}",
            )


def _characters(values: Iterable[str | int]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))


JSON_FIELDS = frozenset(
    {
        *(Field.ID, Field.URN, Field.NAME, Field.DESCRIPTION, Field.ACTOR_URN, Field.OWNER_URN, Field.TOKEN_TYPE),
        *(Field.CREATED_AT, Field.EXPIRES_AT, Field.LAST_USED_AT, Field.REVOKED_AT, Field.USE_COUNT),
        Field.LAST_NETWORK,
    }
)
"""The fields of a list that are columns and shown to all who may see the token: the store can return them as JSON."""


class JsonRows(NamedTuple):
    number: int
    text: str
    """A JSON array of objects."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows and their total, from one snapshot."""

    total: int
    rows: tuple[TokenRecord, ...]
    seconds: float = field(default=0.0, compare=False)
    """Processor time that the store used for it."""
    json: JsonRows | None = None
    """In place of the rows, for a search with `json_fields`: lists of plain fields cost half as much."""

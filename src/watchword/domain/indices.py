"""Indices: one per aspect of an entity, by a name that is made of the two and of nothing else.

A name from outside never reaches the search engine: entity and aspect are letters and digits alone, so that no
wildcard, list, path or system index can be said with them.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, Self

from watchword.domain.errors import invalid

ENDING = "aspect_v1"
TIME = "timestampMillis"
"""The member by which a row is old. Rows without it, or with something else than a number in it, stay."""

_WORD = re.compile(r"[A-Za-z0-9]{1,80}", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_BYTES_IN_MB = 1024 * 1024


class Aspect(NamedTuple):
    """An aspect of an entity, as it is written; two that differ in case alone are the same."""

    entity: str
    name: str

    def __str__(self) -> str:
        return f"{self.entity}.{self.name}"

    @property
    def key(self) -> tuple[str, str]:
        return self.entity.lower(), self.name.lower()


def check_word(value: object, field: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise invalid(field, f"{field} must have 1 to 80 letters and digits, such as {_example(field)}.")
    return value


def _example(field: str) -> str:
    return "dataset" if field == "entityType" else "datasetUsageStatistics"


def is_prefix(text: str) -> bool:
    return bool(_PREFIX.fullmatch(text))


def parse_aspect(text: str) -> Aspect:
    """From `entity.aspect`; ValueError where it is none."""
    entity, dot, name = text.partition(".")
    if not dot or not _WORD.fullmatch(entity) or not _WORD.fullmatch(name):
        raise ValueError(text)
    return Aspect(entity, name)


@dataclass(frozen=True, slots=True)
class IndexNames:
    """How indices are called here: `[prefix_]<entity>_<aspect>aspect_v1`."""

    prefix: str = ""
    known: tuple[Aspect, ...] = ()
    """Aspects that exist even where no index does yet, as they are written."""

    @property
    def head(self) -> str:
        return f"{self.prefix}_" if self.prefix else ""

    def index_of(self, aspect: Aspect) -> str:
        entity, name = aspect.key
        return f"{self.head}{entity}_{name}{ENDING}"

    def aspect_of(self, index: str) -> Aspect | None:
        """The aspect whose index has this name; None where it is no such name."""
        entity, _, name = index.removeprefix(self.head).removesuffix(ENDING).partition("_")
        if not _WORD.fullmatch(entity) or not _WORD.fullmatch(name):
            return None
        aspect = self.written(Aspect(entity, name))
        return aspect if self.index_of(aspect) == index else None

    def is_known(self, aspect: Aspect) -> bool:
        return any(one.key == aspect.key for one in self.known)

    def written(self, aspect: Aspect) -> Aspect:
        """As the known one is written, where it is known."""
        return next((one for one in self.known if one.key == aspect.key), aspect)


def is_own(name: str, concrete: str) -> bool:
    """Whether an index that the name leads to is the name's own: itself, or a copy of it."""
    return concrete == name or re.fullmatch(re.escape(name) + r"_[0-9]+", concrete, re.ASCII) is not None


def copy_name(index: str, millis: int) -> str:
    """What a copy of this index is called. Never used twice: the moment is one at which none was made before."""
    return f"{index}_{millis}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The one concrete index that a name leads to. `uuid` tells it from another one made later under its name."""

    concrete: str
    uuid: str
    by_alias: bool


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows an index has, how many of them are old, and what all of them weigh."""

    total: int
    old: int
    size_bytes: int


MAX_SPANS = 200
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Equal parts of a time axis, without a gap, from the oldest row to the youngest. The outermost hold whatever lies
    beyond the years 1 to 9999 too.
    """

    start: int
    step: int
    count: int

    @classmethod
    def between(cls, oldest: float, youngest: float, most: int) -> Self:
        """At most so many, each of whole milliseconds."""
        first, last = (int(max(_FIRST_MOMENT, min(_LAST_MOMENT, one)) // 1) for one in (oldest, youngest))
        step = -(-(last + 1 - first) // most)
        return cls(first, step, -(-(last + 1 - first) // step))

    def starts(self) -> range:
        return range(self.start, self.start + self.count * self.step, self.step)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How the rows of an index lie in time: how many in each span. Without spans, no row has a time."""

    total: int
    spans: Spans | None = None
    counts: tuple[int, ...] = ()

    @property
    def timeless(self) -> int:
        """Rows that no truncation ever takes."""
        return max(0, self.total - sum(self.counts))


def check_spans(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SPANS:
        raise invalid("spans", f"spans must be a whole number from 1 to {MAX_SPANS}.")
    return value


@dataclass(frozen=True, slots=True)
class IndexSize:
    """An index by the name it is reached by."""

    name: str
    size_bytes: int
    rows: int

    @property
    def size_mb(self) -> float:
        return round(self.size_bytes / _BYTES_IN_MB, 3)


@dataclass(frozen=True, slots=True)
class Row:
    """A document on its way into an index. `id` None: the engine makes one up."""

    source: bytes
    """A JSON object."""
    id: str | None = None

"""Indices: one per aspect of an entity, named after both.

Entity and aspect consist of letters and digits, so no request can name a wildcard, list, path or system index.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, Self

from watchword.basics.errors import check_whole, invalid

ENDING = "aspect_v1"
TIME = "timestampMillis"
"""The field by which a row is old. Rows without it, or with something other than a number in it, stay."""
URN = "urn"
"""The field by which the last rows of a series are kept."""

DATAHUB_GC_SERIES = (
    "dataset.operation",
    "dataset.datasetUsageStatistics",
    "chart.chartUsageStatistics",
    "dashboard.dashboardUsageStatistics",
    "query.queryUsageStatistics",
)
"""What DataHub's garbage collection truncates."""
DATAHUB_SERIES = (
    *DATAHUB_GC_SERIES,
    "assertion.assertionRunEvent",
    "dataset.datasetProfile",
    "dataProcessInstance.dataProcessInstanceRunEvent",
    "document.documentUsageStatistics",
    "dataJob.datahubIngestionCheckpoint",
    "dataJob.datahubIngestionRunSummary",
)
"""All time series of DataHub."""

_WORD = re.compile(r"[A-Za-z0-9]{1,80}", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)


class Aspect(NamedTuple):
    """Case-insensitive; keeps the spelling."""

    entity: str
    name: str

    def __str__(self) -> str:
        return f"{self.entity}.{self.name}"

    @property
    def key(self) -> tuple[str, str]:
        return self.entity.lower(), self.name.lower()


def check_word(value: object, field: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        example = "dataset" if field == "entityType" else "datasetUsageStatistics"
        raise invalid(field, f"{field} must have 1 to 80 letters and digits, such as {example}.")
    return value


def is_prefix(text: str) -> bool:
    return bool(_PREFIX.fullmatch(text))


def parse_aspect(text: str) -> Aspect:
    """From `entity.aspect`; ValueError where it is malformed."""
    entity, dot, name = text.partition(".")
    if not dot or not _WORD.fullmatch(entity) or not _WORD.fullmatch(name):
        raise ValueError(text)
    return Aspect(entity, name)


EVERY_SERIES = "*"


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


@dataclass(frozen=True, slots=True)
class IndexNames:
    """Names of indices: `[prefix_]<entity>_<aspect>aspect_v1`."""

    prefix: str = ""
    known: tuple[Aspect, ...] = ()  # aspects that exist even without an index, in their spelling

    @property
    def head(self) -> str:
        return f"{self.prefix}_" if self.prefix else ""

    def index_of(self, aspect: Aspect) -> str:
        entity, name = aspect.key
        return f"{self.head}{entity}_{name}{ENDING}"

    def aspect_of(self, index: str) -> Aspect | None:
        """None where the name is not that of an aspect's index."""
        entity, _, name = index.removeprefix(self.head).removesuffix(ENDING).partition("_")
        if not _WORD.fullmatch(entity) or not _WORD.fullmatch(name):
            return None
        aspect = self.written(Aspect(entity, name))
        return aspect if self.index_of(aspect) == index else None

    def is_known(self, aspect: Aspect) -> bool:
        return any(one.key == aspect.key for one in self.known)

    def written(self, aspect: Aspect) -> Aspect:
        """In the spelling of the known aspect, where there is one."""
        return next((one for one in self.known if one.key == aspect.key), aspect)


def is_index_or_copy(name: str, concrete: str) -> bool:
    """Whether a concrete index is the one of this name, or a copy of it."""
    return concrete == name or re.fullmatch(re.escape(name) + r"_[0-9]+", concrete, re.ASCII) is not None


def copy_name(index: str, millis: int) -> str:
    """The name of a copy made at this moment. Never used twice."""
    return f"{index}_{millis}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The concrete index behind a name. `uuid` differs for an index created later under the same name."""

    concrete: str
    uuid: str
    by_alias: bool


@dataclass(frozen=True, slots=True)
class RowCount:
    total: int
    old: int
    size_bytes: int
    deleted: int = 0  # rows that are gone and still take space

    @property
    def live_bytes(self) -> int:
        """Without the space of deleted rows."""
        return self.size_bytes * self.total // (self.total + self.deleted) if self.deleted else self.size_bytes


MAX_SPANS = 200
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


@dataclass(frozen=True, slots=True)
class Spans:
    """Equal parts of the time from the oldest row to the newest. The outermost include times beyond the years 1 to
    9999.
    """

    start: int
    step: int
    count: int

    @classmethod
    def between(cls, oldest: float, newest: float, most: int) -> Self:
        """At most `most` spans of whole milliseconds."""
        first, last = (int(max(_FIRST_MOMENT, min(_LAST_MOMENT, one)) // 1) for one in (oldest, newest))
        step = -(-(last + 1 - first) // most)
        return cls(first, step, -(-(last + 1 - first) // step))

    def starts(self) -> range:
        return range(self.start, self.start + self.count * self.step, self.step)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Rows per span of time. No spans: no row has a time."""

    total: int
    spans: Spans | None = None
    counts: tuple[int, ...] = ()

    @property
    def timeless(self) -> int:
        """Rows that no truncation deletes."""
        return max(0, self.total - sum(self.counts))


def check_spans(value: object) -> int:
    return check_whole(value, "spans", 1, MAX_SPANS)


@dataclass(frozen=True, slots=True)
class IndexSize:
    name: str
    size_bytes: int
    rows: int

    @property
    def size_mb(self) -> float:
        return round(self.size_bytes / 1_000_000, 3)


@dataclass(frozen=True, slots=True)
class Row:
    """A document to write. With `id` None the engine generates one."""

    source: bytes  # a JSON object
    id: str | None = None

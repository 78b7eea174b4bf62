"""Ports of the search index: what every engine does, and what a cluster does on top of it; tasks and their status.

Rules for every implementation:

- Every argument names one concrete index, except one called `name`, which may be an alias. No call touches another
  index.
- A row is old when its `timestampMillis` is a number and at most `until`. All other rows stay.
- With `keep_last` N, 1 to MAX_KEEP_LAST, the last rows of each urn stay too. The limit of an urn is the Nth newest time
  among its rows. Its old rows before the limit go; rows at the limit or after it stay, so at least N stay, and more
  where several have the time of the limit. All rows of an urn with fewer than N stay. Rows without a time are not
  counted. A row without `urn` belongs to no urn and goes when it is old. A number in `urn` counts as its text.
- Tasks run in the engine, not in the caller: they continue when the caller dies, and their ids stay valid. A call that
  starts one returns as soon as the task has an id.
- Every call may be repeated: what exists already, or is gone already, is no error unless the call says so.
- An index that does not answer in time, after a few tries, raises `Fault(INDEX_UNAVAILABLE)`. An index that rejects the
  request raises `Fault(INDEX_REFUSED)`, whose `cause` quotes it.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from watchword.basics.errors import Fault, invalid
from watchword.index.indices import Histogram, IndexSize, Resolved, Row, RowCount

LARGEST = 2**63 - 1
CANCELLED = "cancelled"

# What search engines use. No slash, dot, star or comma, so that an id is never another address.
_NODE = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)

FORM = "task must be <node>:<number>, as truncateTimeseriesAspect gives it"


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}:{self.number}"

    @classmethod
    def parse(cls, text: str, field_name: str = "task") -> Self:
        node, colon, number = text.partition(":")
        if not colon or not _NODE.fullmatch(node) or not _NUMBER.fullmatch(number) or int(number) > LARGEST:
            raise invalid(field_name, f"{FORM}: a node of letters, digits, - and _, and a number from 0 to {LARGEST}.")
        return cls(node, int(number))


def requested_task(task: object, node: object, number: object) -> TaskId:
    """The task named by `task`, by `nodeId` and `taskId`, or by both, which must agree."""
    if not isinstance(task, str | None):
        raise invalid("task", f"{FORM}, a string.")
    named = None if task is None else TaskId.parse(task)
    parts = None if node is None and number is None else _from_parts(node, number)
    if named is not None and parts is not None and named != parts:
        raise invalid("task", "task and nodeId with taskId must name the same task; give one of the two forms.")
    if (one := named or parts) is None:
        raise invalid("task", f"{FORM}; or give nodeId and taskId.")
    return one


def _from_parts(node: object, number: object) -> TaskId:
    if not isinstance(node, str):
        raise invalid("nodeId", "nodeId must be a string, and be given together with taskId.")
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise invalid("taskId", "taskId must be a whole number or a numeric string, and be given together with nodeId.")
    if not _NODE.fullmatch(node):
        raise invalid("nodeId", "nodeId must have 1 to 64 letters, digits, - and _.")
    try:
        return TaskId.parse(f"{node}:{number}")
    except Fault:
        raise invalid("taskId", f"taskId must be a whole number from 0 to {LARGEST}.") from None


@dataclass(frozen=True, slots=True)
class Counters:
    """Progress of a task, under the names that search engines use."""

    total: int = 0
    updated: int = 0
    created: int = 0
    deleted: int = 0
    batches: int = 0
    version_conflicts: int = 0
    noops: int = 0
    bulk_retries: int = 0
    search_retries: int = 0
    throttled_millis: int = 0
    requests_per_second: float = -1.0  # the limit in rows per second; -1: none
    throttled_until_millis: int = 0  # milliseconds left of the current pause

    @property
    def done(self) -> int:
        """Rows handled so far."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts

    def plus(self, later: "Counters") -> "Counters":
        """The sum; rate and pause are those of the later task."""
        return replace(later, **{name: getattr(self, name) + getattr(later, name) for name in _SUMMED})

    def shown(self) -> dict[str, Any]:
        """The `status` object of the interface."""
        shown: dict[str, Any] = {}
        for name, value in asdict(self).items():
            kind, retries, _ = name.partition("_retries")
            if retries:
                shown.setdefault("retries", {})[kind] = value
            else:
                shown[name] = value
        return shown

    @classmethod
    def read(cls, status: dict[str, Any]) -> Self:
        """From a `status` object. KeyError, TypeError or ValueError where it is malformed."""
        flat = status | {f"{kind}_retries": number for kind, number in dict(status["retries"]).items()}
        numbers = {name: int(flat[name]) for name in (*_SUMMED, "throttled_until_millis")}
        return cls(**numbers, requests_per_second=float(flat["requests_per_second"]))


_SUMMED = tuple(f.name for f in fields(Counters) if f.name not in ("requests_per_second", "throttled_until_millis"))


@dataclass(frozen=True, slots=True)
class TaskStatus:
    id: TaskId
    completed: bool
    run_time_nanos: int
    counters: Counters
    failures: tuple[str, ...] = field(default=())  # rows that failed, or why the task ended early
    error: str | None = None  # why the whole task failed, or `cancelled`
    tag: str | None = None  # The tag it was started with. An engine may give the number of a lost task to another one.

    @property
    def failed(self) -> bool:
        return self.error is not None or bool(self.failures)

    def shown(self) -> dict[str, Any]:
        """The object of the interface, with `failures` and `error` where the task failed."""
        answer: dict[str, Any] = {
            "completed": self.completed,
            "taskId": str(self.id),
            "runTimeNanos": self.run_time_nanos,
            "status": self.counters.shown(),
        }
        if self.failed:
            answer["failures"] = list(self.failures)
        if self.error is not None:
            answer["error"] = self.error
        return answer

    def without_contents(self) -> "TaskStatus":
        """For callers who may not see rows: failures often quote one."""
        failures = (f"Failures: {len(self.failures)}",) if self.failures else ()
        error = self.error if self.error in (None, CANCELLED) else "failed"
        return replace(self, failures=failures, error=error)


def not_readable(task: TaskId) -> str:
    return f"Could not get task status for {task}"


Checkpoints = tuple[int, ...]  # one sequence number per shard: every write up to it is in the index and can be read

DEFAULT_BATCH = 1_000
UNTHROTTLED = -1.0
MAX_KEEP_LAST = 100
"""The most rows that clusters rank within a group, by default (`index.max_inner_result_window`)."""


class Pace(NamedTuple):
    """How a task works: rows per batch, rows per second at most, and the tag by which it can be found."""

    tag: str
    batch: int = DEFAULT_BATCH
    rate: float = UNTHROTTLED


class DeletionPage(NamedTuple):
    """The rows of some urns that a deletion with `keep_last` deletes, and where the next page begins."""

    rows: Any  # for the `start_delete` of the engine that made the page; None where no row goes
    after: str | None = None  # the last urn of this page; None where it is the last page


class Engine(Protocol):
    async def probe(self) -> str:
        """Its name and version, such as `opensearch 2.19.3`. One try, at most a second."""

    async def resolve(self, name: str) -> Resolved | None:
        """The index of this name or alias. INDEX_AMBIGUOUS where the alias leads to several."""

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        """The indices whose name, or alias, begins and ends so, sorted by name."""

    async def count(self, index: str, until: int, keep_last: int | None = None) -> RowCount:
        """Includes every write that was acknowledged before. `old` counts the rows that would go."""

    async def moment(self, index: str, rows: int, latest: int) -> int | None:
        """The first millisecond up to which the index has at least this many rows, but at most `latest`. None where no
        row has a time up to `latest`. `rows` is at least 1.
        """

    async def histogram(self, index: str, spans: int) -> Histogram:
        """Rows by time, in at most this many spans."""

    async def deletion_page(self, index: str, until: int, keep_last: int, after: str | None) -> DeletionPage:
        """The page after this urn; the first where it is None. INDEX_REFUSED where the index cannot be searched by urn.

        Rows that are written later can only move a limit to a later time, so the page protects enough.
        """

    async def start_delete(self, index: str, until: int, pace: Pace, page: DeletionPage | None = None) -> TaskId:
        """Delete old rows: all of them, or those of a page. Rows that change meanwhile are skipped and counted as
        version conflicts.
        """

    async def task(self, task: TaskId) -> TaskStatus | None:
        """None where the engine knows no such task, or one of another kind."""

    async def cancel(self, task: TaskId) -> None:
        """Ask a task to end early. It ends soon after the call, not before it returns."""

    async def running(self, tag: str) -> tuple[TaskId, ...]:
        """Unfinished tasks that were started with this tag."""

    async def make(self, name: str) -> None:
        """Create an empty index for rows of a time series, unless the name leads to one."""

    async def write(self, name: str, rows: Sequence[Row]) -> None:
        """Add rows, or replace those of the same id.

        INDEX_BLOCKED while writes are blocked: no row was written. INDEX_REFUSED where a row was rejected: others may
        have been written.
        """

    async def close(self) -> None: ...


@runtime_checkable
class ClusterEngine(Engine, Protocol):
    """An engine that can copy the rows that stay to a new index and swap it in under the old name."""

    async def start_copy(self, source: str, target: str, until: int, pace: Pace) -> TaskId:
        """Copy the rows that stay, with their versions."""

    async def start_catch_up(
        self, source: str, target: str, until: int, since: Checkpoints, pace: Pace, *, overwrite: bool = False
    ) -> tuple[TaskId, ...]:
        """Copy rows that stay and were written after these checkpoints, unless the target has a newer version, which
        counts as a version conflict. With `overwrite`, replace that too. Nothing else may write to the target.
        """

    async def checkpoints(self, index: str) -> Checkpoints:
        """Everything up to the returned checkpoints can be read."""

    async def make_like(self, source: str, target: str) -> None:
        """Create an empty index with the source's settings and mappings, without its write block."""

    async def block(self, index: str) -> None:
        """Reject writes. On return no write is in progress, and every acknowledged one can be read."""

    async def unblock(self, index: str) -> None: ...

    async def is_blocked(self, index: str) -> bool: ...

    async def flush(self, index: str) -> None:
        """Write everything that can be read to disk."""

    async def reconcile(self, source: str, target: str, until: int) -> int:
        """Delete rows of the target that are not among the source's rows that stay; returns how many. The target must
        hold all rows that stay.
        """

    async def swap(self, name: str, source: str, target: str) -> None:
        """Move `name` and every other alias from the source to the target in one step. Where `name` is the source
        itself, the same step removes the source. INDEX_REFUSED, with no change, where source or target is missing.
        """

    async def abandon(self, target: str) -> bool:
        """Make every later swap to this copy fail, including one already sent. False, with no change, where a swap has
        succeeded.
        """

    async def drop(self, index: str) -> None:
        """Remove this index. Never an alias."""

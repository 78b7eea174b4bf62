"""Ports of the search index: what every engine does, and what a cluster does on top of it.

Rules for every implementation:

- Every argument names one concrete index, except one called `name`, which may be an alias. No call touches another
  index.
- A row is old when its `timestampMillis` is a number and at most `until`. All other rows stay.
- Tasks run in the engine, not in the caller: they continue when the caller dies, and their ids stay valid. A call that
  starts one returns as soon as the task has an id.
- Every call may be repeated: what exists already, or is gone already, is no error unless the call says so.
- An index that does not answer in time, after a few tries, raises `Fault(INDEX_UNAVAILABLE)`. An index that rejects the
  request raises `Fault(INDEX_REFUSED)`, whose `why` quotes it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from watchword.domain.indices import Histogram, IndexSize, Resolved, Row, RowCount
from watchword.domain.tasks import TaskId, TaskStatus

Checkpoints = tuple[int, ...]  # one sequence number per shard: every write up to it is in the index and can be read

DEFAULT_BATCH = 1_000
UNTHROTTLED = -1.0


class Pace(NamedTuple):
    """How a task works: rows per batch, rows per second at most, and the tag by which it can be found."""

    tag: str
    batch: int = DEFAULT_BATCH
    rate: float = UNTHROTTLED


class Engine(Protocol):
    async def probe(self) -> str:
        """Its name and version, such as `opensearch 2.19.3`. One try, at most a second."""

    async def resolve(self, name: str) -> Resolved | None:
        """The index of this name or alias. INDEX_AMBIGUOUS where the alias leads to several."""

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        """The indices whose name, or alias, begins and ends so, sorted by name."""

    async def count(self, index: str, until: int) -> RowCount:
        """Includes every write that was acknowledged before."""

    async def histogram(self, index: str, spans: int) -> Histogram:
        """Rows by time, in at most this many spans."""

    async def start_delete(self, index: str, until: int, pace: Pace) -> TaskId:
        """Delete old rows. Rows that change meanwhile are skipped and counted as version conflicts."""

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

"""Port: what the service asks of a search index.

The law for every implementation:

- Every index is named by its whole concrete name, except where the argument is called `name`. No call ever touches
  another one than it names.
- A row is old when its `timestampMillis` is a number and at most `until`. All others stay.
- Tasks run in the engine, not in the caller: they go on when the caller dies, and their ids stay valid. Starting one
  answers as soon as it has an id.
- Everything may be asked twice: what is there already, or gone already, is no error, except where it says so.
- When the index cannot answer in time, after a few tries, it raises `Fault(INDEX_UNAVAILABLE)`. When it answers that
  something cannot be done, `Fault(INDEX_REFUSED)`, whose `why` is what it said.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from watchword.domain.indices import Histogram, IndexSize, Resolved, Row, RowCount
from watchword.domain.tasks import TaskId, TaskStatus

Marks = tuple[int, ...]
"""How far each shard had come: up to these sequence numbers everything is in the index and can be read."""

DEFAULT_BATCH = 1_000
UNTHROTTLED = -1.0


class Pace(NamedTuple):
    """How a task works: so many rows at a time, at most so many a second, and under which tag it can be found again."""

    tag: str
    batch: int = DEFAULT_BATCH
    rate: float = UNTHROTTLED


class Engine(Protocol):
    async def probe(self) -> str:
        """What it is, in a word or two, such as `opensearch 2.19.3`. One try, and no longer than a second."""

    async def resolve(self, name: str) -> Resolved | None:
        """The index with this name, or behind this alias. None where there is none; INDEX_AMBIGUOUS where the alias
        stands for several.
        """

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        """The indices whose name (their alias, where they have one that fits) begins and ends so, by name."""

    async def count(self, index: str, until: int) -> RowCount:
        """Everything that was acknowledged before counts."""

    async def histogram(self, index: str, spans: int) -> Histogram:
        """How its rows lie in time, in at most so many spans; a row is in one by the same reading of its time by which
        it is old.
        """

    # Tasks.

    async def start_delete(self, index: str, until: int, pace: Pace) -> TaskId:
        """Remove what is old. Rows that change meanwhile are left out and counted as version conflicts."""

    async def start_copy(self, source: str, target: str, until: int, pace: Pace) -> TaskId:
        """Copy what stays as it is now, with its versions."""

    async def start_catch_up(
        self, source: str, target: str, until: int, since: Marks, pace: Pace, *, over: bool = False
    ) -> tuple[TaskId, ...]:
        """Copy what stays and was written after these marks, where it is not older than what the target has; `over`:
        whatever the target has. What looks older is counted as a version conflict. Nothing else may be writing into
        the target.
        """

    async def task(self, task: TaskId) -> TaskStatus | None:
        """A running or ended task of this engine; None where it knows none of this id that can be read so."""

    async def cancel(self, task: TaskId) -> None:
        """Ask a task to end early. It does so soon, not at once."""

    async def running(self, tag: str) -> tuple[TaskId, ...]:
        """Tasks that were started under this tag and have not ended."""

    # Copying without loss.

    async def marks(self, index: str) -> Marks:
        """Note how far each shard has come, and make everything up to there readable."""

    async def make_like(self, source: str, target: str) -> None:
        """A new empty index with the source's settings and mappings, and never its write block."""

    async def block(self, index: str) -> None:
        """Refuse writes. When this returns, none is under way, and what was acknowledged can be read."""

    async def unblock(self, index: str) -> None: ...

    async def is_blocked(self, index: str) -> bool: ...

    async def flush(self, index: str) -> None:
        """What can be read of it is on disk, whatever its settings say about when that must be so."""

    async def reconcile(self, source: str, target: str, until: int) -> int:
        """Remove from the target what the source does not hold among what stays; returns how many rows. The target
        holds everything else that stays.
        """

    async def swap(self, name: str, source: str, target: str) -> None:
        """In one step: `name`, and every other alias of the source, leads to the target and no longer to the source.
        INDEX_REFUSED, and nothing is changed, where the source or the target is not there. Where `name` is the source
        itself, the source is removed in the same step.
        """

    async def withdraw(self, target: str) -> bool:
        """From now on no swap can lead to this copy, whenever it was sent. False, and nothing is changed, where one
        does already.
        """

    async def drop(self, index: str) -> None:
        """Remove this index. Never an alias."""

    # Filling.

    async def make(self, name: str) -> None:
        """A new empty index for rows of a time series, unless the name leads to one already, as index or alias."""

    async def write(self, name: str, rows: Sequence[Row]) -> None:
        """Add rows to the index that the name leads to, or replace those of the same id.

        INDEX_BLOCKED, and none was taken, while writes to it are held back; INDEX_REFUSED where one was not taken, and
        others may have been.
        """

    async def close(self) -> None: ...

"""Operations: long work on an index that the service governs, from the plan to the post-check.

    PLANNED ── RUNNING ── VERIFYING ──────────── DONE      by deletion
    PLANNED ── RUNNING ── VERIFYING ── SWAPPING ─ DONE     by copy
       └──────────┴───────────┴──────────┴─────── FAILED   (or CANCELLED: before SWAPPING alone)

Who works on an operation holds its lease; each lease has a higher fence than the one before, and nothing is
written under an old one.
"""

from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any, NamedTuple, Self

from watchword.domain.events import Action, Detail, Event
from watchword.domain.indices import Aspect
from watchword.domain.tasks import CANCELLED, Counters, TaskId, TaskStatus

MILLION = 1_000_000


class LeaseLost(Exception):
    """Somebody else works on the operation now. Whoever learns it touches nothing any more."""


class CancelAsked(Exception):
    """Somebody wants the operation to end."""


class State(Enum):
    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    VERIFYING = "VERIFYING"
    SWAPPING = "SWAPPING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_over(self) -> bool:
        return self in _OVER

    @property
    def may_be_cancelled(self) -> bool:
        return self in (State.PLANNED, State.RUNNING, State.VERIFYING)


_OVER = frozenset({State.DONE, State.FAILED, State.CANCELLED})
ACTIVE = tuple(state for state in State if state not in _OVER)


class Strategy(Enum):
    """How old rows go: taken out one by one, or left behind when the others are copied."""

    DELETE_BY_QUERY = "DELETE_BY_QUERY"
    REINDEX = "REINDEX"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a truncation would do, counted before anything is done."""

    aspect: Aspect
    index: str
    """The name of the index: where nothing has been counted there may be none yet."""
    until: int
    rows: int
    rows_to_delete: int
    size_bytes: int
    strategy: Strategy
    reason: str
    batch_size: int
    timeout_seconds: int | None = None
    home: str = ""
    """Which search index it lies in: '' for the one that all instances share, else the embedded one of one instance."""

    @property
    def share(self) -> float:
        """Of the rows, how many in a hundred would go."""
        return self.rows_to_delete * 100 / self.rows if self.rows else 0.0

    @property
    def bytes_to_free(self) -> int:
        return self.size_bytes * self.rows_to_delete // self.rows if self.rows else 0

    def packed(self) -> dict[str, Any]:
        """Plain values, for the store."""
        return asdict(self) | {"aspect": [*self.aspect], "strategy": self.strategy.value}

    @classmethod
    def unpacked(cls, content: dict[str, Any]) -> Self:
        return cls(**content | {"aspect": Aspect(*content["aspect"]), "strategy": Strategy(content["strategy"])})

    def summary(self) -> str:
        """The given words, which clients read."""
        how = {
            Strategy.REINDEX: "Reindexing the aspect without the deleted records. ",
            Strategy.DELETE_BY_QUERY: "Issuing a delete by query request. ",
        }[self.strategy]
        return (
            f"Delete {self.rows_to_delete} out of {self.rows} rows ({self.share:.2f}%). {how}"
            "This was a dry run. Run with dryRun = false to execute."
        )


def choose_strategy(rows: int, old: int, *, force_delete: bool, force_copy: bool) -> tuple[Strategy, str]:
    """More than half, by the real half, is quicker left behind than taken out."""
    if force_delete:
        return Strategy.DELETE_BY_QUERY, "forceDeleteByQuery is set"
    if force_copy:
        return Strategy.REINDEX, "forceReindex is set"
    if 2 * old > rows:
        return Strategy.REINDEX, "more than half of the rows are old, so the rest is copied"
    return Strategy.DELETE_BY_QUERY, "at most half of the rows are old, so they are deleted"


class EngineTask(NamedTuple):
    """A task of the engine that worked for an operation, and what it had done when it was last asked."""

    id: TaskId
    purpose: str
    """delete, copy, or catch up."""
    counters: Counters
    completed: bool = False


@dataclass(frozen=True, slots=True)
class PostCheck:
    """What was found when the work was done."""

    rows: int
    """That are there now: in the index, or in the copy at the moment of the swap."""
    rows_left: int
    """Old ones among them: written, or written again, while the work was under way."""
    expected: int | None = None
    """How many the copy must have, counted in the source while nobody could write to it."""

    @property
    def passed(self) -> bool:
        return self.rows_left == 0 and self.expected in (None, self.rows)


@dataclass(frozen=True, slots=True)
class Work:
    """Where the work stands: everything another instance needs to take it up."""

    source: str | None = None
    """The concrete index the rows are in."""
    source_uuid: str | None = None
    target: str | None = None
    """The copy, from the moment it is decided on; never used again once it was given up."""
    made: bool = False
    """Whether the copy is there."""
    copied: bool = False
    """Whether the copy was complete once; from then on it is brought up to the source."""
    marks: tuple[int, ...] | None = None
    """How far the source had come when the copy was last brought up to it."""
    blocked_at: int | None = None
    """Since when writes to the source may be refused on our behalf."""
    trash: tuple[str, ...] = ()
    """Indices that nothing will lead to any more, not removed yet."""
    ending: str | None = None
    """FAILED or CANCELLED, once that is decided and what was made is being removed."""
    tasks: tuple[EngineTask, ...] = ()
    rows_done: int = 0
    rows_to_do: int = 0
    phase_at: int | None = None
    """Since when rows_done is counted."""
    attempts: int = 0
    """How often it was begun again."""
    note: str | None = None
    """What is being done now, in a few words."""
    error: str | None = None
    check: PostCheck | None = None

    @property
    def counters(self) -> Counters:
        total = Counters()
        for task in self.tasks:
            total = total.plus(task.counters)
        return total

    @property
    def unfinished(self) -> tuple[EngineTask, ...]:
        return tuple(task for task in self.tasks if not task.completed)

    def with_status(self, task: EngineTask, status: TaskStatus) -> "Work":
        """The same, with this task as it is now."""
        now = EngineTask(task.id, task.purpose, status.counters, status.completed)
        return replace(self, tasks=tuple(now if one.id == task.id else one for one in self.tasks))

    def packed(self) -> dict[str, Any]:
        """As it is kept: plain values."""
        content = asdict(replace(self, tasks=()))
        content["tasks"] = [
            {"id": str(t.id), "purpose": t.purpose, "status": t.counters.shown(), "completed": t.completed}
            for t in self.tasks
        ]
        return content

    @classmethod
    def unpacked(cls, content: dict[str, Any]) -> Self:
        tasks = tuple(
            EngineTask(TaskId.parse(t["id"]), t["purpose"], Counters.read(t["status"]), t["completed"])
            for t in content["tasks"]
        )
        marks, check = content["marks"], content["check"]
        return cls(
            **{k: v for k, v in content.items() if k in _PLAIN},
            tasks=tasks,
            trash=tuple(content["trash"]),
            marks=None if marks is None else tuple(marks),
            check=None if check is None else PostCheck(**check),
        )


# A newer version may have kept more.
_PLAIN = frozenset(f.name for f in fields(Work)) - {"tasks", "marks", "check", "trash"}


@dataclass(frozen=True, slots=True)
class Operation:
    """A truncation as it is recorded."""

    number: int
    plan: Plan
    asked_by: str
    asked_at: int
    state: State = State.PLANNED
    work: Work = field(default_factory=Work)
    started_at: int | None = None
    changed_at: int | None = None
    finished_at: int | None = None
    cancel_asked_at: int | None = None
    cancel_asked_by: str | None = None
    fence: int = 0

    @property
    def percent(self) -> float:
        if self.state is State.DONE:
            return 100.0
        work = self.work
        return min(99.9, work.rows_done * 100 / work.rows_to_do) if work.rows_to_do else 0.0

    def rate(self, now: int) -> float | None:
        """Rows a second since the phase began; None before anything can be said."""
        work = self.work
        end = self.finished_at or now
        if work.phase_at is None or end <= work.phase_at or not work.rows_done:
            return None
        return work.rows_done * 1_000 / (end - work.phase_at)

    def ends_at(self, now: int) -> int | None:
        """When the rows will be done at this rate; an estimate."""
        rate = self.rate(now)
        if self.state is not State.RUNNING or rate is None:
            return None
        return now + int((self.work.rows_to_do - self.work.rows_done) * 1_000 / rate)

    def status(self, node: str, now: int) -> TaskStatus:
        """As a task: completed when the whole operation is over, with the sums over the engine's tasks."""
        error = self.work.error if self.state is State.FAILED else None
        if self.state is State.CANCELLED:
            error = CANCELLED
        began = self.started_at or self.asked_at
        return TaskStatus(
            id=TaskId(node, self.number),
            completed=self.state.is_over,
            run_time_nanos=max(0, (self.finished_at or now) - began) * MILLION,
            counters=self.work.counters,
            error=error,
        )


def event_of(operation: Operation) -> Event:
    """What is told when an operation has come to its state."""
    plan, work = operation.plan, operation.work
    detail: dict[str, Detail] = {
        "aspect": str(plan.aspect),
        "index": plan.index,
        "strategy": plan.strategy.value,
        "rowsToDelete": plan.rows_to_delete,
    }
    match operation.state:
        case State.PLANNED:
            detail |= {"until": plan.until, "rows": plan.rows, "reason": plan.reason}
        case State.RUNNING | State.VERIFYING | State.SWAPPING:
            detail |= {"source": work.source, "target": work.target, "attempts": work.attempts}
        case State.DONE:
            detail |= {"deleted": work.counters.deleted, "copied": work.counters.created}
        case State.FAILED | State.CANCELLED:
            detail |= {"error": work.error}
    if work.check is not None:
        detail |= {"rowsNow": work.check.rows, "rowsLeft": work.check.rows_left, "passed": work.check.passed}
    return Event(Action[f"OPERATION_{operation.state.value}"], "", detail)


class OperationPage(NamedTuple):
    total: int
    rows: tuple[Operation, ...]

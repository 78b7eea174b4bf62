"""Operations: truncations of an index, from the request to the post-check.

    PLANNED ── RUNNING ── VERIFYING ──────────── DONE      delete by query
    PLANNED ── RUNNING ── VERIFYING ── SWAPPING ─ DONE     copy and swap
       └──────────┴───────────┴──────────┴─────── FAILED   (or CANCELLED, but not from SWAPPING)

An instance holds the lease of the operation it works on. Each lease has a higher fence than the one before, and the
store rejects writes with an older fence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any, NamedTuple, Self

from watchword.basics.errors import check_known, check_whole, invalid
from watchword.index.engine import CANCELLED, DEFAULT_BATCH, Counters, TaskId, TaskStatus
from watchword.index.indices import Aspect, RowCount, check_word
from watchword.journal.events import Action, Detail, Event

MAX_BATCH = 10_000
MAX_TIMEOUT = 7 * 24 * 3_600
FIELDS = (
    "entityType", "aspect", "endTimeMillis", "dryRun", "batchSize", "timeoutSeconds", "forceDeleteByQuery",
    "forceReindex",
)  # fmt: skip


class LeaseLost(Exception):
    """Another instance works on the operation now. This one must not touch the index any more."""


class CancelRequested(Exception):
    """A caller wants the operation to end."""


class WindowClosed(Exception):
    """The operation may not work now, because its window is closed."""


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
    DELETE_BY_QUERY = "DELETE_BY_QUERY"  # delete the old rows in batches
    REINDEX = "REINDEX"  # copy the rows that stay to a new index and swap it in


@dataclass(frozen=True, slots=True)
class Plan:
    """What a truncation would do, counted before anything is changed."""

    aspect: Aspect
    index: str  # the name of the index, which may not exist yet
    until: int
    rows: int
    rows_to_delete: int
    size_bytes: int
    strategy: Strategy
    reason: str  # why this strategy was chosen
    batch_size: int
    timeout_seconds: int | None = None
    home: str = ""  # the node of the embedded index, or '' for the search index that all instances share
    keep_last: int | None = None  # rows of each urn that stay, 1 to MAX_KEEP_LAST
    rule: str | None = None  # the series of the retention rule that asks for it, or `*`
    window: str | None = None  # Works only in this part of the day, such as 22:00-06:00; in UTC or `time_zone`.
    time_zone: str = "UTC"

    @property
    def share(self) -> float:
        """Percent of rows to delete."""
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
        """Clients parse this text."""
        copies = self.strategy is Strategy.REINDEX
        how = "Reindexing the aspect without the deleted records." if copies else "Issuing a delete by query request."
        return (
            f"Delete {self.rows_to_delete} out of {self.rows} rows ({self.share:.2f}%). {how} "
            "This was a dry run. Run with dryRun = false to execute."
        )


@dataclass(frozen=True, slots=True)
class Truncation:
    """A caller's request to delete the rows of an aspect up to a moment."""

    aspect: Aspect
    until: int
    dry_run: bool = True
    batch_size: int = DEFAULT_BATCH
    timeout_seconds: int | None = None
    force_delete: bool = False
    force_copy: bool = False
    keep_last: int | None = None  # only retention rules set it
    may_copy: bool = True  # not for a rule with a window: a copy cannot pause

    def plan(self, aspect: Aspect, index: str, count: RowCount, *, can_copy: bool, home: str = "") -> Plan:
        strategy, reason = self._strategy(count, can_copy=can_copy)
        return Plan(
            aspect=aspect,
            index=index,
            until=self.until,
            rows=count.total,
            rows_to_delete=count.old,
            size_bytes=count.size_bytes,
            strategy=strategy,
            reason=reason,
            batch_size=self.batch_size,
            timeout_seconds=self.timeout_seconds,
            home=home,
            keep_last=self.keep_last,
        )

    def _strategy(self, count: RowCount, *, can_copy: bool) -> tuple[Strategy, str]:
        """A copy is faster where more than half of the rows are old."""
        if not can_copy:
            return Strategy.DELETE_BY_QUERY, "the embedded index always deletes in batches"
        if self.keep_last is not None:
            return Strategy.DELETE_BY_QUERY, "keepLast is set, so rows are deleted"
        if not self.may_copy:
            return Strategy.DELETE_BY_QUERY, "the rule has a window and a copy cannot pause, so rows are deleted"
        if self.force_delete:
            return Strategy.DELETE_BY_QUERY, "forceDeleteByQuery is set"
        if self.force_copy:
            return Strategy.REINDEX, "forceReindex is set"
        if 2 * count.old > count.total:
            return Strategy.REINDEX, "more than half of the rows are old, so the rest is copied"
        return Strategy.DELETE_BY_QUERY, "at most half of the rows are old, so they are deleted"


def requested_aspect(parameters: Mapping[str, Any]) -> Aspect:
    return Aspect(
        check_word(parameters.get("entityType"), "entityType"), check_word(parameters.get("aspect"), "aspect")
    )


def parse_truncation(parameters: Mapping[str, Any], now: int) -> Truncation:
    check_known(parameters, FIELDS)  # a misspelt dryRun must not start a real run
    aspect, until = requested_aspect(parameters), parameters.get("endTimeMillis")
    if until is None:
        raise invalid("endTimeMillis", "endTimeMillis must be given: rows up to this moment are deleted.")
    check_whole(until, "endTimeMillis", 0, now, f"milliseconds since 1970, not in the future ({now})")
    batch, timeout = (
        None if parameters.get(name) is None else check_whole(parameters[name], name, 1, most)
        for name, most in (("batchSize", MAX_BATCH), ("timeoutSeconds", MAX_TIMEOUT))
    )
    force_delete, force_copy = _boolean(parameters, "forceDeleteByQuery"), _boolean(parameters, "forceReindex")
    if force_delete and force_copy:
        raise invalid("forceReindex", "forceDeleteByQuery and forceReindex must not both be true.")
    return Truncation(
        aspect=aspect,
        until=until,
        dry_run=_boolean(parameters, "dryRun", default=True),
        batch_size=DEFAULT_BATCH if batch is None else batch,
        timeout_seconds=timeout,
        force_delete=force_delete,
        force_copy=force_copy,
    )


def _boolean(parameters: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(name, f"{name} must be true or false.")
    return value


class EngineTask(NamedTuple):
    """A task that the engine ran for an operation, with its last known counters."""

    id: TaskId
    purpose: str  # delete, copy, or catch up
    counters: Counters
    completed: bool = False


def _sum(tasks: Iterable[EngineTask]) -> Counters:
    total = Counters()
    for task in tasks:
        total = total.plus(task.counters)
    return total


@dataclass(frozen=True, slots=True)
class PostCheck:
    rows: int  # in the index, or in the copy just before the swap
    rows_left: int  # old rows among them, written while the operation ran
    expected: int | None = None  # rows that the copy must have, counted in the source while writes were blocked

    @property
    def passed(self) -> bool:
        return self.rows_left == 0 and self.expected in (None, self.rows)


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """Progress of an operation: everything another instance needs to continue it."""

    source: str | None = None  # the concrete index that holds the rows
    source_uuid: str | None = None
    target: str | None = None  # The copy, recorded before it is created. An abandoned name is never reused.
    made: bool = False  # whether the copy exists
    copied: bool = False  # Whether all rows were copied once. From then on the copy only catches up with the source.
    checkpoints: tuple[int, ...] | None = None  # up to where the copy has caught up
    blocked_at: int | None = None  # since when this operation may block writes to the source
    trash: tuple[str, ...] = ()  # indices to remove: no name leads to them any more
    ending: str | None = None  # FAILED or CANCELLED once decided, while the operation cleans up
    tasks: tuple[EngineTask, ...] = ()
    after: str | None = None  # the last urn of the pages that are deleted; see `DeletionPage`
    rows_done: int = 0
    rows_to_do: int = 0
    phase_at: int | None = None  # since when rows_done counts
    attempts: int = 0
    note: str | None = None  # what happens now, in a few words
    error: str | None = None
    check: PostCheck | None = None

    @property
    def counters(self) -> Counters:
        return _sum(self.tasks)

    @property
    def unfinished(self) -> tuple[EngineTask, ...]:
        return tuple(task for task in self.tasks if not task.completed)

    def with_status(self, task: EngineTask, status: TaskStatus) -> "OperationProgress":
        now = EngineTask(task.id, task.purpose, status.counters, status.completed)
        # A restarted node may give the id of a task that is over to another one.
        changed = (now if one.id == task.id and not one.completed else one for one in self.tasks)
        return replace(self, tasks=tuple(changed))

    def folded(self) -> tuple[EngineTask, ...]:
        """The tasks, with all that are over as one: its id is that of the last, its counters are the sums."""
        over = [task for task in self.tasks if task.completed]
        if not over:
            return self.tasks
        return (over[-1]._replace(counters=_sum(over)), *self.unfinished)

    def packed(self) -> dict[str, Any]:
        """Plain values, for the store."""
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
        checkpoints, check = content.get("checkpoints"), content["check"]
        return cls(
            **{k: v for k, v in content.items() if k in _PLAIN},
            tasks=tasks,
            trash=tuple(content["trash"]),
            checkpoints=None if checkpoints is None else tuple(checkpoints),
            check=None if check is None else PostCheck(**check),
        )


# Unknown fields, from a newer version, are ignored.
_PLAIN = frozenset(f.name for f in fields(OperationProgress)) - {"tasks", "checkpoints", "check", "trash"}


@dataclass(frozen=True, slots=True)
class Operation:
    number: int
    plan: Plan
    requested_by: str
    requested_at: int
    state: State
    work: OperationProgress
    started_at: int | None
    changed_at: int | None
    finished_at: int | None
    cancel_requested_at: int | None
    cancel_requested_by: str | None
    fence: int
    node: str = ""  # of the store

    @property
    def id(self) -> TaskId:
        """As clients know it."""
        return TaskId(self.node, self.number)

    @property
    def percent(self) -> float:
        if self.state is State.DONE:
            return 100.0
        work = self.work
        return min(99.9, work.rows_done * 100 / work.rows_to_do) if work.rows_to_do else 0.0

    def rate(self, now: int) -> float | None:
        """Rows per second in this phase, where known."""
        work = self.work
        end = self.finished_at or now
        if work.phase_at is None or end <= work.phase_at or not work.rows_done:
            return None
        return work.rows_done * 1_000 / (end - work.phase_at)

    def ends_at(self, now: int) -> int | None:
        """An estimate, by the current rate."""
        rate = self.rate(now)
        if self.state is not State.RUNNING or rate is None:
            return None
        return now + int((self.work.rows_to_do - self.work.rows_done) * 1_000 / rate)

    def status(self, now: int) -> TaskStatus:
        """As a task: completed when the whole operation is over, with the sums over the engine's tasks."""
        began = self.started_at or self.requested_at
        return TaskStatus(
            id=self.id,
            completed=self.state.is_over,
            run_time_nanos=max(0, (self.finished_at or now) - began) * 1_000_000,
            counters=self.work.counters,
            error={State.FAILED: self.work.error, State.CANCELLED: CANCELLED}.get(self.state),
        )


def event_of(operation: Operation) -> Event:
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
            if plan.keep_last is not None:
                detail["keepLast"] = plan.keep_last
            if plan.rule is not None:
                detail["rule"] = plan.rule
        case State.RUNNING | State.VERIFYING | State.SWAPPING:
            detail |= {"source": work.source, "target": work.target, "attempts": work.attempts}
        case State.DONE:
            detail |= {"deleted": work.counters.deleted, "copied": work.counters.created}
        case State.FAILED | State.CANCELLED:
            detail |= {"error": work.error}
    if work.check is not None:
        detail |= {"rowsNow": work.check.rows, "rowsLeft": work.check.rows_left, "passed": work.check.passed}
    return Event(Action[f"OPERATION_{operation.state.value}"], str(operation.id), detail)


class OperationPage(NamedTuple):
    total: int
    rows: tuple[Operation, ...]

"""Operations in the search index and what belongs to them, as the server answers with them: see `records`."""

from dataclasses import dataclass
from datetime import datetime

from watchword.client.records import moment

_OVER = frozenset({"DONE", "FAILED", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """What a task has done so far, in rows."""

    total: int
    updated: int
    created: int
    deleted: int
    batches: int
    version_conflicts: int
    noops: int
    bulk_retries: int
    search_retries: int
    throttled_millis: int
    requests_per_second: float
    throttled_until_millis: int

    @property
    def done(self) -> int:
        """Rows it is through with."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """How far an operation is, or a task of the search index itself."""

    task_id: str
    completed: bool
    run_time_nanos: int
    status: TaskCounters
    failures: tuple[str, ...]
    error: str | None

    @property
    def failed(self) -> bool:
        return self.error is not None or bool(self.failures)


@dataclass(frozen=True, slots=True)
class TruncationPlan:
    """What a truncation would do, or does: counted before anything is done. `share` is in a hundred."""

    entity_type: str
    aspect: str
    index_name: str
    end_time_millis: int
    rows: int
    rows_to_delete: int
    share: float
    size_in_bytes: int
    bytes_to_free: int
    strategy: str
    reason: str
    batch_size: int
    timeout_seconds: int | None
    summary: str

    @property
    def end_time(self) -> datetime:
        """Rows up to this moment go."""
        return moment(self.end_time_millis)


@dataclass(frozen=True, slots=True)
class EngineTaskInfo:
    """A task of the search index that worked for an operation, as it was last seen."""

    id: str
    purpose: str
    completed: bool
    status: TaskCounters


@dataclass(frozen=True, slots=True)
class PostCheckInfo:
    """What was found when the work was done: how many rows there are, and how many old ones among them."""

    passed: bool
    rows: int
    rows_left: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class OperationInfo:
    """A truncation, from its plan to its post-check. `id` is also a task id."""

    id: str
    state: str
    plan: TruncationPlan
    actor_urn: str
    created_at: int
    started_at: int | None
    changed_at: int | None
    finished_at: int | None
    percent: float
    rows_done: int
    rows_to_do: int
    rows_per_second: float | None
    estimated_end_at: int | None
    note: str | None
    error: str | None
    attempts: int
    source_index: str | None
    target_index: str | None
    tasks: tuple[EngineTaskInfo, ...]
    status: TaskCounters
    post_check: PostCheckInfo | None
    cancel_asked_at: int | None
    cancel_asked_by: str | None

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def created(self) -> datetime:
        return moment(self.created_at)

    @property
    def finished(self) -> datetime | None:
        """None: not yet."""
        return None if self.finished_at is None else moment(self.finished_at)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """So many rows from this moment on, until the next span begins."""

    start_millis: int
    rows: int

    @property
    def start(self) -> datetime:
        return moment(self.start_millis)


@dataclass(frozen=True, slots=True)
class TimeseriesHistogram:
    """How the rows of a time series lie in time, from the oldest to the youngest."""

    index_name: str
    rows: int
    rows_without_time: int
    span_millis: int | None
    spans: tuple[TimeSpan, ...]


@dataclass(frozen=True, slots=True)
class IndexInfo:
    index_name: str
    entity_name: str
    aspect_name: str
    size_in_mb: float
    size_in_bytes: int
    rows: int

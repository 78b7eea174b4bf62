"""The search index: its series, truncations and tasks."""

from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

from watchword.client.records import GRAPHQL_NAME, R, Record, to_millis
from watchword.client.requests import (
    PAGE_SIZE,
    ApiRequest,
    Listing,
    Step,
    ask,
    ask_tuple,
    list_records,
    lists,
    named,
    sends,
)

_FINAL_STATES = frozenset({"DONE", "FAILED", "CANCELLED"})
_OPERATION_ID = {"id": "operation_id"}


class TaskCounters(Record):
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
        """Rows processed so far."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts


class TaskInfo(Record):
    """The progress of an operation, or of a task of the search index."""

    task_id: str
    completed: bool
    run_time_nanos: int
    status: TaskCounters
    failures: tuple[str, ...]
    error: str | None

    @property
    def failed(self) -> bool:
        return self.error is not None or bool(self.failures)


class TruncationPlan(Record):
    """What a truncation deletes, counted before it starts. `share` is a percentage."""

    entity_type: str
    aspect: str
    index_name: str
    end_time: datetime = field(metadata={GRAPHQL_NAME: "endTimeMillis"})
    """Rows up to this time are deleted."""
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


class EngineTaskInfo(Record):
    """A task that the search index ran for an operation, as last seen."""

    id: str
    purpose: str
    completed: bool
    status: TaskCounters


class PostCheckInfo(Record):
    """The check after a truncation: how many rows remain, and how many old ones among them."""

    passed: bool
    rows: int
    rows_left: int
    expected: int | None


class OperationInfo(Record):
    """A truncation, from its plan to its check afterwards. `id` is also a task id."""

    id: str
    state: str
    plan: TruncationPlan
    actor_urn: str
    actor_name: str | None
    created_at: datetime
    started_at: datetime | None
    changed_at: datetime | None
    finished_at: datetime | None
    percent: float
    rows_done: int
    rows_to_do: int
    rows_per_second: float | None
    estimated_end_at: datetime | None
    note: str | None
    error: str | None
    attempts: int
    source_index: str | None
    target_index: str | None
    tasks: tuple[EngineTaskInfo, ...]
    status: TaskCounters
    post_check: PostCheckInfo | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None

    @property
    def is_over(self) -> bool:
        return self.state in _FINAL_STATES


class TimeSpan(Record):
    """The rows between the start of this span and the start of the next one."""

    start: datetime = field(metadata={GRAPHQL_NAME: "startMillis"})
    rows: int


class TimeseriesHistogram(Record):
    """The rows of a time series by time, oldest first."""

    index_name: str
    rows: int
    rows_without_time: int
    span: timedelta | None = field(metadata={GRAPHQL_NAME: "spanMillis"})
    """The length of each span; None when there is no row with a time."""
    spans: tuple[TimeSpan, ...]


class IndexInfo(Record):
    """The size of one time series index."""

    index_name: str
    entity_name: str
    aspect_name: str
    size_in_mb: float
    size_in_bytes: int
    rows: int


class OperationMethods:
    @sends
    def get_task_status(self, task_id: str) -> ApiRequest[TaskInfo | None]:
        """Get the progress of an operation, or of a task of the search index (`<node>:<number>`). None if it is not
        found or cannot be read now. Needs Get search-index task status.
        """
        return ask("taskStatus", TaskInfo, {"task: String!": task_id}, nullable=True, arguments={"task": "task_id"})

    @sends
    def index_sizes(self) -> ApiRequest[tuple[IndexInfo, ...]]:
        """Get the rows and size of each time series index. Needs Get time series index sizes."""
        return ask_tuple("indexSizes", IndexInfo)

    @sends
    def get_timeseries_histogram(
        self, entity_type: str, aspect: str, *, spans: int = 60
    ) -> ApiRequest[TimeseriesHistogram]:
        """Count the rows of a time series by time, in at most `spans` spans. Needs Truncate time series index."""
        return ask("timeseriesHistogram", TimeseriesHistogram, {"input: TimeseriesHistogramInput!": named(locals())})

    @sends
    def plan_truncation(
        self,
        entity_type: str,
        aspect: str,
        end_time: datetime,
        *,
        batch_size: int | None = None,
        timeout_seconds: int | None = None,
        force_delete_by_query: bool = False,
        force_reindex: bool = False,
    ) -> ApiRequest[TruncationPlan]:
        """Count what `truncate_series` would delete. Changes nothing. Needs Truncate time series index."""
        return _truncate(TruncationPlan, "plan", named(locals()))

    @sends
    def truncate_series(
        self,
        entity_type: str,
        aspect: str,
        end_time: datetime,
        *,
        batch_size: int | None = None,
        timeout_seconds: int | None = None,
        force_delete_by_query: bool = False,
        force_reindex: bool = False,
    ) -> ApiRequest[OperationInfo]:
        """Start to delete the rows of a time series up to `end_time`, and return the operation; `watch_operation`
        follows it. Raises `Conflict` while another operation on the index runs. Needs Truncate time series index.
        """
        return _truncate(OperationInfo, "operation", named(locals()))

    @lists
    def operations(self, *, page_size: int = PAGE_SIZE) -> Listing[OperationInfo]:
        """List operations, newest first. Needs Truncate time series index."""
        return list_records("operations", "operations", OperationInfo, "ListOperationsInput", page_size, key=("id",))

    @sends
    def get_operation(self, operation_id: str) -> ApiRequest[OperationInfo]:
        """Get an operation by the id that `truncate_series` returned. Needs Truncate time series index."""
        return _operation(operation_id)

    @sends
    def cancel_operation(self, operation_id: str) -> ApiRequest[OperationInfo]:
        """Cancel an operation; it stops soon. Raises `Conflict` from state SWAPPING on. Needs Truncate time series
        index.
        """
        variables = {"id: String!": operation_id}
        return ask("cancelOperation", OperationInfo, variables, mutation=True, arguments=_OPERATION_ID)

    @lists
    def watch_operation(self, operation_id: str, every: float = 1.0) -> Listing[OperationInfo]:
        """Give the operation every `every` seconds until it is over."""
        if not every > 0:
            raise ValueError("every must be more than 0 seconds.")
        request = _operation(operation_id)
        operation = yield Step((), request)
        while not operation.is_over:
            operation = yield Step([operation], request, every)
        yield Step([operation], None)


def _truncate(kind: type[R], part: str, given: dict[str, Any]) -> ApiRequest[R]:
    """`part` is what the server answers with: the plan of a dry run, or the operation that it started."""
    if given["forceDeleteByQuery"] and given["forceReindex"]:
        raise ValueError("force_delete_by_query and force_reindex must not both be True.")
    is_plan = part == "plan"
    end_time = to_millis("end_time", given["endTimeMillis"])
    variables = {"input: TruncateTimeseriesAspectInput!": {**given, "endTimeMillis": end_time, "dryRun": is_plan}}
    return ask("truncateTimeseriesAspect", kind, variables, part=part, mutation=True, changes=not is_plan)


def _operation(operation_id: str) -> ApiRequest[OperationInfo]:
    return ask("operation", OperationInfo, {"id: String!": operation_id}, arguments=_OPERATION_ID)

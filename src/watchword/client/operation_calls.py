"""The calls about operations in the search index; as those of `calls`, they are methods of both clients."""

from datetime import UTC, datetime, timedelta
from typing import Any

from watchword.client.operation_records import IndexInfo, OperationInfo, TaskInfo, TimeseriesHistogram, TruncationPlan
from watchword.client.records import record, selection
from watchword.client.walks import PAGE_SIZE, Paged, ResultPage, Watched, page_of
from watchword.client.wire import ApiRequest, ask, ask_maybe

_OPERATION, _PLAN, _STATUS, _SIZE = map(selection, (OperationInfo, TruncationPlan, TaskInfo, IndexInfo))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def task_status(task: str) -> ApiRequest[TaskInfo | None]:
    """How far an operation is, or a task of the search index itself, by `<node>:<number>`; None where it is not found
    or cannot be read now. Needs Get search-index task status.
    """
    document = f"query ($task: String!) {{ taskStatus(task: $task) {{ {_STATUS} }} }}"
    return ask_maybe(document, lambda found: record(TaskInfo, found), {"task": task})


def index_sizes() -> ApiRequest[tuple[IndexInfo, ...]]:
    """What each index of a time series holds and weighs. Needs Get time series index sizes."""
    document = f"{{ indexSizes {{ {_SIZE} }} }}"
    return ask(document, lambda found: tuple(record(IndexInfo, one) for one in found))


def timeseries_histogram(entity_type: str, aspect: str, *, spans: int = 60) -> ApiRequest[TimeseriesHistogram]:
    """How the rows of a time series lie in time, in at most so many spans: what a truncation would cut. Needs Truncate
    time series index.
    """
    document = f"""query ($input: TimeseriesHistogramInput!) {{
      timeseriesHistogram(input: $input) {{ {selection(TimeseriesHistogram)} }} }}"""
    wanted = {"entityType": entity_type, "aspect": aspect, "spans": spans}
    return ask(document, lambda found: record(TimeseriesHistogram, found), {"input": wanted})


def plan_truncation(
    entity_type: str,
    aspect: str,
    end_time: int | datetime,
    *,
    batch_size: int | None = None,
    timeout_seconds: int | None = None,
    force_delete_by_query: bool = False,
    force_reindex: bool = False,
) -> ApiRequest[TruncationPlan]:
    """What `truncate` would do, counted now; nothing is changed. Needs Truncate time series index."""
    document = f"""mutation ($input: TruncateTimeseriesAspectInput!) {{
      truncateTimeseriesAspect(input: $input) {{ plan {{ {_PLAN} }} }} }}"""
    wanted = _wanted(
        entity_type, aspect, end_time, batch_size, timeout_seconds, force_delete_by_query, force_reindex, dry_run=True
    )
    return ask(document, lambda found: record(TruncationPlan, found["plan"]), {"input": wanted})


def truncate(
    entity_type: str,
    aspect: str,
    end_time: int | datetime,
    *,
    batch_size: int | None = None,
    timeout_seconds: int | None = None,
    force_delete_by_query: bool = False,
    force_reindex: bool = False,
) -> ApiRequest[OperationInfo]:
    """Remove the rows of a time series up to a moment (a datetime with its zone, or milliseconds since 1970). Returns
    the operation that will do it: see `watch_operation`. While one on the same index is not over: `Conflict`. Needs
    Truncate time series index.
    """
    document = f"""mutation ($input: TruncateTimeseriesAspectInput!) {{
      truncateTimeseriesAspect(input: $input) {{ operation {{ {_OPERATION} }} }} }}"""
    wanted = _wanted(
        entity_type, aspect, end_time, batch_size, timeout_seconds, force_delete_by_query, force_reindex, dry_run=False
    )
    return ask(document, lambda found: record(OperationInfo, found["operation"]), {"input": wanted}, changes=True)


def _wanted(
    entity_type: str,
    aspect: str,
    end_time: int | datetime,
    batch_size: int | None,
    timeout_seconds: int | None,
    force_delete_by_query: bool,
    force_reindex: bool,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "entityType": entity_type,
        "aspect": aspect,
        "endTimeMillis": _millis(end_time),
        "dryRun": dry_run,
        "batchSize": batch_size,
        "timeoutSeconds": timeout_seconds,
        "forceDeleteByQuery": force_delete_by_query,
        "forceReindex": force_reindex,
    }


def _millis(moment: int | datetime) -> int:
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise ValueError("end_time must have a zone, such as datetime(2026, 10, 1, tzinfo=UTC).")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def operations(*, page_size: int = PAGE_SIZE) -> Paged[OperationInfo]:
    """All operations, newest first. Needs Truncate time series index."""
    document = f"""query ($input: ListOperationsInput) {{
      operations(input: $input) {{ total operations {{ {_OPERATION} }} }} }}"""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[OperationInfo]]:
        wanted = {"start": start, "count": count}
        return ask(document, lambda found: page_of(OperationInfo, found, "operations"), {"input": wanted})

    return Paged(fetch, lambda operation: operation.id, page_size)


def operation(id: str) -> ApiRequest[OperationInfo]:  # noqa: A002 - the schema's word
    """One operation, by the id that `truncate` gave. Needs Truncate time series index."""
    document = f"query ($id: String!) {{ operation(id: $id) {{ {_OPERATION} }} }}"
    return ask(document, lambda found: record(OperationInfo, found), {"id": id})


def cancel_operation(id: str) -> ApiRequest[OperationInfo]:  # noqa: A002
    """Ask to end an operation early; it stops soon. From SWAPPING on: `Conflict`. Needs Truncate time series index."""
    document = f"mutation ($id: String!) {{ cancelOperation(id: $id) {{ {_OPERATION} }} }}"
    return ask(document, lambda found: record(OperationInfo, found), {"id": id}, changes=True)


def watch_operation(id: str, every: float = 1.0) -> Watched[OperationInfo]:  # noqa: A002
    """The operation as it is now, and again after so many seconds each, until it is over."""
    return Watched(operation(id), lambda found: found.is_over, every)

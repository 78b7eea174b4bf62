"""The search index: its series, truncations and tasks."""

from collections.abc import AsyncIterator
from datetime import datetime

from watchword.client.answers import (
    IndexInfo,
    OperationInfo,
    SeriesSize,
    TaskInfo,
    TimeseriesHistogram,
    TruncationPlan,
)
from watchword.client.asynchronous.lists import AsyncResults
from watchword.client.asynchronous.namespace import PAGE_SIZE, AsyncNamespace
from watchword.client.asynchronous.transport import sleep
from watchword.client.inputs import truncation
from watchword.client.requests import ask, ask_tuple, named


class AsyncOperations(AsyncNamespace):
    """Truncations, from their plans to the checks afterwards, and tasks of the search index."""

    def list(self, *, page_size: int = PAGE_SIZE) -> AsyncResults[OperationInfo]:
        """List operations, newest first. Needs Truncate time series index."""
        return self._list("operations", "operations", OperationInfo, "ListOperationsInput", page_size, key=("id",))

    async def get(self, id: str) -> OperationInfo:
        """Get an operation by the id that `series.truncate` returned. Needs Truncate time series index."""
        return await self._send(ask("operation", OperationInfo, {"id: String!": id}))

    async def cancel(self, id: str) -> OperationInfo:
        """Cancel an operation; it stops soon. Raises `Conflict` from state SWAPPING on. Needs Truncate time series
        index.
        """
        return await self._send(ask("cancelOperation", OperationInfo, {"id: String!": id}, mutation=True))

    async def watch(self, id: str, every: float = 1.0) -> AsyncIterator[OperationInfo]:
        """Give the operation every `every` seconds until it is over."""
        if not every > 0:
            raise ValueError("every must be more than 0 seconds.")
        while not (operation := await self.get(id)).is_over:
            yield operation
            await sleep(every)
        yield operation

    async def task_status(self, task: str) -> TaskInfo | None:
        """Get the progress of an operation, or of a task of the search index (`<node>:<number>`). None if it is not
        found or cannot be read now. Needs Get search-index task status.
        """
        return await self._send(ask("taskStatus", TaskInfo, {"task: String!": task}, nullable=True))


class AsyncSeries(AsyncNamespace):
    """Time series of the search index: their sizes, and the truncation of one."""

    async def list(self) -> tuple[IndexInfo, ...]:
        """Get the rows and size of each time series index. Needs Get time series index sizes."""
        return await self._send(ask_tuple("indexSizes", IndexInfo))

    async def sizes(self, series: str | None = None, *, days: int = 30) -> tuple[SeriesSize, ...]:
        """Get the sizes of series by day. Needs Get time series index sizes or Truncate time series index."""
        variables = {"input: SeriesSizesInput": named(series=series, days=days)}
        return await self._send(ask_tuple("seriesSizes", SeriesSize, variables))

    async def histogram(self, entity_type: str, aspect: str, *, spans: int = 60) -> TimeseriesHistogram:
        """Count the rows of a time series by time, in at most `spans` spans. Needs Truncate time series index."""
        variables = {"input: TimeseriesHistogramInput!": named(entity_type=entity_type, aspect=aspect, spans=spans)}
        return await self._send(ask("timeseriesHistogram", TimeseriesHistogram, variables))

    async def plan_truncation(
        self,
        entity_type: str,
        aspect: str,
        end_time: datetime,
        *,
        batch_size: int | None = None,
        timeout_seconds: int | None = None,
        force_delete_by_query: bool = False,
        force_reindex: bool = False,
    ) -> TruncationPlan:
        """Count what `truncate` would delete. Changes nothing. Needs Truncate time series index."""
        given = named(entity_type=entity_type, aspect=aspect, batch_size=batch_size, timeout_seconds=timeout_seconds)
        given |= named(force_delete_by_query=force_delete_by_query, force_reindex=force_reindex)
        return await self._send(truncation(TruncationPlan, "plan", end_time, given))

    async def truncate(
        self,
        entity_type: str,
        aspect: str,
        end_time: datetime,
        *,
        batch_size: int | None = None,
        timeout_seconds: int | None = None,
        force_delete_by_query: bool = False,
        force_reindex: bool = False,
    ) -> OperationInfo:
        """Start to delete the rows of a time series up to `end_time`, and return the operation; `operations.watch`
        follows it. Raises `Conflict` while another operation on the index runs. Needs Truncate time series index.
        """
        given = named(entity_type=entity_type, aspect=aspect, batch_size=batch_size, timeout_seconds=timeout_seconds)
        given |= named(force_delete_by_query=force_delete_by_query, force_reindex=force_reindex)
        return await self._send(truncation(OperationInfo, "operation", end_time, given))

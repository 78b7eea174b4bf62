"""GraphQL resolvers of operations in the search index."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from watchword.http.graphql.context import Info, page_of
from watchword.http.graphql.shapes import Json, Shape
from watchword.index.engine import Counters, TaskId
from watchword.index.http import shown_size
from watchword.index.indices import Histogram, check_spans
from watchword.index.rules import Operation, Plan, parse_truncation, requested_aspect
from watchword.index.service import SIZES, STATUS, TRUNCATE, Operations

_COUNTERS = Shape(" ".join(one.name for one in fields(Counters)))
_TASK = Shape("purpose completed id status=counters", id=str, status=_COUNTERS)
_TASK_STATUS = Shape("completed run_time_nanos failures error taskId=id status=counters", taskId=str, status=_COUNTERS)
PLAN = Shape(
    "rows rows_to_delete share bytes_to_free reason batch_size timeout_seconds entityType=aspect.entity"
    " aspect=aspect.name indexName=index endTimeMillis=until sizeInBytes=size_bytes strategy=strategy.value",
    summary=Plan.summary,
)
OPERATION = Shape(
    "rowsDone=work.rows_done rowsToDo=work.rows_to_do note=work.note error=work.error attempts=work.attempts started_at"
    " changed_at finished_at percent cancel_requested_at cancel_requested_by state=state.value plan"
    " actorUrn=requested_by actorName@requested_by createdAt=requested_at sourceIndex=work.source"
    " targetIndex=work.target tasks=work.tasks status=work.counters postCheck=work.check id",
    id=str,
    plan=PLAN,
    tasks=[_TASK],
    status=_COUNTERS,
    postCheck=Shape("passed rows rows_left expected"),
)


async def operations(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(Operations, TRUNCATE)
    page = page_of(input or {})
    async with info.context.searching:
        found = await service.list(grant, **page)
    names = await info.context.names(OPERATION.actors(*found.rows))
    return page | {"total": found.total, "operations": [operation_json(info, one, names) for one in found.rows]}


async def operation(_: Any, info: Info, id: str) -> Json:
    service, grant = await info.context.authorized(Operations, TRUNCATE)
    return await _named_json(info, await service.get(grant, TaskId.parse(id, "id")))


async def task_status(_: Any, info: Info, task: str) -> Json | None:
    service, grant = await info.context.authorized(Operations, STATUS)
    wanted = TaskId.parse(task)
    # A request asks the index one question at a time.
    async with info.context.searching:
        status = await service.task_status(grant, wanted)
    if status is None:
        return None
    return _TASK_STATUS(status)


async def index_sizes(_: Any, info: Info) -> list[Json]:
    service, grant = await info.context.authorized(Operations, SIZES)
    async with info.context.searching:
        sizes = await service.sizes(grant)
    return [shown_size(size, aspect) for size, aspect in sizes]


async def timeseries_histogram(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Operations, TRUNCATE)
    aspect, spans = requested_aspect(input), check_spans(input["spans"])
    async with info.context.searching:
        return _histogram_json(*await service.histogram(grant, aspect, spans))


async def truncate_timeseries_aspect(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Operations, TRUNCATE)
    truncation = parse_truncation(input, info.context.now)
    async with info.context.searching:
        plan, started = await service.truncate(grant, truncation)
    return {"plan": PLAN(plan), "operation": None if started is None else await _named_json(info, started)}


async def cancel_operation(_: Any, info: Info, id: str) -> Json:
    service, grant = await info.context.authorized(Operations, TRUNCATE)
    return await _named_json(info, await service.cancel(grant, TaskId.parse(id, "id")))


async def _named_json(info: Info, operation: Operation) -> Json:
    return operation_json(info, operation, await info.context.names(OPERATION.actors(operation)))


def operation_json(info: Info, operation: Operation, names: Mapping[str, str]) -> Json:
    now = info.context.now
    return OPERATION(operation, names) | {
        "rowsPerSecond": operation.rate(now),
        "estimatedEndAt": operation.ends_at(now),
    }


def _histogram_json(index: str, histogram: Histogram) -> Json:
    axis = histogram.spans
    spans = [] if axis is None else zip(axis.starts(), histogram.counts, strict=True)
    return {
        "indexName": index,
        "rows": histogram.total,
        "rowsWithoutTime": histogram.timeless,
        "spanMillis": None if axis is None else axis.step,
        "spans": [{"startMillis": start, "rows": rows} for start, rows in spans],
    }

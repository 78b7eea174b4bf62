"""GraphQL resolvers of operations in the search index."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from watchword.domain.engine import Counters, TaskId
from watchword.domain.indices import Histogram, check_spans
from watchword.domain.operations import EngineTask, Operation, Plan, parse_truncation, requested_aspect
from watchword.http.graphql.context import Info, Json, camel_case, page_of, record_json
from watchword.http.operations import shown_size
from watchword.service.operations import SIZES, STATUS, TRUNCATE


async def operations(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(info.context.services.operations, TRUNCATE)
    page = page_of(input or {})
    async with info.context.searching:
        found, node = await service.list(grant, **page)
    actors = await info.context.names(one.requested_by for one in found.rows)
    rows = [operation_json(info, TaskId(node, one.number), one, actors) for one in found.rows]
    return page | {"total": found.total, "operations": rows}


async def operation(_: Any, info: Info, id: str) -> Json:
    service, grant = await info.context.authorized(info.context.services.operations, TRUNCATE)
    return await _named_json(info, *await service.get(grant, TaskId.parse(id, "id")))


async def task_status(_: Any, info: Info, task: str) -> Json | None:
    service, grant = await info.context.authorized(info.context.services.operations, STATUS)
    wanted = TaskId.parse(task)
    # A request asks the index one question at a time.
    async with info.context.searching:
        status = await service.task_status(grant, wanted)
    if status is None:
        return None
    names = "completed run_time_nanos failures error"
    return record_json(status, names, taskId=str(status.id), status=_counters_json(status.counters))


async def index_sizes(_: Any, info: Info) -> list[Json]:
    service, grant = await info.context.authorized(info.context.services.operations, SIZES)
    async with info.context.searching:
        sizes = await service.sizes(grant)
    return [shown_size(size, aspect) for size, aspect in sizes]


async def timeseries_histogram(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.operations, TRUNCATE)
    aspect, spans = requested_aspect(input), check_spans(input["spans"])
    async with info.context.searching:
        return _histogram_json(*await service.histogram(grant, aspect, spans))


async def truncate_timeseries_aspect(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.operations, TRUNCATE)
    truncation = parse_truncation(input, info.context.now)
    async with info.context.searching:
        plan, started = await service.truncate(grant, truncation)
    return {"plan": plan_json(plan), "operation": None if started is None else await _named_json(info, *started)}


async def cancel_operation(_: Any, info: Info, id: str) -> Json:
    service, grant = await info.context.authorized(info.context.services.operations, TRUNCATE)
    return await _named_json(info, *await service.cancel(grant, TaskId.parse(id, "id")))


async def _named_json(info: Info, task: TaskId, operation: Operation) -> Json:
    return operation_json(info, task, operation, await info.context.names([operation.requested_by]))


def operation_json(info: Info, task: TaskId, operation: Operation, actors: Mapping[str, str]) -> Json:
    now, work = info.context.now, operation.work
    names = "started_at changed_at finished_at percent cancel_requested_at cancel_requested_by"
    return record_json(work, "rows_done rows_to_do note error attempts") | record_json(
        operation,
        names,
        id=str(task),
        state=operation.state.value,
        plan=plan_json(operation.plan),
        actorUrn=operation.requested_by,
        actorName=actors.get(operation.requested_by),
        createdAt=operation.requested_at,
        rowsPerSecond=operation.rate(now),
        estimatedEndAt=operation.ends_at(now),
        sourceIndex=work.source,
        targetIndex=work.target,
        tasks=[_task_json(one) for one in work.tasks],
        status=_counters_json(work.counters),
        postCheck=None if work.check is None else record_json(work.check, "passed rows rows_left expected"),
    )


def plan_json(plan: Plan) -> Json:
    return record_json(
        plan,
        "rows rows_to_delete share bytes_to_free reason batch_size timeout_seconds",
        entityType=plan.aspect.entity,
        aspect=plan.aspect.name,
        indexName=plan.index,
        endTimeMillis=plan.until,
        sizeInBytes=plan.size_bytes,
        strategy=plan.strategy.value,
        summary=plan.summary(),
    )


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


def _task_json(task: EngineTask) -> Json:
    return record_json(task, "purpose completed", id=str(task.id), status=_counters_json(task.counters))


def _counters_json(counters: Counters) -> Json:
    return {camel_case(name): number for name, number in asdict(counters).items()}

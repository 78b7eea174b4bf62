"""GraphQL resolvers of operations in the search index."""

from typing import Any

from watchword.domain.actors import Grant
from watchword.domain.indices import Histogram, check_spans
from watchword.domain.operations import EngineTask, Operation, Plan, PostCheck, parse_truncation, requested_aspect
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock
from watchword.domain.tasks import Counters, TaskId, TaskStatus
from watchword.http.graphql.context import Info, Json, Resolvers, page_of
from watchword.http.operations import shown_size
from watchword.service.operations import SIZES, STATUS, TRUNCATE, Operations


class OperationResolvers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.queries: Resolvers = {
            "operations": self._list,
            "operation": self._get,
            "taskStatus": self._task_status,
            "indexSizes": self._sizes,
            "timeseriesHistogram": self._histogram,
        }
        self.mutations: Resolvers = {
            "truncateTimeseriesAspect": self._truncate,
            "cancelOperation": self._cancel,
        }

    async def _list(self, _: Any, info: Info, input: Json | None = None) -> Json:
        operations, grant = await _authorized(info, TRUNCATE)
        start, count = page_of(input or {})
        async with info.context.searching:
            page, node = await operations.list(grant, start, count)
        return {
            "start": start,
            "count": count,
            "total": page.total,
            "operations": [self._shown(TaskId(node, one.number), one) for one in page.rows],
        }

    async def _get(self, _: Any, info: Info, id: str) -> Json:
        operations, grant = await _authorized(info, TRUNCATE)
        return self._shown(*await operations.get(grant, TaskId.parse(id, "id")))

    async def _task_status(self, _: Any, info: Info, task: str) -> Json | None:
        operations, grant = await _authorized(info, STATUS)
        wanted = TaskId.parse(task)
        # A request asks the index one question at a time.
        async with info.context.searching:
            status = await operations.task_status(grant, wanted)
        return None if status is None else _shown_status(status)

    async def _sizes(self, _: Any, info: Info) -> list[Json]:
        operations, grant = await _authorized(info, SIZES)
        async with info.context.searching:
            sizes = await operations.sizes(grant)
        return [shown_size(size, aspect) for size, aspect in sizes]

    async def _histogram(self, _: Any, info: Info, input: Json) -> Json:
        operations, grant = await _authorized(info, TRUNCATE)
        aspect, spans = requested_aspect(input), check_spans(input["spans"])
        async with info.context.searching:
            return _shown_histogram(*await operations.histogram(grant, aspect, spans))

    async def _truncate(self, _: Any, info: Info, input: Json) -> Json:
        operations, grant = await _authorized(info, TRUNCATE)
        truncation = parse_truncation(input, self._clock())
        async with info.context.searching:
            plan, operation = await operations.truncate(grant, truncation)
        return {"plan": _shown_plan(plan), "operation": None if operation is None else self._shown(*operation)}

    async def _cancel(self, _: Any, info: Info, id: str) -> Json:
        operations, grant = await _authorized(info, TRUNCATE)
        return self._shown(*await operations.cancel(grant, TaskId.parse(id, "id")))

    def _shown(self, task: TaskId, operation: Operation) -> Json:
        now, work = self._clock(), operation.work
        return {
            "id": str(task),
            "state": operation.state.value,
            "plan": _shown_plan(operation.plan),
            "actorUrn": operation.asked_by,
            "createdAt": operation.asked_at,
            "startedAt": operation.started_at,
            "changedAt": operation.changed_at,
            "finishedAt": operation.finished_at,
            "percent": operation.percent,
            "rowsDone": work.rows_done,
            "rowsToDo": work.rows_to_do,
            "rowsPerSecond": operation.rate(now),
            "estimatedEndAt": operation.ends_at(now),
            "note": work.note,
            "error": work.error,
            "attempts": work.attempts,
            "sourceIndex": work.source,
            "targetIndex": work.target,
            "tasks": [_shown_task(one) for one in work.tasks],
            "status": _shown_counters(work.counters),
            "postCheck": None if work.check is None else _shown_check(work.check),
            "cancelAskedAt": operation.cancel_asked_at,
            "cancelAskedBy": operation.cancel_asked_by,
        }


async def _authorized(info: Info, privilege: Privilege) -> tuple[Operations, Grant]:
    operations = info.context.services.operations
    return operations, await operations.authorize(info.context.caller, privilege)


def _shown_plan(plan: Plan) -> Json:
    return {
        "entityType": plan.aspect.entity,
        "aspect": plan.aspect.name,
        "indexName": plan.index,
        "endTimeMillis": plan.until,
        "rows": plan.rows,
        "rowsToDelete": plan.rows_to_delete,
        "share": plan.share,
        "sizeInBytes": plan.size_bytes,
        "bytesToFree": plan.bytes_to_free,
        "strategy": plan.strategy.value,
        "reason": plan.reason,
        "batchSize": plan.batch_size,
        "timeoutSeconds": plan.timeout_seconds,
        "summary": plan.summary(),
    }


def _shown_histogram(index: str, found: Histogram) -> Json:
    axis = found.spans
    spans = [] if axis is None else zip(axis.starts(), found.counts, strict=True)
    return {
        "indexName": index,
        "rows": found.total,
        "rowsWithoutTime": found.timeless,
        "spanMillis": None if axis is None else axis.step,
        "spans": [{"startMillis": start, "rows": rows} for start, rows in spans],
    }


def _shown_task(task: EngineTask) -> Json:
    return {
        "id": str(task.id),
        "purpose": task.purpose,
        "completed": task.completed,
        "status": _shown_counters(task.counters),
    }


def _shown_status(status: TaskStatus) -> Json:
    return {
        "taskId": str(status.id),
        "completed": status.completed,
        "runTimeNanos": status.run_time_nanos,
        "status": _shown_counters(status.counters),
        "failures": status.failures,
        "error": status.error,
    }


def _shown_counters(counters: Counters) -> Json:
    return {
        "total": counters.total,
        "updated": counters.updated,
        "created": counters.created,
        "deleted": counters.deleted,
        "batches": counters.batches,
        "versionConflicts": counters.version_conflicts,
        "noops": counters.noops,
        "bulkRetries": counters.bulk_retries,
        "searchRetries": counters.search_retries,
        "throttledMillis": counters.throttled_millis,
        "requestsPerSecond": counters.requests_per_second,
        "throttledUntilMillis": counters.throttled_until_millis,
    }


def _shown_check(check: PostCheck) -> Json:
    return {"passed": check.passed, "rows": check.rows, "rowsLeft": check.rows_left, "expected": check.expected}

"""`POST /operations`: three actions on the search index. Each is authorized before its body is read. Task status and
index sizes are also answered by GET, under DataHub's addresses.

The status of a task has three shapes: the given one, another for clients that send the rest.li header, and the object
itself by GET.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import orjson

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.rejections_service import RejectionLog
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import Clock
from watchword.http.errors import json_response
from watchword.http.requests import MAX_QUERY_FIELDS, Request, Response, read_object, read_query
from watchword.index.engine import TaskId, TaskStatus, not_readable, requested_task
from watchword.index.indices import Aspect, IndexSize
from watchword.index.rules import parse_truncation
from watchword.index.service import SIZES, STATUS, TRUNCATE, Operations

REST_LI = "x-restli-protocol-version"

Json = dict[str, Any]
Act = Callable[[Request, Grant, Json], Awaitable[Any]]


class OperationsEndpoint:
    def __init__(self, operations: Operations, rejections: RejectionLog, clock: Clock) -> None:
        self._operations = operations
        self._rejections = rejections
        self._clock = clock
        self._actions: dict[str, tuple[Privilege, Act]] = {
            "getEsTaskStatus": (STATUS, self._task_status),
            "truncateTimeseriesAspect": (TRUNCATE, self._truncate),
            "getIndexSizes": (SIZES, self._sizes),
        }

    async def answer(self, request: Request, caller: Caller) -> Response:
        name = _action(request.scope.query_string)
        action = self._actions.get(name)
        if action is None:
            actions = [*self._actions]
            message = f"action must be one of: {', '.join(actions)}."
            raise Fault(Reason.UNKNOWN_ACTION, message, actions=actions)
        privilege, act = action
        with self._rejections.recording_denial(caller, name):
            grant = await self._operations.authorize(caller, privilege)
            content = await act(request, grant, await read_object(request, "the fields of the action"))
        return json_response(content)

    async def get_task_status(self, request: Request, caller: Caller) -> Response:
        with self._rejections.recording_denial(caller, "getTaskStatus"):
            grant = await self._operations.authorize(caller, STATUS)
            task, status = await self._find_task(grant, read_query(request))
        return json_response({"value": not_readable(task)} if status is None else status.shown())

    async def get_index_sizes(self, request: Request, caller: Caller) -> Response:
        with self._rejections.recording_denial(caller, "getIndexSizes"):
            sizes = await self._operations.sizes(await self._operations.authorize(caller, SIZES))
        shown = [shown_size(size, aspect) | {"sizeMb": size.size_mb} for size, aspect in sizes]
        return json_response({"sizes": shown})

    async def _find_task(self, grant: Grant, parameters: Mapping[str, Any]) -> tuple[TaskId, TaskStatus | None]:
        task = requested_task(parameters.get("task"), parameters.get("nodeId"), parameters.get("taskId"))
        return task, await self._operations.task_status(grant, task)

    async def _task_status(self, request: Request, grant: Grant, parameters: Json) -> Any:
        task, status = await self._find_task(grant, parameters)
        rest_li = REST_LI in request.headers
        if status is not None:
            text = orjson.dumps(status.shown()).decode()
            return {"value": text} if rest_li else text
        problem = not_readable(task)
        return {"value": orjson.dumps({"error": problem}).decode() if rest_li else problem}

    async def _truncate(self, request: Request, grant: Grant, parameters: Json) -> Json:
        plan, operation = await self._operations.truncate(grant, parse_truncation(parameters, self._clock()))
        return {"value": plan.summary() if operation is None else str(operation.id)}

    async def _sizes(self, request: Request, grant: Grant, parameters: Json) -> Json:
        sizes = await self._operations.sizes(grant)
        return {"value": {"indexSizes": [shown_size(size, aspect) for size, aspect in sizes]}}


def shown_size(size: IndexSize, aspect: Aspect) -> Json:
    return {
        "indexName": size.name,
        "entityName": aspect.entity,
        "aspectName": aspect.name,
        "sizeInMb": size.size_mb,
        "sizeInBytes": size.size_bytes,
        "rows": size.rows,
    }


def _action(query: str) -> str:
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        fields = {}
    actions = fields.get("action", [])
    return actions[0] if len(actions) == 1 else ""

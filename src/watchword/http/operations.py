"""`POST /operations`: three actions on the search index. Each is authorized before its body is read.

The status of a task has two shapes: the given one, and another for clients that send the rest.li header.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import orjson

from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import Aspect, IndexSize
from watchword.domain.operations import parse_truncation
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock
from watchword.domain.tasks import not_readable, requested_task
from watchword.http.errors import JSON, NO_STORE
from watchword.http.requests import Request, Response, check_media_type, parse_json
from watchword.service.audit import DENIALS, RejectionLog
from watchword.service.operations import SIZES, STATUS, TRUNCATE, Operations

REST_LI = "x-restli-protocol-version"
MAX_QUERY_FIELDS = 50

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
        found = self._actions.get(name)
        if found is None:
            actions = [*self._actions]
            message = f"action must be one of: {', '.join(actions)}."
            raise Fault(Reason.UNKNOWN_ACTION, message, actions=actions)
        privilege, act = found
        try:
            grant = await self._operations.authorize(caller, privilege)
            content = await act(request, grant, await _body(request))
        except Fault as fault:
            if fault.reason in DENIALS:
                self._rejections.record_denial(caller, name, fault)
            raise
        return Response(200, [JSON, NO_STORE], orjson.dumps(content))

    async def _task_status(self, request: Request, grant: Grant, asked: Json) -> Any:
        task = requested_task(asked.get("task"), asked.get("nodeId"), asked.get("taskId"))
        status = await self._operations.task_status(grant, task)
        rest_li = REST_LI in request.headers
        if status is not None:
            text = orjson.dumps(status.shown()).decode()
            return {"value": text} if rest_li else text
        problem = not_readable(task)
        return {"value": orjson.dumps({"error": problem}).decode() if rest_li else problem}

    async def _truncate(self, request: Request, grant: Grant, asked: Json) -> Json:
        plan, operation = await self._operations.truncate(grant, parse_truncation(asked, self._clock()))
        return {"value": plan.summary() if operation is None else str(operation.id)}

    async def _sizes(self, request: Request, grant: Grant, asked: Json) -> Json:
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


async def _body(request: Request) -> Json:
    """A JSON object; no body counts as an empty one."""
    if "content-type" not in request.headers and not request.has_unread_body:
        return {}
    check_media_type(request)
    body = await request.body()
    content = parse_json(body, "an object with the fields of the action") if body.strip() else {}
    if not isinstance(content, dict):
        raise Fault(Reason.INVALID_JSON, "The body must be a JSON object with the fields of the action.")
    return content

"""Health probes. *Live*: the process answers. *Ready*: a write to the store succeeds; at most one probe a second.

An unavailable search index, or a failing background task, makes the service degraded, not unready: it can still issue,
verify and revoke tokens.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import orjson

from watchword.domain.engine import Engine
from watchword.domain.errors import Fault, Reason
from watchword.domain.ports import Store
from watchword.http.errors import JSON, NO_STORE, RETRY_AFTER
from watchword.http.requests import Response
from watchword.service.background import BackgroundTasks

PROBE_SECONDS = 1.0

LIVE = Response(200, [JSON, NO_STORE], b'{"status":"live"}')
READY: dict[str, Any] = {"status": "ready"}


class Health:
    def __init__(self, store: Store, engine: Engine, tasks: BackgroundTasks) -> None:
        self._store = store
        self._engine = engine
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._probed_at = float("-inf")
        self._answer = LIVE

    async def ready(self) -> Response:
        async with self._lock:
            if time.monotonic() - self._probed_at >= PROBE_SECONDS:
                self._answer = await self._probe()
                self._probed_at = time.monotonic()
        return self._answer

    async def status(self) -> Response:
        """`ready` without the details."""
        status, headers, body = await self.ready()
        return Response(status, headers, orjson.dumps({"status": orjson.loads(body)["status"]}))

    async def _probe(self) -> Response:
        store, index = await asyncio.gather(_state(self._store.probe()), _state(self._engine.probe()))
        parts = {"store": store, "index": index}
        if failing := self._tasks.failing:
            parts["background"] = {"status": "degraded", "failing": failing, "message": "The log says why."}
        if store is not READY:
            body = {"status": "unavailable", "parts": parts}
            return Response(503, [JSON, NO_STORE, RETRY_AFTER], orjson.dumps(body))
        degraded = index is not READY or "background" in parts
        body = {"status": "degraded" if degraded else "ready", "parts": parts}
        return Response(200, [JSON, NO_STORE], orjson.dumps(body))


async def _state(probe: Awaitable[object]) -> dict[str, Any]:
    try:
        await probe
    except Fault as fault:
        timed_out = fault.reason is Reason.OUTCOME_UNKNOWN
        message = "The store did not answer in time." if timed_out else fault.message
        return {"status": "unavailable", "message": message}
    return READY

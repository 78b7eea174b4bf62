"""Health probes. *Live*: the process answers. *Ready*: a write to the store succeeds; at most one probe a second.

An unavailable search index, or a failing background task, makes the service degraded, not unready: it can still issue,
verify and revoke tokens.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from watchword.basics.background import BackgroundTasks
from watchword.basics.errors import Fault, Reason
from watchword.http.errors import JSON, NO_STORE, RETRY_AFTER, json_response
from watchword.http.requests import Response

PROBE_SECONDS = 1.0
METRIC_SECONDS = 2.0
"""How long `/metrics` waits for the store before it counts as unreachable."""

LIVE = Response(200, [JSON, NO_STORE], b'{"status":"live"}')
READY: dict[str, Any] = {"status": "ready"}


class Probe:
    """At most one a second, shared by all who ask."""

    def __init__(self, probe: Callable[[], Awaitable[object]]) -> None:
        self._probe = probe
        self._lock = asyncio.Lock()
        self._probed_at = float("-inf")
        self._state: dict[str, Any] = {}

    async def state(self) -> dict[str, Any]:
        async with self._lock:
            if time.monotonic() - self._probed_at >= PROBE_SECONDS:
                self._state = await _state(self._probe())
                self._probed_at = time.monotonic()
        return self._state


class Health:
    def __init__(self, store: Probe, index: Probe, tasks: BackgroundTasks) -> None:
        self._store = store
        self._index = index
        self._tasks = tasks

    async def reaches_store(self) -> bool:
        try:
            async with asyncio.timeout(METRIC_SECONDS):
                return await self._store.state() is READY
        except TimeoutError:
            return False

    async def ready(self) -> Response:
        store, index = await asyncio.gather(self._store.state(), self._index.state())
        parts = {"store": store, "index": index}
        if failing := self._tasks.failing:
            parts["background"] = {"status": "degraded", "failing": failing, "message": "The log says why."}
        if store is not READY:
            return json_response({"status": "unavailable", "parts": parts}, RETRY_AFTER, status=503)
        degraded = index is not READY or "background" in parts
        return json_response({"status": "degraded" if degraded else "ready", "parts": parts})

    async def status(self) -> Response:
        """`ready` without the details."""
        status, headers, body = await self.ready()
        return Response(status, headers, orjson.dumps({"status": orjson.loads(body)["status"]}))


async def _state(probe: Awaitable[object]) -> dict[str, Any]:
    try:
        await probe
    except Fault as fault:
        timed_out = fault.reason is Reason.OUTCOME_UNKNOWN
        message = "The store did not answer in time." if timed_out else fault.message
        return {"status": "unavailable", "message": message}
    return READY

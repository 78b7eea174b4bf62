"""Probes. *Live* says the process answers; *ready* proves a write to the store, by at most one probe a second."""

import asyncio
import time

import orjson

from watchword.domain.errors import Fault
from watchword.domain.ports import Store
from watchword.doors.http.faults import JSON, NO_STORE, RETRY_AFTER
from watchword.doors.http.requests import Response

PROBE_SECONDS = 1.0

LIVE = Response(200, [JSON, NO_STORE], b'{"status":"live"}')


class Health:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._probed_at = float("-inf")
        self._answer = LIVE

    async def ready(self) -> Response:
        async with self._lock:
            if time.monotonic() - self._probed_at >= PROBE_SECONDS:
                self._answer = await self._probe()
                self._probed_at = time.monotonic()
        return self._answer

    async def _probe(self) -> Response:
        try:
            await self._store.probe()
        except Fault as fault:
            body = {
                "status": "unavailable",
                "parts": {"store": {"status": "unavailable", "message": fault.message}},
            }
            return Response(503, [JSON, NO_STORE, RETRY_AFTER], orjson.dumps(body))
        body = {"status": "ready", "parts": {"store": {"status": "ready"}}}
        return Response(200, [JSON, NO_STORE], orjson.dumps(body))

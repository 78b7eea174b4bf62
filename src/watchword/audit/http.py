"""`GET /events`: the next events after a number, for collectors. A request may wait for them (long poll)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

import orjson
from orjson import Fragment

from watchword.audit.service import AuditLog
from watchword.authority.callers import Caller, Grant
from watchword.authority.rejections_service import RejectionLog
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.paging import DEFAULT_COUNT, check_page_size
from watchword.http.errors import json_response
from watchword.http.processor_budget import MeteredAddress, ProcessorBudget, in_slices
from watchword.http.requests import Request, Response, read_query
from watchword.journal.events import ecs_fields

LATEST = "latest"
MAX_WAIT = 30
MAX_WAITING, MAX_WAITING_OF_ACTOR = 100, 10
"""Requests that wait, in each worker."""
MAX_DIGITS = 18
_PARAMETERS = ("after", "wait", "count")


class EventsEndpoint:
    def __init__(
        self,
        authenticate: Callable[[Request], Awaitable[Caller]],
        audit: AuditLog,
        rejections: RejectionLog,
        budget: ProcessorBudget,
    ) -> None:
        self._authenticate = authenticate
        self._audit = audit
        self._rejections = rejections
        self._metered = MeteredAddress(budget)
        self._waiting: Counter[str] = Counter()
        self._stopping = asyncio.get_running_loop().create_future()

    def stop_waiting(self) -> None:
        """Answer the requests that wait."""
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def answer(self, request: Request) -> Response:
        grant = await self._authorize(request)
        return await self._metered.answer(request.actor or "", lambda: self._answer(request, grant))

    async def _answer(self, request: Request, grant: Grant) -> Response:
        query = read_query(request)
        if unknown := [name for name in query if name not in _PARAMETERS]:
            raise invalid(unknown[0], f"Unknown parameter {unknown[0]}. Allowed: {', '.join(_PARAMETERS)}.")
        count = check_page_size(_number(query, "count", DEFAULT_COUNT))
        wait = _number(query, "wait", 0)
        if wait > MAX_WAIT:
            raise invalid("wait", f"wait must be from 0 to {MAX_WAIT} seconds.")
        latest = query.get("after") == LATEST
        last = await self._audit.last(grant)
        after = last if latest else _number(query, "after", 0)
        if after > last > 0:  # 0: all were pruned
            raise invalid("after", f"after must be at most {last}, the number of the last event, or {LATEST}.")
        events = await self._audit.list_after(grant, after, count)
        deadline = monotonic() + wait
        while not events and monotonic() < deadline:
            with self._one_more(request.actor or ""):
                if not await self._wait(request, grant, after, deadline - monotonic()):
                    break
            grant = await self._authorize(request)  # the token may have been revoked meanwhile
            events = await self._audit.list_after(grant, after, count)
        shown = await in_slices(events, lambda event: Fragment(orjson.dumps(ecs_fields(event))))
        return json_response({"events": shown, "next": events[-1].seq if events else after})

    async def _authorize(self, request: Request) -> Grant:
        caller = await self._authenticate(request)
        with self._rejections.recording_denial(caller, "events"):
            return await self._audit.authorize(caller)

    async def _wait(self, request: Request, grant: Grant, after: int, seconds: float) -> bool:
        """False if the client has gone, or the service stops."""
        gone, waits = request.watch_disconnect(), asyncio.ensure_future(self._audit.wait(grant, after, seconds))
        try:
            await asyncio.wait([gone, waits, self._stopping], return_when=asyncio.FIRST_COMPLETED)
            return not gone.done() and not self._stopping.done()
        finally:
            gone.cancel()
            waits.cancel()

    @contextmanager
    def _one_more(self, actor: str) -> Iterator[None]:
        if self._waiting.total() >= MAX_WAITING or self._waiting[actor] >= MAX_WAITING_OF_ACTOR:
            raise Fault(
                Reason.TOO_MANY_WAITING,
                f"At most {MAX_WAITING_OF_ACTOR} requests of an actor, and {MAX_WAITING} in all, may wait for events. "
                "Try again in 5 s, or without wait.",
                retryAfter=5,
            )
        self._waiting[actor] += 1
        try:
            yield
        finally:
            self._waiting -= Counter([actor])  # which drops an actor that has none left


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        what = f"a number, or {LATEST}" if name == "after" else "a number"
        raise invalid(name, f"{name} must be {what}.")
    return int(text)

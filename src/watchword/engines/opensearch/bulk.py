"""Many rows in one request: lines of JSON, cut into requests of bounded size, each row answered for by itself.

Rows that the cluster has no room for are sent again. Where writes are held back, that is said at once as long as no row
was taken; after that the others are sent again until they are taken, so that whoever is told to try again can do so
with all of them.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from watchword.domain.errors import Fault, Reason
from watchword.engines.opensearch import refusals
from watchword.engines.opensearch.wire import FIRST_PAUSE, TRIES, Wire

MOST_BYTES = 5_000_000
_WANTED = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
_LATER = frozenset({429, 503})
_WRITE_BLOCK = "FORBIDDEN/8/"
_LONGEST_BLOCK = 35.0
"""Seconds. A copy holds its source's writers back for no longer than thirty."""


def put(row_id: str, source: bytes) -> bytes:
    """Line ends cannot be part of a JSON string, so that blanks in their place change nothing."""
    line = source.replace(b"\n", b" ").replace(b"\r", b" ")
    return orjson.dumps({"index": {"_id": row_id}}) + b"\n" + line + b"\n"


def delete(row_id: str, routing: str | None) -> bytes:
    named = {"_id": row_id} if routing is None else {"_id": row_id, "routing": routing}
    return orjson.dumps({"delete": named}) + b"\n"


async def send(wire: Wire, address: str, entries: Iterable[bytes]) -> None:
    taken = False
    for part in _parts(entries):
        left, number, waited = part, 0, 0.0
        while left:
            answer = await wire.ask("POST", f"{address}?{_WANTED}", lines=b"".join(left))
            with refusals.reading("a bulk request"):
                outcome = _outcome(answer, left)
            taken = taken or len(outcome.left) < len(left)
            if outcome.blocked and not taken:
                raise Fault(
                    Reason.INDEX_BLOCKED,
                    "Writes to the index are held back for a moment; try again.",
                    why=f"{address}: there is a write block",
                )
            if waited > _LONGEST_BLOCK or (number >= TRIES and not outcome.blocked):
                raise refusals.refused(f"{len(outcome.left)} rows were not taken by {address} after {number} tries")
            left = outcome.left
            if left:
                pause = min(1.0, FIRST_PAUSE * 2**number)
                number, waited = number + 1, waited + pause
                await asyncio.sleep(pause)


def _parts(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for entry in entries:
        if part and size + len(entry) > MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry)
    if part:
        yield part


class _Outcome(NamedTuple):
    left: list[bytes]
    """To be sent again."""
    blocked: bool
    """Some of them because of a write block."""


def _outcome(answer: dict[str, Any], sent: list[bytes]) -> _Outcome:
    """INDEX_REFUSED where a row is not taken now or later."""
    if not answer["errors"]:
        return _Outcome([], blocked=False)
    told = [next(iter(item.values())) for item in answer["items"]]
    blocked = [_is_blocked(one) for one in told]
    later = [is_blocked or one["status"] in _LATER for one, is_blocked in zip(told, blocked, strict=True)]
    failed = [one for one, again in zip(told, later, strict=True) if "error" in one and not again]
    if failed:
        first = refusals.told(failed[0]["error"])
        raise refusals.refused(f"{len(failed)} of {len(sent)} rows were not taken; the first: {first}")
    return _Outcome([entry for entry, again in zip(sent, later, strict=True) if again], any(blocked))


def _is_blocked(told: dict[str, Any]) -> bool:
    error = told.get("error") or {}
    return error.get("type") == refusals.BLOCK and _WRITE_BLOCK in str(error.get("reason"))

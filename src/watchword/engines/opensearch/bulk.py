"""Bulk requests: lines of JSON, split into requests of bounded size, with an outcome per row.

Rows that the cluster rejects for the moment are sent again. A write block is reported only while no row was written;
after that the rest is sent again until it is written, so that a caller who retries can send all rows.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from watchword.domain.errors import Fault, Reason
from watchword.engines.opensearch.cluster_client import (
    BLOCK,
    FIRST_PAUSE,
    TRIES,
    ClusterClient,
    describe_error,
    reading,
    refused,
)

MAX_BYTES = 5_000_000
_FILTER = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
_RETRIABLE = frozenset({429, 503})
_LONGEST_BLOCK = 35.0
"""Seconds. A copy blocks writes to its source for at most thirty."""


def put(row_id: str, source: bytes) -> bytes:
    """A JSON string cannot contain line ends, so replacing them by blanks changes nothing."""
    line = source.replace(b"\n", b" ").replace(b"\r", b" ")
    return orjson.dumps({"index": {"_id": row_id}}) + b"\n" + line + b"\n"


def delete(row_id: str, routing: str | None) -> bytes:
    named = {"_id": row_id} if routing is None else {"_id": row_id, "routing": routing}
    return orjson.dumps({"delete": named}) + b"\n"


async def send(client: ClusterClient, address: str, entries: Iterable[bytes]) -> None:
    some_written = False
    for part in _parts(entries):
        left, number, waited = part, 0, 0.0
        while left:
            answer = await client.ask("POST", f"{address}?{_FILTER}", lines=b"".join(left))
            with reading("a bulk request"):
                again, blocked = _unwritten(answer, left)
            some_written = some_written or len(again) < len(left)
            if blocked and not some_written:
                why = f"{address}: there is a write block"
                raise Fault(Reason.INDEX_BLOCKED, "Writes to the index are blocked for a moment. Try again.", why=why)
            if waited > _LONGEST_BLOCK or (number >= TRIES and not blocked):
                raise refused(f"{len(again)} rows were not written by {address} after {number} tries")
            left = again
            if left:
                pause = min(1.0, FIRST_PAUSE * 2**number)
                number, waited = number + 1, waited + pause
                await asyncio.sleep(pause)


def _parts(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for entry in entries:
        if part and size + len(entry) > MAX_BYTES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry)
    if part:
        yield part


def _unwritten(answer: dict[str, Any], sent: list[bytes]) -> tuple[list[bytes], bool]:
    """Entries to send again, and whether a write block is the cause. INDEX_REFUSED where a row is rejected for good."""
    if not answer["errors"]:
        return [], False
    outcomes = [next(iter(item.values())) for item in answer["items"]]
    again, rejected, blocked = [], [], False
    for entry, outcome in zip(sent, outcomes, strict=True):
        error = outcome.get("error")
        # A full disk is a block with status 429.
        is_block = error is not None and error.get("type") == BLOCK and outcome["status"] == 403
        if is_block or outcome["status"] in _RETRIABLE:
            again.append(entry)
            blocked = blocked or is_block
        elif error is not None:
            rejected.append(error)
    if rejected:
        first = describe_error(rejected[0])
        raise refused(f"{len(rejected)} of {len(sent)} rows were rejected; the first: {first}")
    return again, blocked

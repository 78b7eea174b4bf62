"""Delete from a copy the rows that its source no longer holds, without reading every row.

The copy holds all rows that stay, so in any span of time it has at least as many rows as the source, and the same
number only where they are the same rows. Spans whose counts differ are divided until few rows are left, and only their
ids are compared.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from math import ceil, floor
from typing import Any, NamedTuple

from watchword.domain.errors import Fault
from watchword.domain.indices import TIME
from watchword.engines.opensearch.cluster_client import ClusterClient, Retry, bulk_delete, reading, send_bulk
from watchword.engines.opensearch.index_queries import (
    ALL,
    DATES,
    NUMBERS,
    UNTIMED,
    Query,
    aggregate,
    complete,
    inlet,
    path,
    search,
    span_query,
    staying,
)

_PIECES = 32
_FEW_ROWS = 2_000
_PAGE = 1_000
_MAX_HITS = 10_000
_SCROLL = "2m"

RowKey = tuple[str, str | None]
"""Id and routing: two shards may hold the same id."""


class ReconciledSpan(NamedTuple):
    """Rows whose time is in low..high, high not included. The outermost spans are open."""

    low: int
    high: int
    first: bool = True
    last: bool = True

    def query(self, kind: str) -> Query:
        return span_query(kind, None if self.first else self.low, None if self.last else self.high)

    def pieces(self) -> list["ReconciledSpan"]:
        step = max(1, -(-(self.high - self.low) // _PIECES))
        lows = range(self.low, self.high, step)
        return [
            ReconciledSpan(
                low, min(low + step, self.high), self.first and low == lows[0], self.last and low == lows[-1]
            )
            for low in lows
        ]


class _Counts(NamedTuple):
    source: int
    target: int

    @property
    def differ(self) -> bool:
        return self.source != self.target


class Reconciliation:
    def __init__(self, client: ClusterClient, source: str, target: str, kind: str | None, until: int) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._kind = kind
        self._until = until

    async def run(self) -> int:
        """How many rows were deleted."""
        every, untimed = await self._count([ALL, UNTIMED])
        if not every.differ:
            return 0
        if self._kind is None or self._kind not in NUMBERS | DATES:
            return await self._compare_ids(ALL)
        deleted = await self._compare_ids(UNTIMED) if untimed.differ else 0
        if (every.source - untimed.source) != (every.target - untimed.target):
            span = await self._extent()
            (counts,) = await self._count([span.query(self._kind)])
            deleted += await self._divide(span, counts, self._kind)
        return deleted

    async def _divide(self, span: ReconciledSpan, counts: _Counts, kind: str) -> int:
        mostly_different = counts.target < 16 * (counts.target - counts.source)
        if counts.target <= _FEW_ROWS or mostly_different or span.high - span.low <= 1:
            return await self._compare_ids(span.query(kind))
        pieces = span.pieces()
        found = await self._count([piece.query(kind) for piece in pieces])
        deleted = 0
        for piece, piece_counts in zip(pieces, found, strict=True):
            if piece_counts.differ:
                deleted += await self._divide(piece, piece_counts, kind)
        return deleted

    async def _count(self, parts: list[Query]) -> list[_Counts]:
        aggregation = {"parts": {"filters": {"filters": parts}}}
        source = await aggregate(self._client, self._source, staying(self._kind, self._until), aggregation)
        target = await aggregate(self._client, self._target, ALL, aggregation)
        with reading("a count of parts"):
            return [
                _Counts(int(one["doc_count"]), int(other["doc_count"]))
                for one, other in zip(source["parts"]["buckets"], target["parts"]["buckets"], strict=True)
            ]

    async def _extent(self) -> ReconciledSpan:
        ends = {"low": {"min": {"field": TIME}}, "high": {"max": {"field": TIME}}}
        found = await aggregate(self._client, self._target, ALL, ends)
        with reading("the first and last time"):
            low, high = (found[word]["value"] for word in ("low", "high"))
            return ReconciledSpan(0, 1) if low is None or high is None else ReconciledSpan(floor(low), ceil(high) + 1)

    async def _compare_ids(self, part: Query) -> int:
        deleted = 0
        async for keys in self._pages(part):
            ids = {"ids": {"values": [row_id for row_id, _ in keys]}}
            body = {"size": _MAX_HITS, "_source": False, "query": staying(self._kind, self._until, ids)}
            held = set(_keys(await search(self._client, self._source, body)))
            gone = [key for key in keys if key not in held]
            # Through the inlet, which no longer exists when a request arrives after the swap.
            await send_bulk(self._client, f"/{inlet(self._target)}/_bulk", (bulk_delete(*key) for key in gone))
            deleted += len(gone)
        return deleted

    async def _pages(self, part: Query) -> AsyncIterator[list[RowKey]]:
        body = {"size": _PAGE, "sort": ["_doc"], "_source": False, "query": part}
        address = path(self._target, "_search", scroll=_SCROLL, allow_partial_search_results="false")
        answer = complete(await self._client.ask("POST", address, body))
        try:
            while keys := _keys(answer):
                yield keys
                more = {"scroll": _SCROLL, "scroll_id": _scroll_id(answer)}
                # Sent twice it would skip a page.
                answer = complete(await self._client.ask("POST", "/_search/scroll", more, retry=Retry.NOT_EXECUTED))
        finally:
            with suppress(Fault):  # it expires by itself too
                await self._client.ask(
                    "DELETE", "/_search/scroll", {"scroll_id": _scroll_id(answer)}, retry=Retry.NEVER
                )


def _scroll_id(answer: dict[str, Any]) -> str:
    with reading("a page of rows"):
        return str(answer["_scroll_id"])


def _keys(answer: dict[str, Any]) -> list[RowKey]:
    with reading("a page of rows"):
        return [(str(hit["_id"]), hit.get("_routing")) for hit in answer["hits"]["hits"]]

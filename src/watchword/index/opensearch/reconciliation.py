"""Makes the copy of an index equal to the rows of its source that stay."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor
from typing import Any, NamedTuple

from watchword.basics.errors import Fault
from watchword.index.opensearch import index_queries as queries
from watchword.index.opensearch.cluster_client import ClusterClient, Retry, bulk_delete, reading, send_bulk

_PIECES = 32
_FEW_ROWS = 2_000
_PAGE = 1_000
_MAX_HITS = 10_000
_SCROLL = "2m"

RowCounts = tuple[int, int]
"""Of source and target."""
RowKey = tuple[str, str | None]
"""Id and routing: two shards may hold the same id."""


class ReconciledSpan(NamedTuple):
    """Rows whose time is in low..high, high not included. The outermost spans are open."""

    low: int
    high: int
    first: bool = True
    last: bool = True

    def query(self, kind: str) -> queries.Query:
        return queries.span_query(kind, None if self.first else self.low, None if self.last else self.high)

    def pieces(self) -> list["ReconciledSpan"]:
        step = max(1, -(-(self.high - self.low) // _PIECES))
        ends = [*range(self.low, self.high, step), self.high]
        return [
            ReconciledSpan(low, high, self.first and low == self.low, self.last and high == self.high)
            for low, high in pairwise(ends)
        ]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Deletes from a copy the rows that its source no longer holds, without reading every row.

    The copy holds all rows that stay, so in any span of time it has at least as many rows as the source, and the same
    number only where they are the same rows. Spans whose counts differ are divided until few rows are left, and only
    their ids are compared.
    """

    client: ClusterClient
    source: str
    target: str
    kind: str | None
    """The type of the time field."""
    until: int

    async def run(self) -> int:
        """How many rows were deleted."""
        every, untimed = await self._count([queries.ALL, queries.UNTIMED])
        if every[0] == every[1]:
            return 0
        if self.kind is None or not queries.is_timed(self.kind):
            return await self._compare_ids(queries.ALL)
        deleted = await self._compare_ids(queries.UNTIMED) if untimed[0] != untimed[1] else 0
        if every[0] - untimed[0] != every[1] - untimed[1]:
            span = await self._extent()
            (counts,) = await self._count([span.query(self.kind)])
            deleted += await self._divide(span, counts, self.kind)
        return deleted

    async def _divide(self, span: ReconciledSpan, counts: RowCounts, kind: str) -> int:
        source, target = counts
        mostly_different = target < 16 * (target - source)
        if target <= _FEW_ROWS or mostly_different or span.high - span.low <= 1:
            return await self._compare_ids(span.query(kind))
        pieces = span.pieces()
        found = await self._count([piece.query(kind) for piece in pieces])
        deleted = 0
        for piece, piece_counts in zip(pieces, found, strict=True):
            if piece_counts[0] != piece_counts[1]:
                deleted += await self._divide(piece, piece_counts, kind)
        return deleted

    async def _count(self, parts: list[queries.Query]) -> list[RowCounts]:
        stay = queries.staying(self.kind, self.until)
        _, source = await queries.count_parts(self.client, self.source, stay, parts)
        _, target = await queries.count_parts(self.client, self.target, queries.ALL, parts)
        return list(zip(source, target, strict=True))

    async def _extent(self) -> ReconciledSpan:
        _, low, high = await queries.extent(self.client, self.target, self.kind, queries.ALL)
        return ReconciledSpan(0, 1) if low is None or high is None else ReconciledSpan(floor(low), ceil(high) + 1)

    async def _compare_ids(self, part: queries.Query) -> int:
        deleted = 0
        async for keys in self._pages(part):
            ids = {"ids": {"values": [row_id for row_id, _ in keys]}}
            body = {"size": _MAX_HITS, "_source": False, "query": queries.staying(self.kind, self.until, ids)}
            held = set(_keys(await queries.search(self.client, self.source, body)))
            gone = [key for key in keys if key not in held]
            # Through the inlet, which no longer exists when a request arrives after the swap.
            await send_bulk(self.client, f"/{queries.inlet(self.target)}/_bulk", (bulk_delete(*key) for key in gone))
            deleted += len(gone)
        return deleted

    async def _pages(self, part: queries.Query) -> AsyncIterator[list[RowKey]]:
        body = {"size": _PAGE, "sort": ["_doc"], "_source": False, "query": part}
        address = queries.path(self.target, "_search", scroll=_SCROLL, allow_partial_search_results="false")
        answer = queries.complete(await self.client.ask("POST", address, body))
        try:
            while keys := _keys(answer):
                yield keys
                more = {"scroll": _SCROLL, "scroll_id": _scroll_id(answer)}
                # Sent twice it would skip a page.
                page = await self.client.ask("POST", "/_search/scroll", more, retry=Retry.NOT_EXECUTED)
                answer = queries.complete(page)
        finally:
            with suppress(Fault):  # it expires by itself too
                done = {"scroll_id": _scroll_id(answer)}
                await self.client.ask("DELETE", "/_search/scroll", done, retry=Retry.NEVER)


def _scroll_id(answer: dict[str, Any]) -> str:
    with reading("a page of rows"):
        return str(answer["_scroll_id"])


def _keys(answer: dict[str, Any]) -> list[RowKey]:
    with reading("a page of rows"):
        return [(str(hit["_id"]), hit.get("_routing")) for hit in answer["hits"]["hits"]]

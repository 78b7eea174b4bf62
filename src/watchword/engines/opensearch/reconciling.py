"""Take out of a copy what its source does not hold among what stays, without reading everything.

The copy holds all that stays, with the same content; so for any span of time it has at least as many rows as the
source, and just as many only where they are the same rows. Spans whose counts differ are divided until few rows are
left, and only of these are the ids compared.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from math import ceil, floor
from typing import Any, NamedTuple

from watchword.domain.errors import Fault
from watchword.domain.indices import TIME
from watchword.engines.opensearch import bulk, queries, searches
from watchword.engines.opensearch.names import inlet, path
from watchword.engines.opensearch.queries import Query
from watchword.engines.opensearch.refusals import reading
from watchword.engines.opensearch.wire import Again, Wire

_PIECES = 32
_FEW = 2_000
_PAGE = 1_000
_MOST_HITS = 10_000
_KEPT = "2m"

RowKey = tuple[str, str | None]


class Span(NamedTuple):
    """Rows whose time is in low..high, high not included. The outermost are open: their ends are only about right."""

    low: int
    high: int
    first: bool = True
    last: bool = True

    def query(self, kind: str) -> Query:
        limits = {} if self.first else {"gte": self.low}
        if not self.last:
            limits["lt"] = self.high
        return queries.bounds(kind, **limits) if limits else {"exists": {"field": TIME}}

    def pieces(self) -> list["Span"]:
        step = max(1, -(-(self.high - self.low) // _PIECES))
        lows = range(self.low, self.high, step)
        return [
            Span(low, min(low + step, self.high), self.first and low == lows[0], self.last and low == lows[-1])
            for low in lows
        ]


class Reconciling:
    def __init__(self, wire: Wire, source: str, target: str, kind: str | None, until: int) -> None:
        self._wire = wire
        self._source = source
        self._target = target
        self._kind = kind
        self._stays = queries.staying(kind, until)
        self._until = until

    async def run(self) -> int:
        """How many rows were removed."""
        everything: Query = {"match_all": {}}
        whole, untimed = await self._excess([everything, queries.UNTIMED])
        if not whole.differs:
            return 0
        if self._kind not in queries.NUMBERS | queries.DATES:
            return await self._sweep(everything)
        removed = await self._sweep(queries.UNTIMED) if untimed.differs else 0
        if (whole.source - untimed.source) != (whole.target - untimed.target):
            span = await self._extent()
            removed += await self._descend(span, await self._counted(span))
        return removed

    async def _counted(self, span: Span) -> "_Counts":
        assert self._kind is not None
        return (await self._excess([span.query(self._kind)]))[0]

    async def _descend(self, span: Span, counts: "_Counts") -> int:
        assert self._kind is not None
        mostly = counts.target < 16 * (counts.target - counts.source)
        if counts.target <= _FEW or mostly or span.high - span.low <= 1:
            return await self._sweep(span.query(self._kind))
        pieces = span.pieces()
        found = await self._excess([piece.query(self._kind) for piece in pieces])
        removed = 0
        for piece, piece_counts in zip(pieces, found, strict=True):
            if piece_counts.differs:
                removed += await self._descend(piece, piece_counts)
        return removed

    async def _excess(self, parts: list[Query]) -> list["_Counts"]:
        aggregation = {"parts": {"filters": {"filters": parts}}}
        source = await searches.aggregated(self._wire, self._source, self._stays, aggregation)
        target = await searches.aggregated(self._wire, self._target, {"match_all": {}}, aggregation)
        with reading("a count of parts"):
            return [
                _Counts(int(one["doc_count"]), int(other["doc_count"]))
                for one, other in zip(source["parts"]["buckets"], target["parts"]["buckets"], strict=True)
            ]

    async def _extent(self) -> Span:
        ends = {"low": {"min": {"field": TIME}}, "high": {"max": {"field": TIME}}}
        found = await searches.aggregated(self._wire, self._target, {"match_all": {}}, ends)
        with reading("the first and last time"):
            low, high = (found[word]["value"] for word in ("low", "high"))
            return Span(0, 1) if low is None or high is None else Span(floor(low), ceil(high) + 1)

    async def _sweep(self, part: Query) -> int:
        removed = 0
        async for keys in self._pages(part):
            held = await self._held([row_id for row_id, _ in keys])
            gone = [key for key in keys if key not in held]
            # By the inlet: what arrives after the copy has taken its place finds none.
            await bulk.send(self._wire, f"/{inlet(self._target)}/_bulk", (bulk.delete(*key) for key in gone))
            removed += len(gone)
        return removed

    async def _pages(self, part: Query) -> AsyncIterator[list[RowKey]]:
        body = {"size": _PAGE, "sort": ["_doc"], "_source": False, "query": part}
        address = path(self._target, "_search", scroll=_KEPT, allow_partial_search_results="false")
        answer = searches.whole(await self._wire.ask("POST", address, body))
        try:
            while keys := _keys(answer):
                yield keys
                more = {"scroll": _KEPT, "scroll_id": _scroll(answer)}
                # Asked twice it would skip a page.
                answer = searches.whole(await self._wire.ask("POST", "/_search/scroll", more, again=Again.UNDONE))
        finally:
            await self._forget(_scroll(answer))

    async def _forget(self, scroll: str) -> None:
        with suppress(Fault):  # it ends by itself too
            await self._wire.ask("DELETE", "/_search/scroll", {"scroll_id": scroll}, again=Again.NEVER)

    async def _held(self, ids: list[str]) -> set[RowKey]:
        query = queries.staying(self._kind, self._until, {"ids": {"values": ids}})
        body = {"size": _MOST_HITS, "_source": False, "query": query}
        return set(_keys(await searches.search(self._wire, self._source, body)))


class _Counts(NamedTuple):
    source: int
    target: int

    @property
    def differs(self) -> bool:
        return self.source != self.target


def _scroll(answer: dict[str, Any]) -> str:
    with reading("a page of rows"):
        return str(answer["_scroll_id"])


def _keys(answer: dict[str, Any]) -> list[RowKey]:
    """A row is told by its id and its routing: two shards may hold the same id."""
    with reading("a page of rows"):
        return [(str(hit["_id"]), hit.get("_routing")) for hit in answer["hits"]["hits"]]

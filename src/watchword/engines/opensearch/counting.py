"""How many rows there are, and when: a row is counted by the very queries that would remove it."""

from typing import Any

from watchword.domain.indices import TIME, Histogram, RowCount, Spans
from watchword.engines.opensearch import queries, searches
from watchword.engines.opensearch.names import path
from watchword.engines.opensearch.refusals import reading
from watchword.engines.opensearch.wire import Wire

_ALL: queries.Query = {"match_all": {}}


async def count(wire: Wire, index: str, kind: str | None, until: int) -> RowCount:
    await searches.refresh(wire, index)
    wanted = {"old": {"filter": queries.old(kind, until)}}
    counted = await searches.aggregated(wire, index, _ALL, wanted)
    stats = await wire.ask("GET", path(index, "_stats/store"))
    with reading("a count"):
        size = stats["indices"][index]["primaries"]["store"]["size_in_bytes"]
        return RowCount(counted["total"], int(counted["old"]["doc_count"]), int(size))


async def histogram(wire: Wire, index: str, kind: str | None, spans: int) -> Histogram:
    await searches.refresh(wire, index)
    wanted: dict[str, Any] = {}
    if kind in queries.NUMBERS | queries.DATES:
        wanted = {end: {end: {"field": TIME}} for end in ("min", "max")}
    found = await searches.aggregated(wire, index, _ALL, wanted)
    with reading("the span of a histogram"):
        if not wanted or found["min"]["value"] is None:
            return Histogram(found["total"])
        axis = Spans.between(float(found["min"]["value"]), float(found["max"]["value"]), spans)
    cells = {"cells": {"filters": {"filters": _filters(kind, axis)}}}
    found = await searches.aggregated(wire, index, _ALL, cells)
    with reading("a histogram"):
        counted = found["cells"]["buckets"]
        return Histogram(found["total"], axis, tuple(int(counted[str(n)]["doc_count"]) for n in range(axis.count)))


def _filters(kind: str | None, axis: Spans) -> dict[str, queries.Query]:
    """The outermost are open: what was written between the two questions counts as well."""
    cells = {}
    for number, start in enumerate(axis.starts()):
        limits = {}
        if number > 0:
            limits["gte"] = start
        if number < axis.count - 1:
            limits["lt"] = start + axis.step
        cells[str(number)] = queries.bounds(kind, **limits) if limits else {"exists": {"field": TIME}}
    return cells

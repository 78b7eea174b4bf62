"""Searches whose answer is about every row or is none: a shard that did not answer must not look like missing rows."""

from typing import Any

from watchword.engines.opensearch import refusals
from watchword.engines.opensearch.names import path
from watchword.engines.opensearch.queries import Query
from watchword.engines.opensearch.wire import Wire


async def search(wire: Wire, index: str, body: dict[str, Any]) -> dict[str, Any]:
    return whole(await wire.ask("POST", path(index, "_search", allow_partial_search_results="false"), body))


async def aggregated(wire: Wire, index: str, query: Query, wanted: dict[str, Any]) -> dict[str, Any]:
    body = {"size": 0, "track_total_hits": True, "query": query, "aggs": wanted}
    answer = await search(wire, index, body)
    with refusals.reading("a search"):
        return {"total": int(answer["hits"]["total"]["value"]), **answer["aggregations"]}


async def refresh(wire: Wire, index: str) -> None:
    """Everything that was acknowledged can be found."""
    answer = await wire.ask("POST", path(index, "_refresh"))
    with refusals.reading("a refresh"):
        failed = answer["_shards"]["failed"]
    if failed:
        raise refusals.unavailable(f"{failed} shards of {index} could not be refreshed")


def whole(answer: dict[str, Any]) -> dict[str, Any]:
    with refusals.reading("a search"):
        if answer["timed_out"] or answer["_shards"]["failed"]:
            raise refusals.unavailable(f"a search answered for a part only: {answer['_shards']}")
    return answer

"""Deletions with `keep_last` on a cluster: the limits of some urns at a time, as a query for the rows that go.

A page has the next urns in the order of their names, whether they have old rows or not: a search for all rows finds
them by the index of the urn field, where any other search would read all its rows again for every page.
"""

from dataclasses import dataclass
from typing import Any

from watchword.domain.engine import DeletionPage
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import TIME, URN
from watchword.engines.opensearch import index_queries as queries
from watchword.engines.opensearch.cluster_client import ClusterClient, reading

PAGE_URNS = 300
"""A cluster rejects queries of more than 1,024 clauses. An urn is at most three: itself and a range of times."""
_NO_URN: queries.Query = {"bool": {"must_not": [{"exists": {"field": URN}}]}}
_UNSAFE = frozenset({"normalizer", "ignore_above"})
"""With a normalizer, two urns may look like one. With `ignore_above`, a row with a long urn looks like one without."""


@dataclass(frozen=True, slots=True)
class UrnPages:
    client: ClusterClient
    index: str
    kind: str | None
    """The type of the time field."""
    until: int
    keep_last: int

    async def page(self, after: str | None) -> DeletionPage:
        if self.kind not in queries.NUMBERS | queries.DATES:
            return DeletionPage(None)  # no row is old
        urns: dict[str, Any] = {"size": PAGE_URNS, "sources": [{URN: {"terms": {"field": URN}}}]}
        if after is not None:
            urns["after"] = {URN: after}
        wanted = {"urns": {"composite": urns, "aggs": self._of_one_urn()}}
        found = await queries.aggregate(self.client, self.index, queries.ALL, wanted)
        with reading("the last rows of urns"):
            buckets = found["urns"]["buckets"]
            parts = self._parts(buckets)
            if after is None:
                parts.append(_NO_URN)
            last = str(buckets[-1]["key"][URN]) if len(buckets) == PAGE_URNS else None
        if not parts:
            return DeletionPage(None, last)
        old = queries.old(self.kind, self.until)
        return DeletionPage({"bool": {"filter": [old], "should": parts, "minimum_should_match": 1}}, last)

    async def count(self) -> int:
        rows, after = 0, None
        while True:
            page = await self.page(after)
            if page.rows is not None:
                rows += (await queries.aggregate(self.client, self.index, page.rows, {}))["total"]
            if page.after is None:
                return rows
            after = page.after

    def _of_one_urn(self) -> dict[str, Any]:
        order = {"order": "desc"} | ({"numeric_type": "date"} if self.kind == "date_nanos" else {})
        # Nothing of the row but its time: that takes a third less.
        nth = {
            "from": self.keep_last - 1,
            "size": 1,
            "sort": [{TIME: order}],
            "_source": False,
            "stored_fields": "_none_",
        }
        return {
            "old": {"filter": queries.old(self.kind, self.until)},
            "timed": {"filter": queries.TIMED, "aggs": {"nth": {"top_hits": nth}}},
        }

    def _parts(self, buckets: list[dict[str, Any]]) -> list[queries.Query]:
        """One for all urns of the same limit."""
        by_limit: dict[Any, list[str]] = {}
        for bucket in buckets:
            nth = bucket["timed"]["nth"]["hits"]["hits"]
            if bucket["old"]["doc_count"] and bucket["timed"]["doc_count"] > self.keep_last:
                (limit,) = nth[0]["sort"]
                by_limit.setdefault(None if limit > self.until else limit, []).append(str(bucket["key"][URN]))
        parts: list[queries.Query] = []
        for limit, urns in by_limit.items():
            named: queries.Query = {"terms": {URN: urns}}
            before = [] if limit is None else [queries.time_range(self.kind, lt=limit)]
            parts.append({"bool": {"filter": [named, *before]}})
        return parts


def check_urn(mapping: dict[str, Any]) -> None:
    if mapping.get("type") != "keyword" or _UNSAFE & mapping.keys():
        raise Fault(
            Reason.INDEX_REFUSED,
            "keepLast needs an index that maps urn as keyword, without normalizer or ignore_above. Nothing changed.",
            why=f"the mapping of urn: {mapping}",
        )

"""Addresses of indices, and queries about their rows, also about the last rows of each urn.

Names: only `[a-z0-9][a-z0-9_-]*` is ever sent, so that no wildcard, list, exclusion, `_all`, date math, other cluster
or path can be expressed. Any other name is a bug in this program: ValueError.

Times: a row is old only by a field that the cluster maps as a number or a date. In a field mapped as text it would
compare letters, so nothing is old there.

Searches: an answer is about every row or an error. A shard that does not answer must not look like missing rows.
"""

import re
from dataclasses import dataclass
from typing import Any

from watchword.basics.errors import Fault, Reason
from watchword.basics.times import iso
from watchword.index.engine import DeletionPage, TaskId
from watchword.index.indices import TIME, URN
from watchword.index.opensearch.cluster_client import ClusterClient, reading, unavailable

Query = dict[str, Any]

EXACT = "expand_wildcards=none&ignore_unavailable=false&allow_no_indices=false"
"""Sent with every call that takes it: the name is no pattern, and a missing index is an error."""
NUMBERS = frozenset(
    {"long", "integer", "short", "byte", "unsigned_long", "double", "float", "half_float", "scaled_float"}
)
DATES = frozenset({"date", "date_nanos"})
ALL: Query = {"match_all": {}}
NOTHING: Query = {"match_none": {}}
TIMED: Query = {"exists": {"field": TIME}}
UNTIMED: Query = {"bool": {"must_not": [TIMED]}}
_LAST_NANOS = 9_223_372_036_853
"""Milliseconds; a date_nanos field rejects later times."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,254}", re.ASCII)
_PART = re.compile(r"[a-z0-9_-]{0,128}", re.ASCII)
_TAG = re.compile(r"[!-~]{1,200}", re.ASCII)


def is_timed(kind: str | None) -> bool:
    """Whether a field of this type has times."""
    return kind in NUMBERS or kind in DATES


def is_concrete(name: str) -> bool:
    return bool(_NAME.fullmatch(name))


def concrete(name: str) -> str:
    """The name itself, checked."""
    if not is_concrete(name):
        raise ValueError(f"{name!r} does not name one index")
    return name


def path(index: str, call: str = "", **parameters: str | int) -> str:
    """The address of this index, or of a call on it."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"{bare_path(index, call)}?{EXACT}{more}"


def bare_path(index: str, call: str = "") -> str:
    """For the calls that do not take the parameters of EXACT."""
    return f"/{concrete(index)}{'/' if call else ''}{call}"


def listing(head: str, ending: str, call: str) -> str:
    """The only pattern that is ever sent, for reading: open indices, and aliases, that begin and end so."""
    if not _PART.fullmatch(head) or not _PART.fullmatch(ending) or not (head or ending):
        raise ValueError(f"{head!r} and {ending!r} are not a head and an ending of an index")
    return f"/{head}*{ending}/{call}?expand_wildcards=open&ignore_unavailable=true&allow_no_indices=true"


def task_path(task: TaskId, call: str = "") -> str:
    checked = TaskId.parse(str(task))
    return f"/_tasks/{checked}{'/' if call else ''}{call}"


def inlet(target: str) -> str:
    """The alias through which a copy is filled. An index name cannot have capitals, so a write that arrives after the
    copy is gone fails instead of creating an index.
    """
    return concrete(target) + "_INLET"


def checked_tag(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} cannot be the tag of a task: 1 to 200 visible ASCII characters")
    return tag


def time_range(kind: str | None, **limits: int) -> Query:
    """Rows whose time is within these limits (lte, lt, gte, gt), for a field of this type."""
    if kind in NUMBERS:
        return {"range": {TIME: limits}}
    if kind not in DATES:
        return NOTHING
    if kind == "date_nanos":
        if min(limits.values()) < 0:
            return NOTHING  # it has no times before 1970
        limits = {word: min(limit, _LAST_NANOS) for word, limit in limits.items()}
    # The field's own format may read four digits as a year.
    if min(limits.values()) >= 0:
        return {"range": {TIME: {**limits, "format": "epoch_millis"}}}
    try:
        # Elasticsearch 7 rejects negative milliseconds.
        texts = {word: iso(limit) for word, limit in limits.items()}
    except OverflowError:
        return NOTHING
    return {"range": {TIME: {**texts, "format": "strict_date_optional_time"}}}


def span_query(kind: str | None, low: int | None, high: int | None) -> Query:
    """Rows with a time from `low` up to `high`, which is not included. None: no limit."""
    limits = {word: limit for word, limit in (("gte", low), ("lt", high)) if limit is not None}
    return time_range(kind, **limits) if limits else TIMED


def old(kind: str | None, until: int) -> Query:
    return time_range(kind, lte=until)


def staying(kind: str | None, until: int, *and_also: Query) -> Query:
    """Rows that are not old, including those without a time."""
    return {"bool": {"must_not": [old(kind, until)], "filter": list(and_also)}}


async def search(client: ClusterClient, index: str, body: dict[str, Any]) -> dict[str, Any]:
    return complete(await client.ask("POST", path(index, "_search", allow_partial_search_results="false"), body))


def complete(answer: dict[str, Any]) -> dict[str, Any]:
    with reading("a search"):
        if answer["timed_out"] or answer["_shards"]["failed"]:
            raise unavailable(f"a search answered only for a part of the rows: {answer['_shards']}")
    return answer


async def aggregate(client: ClusterClient, index: str, query: Query, wanted: dict[str, Any]) -> dict[str, Any]:
    body = {"size": 0, "track_total_hits": True, "query": query, "aggs": wanted}
    answer = await search(client, index, body)
    with reading("a search"):
        return {"total": int(answer["hits"]["total"]["value"]), **answer.get("aggregations", {})}


async def count_parts(client: ClusterClient, index: str, query: Query, parts: list[Query]) -> tuple[int, list[int]]:
    """How many rows the query finds, and how many of them each part."""
    found = await aggregate(client, index, query, {"parts": {"filters": {"filters": parts}}})
    with reading("a count of parts"):
        return found["total"], [int(one["doc_count"]) for one in found["parts"]["buckets"]]


async def extent(
    client: ClusterClient, index: str, kind: str | None, query: Query
) -> tuple[int, float | None, float | None]:
    """How many rows the query finds, and the first and last of their times; None where none has one."""
    ends = {end: {end: {"field": TIME}} for end in ("min", "max")} if is_timed(kind) else {}
    found = await aggregate(client, index, query, ends)
    with reading("the first and last time"):
        if not ends or found["min"]["value"] is None:
            return found["total"], None, None
        return found["total"], float(found["min"]["value"]), float(found["max"]["value"])


async def refresh(client: ClusterClient, index: str) -> None:
    """Make every acknowledged write visible to searches."""
    answer = await client.ask("POST", path(index, "_refresh"))
    with reading("a refresh"):
        failed = answer["_shards"]["failed"]
    if failed:
        raise unavailable(f"{failed} shards of {index} could not be refreshed")


PAGE_URNS = 300
"""A cluster rejects queries of more than 1,024 clauses. An urn is at most three: itself and a range of times."""
_NO_URN: Query = {"bool": {"must_not": [{"exists": {"field": URN}}]}}
_UNSAFE = frozenset({"normalizer", "ignore_above"})
"""With a normalizer, two urns may look like one. With `ignore_above`, a row with a long urn looks like one without."""


@dataclass(frozen=True, slots=True)
class UrnPages:
    """For deletions with `keep_last`: the limits of some urns at a time, as a query for the rows that go.

    A page has the next urns in the order of their names, whether they have old rows or not: a search for all rows finds
    them by the index of the urn field, where any other search would read all its rows again for every page.
    """

    client: ClusterClient
    index: str
    kind: str | None
    """The type of the time field."""
    until: int
    keep_last: int

    async def page(self, after: str | None) -> DeletionPage:
        if not is_timed(self.kind):
            return DeletionPage(None)  # no row is old
        urns: dict[str, Any] = {"size": PAGE_URNS, "sources": [{URN: {"terms": {"field": URN}}}]}
        if after is not None:
            urns["after"] = {URN: after}
        wanted = {"urns": {"composite": urns, "aggs": self._of_one_urn()}}
        found = await aggregate(self.client, self.index, ALL, wanted)
        with reading("the last rows of urns"):
            buckets = found["urns"]["buckets"]
            parts = self._parts(buckets)
            if after is None:
                parts.append(_NO_URN)
            last = str(buckets[-1]["key"][URN]) if len(buckets) == PAGE_URNS else None
        if not parts:
            return DeletionPage(None, last)
        is_old = old(self.kind, self.until)
        return DeletionPage({"bool": {"filter": [is_old], "should": parts, "minimum_should_match": 1}}, last)

    async def count(self) -> int:
        rows, after = 0, None
        while True:
            page = await self.page(after)
            if page.rows is not None:
                rows += (await aggregate(self.client, self.index, page.rows, {}))["total"]
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
            "old": {"filter": old(self.kind, self.until)},
            "timed": {"filter": TIMED, "aggs": {"nth": {"top_hits": nth}}},
        }

    def _parts(self, buckets: list[dict[str, Any]]) -> list[Query]:
        """One for all urns of the same limit."""
        by_limit: dict[Any, list[str]] = {}
        for bucket in buckets:
            nth = bucket["timed"]["nth"]["hits"]["hits"]
            if bucket["old"]["doc_count"] and bucket["timed"]["doc_count"] > self.keep_last:
                (limit,) = nth[0]["sort"]
                by_limit.setdefault(None if limit > self.until else limit, []).append(str(bucket["key"][URN]))
        parts: list[Query] = []
        for limit, urns in by_limit.items():
            named: Query = {"terms": {URN: urns}}
            before = [] if limit is None else [time_range(self.kind, lt=limit)]
            parts.append({"bool": {"filter": [named, *before]}})
        return parts


def check_urn(mapping: dict[str, Any]) -> None:
    if mapping.get("type") != "keyword" or _UNSAFE & mapping.keys():
        raise Fault(
            Reason.INDEX_REFUSED,
            "keepLast needs an index that maps urn as keyword, without normalizer or ignore_above. Nothing changed.",
            cause=f"the mapping of urn: {mapping}",
        )

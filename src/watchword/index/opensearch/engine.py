"""The engine port on a cluster, OpenSearch 2 and 3 or Elasticsearch 7: every call names one concrete index.

A name that was an index may be an alias now, because a copy was swapped in. Calls that change something check first
that an index of exactly this name exists.
"""

import asyncio
import uuid
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from watchword.basics.errors import Fault, Reason
from watchword.basics.secret import Secret
from watchword.index.engine import Checkpoints, DeletionPage, Pace, TaskId, TaskStatus
from watchword.index.indices import MAX_SPANS, TIME, URN, Histogram, IndexSize, Resolved, Row, RowCount, Spans
from watchword.index.opensearch import cluster_client as cluster
from watchword.index.opensearch import index_queries as queries
from watchword.index.opensearch.cluster_client import ClusterClient, Retry, reading, refused, unavailable
from watchword.index.opensearch.index_queries import UrnPages, check_urn
from watchword.index.opensearch.reconciliation import Reconciliation
from watchword.index.opensearch.task_status import task_status, task_tag

AliasAction = dict[str, Any]

_MAX_BATCH = 10_000
_PROBE_SECONDS = 1.0

# Settings that the cluster sets itself when an index is created, or that a copy must not have.
_NOT_COPIED = (
    "blocks",
    "creation_date",
    "final_pipeline",  # would run over every copied row; the copy gets it with the swap
    "provided_name",
    "remote_store",
    "resize",
    "uuid",
    "verified_before_close",
    "version",
)
# A time series: times are milliseconds. Other values are kept and count as no time.
_SERIES: dict[str, Any] = {
    "settings": {"number_of_shards": 1},
    "mappings": {
        "properties": {
            "urn": {"type": "keyword"},
            TIME: {"type": "date", "format": "epoch_millis", "ignore_malformed": True},
        }
    },
}


def open_engine(
    hosts: tuple[str, ...],
    *,
    user: str | None,
    password: Secret[str] | None,
    api_key: Secret[str] | None,
    ca_file: Path | None,
    verify_tls: bool,
    timeout: float,
) -> "OpenSearchEngine":
    credential = cluster.ClusterCredential(user, password, api_key)
    encrypted = any(host.startswith("https:") for host in hosts)
    tls = cluster.tls_context(ca_file, verify=verify_tls) if encrypted else False
    return OpenSearchEngine(ClusterClient(hosts, credential, tls, timeout))


class OpenSearchEngine:
    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def close(self) -> None:
        await self._client.close()

    async def probe(self) -> str:
        answer = await self._client.ask("GET", "/", retry=Retry.NEVER, within=_PROBE_SECONDS)
        with reading("its version"):
            version = answer["version"]
            return f"{version.get('distribution', 'elasticsearch')} {version['number']}"[:60]

    async def resolve(self, name: str) -> Resolved | None:
        found = await self._settings(name)
        if not found:
            return None
        if len(found) > 1:
            raise Fault(
                Reason.INDEX_AMBIGUOUS,
                f"{name} is an alias of {len(found)} indices. Nothing was changed; make it an alias of one.",
                cause=", ".join(sorted(found)),
            )
        ((index, settings),) = found.items()
        with reading("the settings of an index"):
            identity = str(settings["uuid"])
        try:
            resolved = Resolved(queries.concrete(index), identity, by_alias=index != name)
        except ValueError:
            raise refused(f"{name} is an alias of an index whose name is never sent: {index}") from None
        if resolved.by_alias and "filter" in (await self._aliases(index)).get(name, {}):
            raise Fault(
                Reason.INDEX_AMBIGUOUS,
                f"{name} is an alias with a filter. Nothing was changed; make it an alias without one.",
                cause=index,
            )
        return resolved

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        listed = await self._client.ask("GET", queries.listing(head, ending, "_alias"))
        names: dict[str, str] = {}
        with reading("the list of aliases"):
            for index, content in listed.items():
                fitting = [name for name in (index, *sorted(content["aliases"])) if _fits(name, head, ending)]
                if fitting and queries.is_concrete(index):
                    names[index] = fitting[0]
        # Only refreshed rows count, and an index that is not searched is refreshed rarely.
        await asyncio.gather(*(queries.refresh(self._client, index) for index in names), return_exceptions=True)
        stats = await self._client.ask("GET", queries.listing(head, ending, "_stats/store,docs"))
        found: dict[str, IndexSize] = {}
        with reading("the sizes of indices"):
            for index, content in stats["indices"].items():
                if index not in names:
                    continue
                before = found.get(names[index], IndexSize(names[index], 0, 0))
                primaries = content["primaries"]
                size, rows = primaries["store"]["size_in_bytes"], primaries["docs"]["count"]
                found[before.name] = IndexSize(before.name, before.size_bytes + int(size), before.rows + int(rows))
        return tuple(found[name] for name in sorted(found))

    async def count(self, index: str, until: int, keep_last: int | None = None) -> RowCount:
        """Five requests; with `keep_last` two more for every PAGE_URNS urns."""
        kind = await self._time_type(index)
        pages = None if keep_last is None else await self._urn_pages(index, kind, until, keep_last)
        await queries.refresh(self._client, index)
        wanted = {"old": {"filter": queries.old(kind, until)}}
        counted = await queries.aggregate(self._client, index, queries.ALL, wanted)
        stats = await self._client.ask("GET", queries.path(index, "_stats/store,docs"))
        with reading("a count"):
            primaries = stats["indices"][index]["primaries"]
            size, deleted = primaries["store"]["size_in_bytes"], primaries["docs"]["deleted"]
            old = int(counted["old"]["doc_count"])
        if pages is not None and old:
            old = await pages.count()
        return RowCount(counted["total"], old, int(size), int(deleted))

    async def moment(self, index: str, rows: int, latest: int) -> int | None:
        """At most ten requests: each round divides the time into MAX_SPANS spans and continues with one of them."""
        kind = await self._refreshed(index)
        total, first, _ = await queries.extent(self._client, index, kind, queries.old(kind, latest))
        if total < max(rows, 1):
            return latest if total else None
        if first is None:
            raise unavailable(f"{index} has rows with a time, but no first time")
        low, high = Spans.between(first, latest, 1).start - 1, latest
        while high - low > 1:
            low, high = await self._narrowed(index, kind, rows, low, high)
        return high

    async def _narrowed(self, index: str, kind: str | None, rows: int, low: int, high: int) -> tuple[int, int]:
        """The span, of those between two moments, within which the number of rows is reached."""
        axis = Spans.between(low + 1, high, MAX_SPANS)
        ends = [*(start - 1 for start in axis.starts()[1:]), high]
        # The first is open: it has all rows before it too.
        parts = [queries.old(kind, ends[0]), *(queries.time_range(kind, gt=a, lte=b) for a, b in pairwise(ends))]
        _, counts = await queries.count_parts(self._client, index, queries.old(kind, high), parts)
        # Rows may be deleted meanwhile: then the last span.
        number = next((number for number, total in enumerate(accumulate(counts)) if total >= rows), len(ends) - 1)
        return (ends[number - 1] if number else low), ends[number]

    async def histogram(self, index: str, spans: int) -> Histogram:
        kind = await self._refreshed(index)
        total, oldest, newest = await queries.extent(self._client, index, kind, queries.ALL)
        if oldest is None or newest is None:
            return Histogram(total)
        axis = Spans.between(oldest, newest, spans)
        # The outermost spans are open, to include rows written between the two searches.
        limits = [None, *axis.starts()[1:], None]
        parts = [queries.span_query(kind, low, high) for low, high in pairwise(limits)]
        total, counts = await queries.count_parts(self._client, index, queries.ALL, parts)
        return Histogram(total, axis, tuple(counts))

    async def deletion_page(self, index: str, until: int, keep_last: int, after: str | None) -> DeletionPage:
        pages = await self._urn_pages(index, await self._time_type(index), until, keep_last)
        if after is None:
            await queries.refresh(self._client, index)
        return await pages.page(after)

    async def start_delete(self, index: str, until: int, pace: Pace, page: DeletionPage | None = None) -> TaskId:
        kind = await self._refreshed(index)
        address = queries.path(
            index,
            "_delete_by_query",
            conflicts="proceed",
            wait_for_completion="false",
            refresh="true",
            scroll_size=_batch(pace),
            requests_per_second=_rate(pace),
        )
        rows = queries.old(kind, until) if page is None else page.rows
        return await self._start(address, {"query": rows}, pace)

    async def start_copy(self, source: str, target: str, until: int, pace: Pace) -> TaskId:
        kind = await self._refreshed(source)
        await self._need_inlet(target)
        return await self._start_reindex({"query": queries.staying(kind, until)}, source, target, "external", pace)

    async def start_catch_up(
        self, source: str, target: str, until: int, since: Checkpoints, pace: Pace, *, overwrite: bool = False
    ) -> tuple[TaskId, ...]:
        """A row that was deleted and written again starts at version 1, so the copy's older row looks newer: that is
        what `overwrite` is for.
        """
        settings = await self._present(source)
        shards = _shards(settings)
        if shards != len(since):
            raise refused(f"{source} has {shards} shards; there are {len(since)} checkpoints")
        await self._need_inlet(target)
        kind = await self._refreshed(source)
        version_type = "internal" if overwrite else "external_gte"
        started = []
        for shard, checkpoint in enumerate(since):
            written_after = {"range": {"_seq_no": {"gt": checkpoint}}}
            what: dict[str, Any] = {"query": queries.staying(kind, until, written_after)}
            if len(since) > 1:  # with as many slices as shards, a slice is a shard
                what["slice"] = {"id": shard, "max": len(since)}
            started.append(await self._start_reindex(what, source, target, version_type, pace))
        return tuple(started)

    async def task(self, task: TaskId) -> TaskStatus | None:
        answer = await self._client.ask("GET", queries.task_path(task), accept=(cluster.NO_RESOURCE,))
        with reading("the status of a task"):
            return None if answer is None else task_status(task, answer)

    async def cancel(self, task: TaskId) -> None:
        await self._client.ask("POST", queries.task_path(task, "_cancel"), accept=(cluster.NO_RESOURCE,))

    async def running(self, tag: str) -> tuple[TaskId, ...]:
        answer = await self._client.ask("GET", "/_tasks?actions=*/reindex,*/byquery&detailed=true&group_by=none")
        with reading("the list of tasks"):
            if answer.get("node_failures") or answer.get("task_failures"):
                raise unavailable("the list of tasks is not complete")
            listed = [one for one in answer["tasks"] if task_tag(one) == tag]
            return tuple(sorted(TaskId(str(one["node"]), int(one["id"])) for one in listed))

    async def checkpoints(self, index: str) -> Checkpoints:
        """The global checkpoints: every replica has all writes up to them, and no failing node can lose one. Above
        them, a number may still be in progress or be reused.
        """
        settings = await self._present(index)
        # A replica may lack rows that a refresh has made visible on the primary.
        by_segments = settings.get("replication", {}).get("type") == "SEGMENT"
        if by_segments and str(settings.get("number_of_replicas", "0")) != "0":
            raise refused(f"{index} replicates by segments: its replicas lag behind, so a copy may be incomplete")
        stats = await self._client.ask("GET", queries.path(index, "_stats/docs", level="shards"))
        checkpoints = []
        with reading("the checkpoints of shards"):
            shards = stats["indices"].get(index, {}).get("shards", {})
            for number in range(_shards(settings)):
                primaries = [copy for copy in shards.get(str(number), []) if copy["routing"]["primary"]]
                if len(primaries) != 1 or "seq_no" not in primaries[0]:
                    raise unavailable(f"shard {number} of {index} has no primary now")
                checkpoints.append(max(-1, int(primaries[0]["seq_no"]["global_checkpoint"])))
        await queries.refresh(self._client, index)
        return tuple(checkpoints)

    async def make_like(self, source: str, target: str) -> None:
        await self._present(source)
        answer = await self._client.ask("GET", queries.path(source))
        metadata = f"/_cluster/state/metadata{queries.path(source)}&filter_path=metadata.indices.*.routing_num_shards"
        state = await self._client.ask("GET", metadata)
        with reading("the shape of an index"):
            shape = answer[source]
            settings = {name: value for name, value in shape["settings"]["index"].items() if name not in _NOT_COPIED}
            # The node on which an index was shrunk or cloned.
            settings.get("routing", {}).get("allocation", {}).pop("initial_recovery", None)
            # Decides the shard of a row, and not every version shows it among the settings. With another value, two
            # rows of one id may end up on one shard.
            settings["number_of_routing_shards"] = state["metadata"]["indices"][source]["routing_num_shards"]
            body = {"settings": {"index": settings}, "mappings": shape["mappings"]}
        await self._client.ask("PUT", queries.bare_path(target), body, retry=Retry.NOT_EXECUTED)
        # An index template may have added aliases, which belong to the source until the swap.
        actions = [{"remove": {"index": target, "alias": alias}} for alias in await self._aliases(target)]
        await self._change_aliases([*actions, {"add": {"index": target, "alias": queries.inlet(target)}}])

    async def block(self, index: str) -> None:
        await self._present(index)
        await self._client.ask("PUT", queries.path(index, "_block/write"))
        if not await self.is_blocked(index):
            raise unavailable(f"{index} still accepts writes")
        await queries.refresh(self._client, index)

    async def unblock(self, index: str) -> None:
        found = await self._settings(index) or {}
        if index in found:
            body = {"index.blocks.write": None}
            await self._client.ask("PUT", queries.path(index, "_settings"), body, accept=(cluster.NO_INDEX,))

    async def is_blocked(self, index: str) -> bool:
        found = await self._settings(index) or {}
        with reading("the settings of an index"):
            return str(found.get(index, {}).get("blocks", {}).get("write", "false")) == "true"

    async def flush(self, index: str) -> None:
        await self._client.ask("POST", queries.path(index, "_flush", wait_if_ongoing="true"))

    async def reconcile(self, source: str, target: str, until: int) -> int:
        kind = await self._refreshed(source)
        await self._present(target)
        await queries.refresh(self._client, target)
        deleted = await Reconciliation(self._client, source, target, kind, until).run()
        if deleted:
            await queries.refresh(self._client, target)
        return deleted

    async def swap(self, name: str, source: str, target: str) -> None:
        queries.concrete(name)
        settings = await self._present(source)
        await self._present(target)
        aliases, others = await self._aliases(source), await self._aliases(target)
        if name != source and name not in aliases:
            if name in others and not aliases:
                return
            raise refused(f"{name} is not an alias of {source}")
        if "final_pipeline" in settings:
            body = {"index.final_pipeline": settings["final_pipeline"]}
            await self._client.ask("PUT", queries.path(target, "_settings"), body)
        try:
            await self._change_aliases(_swap_actions(name, source, target, aliases))
        except Fault:
            # It may have been executed although the answer was lost.
            if name in await self._aliases(source) or name not in await self._aliases(target):
                raise

    async def abandon(self, target: str) -> bool:
        """Both a swap and this call remove the inlet of the copy, so only one of them can succeed."""
        try:
            await self._change_aliases([_alias_removal(target, queries.inlet(target))])
        except Fault as fault:
            if fault.reason is not Reason.INDEX_REFUSED:
                raise
            left = await self._aliases(target)
            if queries.inlet(target) in left:
                raise
            return not left
        return True

    async def drop(self, index: str) -> None:
        await self._client.ask("DELETE", queries.path(index), accept=(cluster.NO_INDEX,))

    async def make(self, name: str) -> None:
        if not await self._settings(name):
            await self._client.ask("PUT", queries.bare_path(name), _SERIES, accept=(cluster.EXISTS,))

    async def write(self, name: str, rows: Sequence[Row]) -> None:
        if not await self._settings(name):  # the cluster would create one
            raise refused(f"there is no index {name}")
        # With ids made here, a row that is sent twice is not written twice.
        lines = (cluster.bulk_put(row.id or uuid.uuid4().hex, row.source) for row in rows)
        await cluster.send_bulk(self._client, queries.bare_path(name, "_bulk"), lines)

    async def _settings(self, name: str) -> dict[str, dict[str, Any]] | None:
        """Of each index behind this name; None where there is none."""
        answer = await self._client.ask("GET", queries.path(name, "_settings"), accept=(cluster.NO_INDEX,))
        if answer is None:
            return None
        if not answer:
            raise unavailable(f"the answer about {name} has neither an index nor an error")
        with reading("the settings of an index"):
            return {index: dict(content["settings"]["index"]) for index, content in answer.items()}

    async def _present(self, index: str) -> dict[str, Any]:
        """The settings of the index of exactly this name, not of an alias."""
        found = await self._settings(index) or {}
        if index not in found:
            raise refused(f"there is no index {index}")
        return found[index]

    async def _mapping(self, index: str, field: str) -> dict[str, Any]:
        """Of a field in the index of exactly this name; empty where it is not mapped."""
        answer = await self._client.ask("GET", queries.path(index, f"_mapping/field/{field}"))
        if index not in answer:
            raise refused(f"there is no index {index}")
        with reading("the mapping of an index"):
            return dict(answer[index]["mappings"].get(field, {}).get("mapping", {}).get(field, {}))

    async def _time_type(self, index: str) -> str | None:
        """The mapped type of the time field, where it is mapped."""
        kind = (await self._mapping(index, TIME)).get("type")
        return None if kind is None else str(kind)

    async def _refreshed(self, index: str) -> str | None:
        """The type of its time field, after every acknowledged write has become visible."""
        kind = await self._time_type(index)
        await queries.refresh(self._client, index)
        return kind

    async def _urn_pages(self, index: str, kind: str | None, until: int, keep_last: int) -> UrnPages:
        check_urn(await self._mapping(index, URN))
        return UrnPages(self._client, index, kind, until, keep_last)

    async def _aliases(self, index: str) -> dict[str, Any]:
        """Of the index of exactly this name; empty where there is none."""
        answer = await self._client.ask("GET", queries.path(index, "_alias"), accept=(cluster.NO_INDEX,)) or {}
        with reading("the aliases of an index"):
            found = answer.get(index, {"aliases": {}})["aliases"]
            return {alias: dict(options) for alias, options in found.items()}

    async def _change_aliases(self, actions: list[AliasAction]) -> None:
        """All of them or none, in one step."""
        await self._client.ask("POST", "/_aliases", {"actions": actions}, retry=Retry.NOT_EXECUTED)

    async def _need_inlet(self, target: str) -> None:
        if queries.inlet(target) not in await self._aliases(target):
            raise refused(f"{target} was abandoned, or is in use")

    async def _start_reindex(
        self, what: dict[str, Any], source: str, target: str, version_type: str, pace: Pace
    ) -> TaskId:
        body = {
            "conflicts": "proceed",
            "source": {"index": queries.concrete(source), "size": _batch(pace), **what},
            # Ingest pipelines ran when the rows were written.
            "dest": {"index": queries.inlet(target), "version_type": version_type, "pipeline": "_none"},
        }
        address = f"/_reindex?wait_for_completion=false&refresh=true&requests_per_second={_rate(pace)}"
        return await self._start(address, body, pace)

    async def _start(self, address: str, body: dict[str, Any], pace: Pace) -> TaskId:
        tag = queries.checked_tag(pace.tag)
        answer = await self._client.ask("POST", address, body, retry=Retry.NOT_EXECUTED, tag=tag)
        with reading("the start of a task"):
            return TaskId.parse(str(answer["task"]))


def _shards(settings: dict[str, Any]) -> int:
    with reading("the settings of an index"):
        return int(settings["number_of_shards"])


def _fits(name: str, head: str, ending: str) -> bool:
    return name.startswith(head) and name.endswith(ending) and len(name) >= len(head) + len(ending)


def _batch(pace: Pace) -> int:
    return max(1, min(pace.batch, _MAX_BATCH))


def _rate(pace: Pace) -> str:
    return "-1" if pace.rate <= 0 else f"{pace.rate:.3f}"


def _swap_actions(name: str, source: str, target: str, aliases: dict[str, Any]) -> list[AliasAction]:
    """Every alias of the source, and `name`, to the target; the inlet of the copy is removed."""
    if name == source:
        aliases = {**aliases, name: {}}
        away: list[AliasAction] = [{"remove_index": {"index": source}}]
    else:
        away = [_alias_removal(source, alias) for alias in aliases]
    there = [{"add": {"index": target, "alias": alias, **options}} for alias, options in aliases.items()]
    return [*away, *there, _alias_removal(target, queries.inlet(target))]


def _alias_removal(index: str, alias: str) -> AliasAction:
    # Without must_exist the action would succeed for an alias that has been moved meanwhile.
    return {"remove": {"index": index, "alias": alias, "must_exist": True}}

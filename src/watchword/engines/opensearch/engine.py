"""The engine port on a cluster: every call names one concrete index, which is no alias, and is as safe as it can be.

A name that used to be an index may be an alias by now, for a copy took its place. Calls that change something therefore
look first whether there is an index of just this name.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from watchword.domain.engine import Checkpoints, Pace
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import TIME, Histogram, IndexSize, Resolved, Row, RowCount
from watchword.domain.secret import Secret
from watchword.domain.tasks import TaskId, TaskStatus
from watchword.engines.opensearch import bulk, counting, queries, reports, searches, shapes
from watchword.engines.opensearch.names import (
    bare_path,
    concrete,
    inlet,
    is_concrete,
    listing,
    path,
    state_path,
    tag_header,
    task_path,
)
from watchword.engines.opensearch.reconciling import Reconciling
from watchword.engines.opensearch.refusals import EXISTS, NO_INDEX, NO_RESOURCE, reading, refused, unavailable
from watchword.engines.opensearch.wire import Again, Credential, Wire, tls_context

_LARGEST_BATCH = 10_000
_PROBE_SECONDS = 1.0
_LONGEST_VERSION = 60


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
    credential = Credential(user, password, api_key)
    encrypted = any(host.startswith("https:") for host in hosts)
    tls = tls_context(ca_file, verify=verify_tls) if encrypted else False
    return OpenSearchEngine(Wire(hosts, credential, tls, timeout))


def _new_id() -> str:
    return uuid.uuid4().hex


class OpenSearchEngine:
    def __init__(self, wire: Wire, new_id: Callable[[], str] = _new_id) -> None:
        self._wire = wire
        self._new_id = new_id

    async def close(self) -> None:
        await self._wire.close()

    async def probe(self) -> str:
        answer = await self._wire.ask("GET", "/", again=Again.NEVER, within=_PROBE_SECONDS)
        with reading("its version"):
            version = answer["version"]
            return f"{version.get('distribution', 'elasticsearch')} {version['number']}"[:_LONGEST_VERSION]

    async def resolve(self, name: str) -> Resolved | None:
        found = await self._settings(name)
        if not found:
            return None
        if len(found) > 1:
            raise Fault(
                Reason.INDEX_AMBIGUOUS,
                f"{name} stands for {len(found)} indices, so none of them is touched; make it an alias of one.",
                why=", ".join(sorted(found)),
            )
        ((index, settings),) = found.items()
        with reading("the settings of an index"):
            identity = str(settings["uuid"])
        try:
            resolved = Resolved(concrete(index), identity, by_alias=index != name)
        except ValueError:
            raise refused(f"{name} leads to an index whose name is never sent: {index}") from None
        if resolved.by_alias and "filter" in (await self._aliases(index)).get(name, {}):
            raise Fault(
                Reason.INDEX_AMBIGUOUS,
                f"{name} shows a part of its index alone, so it is not touched; make it an alias without a filter.",
                why=index,
            )
        return resolved

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        listed = await self._wire.ask("GET", listing(head, ending, "_alias"))
        names: dict[str, str] = {}
        with reading("the list of aliases"):
            for index, told in listed.items():
                fitting = [name for name in (index, *sorted(told["aliases"])) if _fits(name, head, ending)]
                if fitting and is_concrete(index):
                    names[index] = fitting[0]
        # Rows count once they can be found, and nobody may have looked for a while.
        await asyncio.gather(*(self._refresh_if_there(index) for index in names))
        stats = await self._wire.ask("GET", listing(head, ending, "_stats/store,docs"))
        found: dict[str, IndexSize] = {}
        with reading("the sizes of indices"):
            for index, told in stats["indices"].items():
                if index not in names:
                    continue
                before = found.get(names[index], IndexSize(names[index], 0, 0))
                size, rows = told["primaries"]["store"]["size_in_bytes"], told["primaries"]["docs"]["count"]
                found[before.name] = IndexSize(before.name, before.size_bytes + int(size), before.rows + int(rows))
        return tuple(found[name] for name in sorted(found))

    async def count(self, index: str, until: int) -> RowCount:
        return await counting.count(self._wire, index, await self._kind_of_time(index), until)

    async def histogram(self, index: str, spans: int) -> Histogram:
        return await counting.histogram(self._wire, index, await self._kind_of_time(index), spans)

    # Tasks.

    async def start_delete(self, index: str, until: int, pace: Pace) -> TaskId:
        kind = await self._kind_of_time(index)
        await searches.refresh(self._wire, index)
        address = path(
            index,
            "_delete_by_query",
            conflicts="proceed",
            wait_for_completion="false",
            refresh="true",
            scroll_size=_batch(pace),
            requests_per_second=_rate(pace),
        )
        return await self._start(address, {"query": queries.old(kind, until)}, pace)

    async def start_copy(self, source: str, target: str, until: int, pace: Pace) -> TaskId:
        kind = await self._kind_of_time(source)
        await self._need_inlet(target)
        await searches.refresh(self._wire, source)
        query = queries.staying(kind, until)
        return await self._start_reindex({"query": query}, source, target, "external", pace)

    async def start_catch_up(
        self, source: str, target: str, until: int, since: Checkpoints, pace: Pace, *, overwrite: bool = False
    ) -> tuple[TaskId, ...]:
        """A row that was deleted and made again long after starts from version 1, so that its older self in the copy
        looks newer: that is what `over` is for.
        """
        kind = await self._kind_of_time(source)
        settings = await self._present(source)
        shards = _shards(settings)
        if shards != len(since):
            raise refused(f"{source} has {shards} shards, the marks are of {len(since)}")
        await self._need_inlet(target)
        await searches.refresh(self._wire, source)
        version_type = "internal" if overwrite else "external_gte"
        started = []
        for shard, mark in enumerate(since):
            what: dict[str, Any] = {"query": queries.staying(kind, until, queries.after(mark))}
            if len(since) > 1:  # as many slices as shards: a slice is a shard
                what["slice"] = {"id": shard, "max": len(since)}
            started.append(await self._start_reindex(what, source, target, version_type, pace))
        return tuple(started)

    async def task(self, task: TaskId) -> TaskStatus | None:
        answer = await self._wire.ask("GET", task_path(task), fine=(NO_RESOURCE,))
        with reading("the status of a task"):
            return None if answer is None else reports.status_of(task, answer)

    async def cancel(self, task: TaskId) -> None:
        await self._wire.ask("POST", task_path(task, "_cancel"), fine=(NO_RESOURCE,))

    async def running(self, tag: str) -> tuple[TaskId, ...]:
        answer = await self._wire.ask("GET", "/_tasks?actions=*/reindex,*/byquery&detailed=true&group_by=none")
        with reading("the list of tasks"):
            if answer.get("node_failures") or answer.get("task_failures"):
                raise unavailable("the list of tasks is not complete")
            listed = [one for one in answer["tasks"] if reports.tag_of(one) == tag]
            return tuple(sorted(TaskId(str(one["node"]), int(one["id"])) for one in listed))

    # Copying without loss.

    async def checkpoints(self, index: str) -> Checkpoints:
        """By the global checkpoints: what is up to them is on every copy of a shard, whichever of them the copying
        reads, and no failing node can take it back. Above them a number may still be under way, or be given anew.
        """
        settings = await self._present(index)
        if shapes.lags_behind(settings):
            raise refused(f"{index} replicates by segments: its replicas lag behind, so no copy of them is complete")
        stats = await self._wire.ask("GET", path(index, "_stats/docs", level="shards"))
        marks = []
        with reading("the checkpoints of shards"):
            shards = stats["indices"].get(index, {}).get("shards", {})
            for number in range(_shards(settings)):
                primaries = [copy for copy in shards.get(str(number), []) if copy["routing"]["primary"]]
                if len(primaries) != 1 or "seq_no" not in primaries[0]:
                    raise unavailable(f"shard {number} of {index} has no primary now")
                marks.append(max(-1, int(primaries[0]["seq_no"]["global_checkpoint"])))
        await searches.refresh(self._wire, index)
        return tuple(marks)

    async def make_like(self, source: str, target: str) -> None:
        await self._present(source)
        answer = await self._wire.ask("GET", path(source))
        state = await self._wire.ask("GET", state_path(source))
        with reading("the shape of an index"):
            shape = answer[source]
            settings = shapes.settings_for_copy(shape["settings"]["index"])
            # Not shown by all, but by it each row finds its shard: placed otherwise, two rows of one id may become one.
            settings["number_of_routing_shards"] = state["metadata"]["indices"][source]["routing_num_shards"]
            body = {"settings": {"index": settings}, "mappings": shape["mappings"]}
        await self._wire.ask("PUT", bare_path(target), body, again=Again.UNDONE)
        # A template of the cluster may have given it aliases, which belong to the source until the swap.
        given = await self._aliases(target)
        actions: list[shapes.Action] = [{"remove": {"index": target, "alias": alias}} for alias in given]
        await self._change_aliases([*actions, {"add": {"index": target, "alias": inlet(target)}}])

    async def block(self, index: str) -> None:
        await self._present(index)
        await self._wire.ask("PUT", path(index, "_block/write"))
        if not await self.is_blocked(index):
            raise unavailable(f"{index} takes writes still")
        await searches.refresh(self._wire, index)

    async def unblock(self, index: str) -> None:
        found = await self._settings(index) or {}
        if index in found:
            body = {"index.blocks.write": None}
            await self._wire.ask("PUT", path(index, "_settings"), body, fine=(NO_INDEX,))

    async def is_blocked(self, index: str) -> bool:
        found = await self._settings(index) or {}
        with reading("the settings of an index"):
            return str(found.get(index, {}).get("blocks", {}).get("write", "false")) == "true"

    async def flush(self, index: str) -> None:
        await self._wire.ask("POST", path(index, "_flush", wait_if_ongoing="true"))

    async def reconcile(self, source: str, target: str, until: int) -> int:
        kind = await self._kind_of_time(source)
        await self._present(target)
        for index in (source, target):
            await searches.refresh(self._wire, index)
        removed = await Reconciling(self._wire, source, target, kind, until).run()
        if removed:
            await searches.refresh(self._wire, target)
        return removed

    async def swap(self, name: str, source: str, target: str) -> None:
        concrete(name)
        settings = await self._present(source)
        await self._present(target)
        aliases, others = await self._aliases(source), await self._aliases(target)
        if name != source and name not in aliases:
            if name in others and not aliases:
                return
            raise refused(f"{name} does not lead to {source}")
        if "final_pipeline" in settings:
            body = {"index.final_pipeline": settings["final_pipeline"]}
            await self._wire.ask("PUT", path(target, "_settings"), body)
        try:
            await self._change_aliases(shapes.moves(name, source, target, aliases, inlet(target)))
        except Fault:
            # It may have been done although the answer was lost.
            before, now = await self._aliases_if_there(source), await self._aliases_if_there(target)
            if name in (before or {}) or name not in (now or {}):
                raise

    async def abandon(self, target: str) -> bool:
        """A swap takes the copy's inlet away in its one step, and so does this: only one of the two can."""
        try:
            await self._change_aliases([shapes.removal(target, inlet(target))])
        except Fault as fault:
            if fault.reason is not Reason.INDEX_REFUSED:
                raise
            left = await self._aliases_if_there(target)
            if inlet(target) in (left or {}):
                raise
            return not left
        return True

    async def drop(self, index: str) -> None:
        await self._wire.ask("DELETE", path(index), fine=(NO_INDEX,))

    # Filling.

    async def make(self, name: str) -> None:
        if not await self._settings(name):
            await self._wire.ask("PUT", bare_path(name), shapes.SERIES, fine=(EXISTS,))

    async def write(self, name: str, rows: Sequence[Row]) -> None:
        if not await self._settings(name):  # the cluster would make one up
            raise refused(f"{name} leads to no index")
        # With ids of our own, sending a row twice makes no second one.
        await bulk.send(
            self._wire, bare_path(name, "_bulk"), (bulk.put(row.id or self._new_id(), row.source) for row in rows)
        )

    # What the calls above are made of.

    async def _refresh_if_there(self, index: str) -> None:
        with suppress(Fault):
            await searches.refresh(self._wire, index)

    async def _settings(self, name: str) -> dict[str, dict[str, Any]] | None:
        """Of each index that this name leads to; None where there is none."""
        answer = await self._wire.ask("GET", path(name, "_settings"), fine=(NO_INDEX,))
        if answer is None:
            return None
        if not answer:
            raise unavailable(f"neither an index nor an error was told of {name}")
        with reading("the settings of an index"):
            return {index: dict(told["settings"]["index"]) for index, told in answer.items()}

    async def _present(self, index: str) -> dict[str, Any]:
        """The settings of the index of just this name; an alias is none."""
        found = await self._settings(index) or {}
        if index not in found:
            raise refused(f"there is no index {index}")
        return found[index]

    async def _kind_of_time(self, index: str) -> str | None:
        """How the index of just this name maps the time of a row; None where it does not."""
        answer = await self._wire.ask("GET", path(index, f"_mapping/field/{TIME}"))
        if index not in answer:
            raise refused(f"there is no index {index}")
        with reading("the mapping of an index"):
            mapping = answer[index]["mappings"].get(TIME, {}).get("mapping", {}).get(TIME, {})
            kind = mapping.get("type")
            return None if kind is None else str(kind)

    async def _aliases_if_there(self, index: str) -> dict[str, Any] | None:
        answer = await self._wire.ask("GET", path(index, "_alias"), fine=(NO_INDEX,))
        if answer is None or index not in answer:
            return None
        with reading("the aliases of an index"):
            return {alias: dict(how) for alias, how in answer[index]["aliases"].items()}

    async def _aliases(self, index: str) -> dict[str, Any]:
        aliases = await self._aliases_if_there(index)
        if aliases is None:
            raise refused(f"there is no index {index}")
        return aliases

    async def _change_aliases(self, actions: list[shapes.Action]) -> None:
        """All of them or none: the cluster takes them as one step."""
        await self._wire.ask("POST", "/_aliases", {"actions": actions}, again=Again.UNDONE)

    async def _need_inlet(self, target: str) -> None:
        if inlet(target) not in await self._aliases(target):
            raise refused(f"{target} was withdrawn, or is in use")

    async def _start_reindex(
        self, what: dict[str, Any], source: str, target: str, version_type: str, pace: Pace
    ) -> TaskId:
        body = {
            "conflicts": "proceed",
            "source": {"index": concrete(source), "size": _batch(pace), **what},
            # The rows went through the pipelines when they were written.
            "dest": {"index": inlet(target), "version_type": version_type, "pipeline": "_none"},
        }
        address = f"/_reindex?wait_for_completion=false&refresh=true&requests_per_second={_rate(pace)}"
        return await self._start(address, body, pace)

    async def _start(self, address: str, body: dict[str, Any], pace: Pace) -> TaskId:
        answer = await self._wire.ask("POST", address, body, again=Again.UNDONE, tag=tag_header(pace.tag))
        with reading("the start of a task"):
            return TaskId.parse(str(answer["task"]))


def _shards(settings: dict[str, Any]) -> int:
    with reading("the settings of an index"):
        return int(settings["number_of_shards"])


def _fits(name: str, head: str, ending: str) -> bool:
    return name.startswith(head) and name.endswith(ending) and len(name) >= len(head) + len(ending)


def _batch(pace: Pace) -> int:
    return max(1, min(pace.batch, _LARGEST_BATCH))


def _rate(pace: Pace) -> str:
    return "-1" if pace.rate <= 0 else f"{pace.rate:.3f}"

"""Copying without loss despite shards, versions, pipelines, templates and aliases."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.harness import QUICK, SLOW, UNTIL, ClusterHarness, Run, as_rows, old, row, staying, timeless, young
from tests.support.engine_nodes import NodePlace, engine_at
from tests.support.nodes import KINDS_IN_TURN, Client, unique_prefix
from tests.support.waiting import until
from watchword.basics.errors import Fault, Reason
from watchword.index.engine import TaskId, TaskStatus
from watchword.index.opensearch.engine import OpenSearchEngine
from watchword.index.opensearch.index_queries import inlet

OPENSEARCH_ALONE = pytest.mark.parametrize("search_node", KINDS_IN_TURN[:2], indirect=True)
"""For what Elasticsearch 7 does not have."""


class OnNode(ClusterHarness):
    """Also with an engine that may overwrite newer versions, and the node itself."""

    def __init__(self, run: Run, engine: OpenSearchEngine, place: NodePlace) -> None:
        super().__init__(run, engine, place)
        self.opensearch = engine
        self.node = place.node

    def shaped(self, word: str, settings: dict[str, Any], **more: Any) -> str:
        """Create an index with these settings."""
        index = self.place.name(word)
        self.node.ask("PUT", f"/{index}", {"settings": settings, **more})
        return index

    def written_over(self, source: str, target: str, since: tuple[int, ...]) -> list[TaskStatus]:
        tasks = self.run(self.opensearch.start_catch_up(source, target, UNTIL, since, QUICK, overwrite=True))
        return [self.ended(task) for task in tasks]

    def recreate(self, index: str, row_id: str, source: dict[str, Any]) -> int:
        """Delete and write the row; return its version. Deletions are forgotten at a refresh, by a coarse clock."""
        self.place.remove(index, row_id)
        for _ in range(30):
            self.node.ask("POST", f"/{index}/_refresh")
        return int(self.node.ask("PUT", f"/{index}/_doc/{row_id}", source)["_version"])

    def aliases(self, index: str) -> Any:
        return self.node.ask("GET", f"/{index}/_alias")[index]["aliases"]

    def settings(self, index: str) -> Any:
        return self.node.ask("GET", f"/{index}/_settings")[index]["settings"]["index"]

    def exists(self, index: str) -> bool:
        return self.node.http.head(f"/{index}").status_code == 200


@pytest.fixture
def on(search_node: Client, run: Run) -> Iterator[OnNode]:
    place = NodePlace(search_node, unique_prefix())
    engine = engine_at(search_node.url)
    yield OnNode(run, engine, place)
    search_node.drop(place.prefix)
    run(engine.close())


def test_recreated_row_overwrites_the_copied_one(on: OnNode) -> None:
    index = on.shaped("one", {"number_of_shards": 1, "gc_deletes": "0s"})
    for number in range(3):
        on.place.put(index, "a", row(number, UNTIL + 5))  # version 3
    on.place.put(index, "b", row(1, UNTIL + 5))
    marks = on.run(on.engine.checkpoints(index))
    target = on.copied(index)
    until(lambda: on.recreate(index, "a", row(9, UNTIL + 6)) == 1, "it is forgotten that there was such a row")
    on.run(on.engine.block(index))
    (caught_up,) = on.caught_up(index, target, marks)
    assert caught_up.counters.version_conflicts == 1
    assert on.rows(target)["a"] == row(2, UNTIL + 5)
    (over,) = on.written_over(index, target, marks)
    assert over.counters.version_conflicts == 0
    assert on.rows(target) == on.rows(index)


def test_catch_up_copies_rows_after_the_checkpoint_of_each_shard(on: OnNode) -> None:
    index = on.shaped("one", {"number_of_shards": 3})
    on.write(index, young(300))
    marks = on.run(on.engine.checkpoints(index))
    assert len(marks) == 3
    target = on.copied(index)
    on.write(index, young(40, first=290) | timeless(5))
    ended = on.caught_up(index, target, marks)
    assert len(ended) == 3
    assert sum(status.counters.total for status in ended) == 45
    assert sum(status.counters.updated for status in ended) == 10
    assert on.rows(target) == on.rows(index) == young(330) | timeless(5)


def test_checkpoints_of_another_number_of_shards_are_rejected(on: OnNode) -> None:
    index = on.index("one", young(3))
    target = on.copied(index)
    fault = on.refused(on.engine.start_catch_up(index, target, UNTIL, (1, 1), QUICK))
    assert fault.reason is Reason.INDEX_REFUSED


def test_copy_keeps_versions_and_routing(on: OnNode) -> None:
    index = on.shaped("one", {"number_of_shards": 2}, mappings={"_routing": {"required": True}})
    for _ in range(3):
        on.node.ask("PUT", f"/{index}/_doc/a?routing=x", row(1, UNTIL + 1))
    target = on.copied(index)
    copied = on.node.ask("GET", f"/{target}/_doc/a?routing=x")
    assert (copied["_version"], copied["_routing"]) == (3, "x")


def test_dropped_copy_is_not_recreated_by_its_task(on: OnNode) -> None:
    index = on.index("one", young(2_000))
    target = on.copy_of(index)
    task = on.run(on.engine.start_copy(index, target, UNTIL, SLOW))
    on.until(task, lambda status: status.counters.created > 0, "it has begun")
    on.run(on.engine.drop(target))
    ended = on.over(task)
    assert ended.failed
    assert not on.exists(target)
    assert not on.exists(inlet(target))


def test_copy_reports_rows_that_the_target_rejects(on: OnNode) -> None:
    index = on.index("one", young(3))
    target = on.shaped("strict", {}, mappings={"dynamic": "strict"})
    on.node.ask("POST", "/_aliases", {"actions": [{"add": {"index": target, "alias": inlet(target)}}]})
    ended = on.over(on.run(on.engine.start_copy(index, target, UNTIL, QUICK)))
    assert ended.completed
    assert ended.failed
    assert all("strict_dynamic_mapping_exception" in failure for failure in ended.failures)
    assert any(failure.startswith("Row young-") for failure in ended.failures)


def test_copy_skips_ingest_pipelines(on: OnNode) -> None:
    index = on.index("one", young(5))
    # These pipelines do not exist; a row that used one would be rejected.
    on.node.ask("PUT", f"/{index}/_settings", {"default_pipeline": "absent", "final_pipeline": "absent"})
    target = on.copied(index)
    assert on.rows(target) == young(5)
    on.run(on.engine.swap(index, index, target))
    kept = on.settings(target)
    assert (kept["default_pipeline"], kept["final_pipeline"]) == ("absent", "absent")


def test_index_like_a_cloned_one_has_its_settings_and_no_block(on: OnNode) -> None:
    settings: dict[str, Any] = {"number_of_shards": 2, "refresh_interval": "7s", "number_of_replicas": 0}
    settings["max_result_window"] = 9_000
    settings["analysis"] = {"analyzer": {"mine": {"type": "custom", "tokenizer": "standard"}}}
    mappings = {"_meta": {"kept": True}, "properties": {"text": {"type": "text", "analyzer": "mine"}}}
    original = on.shaped("original", settings, mappings=mappings)
    on.run(on.engine.block(original))
    cloned = on.place.name("cloned")
    on.node.ask("PUT", f"/{original}/_clone/{cloned}")
    target = on.copy_of(cloned)
    of_copy, of_source = on.settings(target), on.settings(cloned)
    assert not on.run(on.engine.is_blocked(target))
    assert of_copy["uuid"] != of_source["uuid"]
    for name in ("number_of_shards", "refresh_interval", "number_of_replicas", "max_result_window", "analysis"):
        assert of_copy[name] == of_source[name]
    assert on.node.ask("GET", f"/{target}")[target]["mappings"] == mappings
    on.write(target, young(1))


def test_copy_has_no_alias_of_a_template_before_the_swap(on: OnNode) -> None:
    everything, template = on.place.name("everything"), on.place.name("template")
    body = {"index_patterns": [on.place.name("one_*")], "template": {"aliases": {everything: {}}}}
    on.node.ask("PUT", f"/_index_template/{template}", body)
    index = on.index("one", young(2))
    on.place.alias(everything, index)
    target = on.copied(index, "one_1")
    assert on.concrete(everything) == index
    on.run(on.engine.swap(index, index, target))
    assert on.concrete(everything) == target
    on.node.ask("DELETE", f"/_index_template/{template}")


def test_aliases_keep_filter_routing_and_write_index_in_a_swap(on: OnNode) -> None:
    index = on.index("one", young(2))
    name, narrow = on.place.name("alias"), on.place.name("narrow")
    how = {"filter": {"term": {"urn": "urn:li:dataset:1"}}, "index_routing": "1", "search_routing": "1,2"}
    adds: list[Any] = [{"add": {"index": index, "alias": narrow, **how}}]
    adds.append({"add": {"index": index, "alias": name, "is_write_index": True}})
    on.node.ask("POST", "/_aliases", {"actions": adds})
    target = on.copied(index)
    on.run(on.engine.swap(name, index, target))
    assert on.aliases(target) == {narrow: how, name: {"is_write_index": True}}
    assert on.aliases(index) == {}


def test_repeated_swap_succeeds(on: OnNode) -> None:
    index, name = on.index("one", young(2)), on.place.name("alias")
    on.place.alias(name, index)
    target = on.copied(index)
    for _ in range(2):
        on.run(on.engine.swap(name, index, target))
    assert on.concrete(name) == target


def test_swap_of_an_alias_of_another_index_is_rejected(on: OnNode) -> None:
    index, other, name = on.index("one", young(2)), on.index("other"), on.place.name("alias")
    on.place.alias(name, other)
    target = on.copied(index)
    assert on.refused(on.engine.swap(name, index, target)).reason is Reason.INDEX_REFUSED
    assert on.concrete(name) == other


def test_name_that_became_an_alias_is_not_an_index(on: OnNode) -> None:
    index = on.index("one", old(3) | young(2))
    target = on.copied(index)
    on.run(on.engine.swap(index, index, target))
    on.write(index, old(3))
    on.run(on.engine.unblock(index))
    for work in (
        on.engine.block(index),
        on.engine.start_delete(index, UNTIL, QUICK),
        on.engine.start_copy(index, target, UNTIL, QUICK),
        on.engine.checkpoints(index),
        on.engine.make_like(index, on.place.name("another")),
        on.engine.reconcile(index, target, UNTIL),
        on.engine.swap(index, index, target),
        on.engine.drop(index),
    ):
        assert on.refused(work).reason is Reason.INDEX_REFUSED
    assert not on.run(on.engine.is_blocked(target))
    assert on.rows(target) == old(3) | young(2)


def test_reconcile_finds_few_differences_among_many_rows(on: OnNode) -> None:
    index = on.shaped("one", {"number_of_shards": 2})
    on.write(index, young(6_000) | timeless(10))
    target = on.copied(index)
    for gone in ("young-0", "young-3117", "young-5999", "timeless-4"):
        on.place.remove(index, gone)
    on.place.put(index, "young-42", row(42, UNTIL - 1))  # became old
    on.run(on.engine.block(index))
    assert on.run(on.engine.reconcile(index, target, UNTIL)) == 5
    assert on.run(on.engine.reconcile(index, target, UNTIL)) == 0
    assert on.rows(target) == staying(on.rows(index))


def test_reconcile_distinguishes_rows_of_one_id_by_routing(on: OnNode) -> None:
    index = on.shaped("one", {"number_of_shards": 2, "number_of_routing_shards": 2})
    for routing in ("a", "b", "c", "d"):
        on.node.ask("PUT", f"/{index}/_doc/same?routing={routing}", row(1, UNTIL + 1))
    marks = on.run(on.engine.checkpoints(index))
    before = on.run(on.engine.count(index, UNTIL)).total
    assert before == 2, "one in each shard"
    target = on.copied(index)
    found = on.node.ask("POST", f"/{index}/_search", {})["hits"]["hits"]
    on.node.ask("DELETE", f"/{index}/_doc/same?routing={found[0]['_routing']}")
    on.run(on.engine.block(index))
    on.caught_up(index, target, marks)
    assert on.run(on.engine.reconcile(index, target, UNTIL)) == 1
    left = on.node.ask("POST", f"/{target}/_search", {})["hits"]["hits"]
    assert [hit["_routing"] for hit in left] == [found[1]["_routing"]]


@pytest.mark.parametrize("kind", ["keyword", "text"])
def test_no_row_is_old_if_times_are_mapped_as_text(on: OnNode, kind: str) -> None:
    index = on.shaped("one", {}, mappings={"properties": {"timestampMillis": {"type": kind}}})
    on.write(index, old(3))
    assert on.run(on.engine.count(index, UNTIL)).old == 0
    assert on.ended(on.run(on.engine.start_delete(index, UNTIL, QUICK))).counters.deleted == 0
    assert on.rows(on.copied(index)) == old(3)


@pytest.mark.parametrize(
    "mapping", [{"type": "long"}, {"type": "date"}, {"type": "date_nanos"}, {"type": "double"}, None]
)
def test_times_are_compared_as_numbers_in_every_mapping(on: OnNode, mapping: dict[str, str] | None) -> None:
    mappings = {} if mapping is None else {"mappings": {"properties": {"timestampMillis": mapping}}}
    index = on.shaped("one", {}, **mappings)
    on.write(index, old(3) | young(2) | timeless(1))
    assert on.run(on.engine.count(index, UNTIL)).old == 3
    assert on.run(on.engine.count(index, 2**63 - 1)).old == 5
    assert on.run(on.engine.count(index, 1_500)).old == 0  # no year
    assert on.run(on.engine.count(index, -1)).old == 0


@OPENSEARCH_ALONE
def test_index_with_lagging_replicas_is_not_copied(on: OnNode) -> None:
    index = on.shaped("one", {"replication.type": "SEGMENT", "number_of_replicas": 1})
    fault = on.refused(on.engine.checkpoints(index))
    assert fault.reason is Reason.INDEX_REFUSED
    assert "replicates by segments" in (fault.cause or "")


@OPENSEARCH_ALONE
def test_task_of_another_kind_is_unknown(on: OnNode) -> None:
    index = on.index("one", young(2))
    task = on.node.ask("POST", f"/{index}/_forcemerge?wait_for_completion=false")["task"]
    on.node.finished(task)
    assert on.run(on.engine.task(TaskId.parse(task))) is None


def test_write_block_rejects_all_rows_and_mapping_errors_one_row(on: OnNode) -> None:
    index = on.index("one")
    on.run(on.engine.block(index))
    with pytest.raises(Fault) as held_back:
        on.run(on.engine.write(index, as_rows(young(3))))
    assert held_back.value.reason is Reason.INDEX_BLOCKED
    on.run(on.engine.unblock(index))
    fault = on.refused(on.engine.write(index, as_rows({"a": {"urn": "u"}, "b": {"urn": {"no": "word"}}})))
    assert fault.reason is Reason.INDEX_REFUSED
    assert "1 of 2 rows were rejected" in (fault.cause or "")
    assert on.rows(index) == {"a": {"urn": "u"}}


def test_very_large_row_is_sent_alone(on: OnNode) -> None:
    index = on.index("one")
    rows = {
        f"r{number}": {"urn": "u", "note": "x" * size} for number, size in enumerate([10, 6_000_000, 10, 3_000_000])
    }
    on.run(on.engine.write(index, as_rows(rows)))
    assert on.rows(index) == rows


def test_index_with_an_unsupported_name_is_not_resolved(on: OnNode) -> None:
    dotted, name = f"{on.place.name('one')}.v1", on.place.name("alias")
    on.node.ask("PUT", f"/{dotted}", {"aliases": {name: {}}})
    assert on.refused(on.engine.resolve(name)).reason is Reason.INDEX_REFUSED

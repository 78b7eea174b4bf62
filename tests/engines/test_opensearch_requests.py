"""What planning costs a cluster, counted in requests, and indices whose urns cannot be grouped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.harness import SYSTEM, StoreHarness, allow
from tests.engines.harness import UNTIL, ClusterHarness, Rows, Run
from tests.support.backends import SqliteLocation
from tests.support.engine_nodes import NodePlace, engine_at
from tests.support.gate import Gate, gate_to
from tests.support.nodes import KINDS_IN_TURN, Client, unique_prefix
from tests.support.retention import ScheduledInstance, rule
from watchword.basics.errors import Reason
from watchword.index.indices import IndexNames
from watchword.index.opensearch.index_queries import PAGE_URNS

pytestmark = pytest.mark.parametrize("search_node", KINDS_IN_TURN, indirect=True)
YEAR = 365 * 86_400_000


@pytest.fixture
def gate(search_node: Client) -> Iterator[Gate]:
    with gate_to(search_node.url) as gate:
        yield gate


@pytest.fixture
def on(search_node: Client, gate: Gate, run: Run) -> Iterator[ClusterHarness]:
    place = NodePlace(search_node, unique_prefix())
    engine = engine_at(gate.url)
    yield ClusterHarness(run, engine, place)
    run(engine.close())
    search_node.drop(place.prefix)


def series(urns: int, rows_of_each: int) -> Rows:
    """Over thirty years."""
    step = 30 * YEAR // (urns * rows_of_each)
    return {
        f"{urn}-{n}": {"urn": f"urn:{urn}", "timestampMillis": UNTIL - (urn * rows_of_each + n) * step}
        for urn in range(urns)
        for n in range(rows_of_each)
    }


def mapped(on: ClusterHarness, urn: dict[str, Any]) -> str:
    index = on.place.name("one")
    assert isinstance(on.place, NodePlace)
    times = {"type": "date", "format": "epoch_millis"}
    analysis = {"normalizer": {"lower": {"type": "custom", "filter": ["lowercase"]}}}
    body = {
        "settings": {"number_of_shards": 1, "analysis": analysis},
        "mappings": {"properties": {"urn": urn, "timestampMillis": times}},
    }
    on.place.node.ask("PUT", f"/{index}", body)
    return index


def requests(on: ClusterHarness, gate: Gate, work: Any) -> int:
    lines: list[bytes] = []

    def noted(line: bytes) -> bool:
        lines.append(line)
        return False

    gate.hold(noted)
    on.run(work)
    gate.let_go()
    return len(lines)


def test_planning_needs_few_requests_whatever_the_number_of_rows(on: ClusterHarness, gate: Gate) -> None:
    small, large = on.index("small", series(1, 20)), on.index("large", series(PAGE_URNS + 1, 8))
    for index, pages in ((small, 1), (large, 2)):
        assert requests(on, gate, on.engine.count(index, UNTIL - YEAR)) == 4
        assert requests(on, gate, on.engine.count(index, UNTIL - YEAR, keep_last=2)) <= 5 + 2 * pages
        assert requests(on, gate, on.engine.moment(index, 15, UNTIL - YEAR)) <= 10


@pytest.mark.parametrize(
    ("number", "rows"), [(5, 3), pytest.param(100, 100_000, marks=pytest.mark.soak, id="10000000-rows")]
)
def test_due_runs_need_six_requests_for_each_series(
    on: ClusterHarness, gate: Gate, tmp_path: Path, number: int, rows: int
) -> None:
    """With limits of rows at most 20. What is not due needs none."""
    copied, left = on.index("dataset_series0aspect_v1"), series(1, rows)
    while left:
        on.write(copied, dict(left.popitem() for _ in range(min(len(left), 5_000))))
    assert isinstance(on.place, NodePlace)
    ask = on.place.node.ask
    ask("PUT", f"/{copied}/_settings", {"index.blocks.write": True})
    for one in range(1, number):
        settings = {"index.blocks.write": None, "index.number_of_replicas": 0}
        ask("PUT", f"/{copied}/_clone/{on.place.name(f'dataset_series{one}aspect_v1')}", {"settings": settings})
    ask("GET", "/_cluster/health?wait_for_no_initializing_shards=true&timeout=60s")
    location = SqliteLocation(tmp_path / "store" / "watchword.db", 0)
    store = on.run(location.open())
    StoreHarness(on.run, store, location.clock).first_start()
    instance = ScheduledInstance(store, on.engine, location.clock, names=IndexNames(on.place.prefix))
    on.run(instance.tick())
    for fields, most in (({}, 6), ({"maxRows": 1}, 20)):
        hourly = rule(series="*", keep="P1D", mode="report", schedule="0 * * * *", **fields)
        on.run(store.put_rule(SYSTEM, hourly, allow))
        location.clock.now += 3_600_000
        asked = requests(on, gate, instance.tick())
        assert number <= asked <= most * number + 2
        assert requests(on, gate, instance.tick()) == 0
    assert on.run(store.retention_runs(None, 0, 1)).total == 2 * number
    assert instance.problems == []
    on.run(store.close())


@pytest.mark.parametrize(
    "urn",
    [{"type": "text"}, {"type": "keyword", "normalizer": "lower"}, {"type": "keyword", "ignore_above": 10}],
    ids=["text", "normalizer", "ignore_above"],
)
def test_keep_last_needs_urns_mapped_as_keyword(on: ClusterHarness, urn: dict[str, Any]) -> None:
    index = mapped(on, urn)
    rows = series(2, 3)
    on.write(index, rows)
    for work in (on.engine.count(index, UNTIL, 1), on.engine.deletion_page(index, UNTIL, 1, None)):
        refused = on.refused(work)
        assert refused.reason is Reason.INDEX_REFUSED
        assert "keepLast needs an index that maps urn as keyword" in refused.message
    assert on.run(on.engine.count(index, UNTIL)).old == 6
    assert on.rows(index) == rows

"""The shared read goes by index from the first day: a lane opens on an empty store and keeps the plan it made."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import KINDS_IN_TURN, Home, SharedClusters, home
from tests.support.server import watchword
from watchword.stores.postgres.connections import READING_MANY_TOKENS
from watchword.stores.postgres.lanes import STATEMENT


@pytest.fixture(params=KINDS_IN_TURN)
def empty(request: pytest.FixtureRequest, shared_clusters: SharedClusters, tmp_path: Path) -> Iterator[Home]:
    with home(shared_clusters.of(request.param), tmp_path) as made:
        migrated = watchword("db", "migrate", env=made.env, cwd=tmp_path)
        assert migrated.returncode == 0, migrated.stderr
        yield made


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def test_the_shared_read_reads_each_table_by_its_index_on_an_empty_store(empty: Home) -> None:
    with empty.connect() as connection:
        for name, value in READING_MANY_TOKENS.settings:
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.execute(f"PREPARE read (text[]) AS {STATEMENT}".encode())
        row = connection.execute("EXPLAIN (FORMAT JSON) EXECUTE read (ARRAY['id'])").fetchone()
    assert row is not None
    (plan,) = row[0] if isinstance(row[0], list) else json.loads(row[0])
    read = {node["Relation Name"]: node["Node Type"] for node in nodes(plan["Plan"]) if "Relation Name" in node}
    assert {"tokens", "actors", "group_members"} <= set(read)
    assert [table for table, how in read.items() if how not in {"Index Scan", "Index Only Scan"}] == []

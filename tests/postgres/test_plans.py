"""The shared read goes by index from the first day: a lane opens on an empty store and keeps the plan it made."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import KINDS_IN_TURN, Home, SharedClusters, home
from tests.support.server import watchword
from watchword.domain.places import DatabasePlace
from watchword.stores.postgres.connections import READING_MANY_TOKENS, connect
from watchword.stores.postgres.lanes import STATEMENT
from watchword.values import database


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


async def plan_of_the_shared_read(made: Home) -> Any:
    """On a connection as a lane has it."""
    address = database(made.url)
    assert isinstance(address, DatabasePlace)
    connection = await connect(replace(address, schema=made.schema, timeout=20.0), READING_MANY_TOKENS)
    try:
        await connection.execute(f"PREPARE read (text[]) AS {STATEMENT}")
        (plan,) = json.loads(await connection.fetchval("EXPLAIN (FORMAT JSON) EXECUTE read (ARRAY['id'])"))
        return plan["Plan"]
    finally:
        connection.terminate()
        await asyncio.sleep(0)


def test_the_shared_read_reads_each_table_by_its_index_on_an_empty_store(empty: Home) -> None:
    plan = asyncio.run(plan_of_the_shared_read(empty))
    read = {node["Relation Name"]: node["Node Type"] for node in nodes(plan) if "Relation Name" in node}
    assert {"tokens", "actors", "group_members"} <= set(read)
    assert [table for table, how in read.items() if how not in {"Index Scan", "Index Only Scan"}] == []

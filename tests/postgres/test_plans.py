"""The shared read goes by index from the first day: a lane opens on an empty store and keeps the plan it made."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.harness import SYSTEM
from tests.postgres.test_cost import explained, plan_of, store_on
from tests.support.postgres import KINDS_IN_TURN, Home, SharedClusters, home
from tests.support.server import watchword
from tests.support.waiting import SECONDS
from watchword.domain.ports import Use
from watchword.domain.store_urls import PostgresUrl
from watchword.setting_values import database
from watchword.stores.postgres.connections import (
    DEFAULT_SETTINGS,
    READING_MANY_TOKENS,
    SEARCHED,
    SEARCHING,
    Connection,
    SessionSettings,
    connect,
)
from watchword.stores.postgres.verify_batcher import STATEMENT
from watchword.stores.sql import SqlStore


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


@asynccontextmanager
async def connected(made: Home, session: SessionSettings = DEFAULT_SETTINGS) -> AsyncIterator[Connection]:
    """A connection as the store has it: the pool's, unless it is for something else."""
    address = database(made.url)
    assert isinstance(address, PostgresUrl)
    connection = await connect(replace(address, schema=made.schema, timeout=SECONDS), session)
    try:
        yield connection
    finally:
        connection.terminate()
        await asyncio.sleep(0)


async def plan_of_the_shared_read(made: Home) -> Any:
    async with connected(made, READING_MANY_TOKENS) as connection:
        await connection.execute(f"PREPARE read (text[]) AS {STATEMENT}")
        (plan,) = json.loads(await connection.fetchval("EXPLAIN (FORMAT JSON) EXECUTE read (ARRAY['id'])"))
        return plan["Plan"]


def test_the_shared_read_reads_each_table_by_its_index_on_an_empty_store(empty: Home) -> None:
    plan = asyncio.run(plan_of_the_shared_read(empty))
    read = {node["Relation Name"]: node["Node Type"] for node in nodes(plan) if "Relation Name" in node}
    assert {"tokens", "actors", "group_members"} <= set(read)
    assert [table for table, how in read.items() if how not in {"Index Scan", "Index Only Scan"}] == []


GROWN = 50_000
REVOKE = "SELECT revoke_token('urn:a:b', NULL, NULL, 'p', 'r', '{id}', NULL, false, false, false)"
_MAKE = """INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at, expires_at)
SELECT %s || n, 'PERSONAL', 'x', 'urn:a:' || md5(n::text), 'urn:a:' || md5(n::text), 0, NULL
FROM generate_series(1, %s::integer) AS n"""


async def pages_once_it_has_grown(made: Home, work: str) -> int:
    """On a connection whose plans were made when there were hardly any tokens."""
    # Nothing may happen to the table later that lets a connection plan anew, nor is its looking into catalogues meant.
    made.look("ALTER TABLE tokens DISABLE TRIGGER tokens_counted, SET (autovacuum_enabled = false)")
    async with connected(made) as connection:
        made.look(_MAKE, "few ", 20)
        await connection.execute(work.format(id="few 7"))
        made.look(_MAKE, "many ", GROWN)
        # What others do to the database now may let a connection look into its catalogues again: not at each of three.
        return min([await pages_of(connection, work.format(id=f"many {number}")) for number in (7, 8, 9)])


async def pages_of(connection: Connection, work: str) -> int:
    (plan,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {work}"))
    pages: int = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    return pages


def test_a_plan_that_was_made_on_a_small_store_is_good_on_a_large_one(empty: Home) -> None:
    assert asyncio.run(pages_once_it_has_grown(empty, REVOKE)) < GROWN / 200


async def heaviest_statement_once_it_has_grown(made: Home, work: Callable[[SqlStore, str], Awaitable[Any]]) -> int:
    """The most pages that one statement of a transaction reads, with plans made when there were hardly any tokens."""
    made.look("ALTER TABLE tokens DISABLE TRIGGER tokens_counted, SET (autovacuum_enabled = false)")
    address = database(made.url)
    assert isinstance(address, PostgresUrl)
    place = replace(address, schema=made.schema, timeout=SECONDS)
    async with explained(place, DEFAULT_SETTINGS) as (connection, told):
        made.look(_MAKE, "few ", 20)
        await work(store_on(connection), "few 7")
        made.look(_MAKE, "many ", GROWN)
        heaviest: list[int] = []
        for number in (7, 8, 9):
            told.clear()
            await work(store_on(connection), f"many {number}")
            plans = [plan_of(message) for message in told if '"Plan"' in message]
            heaviest.append(max(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans))
        return min(heaviest)


@pytest.mark.parametrize(
    "work",
    [
        lambda store, token: store.revoke_token(SYSTEM, token, None),
        lambda store, token: store.withdraw_token(SYSTEM, token),
        lambda store, token: store.note_first_use(SYSTEM, token),
        lambda store, token: store.record_uses({token: Use(1, 1, "n")}),
    ],
    ids=["revoke with relatives", "withdraw", "first use", "use"],
)
def test_transaction_planned_on_a_small_store_reads_few_pages_of_a_large_one(
    empty: Home, work: Callable[[SqlStore, str], Awaitable[Any]]
) -> None:
    assert asyncio.run(heaviest_statement_once_it_has_grown(empty, work)) < GROWN / 200


async def ways_of_planning(made: Home) -> list[tuple[str, str]]:
    """As it is, while it searches, and after that."""
    found = []
    async with connected(made) as connection:
        await connection.execute("BEGIN")
        for said in ("SELECT 1", SEARCHING, SEARCHED):
            await connection.execute(said)
            found.append(
                (await connection.fetchval("SHOW plan_cache_mode"), await connection.fetchval("SHOW enable_seqscan"))
            )
    return found


def test_only_searches_are_planned_for_the_values_they_bring(empty: Home) -> None:
    point, search = ("force_generic_plan", "off"), ("auto", "on")
    assert asyncio.run(ways_of_planning(empty)) == [point, search, point]

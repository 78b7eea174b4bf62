"""The verify query uses indexes from the start: its connection keeps the plan made on an empty store."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.harness import SYSTEM
from tests.postgres.test_cost import connect_explained, plan_of, store_on
from tests.support.postgres import DEBIAN, KINDS_IN_TURN, Home, SharedClusters, home
from tests.support.server import watchword
from tests.support.waiting import SECONDS
from watchword.database.postgres.connections import (
    DEFAULT_SETTINGS,
    READING_MANY_TOKENS,
    SEARCHED,
    SEARCHING,
    Connection,
    SessionSettings,
)
from watchword.database.postgres.dialect import DIALECT
from watchword.database.postgres.hosts import connect
from watchword.database.transaction import delete_oldest
from watchword.database.urls import PostgresUrl
from watchword.setting_values import database
from watchword.stores.joined import Store
from watchword.stores.postgres_verify import CONFIRMED_STATEMENT, STATEMENT
from watchword.tokens.counts import Use
from watchword.tokens.counts_store import COUNTS


@pytest.fixture(params=KINDS_IN_TURN)
def empty_store(request: pytest.FixtureRequest, shared_clusters: SharedClusters, tmp_path: Path) -> Iterator[Home]:
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
    """A connection with the store's settings, by default those of the pool."""
    address = database(made.url)
    assert isinstance(address, PostgresUrl)
    connection = await connect(replace(address, schema=made.schema, timeout=SECONDS), session)
    try:
        yield connection
    finally:
        connection.terminate()
        await asyncio.sleep(0)


async def verify_plan(made: Home, statement: str) -> Any:
    async with connected(made, READING_MANY_TOKENS) as connection:
        await connection.execute(f"PREPARE read (text[]) AS {statement}")
        (plan,) = json.loads(await connection.fetchval("EXPLAIN (FORMAT JSON) EXECUTE read (ARRAY['id'])"))
        return plan["Plan"]


@pytest.mark.parametrize("statement", [STATEMENT, CONFIRMED_STATEMENT], ids=["primary", "confirmed"])
def test_verify_uses_indexes_on_an_empty_store(empty_store: Home, statement: str) -> None:
    plan = asyncio.run(verify_plan(empty_store, statement))
    read = {node["Relation Name"]: node["Node Type"] for node in nodes(plan) if "Relation Name" in node}
    assert {"tokens", "actors", "group_members"} <= set(read)
    assert [table for table, how in read.items() if how not in {"Index Scan", "Index Only Scan"}] == []


async def count_plan(made: Home) -> Any:
    async with connected(made) as connection:
        await connection.execute(f"BEGIN; {SEARCHING}; {DIALECT.one_process}; PREPARE count AS {COUNTS}")
        (plan,) = json.loads(await connection.fetchval("EXPLAIN (FORMAT JSON) EXECUTE count (1, 2, 3, 4)"))
        return plan["Plan"]


def test_count_of_all_tokens_reads_the_table_in_one_process(empty_store: Home) -> None:
    empty_store.look(_MAKE, "many ", 1_000)
    empty_store.look("VACUUM tokens")
    plan = asyncio.run(count_plan(empty_store))
    assert [node["Node Type"] for node in nodes(plan)][:2] == ["Aggregate", "Seq Scan"]


GROWN = 50_000
_MAKE = """INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at, expires_at)
SELECT %s || n, 'PERSONAL', 'x', 'urn:a:' || md5(n::text), 'urn:a:' || md5(n::text), 0, NULL
FROM generate_series(1, %s::integer) AS n"""


async def most_pages_after_growth(made: Home, work: Callable[[Store, str], Awaitable[Any]]) -> int:
    """The most pages that one statement of the transaction reads, with plans made when there were few tokens."""
    made.look("ALTER TABLE tokens DISABLE TRIGGER tokens_counted, SET (autovacuum_enabled = false)")
    address = database(made.url)
    assert isinstance(address, PostgresUrl)
    place = replace(address, schema=made.schema, timeout=SECONDS)
    async with connect_explained(place, DEFAULT_SETTINGS) as (connection, told):
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


@pytest.mark.parametrize("empty_store", [DEBIAN], indirect=True)  # the other server has no auto_explain
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
    empty_store: Home, work: Callable[[Store, str], Awaitable[Any]]
) -> None:
    assert asyncio.run(most_pages_after_growth(empty_store, work)) < GROWN / 200


async def plan_settings(made: Home) -> list[tuple[str, str]]:
    """The settings before, during and after a search."""
    found = []
    async with connected(made) as connection:
        await connection.execute("BEGIN")
        for said in ("SELECT 1", SEARCHING, SEARCHED):
            await connection.execute(said)
            found.append(
                (await connection.fetchval("SHOW plan_cache_mode"), await connection.fetchval("SHOW enable_seqscan"))
            )
    return found


def test_only_searches_use_custom_plans(empty_store: Home) -> None:
    point, search = ("force_generic_plan", "off"), ("auto", "on")
    assert asyncio.run(plan_settings(empty_store)) == [point, search, point]


async def purged_at_once(made: Home, most: int) -> int:
    """With the plan that PostgreSQL prefers at times: for each row of the table, look for it in the other rows."""
    async with connected(made) as connection:
        for plan in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
            await connection.execute(f"SET enable_{plan} = off")
        return await delete_oldest(connection, "token_uses", "token_id, day", "day", 100, most)


def test_purge_deletes_no_more_than_it_should_whatever_the_plan(empty_store: Home) -> None:
    empty_store.look("INSERT INTO token_uses (token_id, day, uses) SELECT 'one', n, 1 FROM generate_series(1, 50) AS n")
    assert asyncio.run(purged_at_once(empty_store, 5)) == 5
    assert empty_store.look("SELECT min(day), count(*) FROM token_uses") == [(6, 45)]

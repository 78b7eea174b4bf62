"""How the answer to a batch should look, and what keeps the plan of the statement that asks for it."""

import argparse
import random
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import orjson

from bench.shared_reads import (
    ANSWERS,
    MEMBERS,
    SESSIONS,
    SHARED,
    STEADY,
    TABLES,
    TOKENS,
    AskMany,
    asyncpg_connection,
    asyncpg_many,
    ids_of,
    psycopg_many,
)
from tests.support.postgres import Cluster

BATCHES = (1, 8, 32)


def decode(form: str, answer: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What a verdict needs of each, whatever the form."""
    if form == "rows":
        return [tuple(row) for row in answer]
    if form == "json":
        version, now, rows = orjson.loads(answer[0][0])
        return [(*row, version, now) for row in rows]
    ids, actors, expires, revoked, suspended, groups, version, now = answer[0]
    return [
        (*one, groups_of.split(), version, now)
        for *one, groups_of in zip(ids, actors, expires, revoked, suspended, groups, strict=True)
    ]


async def compare_answers(url: str, ids: list[str], asked: argparse.Namespace) -> None:
    makers = {"asyncpg": asyncpg_many, "psycopg": psycopg_many}
    asks = {
        (driver, form): await make(url, statement, STEADY)
        for driver, make in makers.items()
        for form, statement in ANSWERS.items()
    }
    draw = random.Random(1)
    await _prove_equal(asks, ids[:32])
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for _ in range(asked.repeats):
        for size in BATCHES:
            batches = [draw.sample(ids, size) for _ in range(200)]
            for (driver, form), ask in asks.items():
                end, done = time.perf_counter() + asked.seconds / 4, 0
                began, used = time.perf_counter(), time.process_time()
                while not done or time.perf_counter() < end:
                    decode(form, await ask(batches[done % 200]))
                    done += 1
                wall, cpu = time.perf_counter() - began, time.process_time() - used
                found.setdefault((driver, form, size), []).append((wall / done * 1e6, cpu / done * 1e6))
    print(f"\none batch after the other, us of clock and of processor (here) for a batch of{'':<2}", end="")
    print("".join(f"{size:>14}" for size in BATCHES))
    for driver, form in asks:
        cells = [[median(one) for one in zip(*found[driver, form, size], strict=True)] for size in BATCHES]
        words = "".join(f"{wall:>8.0f}{cpu:>6.0f}" for wall, cpu in cells)
        print(f"{driver + ', ' + form:<78}{words}")


async def _prove_equal(asks: dict[tuple[str, str], AskMany], ids: list[str]) -> None:
    """All forms say the same, but for the clock."""
    said = [sorted(map(str, ([*row[:-1]] for row in decode(form, await ask(ids))))) for (_, form), ask in asks.items()]
    assert all(one == said[0] for one in said), "the forms of the answer differ"
    assert len(said[0]) == len(ids)


async def compare_plans(cluster: Cluster, asked: argparse.Namespace) -> None:
    """A lane that opened on an empty store, asked again after the store was filled, after statistics came, reopened."""
    print("\nthe plan's nodes for tokens, and us of clock for a batch of 8, autovacuum off")
    cluster.ask("CREATE SCHEMA growing")
    cluster.ask(TABLES, schema="growing")
    for table in ("tokens", "group_members", "actors", "state"):
        cluster.ask(f"ALTER TABLE {table} SET (autovacuum_enabled = off)", schema="growing")
    lanes: dict[str, Any] = {}
    for name, settings in SESSIONS.items():
        connection = await asyncpg_connection(cluster.url(), {"search_path": "growing", **settings})
        lanes[name] = (connection, await connection.prepare(SHARED))
    sample = [ids_of(cluster, asked.tokens)[n * 97 % asked.tokens] for n in range(8)]

    async def say(when: str) -> None:
        for name, (connection, statement) in lanes.items():
            for _ in range(8):  # after five, the server may settle for one plan
                await statement.fetch(sample)
            began = time.perf_counter()
            for _ in range(20):
                await statement.fetch(sample)
            took = (time.perf_counter() - began) / 20 * 1e6
            print(f"{when:<34}{name:<24}{took:>10,.0f}   {await _plan(connection, sample)}", flush=True)

    await say("empty")
    cluster.ask(TOKENS, 1, asked.tokens, schema="growing")
    await say(f"filled with {asked.tokens:,}")
    cluster.ask("ANALYZE", schema="growing")
    await say("and analysed")
    cluster.ask(MEMBERS.format(most=asked.tokens // 100), schema="growing")
    await say("with members, not analysed")
    cluster.ask("ANALYZE", schema="growing")
    await say("with members, analysed")


async def _plan(connection: Any, ids: list[str]) -> str:
    """The nodes that read a table, by the plan that this session makes now (which is not shown where one is kept)."""
    await connection.execute(f"PREPARE shown (text[]) AS {SHARED}")
    try:
        literal = "ARRAY[" + ",".join(f"'{one}'" for one in ids) + "]"
        (plan,) = orjson.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE shown ({literal})"))
    finally:
        await connection.execute("DEALLOCATE shown")
    found: list[str] = []

    def walk(node: dict[str, Any]) -> None:
        if "Relation Name" in node and node["Relation Name"] != "state":
            found.append(f"{node['Relation Name']}: {node['Node Type']}")
        elif "Join" in node["Node Type"] or node["Node Type"] == "Nested Loop":
            found.append(node["Node Type"])
        for below in node.get("Plans", []):
            walk(below)

    walk(plan["Plan"])
    return ", ".join(found)

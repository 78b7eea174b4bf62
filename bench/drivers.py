"""`python -m bench.drivers`: which driver PostgreSQL is asked by, how its answer should look, and what keeps its plan.

One asyncio process (uvloop) on core 0, a private PostgreSQL on core 1, 32 verifications at a time. Repeats are
interleaved and medians printed: verifications a second, and the processor time of this process for each, in which the
drivers differ.

- drivers: one query a request on a pool of 8, and sealed batches on one connection (what waits while a statement is
  under way goes with the next), by asyncpg and by psycopg 3, whose pipeline is a third way.
- answers: the answer to a batch as rows, as one row of arrays and as one JSON text; one batch after the other.
- plans: what the planner makes of the shared read, with and without our settings, as a store grows under it.
- hangs: how long an await that was given a second takes, when the server is stopped by a signal.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import psycopg
import uvloop

from bench.answers_and_plans import compare_answers, compare_plans
from bench.shared_reads import (
    ONE,
    STEADY,
    Find,
    Shared,
    asyncpg_connection,
    asyncpg_find,
    asyncpg_many,
    fill,
    ids_of,
    psycopg_connection,
    psycopg_find,
    psycopg_many,
    psycopg_pipeline,
)
from tests.support.postgres import DEBIAN, KINDS, Cluster

CONCURRENT = 32
POOL = 8
WARM_SECONDS = 0.5
PATIENCE = 15.0
PARTS = ("drivers", "answers", "plans", "hangs")


def pooled(finds: list[Find]) -> Find:
    """The smallest pool, the same for both drivers: a caller waits for a free connection."""
    free: asyncio.Queue[Find] = asyncio.Queue()
    for find in finds:
        free.put_nowait(find)

    async def find_one(token_id: str) -> Any:
        find = await free.get()
        try:
            return await find(token_id)
        finally:
            free.put_nowait(find)

    return find_one


@dataclass(slots=True)
class Contender:
    name: str
    find: Find
    shared: Shared | None = None
    per_second: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)


async def contenders(url: str) -> list[Contender]:
    pool = await asyncpg.create_pool(url, min_size=POOL, max_size=POOL, server_settings={"jit": "off"})
    single = [
        Contender("one query each, asyncpg", pooled([await asyncpg_find(url) for _ in range(POOL)])),
        Contender("one query each, asyncpg's own pool", lambda token_id: pool.fetchrow(ONE, token_id)),
        Contender("one query each, psycopg", pooled([await psycopg_find(url) for _ in range(POOL)])),
    ]
    lanes = {
        "sealed batches, asyncpg": await asyncpg_many(url, settings=STEADY),
        "sealed batches, psycopg": await psycopg_many(url, settings=STEADY),
        "a pipeline of one query each, psycopg": await psycopg_pipeline(url),
    }
    made = {name: Shared(ask) for name, ask in lanes.items()}
    return [*single, *(Contender(name, shared.find, shared) for name, shared in made.items())]


async def load(find: Find, ids: list[str], seconds: float) -> tuple[int, float, float]:
    """Run this many verifications at a time; return their count, the time and the processor time."""
    end = time.perf_counter() + seconds
    done = 0

    async def verify(seed: int) -> None:
        nonlocal done
        draw = random.Random(seed)
        while not done or time.perf_counter() < end:
            wanted = draw.choice(ids)
            row = await find(wanted)
            assert row[0] == wanted, f"{wanted} was answered with {row}"
            done += 1

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(verify(seed) for seed in range(CONCURRENT)))
    return done, time.perf_counter() - began, time.process_time() - used


async def compare_drivers(url: str, ids: list[str], asked: argparse.Namespace) -> None:
    those = await contenders(url)
    for repeat in range(asked.repeats):
        for one in those:
            if repeat == 0:
                await load(one.find, ids, WARM_SECONDS)
            before = (one.shared.asked, one.shared.batches) if one.shared else (0, 0)
            done, seconds, cpu = await load(one.find, ids, asked.seconds)
            one.per_second.append(done / seconds)
            one.cpu_us.append(cpu / done * 1e6)
            if one.shared:
                one.batch.append((one.shared.asked - before[0]) / (one.shared.batches - before[1]))
            progress(f"{one.name}: {done / seconds:,.0f} a second, {cpu / done * 1e6:.1f} us")
    columns = f"{'a second':>10}{'cpu us':>8}{'x best':>8}{'a batch':>9}"
    print(f"\n{CONCURRENT} verifications at a time{'':<16}{columns}   each repeat")
    best = min(those, key=lambda one: median(one.cpu_us)).cpu_us
    for one in those:
        batch = f"{median(one.batch):.1f}" if one.batch else "-"
        each = " ".join(f"{rate:,.0f}" for rate in one.per_second)
        # Within a repeat, where they stand next to each other: a machine that is slow for a while is slow for both.
        times = median(here / there for here, there in zip(one.cpu_us, best, strict=True))
        numbers = f"{median(one.per_second):>10,.0f}{median(one.cpu_us):>8.1f}{times:>8.1f}{batch:>9}"
        print(f"{one.name:<42}{numbers}   {each}")


async def see_hangs(cluster: Cluster) -> None:
    url = cluster.url()
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    await pool.fetchval("SELECT 1")
    ours, theirs = await asyncpg_connection(url), await psycopg_connection(url)
    cluster.pause()
    print(f"\nthe server stopped, one second given to{'':<28}over after")
    hung = [
        await see("a statement, asyncpg", within_a_second(ours.fetchval("SELECT 1"))),
        await see("the next one on that connection, asyncpg", within_a_second(ours.fetchval("SELECT 1"))),
        await see("a statement, asyncpg's own pool", within_a_second(pool.fetchval("SELECT 1"))),
        await see("a statement, psycopg", within_a_second(theirs.execute("SELECT 1"))),
        await see("a new connection, asyncpg", within_a_second(asyncpg_connection(url))),
        await see("a new connection, psycopg", within_a_second(psycopg_connection(url))),
    ]
    ours.terminate()
    pool.terminate()
    cluster.resume()
    await asyncio.wait(hung)
    await theirs.close()


async def within_a_second(awaited: Awaitable[Any]) -> Any:
    async with asyncio.timeout(1):
        return await awaited


async def see(what: str, awaited: Awaitable[Any]) -> "asyncio.Future[Any]":
    began = time.perf_counter()
    task = asyncio.ensure_future(awaited)
    over, _ = await asyncio.wait([task], timeout=PATIENCE)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    took = f"{time.perf_counter() - began:.1f} s" if over else f"not in {PATIENCE:g} s"
    print(f"{what:<66}{took:>11}", flush=True)
    return task


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.drivers", description="Compare drivers of PostgreSQL.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="of one measurement")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kind", choices=KINDS, default=DEBIAN, help=", ".join(KINDS))
    asked = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("The bench needs two cores: one for the driver, one for the server.")
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(prefix="watchword-bench-") as folder:
        cluster = Cluster(Path(folder, "postgres.log"), asked.kind, dies_with=os.getpid()).make().start()
        os.sched_setaffinity(0, {0})  # the server stays where it was started
        try:
            uvloop.run(run(cluster, asked))
        finally:
            cluster.remove()


async def run(cluster: Cluster, asked: argparse.Namespace) -> None:
    (version,) = cluster.ask("SHOW server_version")[0]
    print(f"PostgreSQL {version}, asyncpg {asyncpg.__version__}, psycopg {psycopg.__version__}, ", end="")
    print(f"{asked.tokens:,} tokens")
    fill(cluster, asked.tokens)
    ids = ids_of(cluster, asked.tokens)
    random.Random(0).shuffle(ids)
    if "drivers" in asked.parts:
        await compare_drivers(cluster.url(), ids, asked)
    if "answers" in asked.parts:
        await compare_answers(cluster.url(), ids, asked)
    if "plans" in asked.parts:
        await compare_plans(cluster, asked)
    if "hangs" in asked.parts:
        await see_hangs(cluster)


if __name__ == "__main__":
    main()

"""`python -m bench.postgres`: what a request costs on PostgreSQL, against the bare answer, against one query a request,
and against `pgbench`; and how soon a revoked token is refused by another instance.

A private server that flushes to a real disk, on the core of the load; Watchword, or `pgbench` in its place, on the
other.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil

from bench.__main__ import WARM_SECONDS, need_disk, prove
from bench.cases import CASES, CREATE, REVOKE, Case
from bench.contenders import ADMIN, ON_DATABASE, ONE_BY_ONE, ROOT, SERVER_CORE, Contender
from bench.load import CONNECTIONS, LOAD_CORE, measure, need_programs
from bench.population import nobody, populate
from bench.report import Results, table, verdict_lines, verdicts
from tests.support.postgres import DEBIAN, Cluster, Home, programs

SIZES = (1_000, 1_000_000)
LEAST_OF_SINGLE = 2.0
LEAST_OF_PGBENCH = 0.5
REVOCATIONS = 300
CLIENTS = (1, 4, CONNECTIONS)

Pairs = dict[int, list[tuple[float, float]]]
"""By the number of clients: creates a second, and `pgbench`'s inserts."""

_TABLE = "CREATE TABLE plain (id text PRIMARY KEY, name text, actor text, made bigint, ends bigint)"
# Without colons, which `pgbench` takes for variables.
_INSERT = "INSERT INTO plain VALUES (concat(gen_random_uuid()), 'a token', 'somebody', 1767225600000, 1)"


def main() -> None:
    asked = _arguments()
    need_programs()
    need_disk(Path(tempfile.gettempdir()))
    cases = [case for case in CASES if case.name in asked.rows]
    with tempfile.TemporaryDirectory(prefix="watchword-bench-") as folder, ExitStack() as stack:
        cluster = stack.enter_context(bench_cluster(Path(folder)))
        results, pairs = run(asked, cases, cluster, Path(folder))
        refusals = refuse(cluster, Path(folder) / "two") if asked.refusals else []
    said = [*verdicts(results), *_more(results, pairs)]
    print(table(results))
    for clients, rates in pairs.items():
        ours, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"\n{clients} clients: {ours:,.0f} creates a second; pgbench, one row each: {theirs:,.0f}")
    if refusals:
        print(f"\nFrom asking for a revocation until another instance refused: {_spread(refusals)}")
    print(f"\n{verdict_lines(said)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-postgres.json"
    runs = [{"of": key, "measured": [asdict(one) for one in measured]} for key, measured in results.runs.items()]
    kept = {"runs": runs, "pgbench": pairs, "refusal_ms": refusals, "laws": said}
    file.write_text(json.dumps(kept, indent=1) + "\n")
    if asked.strict and not all(holds for _, holds in said):
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    rows = [case.name for case in CASES]
    parser = argparse.ArgumentParser(prog="python -m bench.postgres", description="Measure on PostgreSQL.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of one measurement")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="TOKENS", help="of the stores")
    parser.add_argument("--rows", nargs="+", choices=rows, default=rows, metavar="ROW", help=", ".join(rows))
    parser.add_argument("--refusals", type=int, default=REVOCATIONS, help="revocations that are timed")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a law does not hold")
    return parser.parse_args()


class bench_cluster:  # noqa: N801 - used as a function
    """A server that flushes, with room for the store in memory, as one that is looked after has."""

    def __init__(self, folder: Path) -> None:
        settings = {"fsync": "on", "shared_buffers": "1GB", "max_wal_size": "4GB"}
        self.cluster = Cluster(folder / "postgres.log", settings=settings)

    def __enter__(self) -> Cluster:
        self.cluster.make().start()
        assert self.cluster.process is not None
        main = psutil.Process(self.cluster.process.pid)
        for process in (main, *main.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # one that only helped it start
                process.cpu_affinity([int(LOAD_CORE)])
        return self.cluster

    def __exit__(self, *_: object) -> None:
        self.cluster.remove()


def run(asked: argparse.Namespace, cases: list[Case], cluster: Cluster, folder: Path) -> tuple[Results, Pairs]:
    results, pairs = Results(), Pairs()
    cluster.ask(_TABLE)
    with ExitStack() as stack:
        contenders = [stack.enter_context(one) for one in _contenders(sorted(asked.sizes), cluster, folder)]
        for repeat, case in itertools.product(range(asked.repeats), cases):
            weight, *_ = [prove(one, case) for one in contenders if one.is_watchword]
            for contender in contenders:
                if contender.name == ONE_BY_ONE and case.name != "verify":
                    continue
                if repeat == 0 and not case.once:
                    measure(contender, case, weight=weight, seconds=WARM_SECONDS)
                measured = measure(contender, case, weight=weight, seconds=asked.seconds)
                results.add((case.name, contender.name, contender.size), measured)
                print(f"{case.name}, {contender.label}: {measured.per_second:,.0f} a second", file=sys.stderr)
            if case.name == "create":
                smallest = next(one for one in contenders if one.name == ON_DATABASE)
                for clients in CLIENTS:
                    pair = _beside(smallest, case, cluster, clients, asked.seconds, folder)
                    pairs.setdefault(clients, []).append(pair)
                    print(f"create beside pgbench, {clients} clients: {pair[0]:,.0f}, {pair[1]:,.0f}", file=sys.stderr)
    return results, pairs


def _beside(
    contender: Contender, case: Case, cluster: Cluster, clients: int, seconds: int, folder: Path
) -> tuple[float, float]:
    """Creates a second, and `pgbench`'s inserts, of so many clients each."""
    made = measure(contender, case, weight=0, seconds=seconds, connections=clients)
    return made.per_second, _pgbench(cluster, clients, seconds, folder)


def _contenders(sizes: list[int], cluster: Cluster, folder: Path) -> Iterator[Contender]:
    (folder / "bare").mkdir()
    yield Contender("bare-granian", folder / "bare", nobody())
    for name, size in [*((ON_DATABASE, size) for size in sizes), (ONE_BY_ONE, sizes[0])]:
        own = folder / f"{name}-{size}"
        settings = settings_of(Home(cluster, own))
        yield Contender(name, own, populate(own / "data", size, settings), size, settings)


def settings_of(home: Home) -> dict[str, str]:
    return {
        "database_url": home.url,
        "database_schema": home.schema,
        "master_key_file": str(home.key_file),
        "local_mode": "on",
    }


def _pgbench(cluster: Cluster, clients: int, seconds: int, folder: Path) -> float:
    """Durable inserts a second of as many clients, in Watchword's place."""
    script = folder / "insert.sql"
    script.write_text(f"{_INSERT};\n")
    address = ["-h", "127.0.0.1", "-p", str(cluster.port), "-U", "ww", "ww"]
    words = ["-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", str(seconds), "-f", str(script)]
    program = ["taskset", "-c", SERVER_CORE, str(programs(DEBIAN) / "pgbench")]
    done = subprocess.run([*program, *words, *address], capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])


def refuse(cluster: Cluster, folder: Path) -> list[float]:
    """Milliseconds from asking one instance for a revocation until another refused the token; it is asked at once when
    the first has answered, and once is enough.
    """
    settings = settings_of(Home(cluster, folder))
    population = populate(folder / "0" / "data", 1_000, settings)
    (folder / "1").mkdir()
    taken = []
    with (
        Contender(ON_DATABASE, folder / "0", population, 1_000, settings) as one,
        Contender(ON_DATABASE, folder / "1", population, 1_000, settings) as other,
        httpx.Client() as client,
    ):
        for number in range(REVOCATIONS):
            wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_DAY", "name": f"r {number}"}
            made = one.ask(CREATE, {"input": wanted})["createAccessToken"]
            bearer = {"Authorization": f"Bearer {made['accessToken']}"}
            assert client.get(f"{other.url}/auth", headers=bearer).status_code == 204
            body = {"query": REVOKE, "variables": {"id": made["metadata"]["id"]}}
            began = time.perf_counter()
            told = client.post(f"{one.url}/api/graphql", json=body, headers={"X-Service-Actor": ADMIN}).json()
            assert told == {"data": {"revokeAccessToken": True}}, told
            assert client.get(f"{other.url}/auth", headers=bearer).status_code == 401
            taken.append((time.perf_counter() - began) * 1000)
    return taken


def _spread(taken: list[float]) -> str:
    cuts = statistics.quantiles(taken, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, of {len(taken)}"


def _more(results: Results, pairs: Pairs) -> list[tuple[str, bool]]:
    said = []
    sizes = [size for case, name, size in results.runs if (case, name) == ("verify", ONE_BY_ONE)]
    for size in sizes:
        shared, single = (results.runs["verify", name, size] for name in (ON_DATABASE, ONE_BY_ONE))
        factor = statistics.median(a.per_second / b.per_second for a, b in zip(shared, single, strict=True))
        said.append((f"verify by shared reads: {factor:.2f} times one query a request", factor >= LEAST_OF_SINGLE))
    for clients, rates in pairs.items():
        share = statistics.median(ours / theirs for ours, theirs in rates)
        said.append((f"create, {clients} clients: {share:.2f} of pgbench's inserts", share >= LEAST_OF_PGBENCH))
    return said


if __name__ == "__main__":
    main()

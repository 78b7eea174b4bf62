"""`python -m bench postgres`: what a request costs on PostgreSQL, against the bare answer, against one query a request,
and against `pgbench`; what confirmed reads cost; and how soon a revoked token is refused by another instance.

A private server that flushes to a real disk, on the core of Watchword, or of `pgbench` in its place: the processor time
of a request is that of both. The load has the other core.
"""

import argparse
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import httpx
import psutil

from bench.cases import CASES, CREATE, END, MAKE, REVOKE, VERIFY, Case, case
from bench.contenders import ADMIN, BARE, ON_DATABASE, ONE_BY_ONE, SERVER_CORE, Contender, cpu_seconds
from bench.load import CONNECTIONS, Measured, measure
from bench.population import populate
from bench.report import Law, Report, Results, cost, finish, ratio
from bench.rounds import arguments, bare_ones, progress, ready, run
from tests.support.postgres import DEBIAN, Cluster, Home, programs

SIZES = (1_000, 1_000_000)
LEAST_SHARE = 0.4
LEAST_OF_SINGLE = 2.0
MOST_COST = {MAKE: 450, END: 400}
"""Microseconds of processor time, the database's included."""
LEAST_OF_SMALL = 0.67
REVOCATIONS = 300
PGBENCH = "pgbench"
LEAST_CONFIRMED = 0.6
MANY = 256
"""Clients of confirmed reads, beside the usual number. The more wait together, the less a confirmation costs each."""
ALONE = 1
"""Clients, beside the usual many."""

_TABLE = "CREATE TABLE plain (id text PRIMARY KEY, name text, actor text, made bigint, ends bigint)"
# Without colons, which `pgbench` takes for variables.
_INSERT = "INSERT INTO plain VALUES (concat(gen_random_uuid()), 'a token', 'somebody', 1767225600000, 1)"


def main() -> None:
    rows = [one.name for one in CASES]
    parser = arguments("postgres", __doc__ or "", repeats=5, sizes=SIZES)
    parser.add_argument("--rows", nargs="+", choices=rows, default=rows, metavar="ROW", help=", ".join(rows))
    parser.add_argument("--refusals", type=int, default=REVOCATIONS, help="revocations that are timed")
    asked = parser.parse_args()
    sizes = sorted(asked.sizes)
    with ready(asked) as folder, ExitStack() as stack:
        cluster = stack.enter_context(bench_cluster(folder))
        cluster.ask(_TABLE)
        entered = [stack.enter_context(one) for one in _contenders(sizes, cluster, folder)]
        alone = next(one for one in entered if one.name == ON_DATABASE)
        extras = {
            f"{ON_DATABASE}, one client": partial(_create_alone, alone),
            f"{PGBENCH}, one client": partial(_pgbench, cluster, folder, ALONE),
            PGBENCH: partial(_pgbench, cluster, folder, CONNECTIONS),
        }

        def takes(contender: Contender, row: Case) -> bool:
            return contender.name != ONE_BY_ONE or row.name == VERIFY

        results = run(entered, asked.rows, asked, extras={MAKE: extras}, takes=takes)
        if VERIFY in asked.rows:
            compare_reads(folder, asked, results)
        refusals = refuse(cluster, folder / "two", asked.refusals) if asked.refusals else []
    report = Report("postgres", "PostgreSQL, on the same core", laws(results, asked.rows, sizes), results,
                    [_spread(refusals)] if refusals else [], {"refusal_ms": refusals})  # fmt: skip
    finish(report, asked)


def laws(results: Results, rows: list[str], sizes: list[int]) -> list[Law]:
    said = []
    small, large = sizes[0], sizes[-1]
    if VERIFY in rows:
        for size in sizes:
            name = f"verify, PostgreSQL, {size:,} tokens ÷ bare answer"
            said.append(ratio(results, name, (VERIFY, ON_DATABASE, size), (VERIFY, BARE, None), least=LEAST_SHARE))
        for clients in (CONNECTIONS, MANY):
            confirmed, plain = ((VERIFY, _reads(mode, clients), None) for mode in ("confirmed", "primary"))
            name = f"verify, {clients} clients: confirmed reads ÷ reads of the primary, by the rate"
            least = LEAST_CONFIRMED if clients == MANY else None
            said.append(Law(name, results.ratios(confirmed, plain), least=least))
        ours, single = ((VERIFY, name, small) for name in (ON_DATABASE, ONE_BY_ONE))
        said.append(ratio(results, "verify ÷ one query a request", ours, single, least=LEAST_OF_SINGLE))
    if MAKE in rows:
        name = f"create, {CONNECTIONS} clients ÷ pgbench's inserts"
        over, under = (MAKE, ON_DATABASE, small), (MAKE, PGBENCH, None)
        said.append(ratio(results, name, over, under))
        alone, theirs = ((MAKE, f"{who}, one client", None) for who in (ON_DATABASE, PGBENCH))
        said.append(ratio(results, "create, one client ÷ pgbench's inserts", alone, theirs))
    for row, most in MOST_COST.items():
        if row in rows:
            said.append(cost(results, f"{row}, PostgreSQL, processor time", (row, ON_DATABASE, small), most))
    if small != large:
        for row in rows:
            grown, first = ((row, ON_DATABASE, size) for size in (large, small))
            said.append(
                ratio(results, f"{row}, PostgreSQL: {large:,} tokens ÷ {small:,}", grown, first, least=LEAST_OF_SMALL)
            )
    return said


def compare_reads(folder: Path, asked: argparse.Namespace, results: Results) -> None:
    """Verifications with and without confirmed reads, on one primary with one standby that must confirm."""
    size = min(asked.sizes)
    with bench_cluster(folder / "replicated") as primary, ExitStack() as stack:
        standby = primary.standby(folder / "standby.log")
        stack.callback(standby.remove)
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'")
        primary.ask("SELECT pg_reload_conf()")
        pair = []
        for mode in ("primary", "confirmed"):
            own = folder / f"reads-{mode}"
            settings = settings_of(Home(primary, own)) | {"database_reads": mode}
            population = populate(own / "data", size, settings)
            pair.append((mode, stack.enter_context(Contender(ON_DATABASE, own, population, size, settings))))
        for _ in range(asked.repeats):
            for clients in (CONNECTIONS, MANY):
                for mode, contender in pair:
                    found = measure(contender, case(VERIFY), weight=0, seconds=asked.seconds, connections=clients)
                    results.add((VERIFY, _reads(mode, clients), None), found)
                    progress(f"verify, {_reads(mode, clients)}: {found.per_second:,.0f} a second")


def _reads(mode: str, clients: int) -> str:
    return f"{ON_DATABASE} with a standby, reads {mode}, {clients} clients"


class bench_cluster:  # noqa: N801 - used as a function
    """A server that flushes, with room for the store in memory, as one that is looked after has."""

    def __init__(self, folder: Path) -> None:
        settings = {"fsync": "on", "shared_buffers": "1GB", "max_wal_size": "4GB"}
        folder.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(folder / "postgres.log", settings=settings)

    def __enter__(self) -> Cluster:
        self.cluster.make().start()
        for process in processes_of(self.cluster):
            with suppress(psutil.NoSuchProcess):  # one that only helped it start
                process.cpu_affinity([int(SERVER_CORE)])
        return self.cluster

    def __exit__(self, *_: object) -> None:
        self.cluster.remove()


def processes_of(cluster: Cluster) -> list[psutil.Process]:
    assert cluster.process is not None
    main = psutil.Process(cluster.process.pid)
    return [main, *main.children(recursive=True)]


def used_by(cluster: Cluster) -> float:
    """Processor seconds so far, those of backends that have gone included."""
    main, *others = processes_of(cluster)
    gone = main.cpu_times()
    return cpu_seconds([main, *others]) + gone.children_user + gone.children_system


def _contenders(sizes: list[int], cluster: Cluster, folder: Path) -> Iterator[Contender]:
    yield from bare_ones(folder)
    for name, size in [*((ON_DATABASE, size) for size in sizes), (ONE_BY_ONE, sizes[0])]:
        progress(f"filling a store with {size:,} tokens")
        own = folder / f"{name}-{size}"
        settings = settings_of(Home(cluster, own))
        population = populate(own / "data", size, settings)
        yield Contender(name, own, population, size, settings, beside=partial(used_by, cluster))


def _create_alone(contender: Contender, seconds: int) -> Measured:
    return measure(contender, case(MAKE), weight=0, seconds=seconds, connections=ALONE)


def settings_of(home: Home) -> dict[str, str]:
    return {
        "database_url": home.url,
        "database_schema": home.schema,
        "master_key_file": str(home.key_file),
        "local_mode": "on",
    }


def _pgbench(cluster: Cluster, folder: Path, clients: int, seconds: int) -> Measured:
    """Durable inserts of as many clients, in Watchword's place."""
    script = folder / "insert.sql"
    script.write_text(f"{_INSERT};\n")
    address = ["-h", "127.0.0.1", "-p", str(cluster.port), "-U", "ww", "ww"]
    words = ["-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", str(seconds), "-f", str(script)]
    program = ["taskset", "-c", SERVER_CORE, str(programs(DEBIAN) / "pgbench")]
    before = used_by(cluster)
    done = subprocess.run([*program, *words, *address], capture_output=True, text=True, check=True)
    told = {
        line.split(" = ")[0]: float(line.split(" = ")[1].split()[0])
        for line in done.stdout.splitlines()
        if " = " in line
    }
    if "tps" not in told:
        raise SystemExit(f"pgbench came to nothing in {seconds} s: give it more --seconds.")
    rate, average = told["tps"], told["latency average"]
    # pgbench reports no percentiles; its own processor time is not the server's.
    return Measured(rate, (used_by(cluster) - before) / (rate * seconds) * 1_000_000, average, average)


def refuse(cluster: Cluster, folder: Path, count: int) -> list[float]:
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
        for number in range(count):
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
    said = f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, of {len(taken)}"
    return f"From asking for a revocation until another instance refused: {said}"


if __name__ == "__main__":
    main()

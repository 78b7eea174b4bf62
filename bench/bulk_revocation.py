"""`python -m bench bulk_revocation`: a hundred thousand tokens revoked by one call, on each store: how long
that takes, what others' verification and creation get meanwhile, and that every instance rejects each of a sample at
its next request.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from bench.cases import CREATE, VERIFY, Case, case
from bench.contenders import ADMIN, ON_DATABASE, WATCHWORD, Contender
from bench.load import measure
from bench.population import Holder, Population, populate, text_of
from bench.postgres import bench_cluster, settings_of
from bench.report import Law, Report, finish
from bench.rounds import keeping, progress, ready
from tests.support.postgres import Home

SIZE = 200_000
ENDED = 100_000
"""Of those, live ones whose name begins like this."""
PREFIX = "token 1"
SAMPLE = 1_000
INSTANCES = 3
END = """mutation ($input: RevokeAccessTokensInput!) {
  revokeAccessTokens(input: $input) { count digest revokedAt } }"""


@dataclass(slots=True)
class Slices:
    """Verifications a second, in slices of a second, each with when it began and ended."""

    taken: list[tuple[float, float, float]] = field(default_factory=list)

    def within(self, start: float, end: float) -> list[float]:
        return [rate for began, ended, rate in self.taken if began >= start and ended <= end]


@dataclass(frozen=True, slots=True)
class Ended:
    seconds: float
    verify: float
    """Meanwhile, of before."""
    slices: int
    longest_create: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench bulk_revocation", description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--rounds", type=int, default=1)
    keeping(parser)
    asked = parser.parse_args()
    laws, more = [], {}
    for store in asked.stores:
        ended = []
        for number in range(asked.rounds):
            with ready(asked) as folder:
                ended.append(run(store, folder))
            progress(f"{store}, round {number + 1}: {ended[-1]}")
        more[store] = [asdict(one) for one in ended]
        laws += [
            Law(f"{store}: {ENDED:,} of {SIZE:,} ended by one call in", [one.seconds for one in ended], unit=" s"),
            Law(f"{store}: verification meanwhile ÷ before", [one.verify for one in ended]),
            Law(f"{store}: the longest create beside it", [one.longest_create for one in ended], unit=" s"),
        ]
    note = f"{SAMPLE:,} of those that were ended were then refused by every instance."
    finish(
        Report("bulk_revocation", f"{ENDED:,} tokens ended by one call", laws, notes=[note], more={"rounds": more}),
        asked,
    )


def run(store: str, folder: Path) -> Ended:
    with instances(store, folder) as (servers, population):
        ended, kept = _parted(population)
        asked, other = servers[0], servers[-1]
        other.population.callers = kept
        verify = case(VERIFY)
        measure(other, verify, weight=0, seconds=2)
        slices, done = Slices(), threading.Event()
        watching = threading.Thread(target=_slice, args=(other, verify, slices, done))
        creates: list[tuple[float, float]] = []
        making = threading.Thread(target=_create, args=(other, creates, done))
        watching.start()
        making.start()
        time.sleep(5)
        began = time.perf_counter()
        told = _end(asked)
        ended_at = time.perf_counter()
        time.sleep(4)
        done.set()
        watching.join()
        making.join()
        assert told["count"] == ENDED, told
        _refused(servers, ended)
        before = statistics.median(slices.within(0, began))
        meanwhile = slices.within(began - 0.5, ended_at + 0.5) or [float("nan")]
        waits = [took for at, took in creates if began - took <= at <= ended_at]
        during = statistics.median(meanwhile)
        return Ended(ended_at - began, during / before, len(meanwhile), max(waits, default=0.0))


@contextmanager
def instances(store: str, folder: Path) -> Iterator[tuple[list[Contender], Population]]:
    with ExitStack() as stack:
        if store == "sqlite":
            own = folder / "sqlite"
            population = populate(own / "data", SIZE)
            yield [stack.enter_context(Contender(WATCHWORD, own, population, SIZE))], population
            return
        cluster = stack.enter_context(bench_cluster(folder))
        settings = settings_of(Home(cluster, folder / "home"))
        population = populate(folder / "0" / "data", SIZE, settings)
        servers = []
        for number in range(INSTANCES):
            (folder / str(number)).mkdir(exist_ok=True)
            one = Contender(ON_DATABASE, folder / str(number), population, SIZE, settings)
            servers.append(stack.enter_context(one))
        yield servers, population


def _parted(population: Population) -> tuple[list[str], list[Holder]]:
    """Texts of a sample of those that will be ended, and the callers that stay."""
    numbers = [number for number in range(SIZE) if str(number).startswith("1") and number % 10 != 9]
    step = len(numbers) // SAMPLE
    sample = [text_of(number) for number in numbers[::step]][:SAMPLE]
    kept = [c for c in population.callers if not c.token.removeprefix("bench").lstrip("0").startswith("1")]
    return sample, kept


def _slice(server: Contender, verify: Case, slices: Slices, done: threading.Event) -> None:
    while not done.is_set():
        began = time.perf_counter()
        rate = measure(server, verify, weight=0, seconds=1).per_second
        slices.taken.append((began, time.perf_counter(), rate))


def _create(server: Contender, creates: list[tuple[float, float]], done: threading.Event) -> None:
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "beside"}
    body = {"query": CREATE, "variables": {"input": wanted}}
    with httpx.Client(timeout=60, headers={"X-Service-Actor": ADMIN}) as client:
        while not done.wait(0.1):
            began = time.perf_counter()
            told = client.post(f"{server.url}/api/graphql", json=body).json()
            if "errors" in told:
                print(f"a create beside it: {told['errors'][0]['extensions']['reason']}", file=sys.stderr)
            creates.append((began, time.perf_counter() - began))


def _end(server: Contender) -> dict[str, int]:
    wanted = {"filters": [{"field": "name", "condition": "START_WITH", "value": PREFIX}], "dryRun": False}
    body = {"query": END, "variables": {"input": wanted}}
    told = httpx.post(f"{server.url}/api/graphql", json=body, headers={"X-Service-Actor": ADMIN}, timeout=120).json()
    assert "errors" not in told, told
    receipt: dict[str, int] = told["data"]["revokeAccessTokens"]
    return receipt


def _refused(servers: list[Contender], tokens: list[str]) -> None:
    for server in servers:
        with httpx.Client(timeout=30) as client:
            for token in tokens:
                answer = client.get(f"{server.url}/auth", headers={"Authorization": f"Bearer {token}"})
                assert answer.status_code == 401, (server.label, answer.status_code)


if __name__ == "__main__":
    main()

"""What a start costs, and what a worker holds: `python -m bench start`.

Commands against an interpreter that does nothing, by `hyperfine`; the service from its start until it is ready and from
SIGTERM to its end, on a warm disk; the memory of a worker on a store of many tokens, after verifications, lists and
creates. Wall times are of this machine as it is; processor time is what a start costs whoever makes many.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil

from bench.contenders import is_engine, is_tracker
from bench.population import Population, populate

RESULT = Path(__file__).with_name("results") / "start.json"
ADMIN = "urn:li:corpuser:admin"
INTERPRETER = [sys.executable, "-c", "pass"]
WATCHWORD = [sys.executable, "-m", "watchword"]
CLIENTS = 16
LIST = """query ($actor: String!) {
  listAccessTokens(input: {count: 100, filters: [{field: "actorUrn", value: $actor}]}) { total tokens { id name } } }"""
CREATE = """mutation ($actor: String!) {
  createAccessToken(input: {type: PERSONAL, actorUrn: $actor, duration: ONE_HOUR, name: "bench"}) {
    accessToken metadata { id } } }"""


@dataclass(frozen=True, slots=True)
class Law:
    name: str
    measured: float
    bar: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured < self.bar


class Service:
    """`watchword serve` on a data folder, watched while it starts and stops."""

    def __init__(self, data: Path, *flags: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._used = _children_seconds()
        began = time.perf_counter()
        command = [*WATCHWORD, "serve", "--port", str(self.port), "--data-dir", str(data), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment())
        assert self.process.stdout is not None
        if b" listens at " not in self.process.stdout.readline():
            raise SystemExit(f"It did not start: {' '.join(command)}")
        self.announced = time.perf_counter() - began
        httpx.get(f"{self.url}/health/ready").raise_for_status()
        self.ready = time.perf_counter() - began

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if not is_engine(child) and not is_tracker(child)]

    def stop(self) -> tuple[float, float]:
        """Seconds until it had ended, and what all of it took of the processor."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            raise SystemExit("It did not stop as it should.")
        return time.perf_counter() - began, _children_seconds() - self._used


@contextmanager
def served(data: Path, *flags: str) -> Iterator[Service]:
    service = Service(data, *flags)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()


def commands(runs: int, data: Path) -> list[dict[str, float | str]]:
    """Each command's wall time and processor time in milliseconds, and both against the interpreter's own."""
    need_hyperfine()
    with served(data) as service, tempfile.TemporaryDirectory() as folder:
        asks = ["--as", ADMIN, "--url", service.url]
        tried = {
            "python -c pass": INTERPRETER,
            "watchword --help": [*WATCHWORD, "--help"],
            "watchword token --help": [*WATCHWORD, "token", "--help"],
            "watchword whoami": [*WATCHWORD, "whoami", *asks],
            "watchword token list": [*WATCHWORD, "token", "list", *asks],
        }
        exported = Path(folder, "hyperfine.json")
        subprocess.run(
            ["hyperfine", "--warmup", "2", "--runs", str(runs), "--export-json", str(exported)]
            + [word for name, command in tried.items() for word in ("-n", name, " ".join(command))],
            env=_environment(),
            capture_output=True,
            check=True,
        )
        results = json.loads(exported.read_text())["results"]
    rows = [
        {
            "name": one["command"],
            "median_ms": 1000 * one["median"],
            "min_ms": 1000 * one["min"],
            "cpu_ms": 1000 * (one["user"] + one["system"]),
        }
        for one in results
    ]
    return [{**row, "of_python": row["median_ms"] / rows[0]["median_ms"]} for row in rows]


def starts(runs: int, data: Path) -> dict[str, list[float]]:
    """Seconds, a list of runs each."""
    measured: dict[str, list[float]] = {"announced": [], "ready": [], "stopped": [], "processor": []}
    Service(data).stop()  # warms the disk
    for _ in range(runs):
        service = Service(data)
        measured["announced"].append(service.announced)
        measured["ready"].append(service.ready)
        stopped, used = service.stop()
        measured["stopped"].append(stopped)
        measured["processor"].append(used)
    return measured


def memory(data: Path, population: Population, requests: int, workers: int) -> dict[str, float]:
    """MiB of the largest worker, before and after this many requests of each kind."""
    with served(data, "--workers", str(workers)) as service:
        fresh = max(_mib(worker.memory_info().rss) for worker in service.workers())
        with httpx.Client(base_url=service.url, timeout=60, limits=httpx.Limits(max_connections=CLIENTS)) as http:
            chosen = random.Random(requests)

            def verify() -> httpx.Response:
                token = chosen.choice(population.callers).token
                return http.get("/auth", headers={"Authorization": f"Bearer {token}"})

            def ask(text: str) -> httpx.Response:
                actor = chosen.choice(population.callers).actor
                body = {"query": text, "variables": {"actor": actor}}
                return http.post("/api/graphql", json=body, headers={"X-Service-Actor": ADMIN})

            _repeat(verify, requests)
            _repeat(lambda: ask(LIST), requests // 10)
            _repeat(lambda: ask(CREATE), requests // 10)
        ended = [(one.memory_info().rss, one.memory_full_info().pss, _peak(one.pid)) for one in service.workers()]
    return {
        "tokens": population.size,
        "workers": workers,
        "fresh_rss_mib": fresh,
        "rss_mib": max(_mib(rss) for rss, _, _ in ended),
        "proportional_mib": max(_mib(pss) for _, pss, _ in ended),
        "peak_rss_mib": max(_mib(peak) for _, _, peak in ended),
    }


def _repeat(do: Callable[[], httpx.Response], times: int) -> None:
    def once(_: int) -> None:
        answer = do()
        if not answer.is_success or b'"errors"' in answer.content:
            raise SystemExit(f"It was not answered as it should be: {answer.status_code} {answer.text[:200]}")

    with ThreadPoolExecutor(CLIENTS) as clients:
        for _ in clients.map(once, range(times)):
            pass


def _peak(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _mib(size: float) -> float:
    return size / 2**20


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    """As a user has it: nothing set, and bytecode kept."""
    dropped = ("WATCHWORD_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def need_hyperfine() -> None:
    if shutil.which("hyperfine") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "hyperfine"]):
            subprocess.run(["apt-get", *words], env=environment, capture_output=True, check=False)
    if shutil.which("hyperfine") is None:
        raise SystemExit("The bench needs hyperfine: apt-get install hyperfine")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench start", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each command and of each start")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="in the store whose worker is weighed")
    parser.add_argument(
        "--requests", type=int, default=20_000, help="verifications before it is; a tenth of the others"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a law does not hold")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="watchword-start-") as folder:
        data = Path(folder, "data")
        population = populate(data, asked.tokens)
        ran = commands(asked.runs, data)
        started = starts(asked.runs, data)
        weighed = memory(data, population, asked.requests, asked.workers)
    laws = [
        Law("watchword --help, median", float(ran[1]["median_ms"]), 250, "ms"),
        Law("ready, median", 1000 * statistics.median(started["ready"]), 700, "ms"),
        Law("memory of a worker", weighed["rss_mib"], 90, "MiB"),
    ]
    _print(ran, started, weighed, laws)
    RESULT.parent.mkdir(exist_ok=True)
    result = {
        "commands": ran,
        "starts": started,
        "memory": weighed,
        "laws": [{**asdict(law), "holds": law.holds} for law in laws],
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nwritten to {RESULT}")
    if asked.strict and not all(law.holds for law in laws):
        raise SystemExit(1)


def _print(
    ran: list[dict[str, float | str]], started: dict[str, list[float]], weighed: dict[str, float], laws: list[Law]
) -> None:
    print("| command | median ms | min ms | CPU ms | of python |\n|---|---|---|---|---|")
    for row in ran:
        print(
            f"| `{row['name']}` | {row['median_ms']:.0f} | {row['min_ms']:.0f} | {row['cpu_ms']:.0f} "
            f"| {row['of_python']:.1f} |"
        )
    print("\n| `watchword serve` | median ms | min ms |\n|---|---|---|")
    for name, seconds in started.items():
        print(f"| {name} | {1000 * statistics.median(seconds):.0f} | {1000 * min(seconds):.0f} |")
    print("\n| memory | |\n|---|---|")
    for name, value in weighed.items():
        print(f"| {name} | {value:,.0f} |")
    print("\n| law | measured | under | |\n|---|---|---|---|")
    for law in laws:
        verdict = "holds" if law.holds else "DOES NOT HOLD"
        print(f"| {law.name} | {law.measured:.0f} {law.unit} | {law.bar:.0f} {law.unit} | {verdict} |")


if __name__ == "__main__":
    main()

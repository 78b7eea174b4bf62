"""Load: `wrk` on a core of its own, with requests made ready beforehand."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.cases import Case, Request
from bench.contenders import Contender

LOAD_CORE = "1"
CONNECTIONS = 32
SCRIPT = Path(__file__).with_name("load.lua")
MOST_A_SECOND = 4_000
"""Requests made ready for a case whose requests can be sent only once."""


@dataclass(frozen=True, slots=True)
class Measured:
    per_second: float
    cpu_us: float
    """What one request cost the server's processes."""
    p50_ms: float
    p99_ms: float


def need_programs() -> None:
    """`wrk` and `taskset`, installed from Debian's packages when they are not there and we are root."""
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("The bench needs two cores: one for the servers, one for the load.")
    for program, package in (("wrk", "wrk"), ("taskset", "util-linux")):
        if shutil.which(program) is None and os.geteuid() == 0 and shutil.which("apt-get"):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for words in (["update", "-qq"], ["install", "-y", "-qq", package]):
                subprocess.run(["apt-get", *words], env=environment, capture_output=True, check=False)
        if shutil.which(program) is None:
            raise SystemExit(f"The bench needs {program}: apt-get install {package}")


def measure(contender: Contender, case: Case, *, weight: int, seconds: int, connections: int = CONNECTIONS) -> Measured:
    """One case on one contender. A bare one answers so many bytes, and may be asked the same again."""
    population = contender.population
    once = case.once and contender.is_watchword
    path = case.path if contender.is_watchword else f"/{weight}"
    with tempfile.TemporaryDirectory(prefix="watchword-load-") as folder:
        requests, kept = Path(folder, "requests"), Path(folder, "kept")
        ready = case.requests(population, contender.root)
        _write(requests, itertools.islice(ready, seconds * MOST_A_SECOND))
        before = contender.cpu_seconds()
        counted = _wrk(
            contender.url + path,
            seconds,
            connections,
            BENCH_REQUESTS=str(requests),
            BENCH_METHOD=case.method,
            BENCH_LOOK=str(case.look),
            BENCH_EXPECT=case.expect if contender.is_watchword else "",
            BENCH_ONCE="1" if once else "0",
            BENCH_KEEP=str(kept) if once else "",
        )
        used = contender.cpu_seconds() - before
        if once:
            case.settle(population, counted["sent"], kept.read_text().split())
    return Measured(
        per_second=counted["requests"] / counted["microseconds"] * 1_000_000,
        cpu_us=used / counted["requests"] * 1_000_000,
        p50_ms=counted["p50_us"] / 1000,
        p99_ms=counted["p99_us"] / 1000,
    )


def _write(path: Path, requests: Iterable[Request]) -> None:
    with path.open("w") as file:
        file.writelines(f"{request.bearer}\t{request.body}\n" for request in requests)


def _wrk(url: str, seconds: int, connections: int, **environment: str) -> dict[str, int]:
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    done = subprocess.run(
        [*command, "--timeout", "20s", "-s", str(SCRIPT), url],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=True,
    )
    counted: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    if counted["failed"] or counted["wrong"] or not counted["requests"]:
        raise SystemExit(f"{url} was not answered as it should be: {counted} {done.stderr}")
    return counted

"""Load: `wrk` on a core of its own, with requests made ready beforehand; and what it needs of the machine."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from bench.cases import Case, Request
from bench.contenders import LOAD_CORE, Contender

CONNECTIONS = 32
SCRIPT = Path(__file__).with_name("load.lua")
MOST_A_SECOND = 10_000
"""Requests made ready for a case whose requests can be sent only once."""
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


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


def need_disk(folder: Path) -> None:
    """In memory a commit costs nothing, and what is measured would be something else."""
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    above = (folder.resolve(), *folder.resolve().parents)
    kind = next((mounts[str(path)] for path in above if str(path) in mounts), "")
    if kind in IN_MEMORY:
        raise SystemExit(f"--folder must be on a real disk; {folder} is {kind}, which is memory.")


def prove(contender: Contender, case: Case) -> int:
    """Ask once and look at the answer; returns its bytes."""
    request = next(case.requests(contender.population, contender.root))
    headers = {"Authorization": f"Bearer {request.bearer}"}
    if request.body:
        headers["Content-Type"] = "application/json"
    answer = httpx.request(case.method, contender.url + case.path, headers=headers, content=request.body, timeout=30)
    assert case.check(answer), (contender.label, case.name, answer.status_code, answer.text)
    case.settle(contender.population, 1, [])
    return len(answer.content)


def measure(
    contender: Contender,
    case: Case,
    *,
    weight: int,
    seconds: int,
    connections: int = CONNECTIONS,
    cores: str = LOAD_CORE,
) -> Measured:
    """One case on one contender. A bare one returns a fixed number of bytes and allows repeated requests."""
    population = contender.population
    once = case.once and not contender.is_bare
    path = f"/{weight}" if contender.is_bare else case.path
    with tempfile.TemporaryDirectory(prefix="watchword-load-") as folder:
        requests, kept = Path(folder, "requests"), Path(folder, "kept")
        ready = case.requests(population, contender.root)
        _write(requests, itertools.islice(ready, seconds * MOST_A_SECOND))
        before = contender.cpu_seconds()
        counted = wrk(
            contender.url + path,
            seconds,
            connections,
            cores,
            BENCH_REQUESTS=str(requests),
            BENCH_METHOD=case.method,
            BENCH_LOOK=str(case.look),
            BENCH_EXPECT="" if contender.is_bare else case.expect,
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


def wrk(url: str, seconds: int, connections: int, cores: str = LOAD_CORE, **environment: str) -> dict[str, int]:
    """What was counted, with these words for `load.lua`; ends the run when an answer was not the right one."""
    command = ["taskset", "-c", cores, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
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

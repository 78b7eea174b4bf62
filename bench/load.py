"""Load: `wrk` on a core of its own."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.cases import Request
from bench.contenders import Contender

LOAD_CORE = "1"
SCRIPT = Path(__file__).with_name("load.lua")


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


def measure(contender: Contender, request: Request, *, connections: int, seconds: int) -> Measured:
    url = contender.url
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    command += ["--timeout", "20s", "-s", str(SCRIPT)]
    environment = {
        **os.environ,
        "BENCH_METHOD": request.method,
        "BENCH_BODY": request.body,
        "BENCH_HEADERS": "\n".join(f"{name}: {value}" for name, value in request.headers.items()),
    }
    before = contender.cpu_seconds()
    done = subprocess.run(
        [*command, url + request.path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds + 30,
        check=True,
    )
    used = contender.cpu_seconds() - before
    counted = json.loads(done.stdout.splitlines()[-1])
    if counted["failed"] or not counted["requests"]:
        raise SystemExit(f"{request.method} {url}{request.path}: {counted}")
    return Measured(
        per_second=counted["requests"] / counted["microseconds"] * 1_000_000,
        cpu_us=used / counted["requests"] * 1_000_000,
        p50_ms=counted["p50_us"] / 1000,
        p99_ms=counted["p99_us"] / 1000,
    )

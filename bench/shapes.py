"""`python -m bench shapes`: the cost of expensive requests, and their effect on other clients.

Each shape is sent by one caller, over and over on one connection, to a server on a core of its own with 100,000 tokens.
First alone: the processor time of the server's processes, by the kernel's own clock, and how long an answer takes. Then
again beside somebody who verifies a token every few milliseconds: how long *they* wait. A normal request of the same
kind goes through the same two steps, and every shape is held to it. The law: refused, cut off at its deadline, or at
most ten times the normal request.
"""

import argparse
import csv
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Self

from bench.contenders import LOAD_CORE, ROOT, WATCHWORD, Contender, is_engine
from bench.expensive import shapes
from bench.expensive.shape import NORMALS, Callers, Shape, normal_requests
from bench.load import need_disk, need_programs
from bench.population import populate

TOKENS = 100_000
MOST_TIMES = 10.0
ENOUGH_CPU, ENOUGH_TIMES, MOST_SECONDS = 0.15, 100, 3.0
"""One shape is repeated until one of these is reached."""
PROBE_PAUSE = 0.002
SETTINGS = {"trusted_proxies": "127.0.0.0/8", "local_mode": "on", "actor_processor_percent": "0"}
"""One shape is sent over and over: what it costs is asked here, not how soon its sender is refused."""


@dataclass(frozen=True, slots=True)
class Cost:
    name: str
    normal: str
    answer: str
    requests: int
    cpu_ms: float
    wall_ms: float
    others_p50_ms: float
    others_p99_ms: float
    times: float = 1.0
    """By the processor, of the normal request."""

    @property
    def verdict(self) -> str:
        if self.times <= MOST_TIMES:
            return "cheap"
        code = int(self.answer.split()[0])
        return "refused" if code in (400, 401, 404, 413, 414, 431) else "deadline" if code in (408, 503) else "DEAR"


class Line:
    """One connection, opened again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. A server that refuses may close before it has read all."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(request)
        try:
            return self._answer(self._socket)
        except ConnectionResetError:
            self.close()
            return 0, b""

    def _answer(self, connection: socket.socket) -> tuple[int, bytes]:
        got = b""
        while b"\r\n\r\n" not in got:
            more = connection.recv(65_536)
            if not more:
                self.close()
                return 0, b""
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        parts, left = [body], length - len(body)
        while left > 0:
            more = connection.recv(1 << 20)
            if not more:
                break
            parts.append(more)
            left -= len(more)
        if b"connection: close" in lines:
            self.close()
        return int(lines[0].split()[1]), b"".join(parts)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class BackgroundLoad:
    """Another client that verifies a token repeatedly and records the latency."""

    def __init__(self, port: int, request: bytes) -> None:
        self._line, self._request = Line(port), request
        self._over = threading.Event()
        self.waited: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._line.close()

    def _run(self) -> None:
        while True:  # at least once, however short the measurement
            began = time.perf_counter()
            status, _ = self._line.ask(self._request)
            self.waited.append((time.perf_counter() - began) * 1000)
            if status != 204:
                raise SystemExit(f"Somebody else was answered {status} at /auth.")
            if self._over.wait(PROBE_PAUSE):
                return


class CostMeter:
    def __init__(self, server: Contender, callers: Callers, seconds: float) -> None:
        self._server, self._callers, self._seconds = server, callers, seconds
        self._probe = normal_requests()["auth"].make(callers)
        self._clocks = [(~p.pid << 3) | 2 for p in server.processes() if not is_engine(p)]
        """The kernel's clock of the processor time of another process: in nanoseconds, with its ended threads."""

    def cost(self, shape: Shape) -> Cost:
        line = Line(self._server.port)
        if not shape.never_whole:
            line.ask(shape.make(self._callers))  # what the first one pays for all is not measured
        used, walls, (code, body) = self._alone(line, shape)
        with BackgroundLoad(self._server.port, self._probe) as other:
            end = time.monotonic() + self._seconds
            while time.monotonic() < end:
                line.ask(shape.make(self._callers))
        line.close()
        return Cost(
            shape.name,
            shape.normal,
            _shown(code, body),
            len(walls),
            median(used) * 1000,
            median(walls) * 1000,
            median(other.waited),
            quantiles(other.waited, n=100)[98] if len(other.waited) > 1 else other.waited[0],
        )

    def _alone(self, line: Line, shape: Shape) -> tuple[list[float], list[float], tuple[int, bytes]]:
        used, walls, end = list[float](), list[float](), time.monotonic() + MOST_SECONDS
        while True:
            request = shape.make(self._callers)
            before, began = self._used(), time.perf_counter()
            answer = line.ask(request)
            walls.append(time.perf_counter() - began)
            used.append(self._used() - before)
            if sum(used) > ENOUGH_CPU or len(walls) >= ENOUGH_TIMES or time.monotonic() > end:
                return used, walls, answer

    def _used(self) -> float:
        return sum(time.clock_gettime(clock) for clock in self._clocks)


def _shown(code: int, body: bytes) -> str:
    """The status, or the code inside a 200 of GraphQL, and the reason."""
    try:
        told = json.loads(body)
    except ValueError:
        return str(code)
    if not isinstance(told, dict):
        return str(code)
    errors = told.get("errors")
    inner = errors[0]["extensions"] if errors else told.get("error")
    if isinstance(inner, dict):
        return f"{inner['code']} {inner['reason']}"
    return f"{code} {inner}" if inner else str(code)


def measured(meter: CostMeter, wanted: Callable[[str], bool]) -> list[Cost]:
    normals = {key: meter.cost(shape) for key, shape in normal_requests().items()}
    costs = list(normals.values())
    print(table(costs), flush=True)
    for shape in shapes():
        if wanted(shape.name):
            cost = meter.cost(shape)
            cost = Cost(**{**asdict(cost), "times": cost.cpu_ms / normals[shape.normal].cpu_ms})
            costs.append(cost)
            print(_line(cost), flush=True)
    return costs


def table(costs: list[Cost]) -> str:
    head = f"{'shape':<52}{'answer':<28}{'cpu ms':>9}{'times':>8}{'wall ms':>9}{'others p50':>11}{'p99':>8}  {'':<9}of"
    return "\n".join([head, *map(_line, costs)])


def _line(cost: Cost) -> str:
    return (
        f"{cost.name:<52}{cost.answer:<28}{cost.cpu_ms:>9.2f}{cost.times:>8.1f}{cost.wall_ms:>9.2f}"
        f"{cost.others_p50_ms:>11.2f}{cost.others_p99_ms:>8.2f}  {cost.verdict:<9}{NORMALS[cost.normal]}"
    )


def write_rows(costs: list[Cost], file: Path) -> None:
    """Write the lines of docs/explanation/charts/request-costs.csv."""
    with file.open("w", newline="") as out:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(["shape", "answer", "CPU ms", "times", "of", "others p50 ms", "others p99 ms"])
        for cost in costs:
            times = "" if cost.name == NORMALS[cost.normal] else f"{cost.times:.1f}"
            others = (f"{cost.others_p50_ms:.1f}", f"{cost.others_p99_ms:.1f}")
            lines.writerow([cost.name, cost.answer, f"{cost.cpu_ms:.2f}", times, NORMALS[cost.normal], *others])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench shapes", description="Measure what expensive requests cost.")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in the store")
    parser.add_argument("--seconds", type=float, default=0.5, help="beside somebody who verifies tokens")
    parser.add_argument("--only", default="", help="shapes whose name has this in it")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the store: a real disk")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a shape is too dear")
    asked = parser.parse_args()
    need_programs()
    need_disk(asked.folder)
    with tempfile.TemporaryDirectory(prefix="watchword-bench-", dir=asked.folder) as folder:
        population = populate(Path(folder, "data"), asked.tokens)
        with Contender(WATCHWORD, Path(folder), population, population.size, SETTINGS) as server:
            os.sched_setaffinity(0, {int(LOAD_CORE)})
            meter = CostMeter(server, Callers(population.callers[0], server.root), asked.seconds)
            costs = measured(meter, lambda name: asked.only in name)
    dear = [cost for cost in costs if cost.verdict == "DEAR"]
    print(f"\nThe law: refused, cut off at its deadline, or at most {MOST_TIMES:g} times a normal request.")
    print(f"  {'FAILS' if dear else 'holds'}  {len(costs) - len(dear)} of {len(costs)} shapes")
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "shapes.json"
    write_rows(costs, asked.out / "shapes.csv")
    kept = [{**asdict(cost), "verdict": cost.verdict} for cost in costs]
    file.write_text(json.dumps({"tokens": asked.tokens, "shapes": kept}, indent=1) + "\n")
    print(f"\nKept in {file}, and as a table beside it")
    if asked.strict and dear:
        sys.exit(1)


if __name__ == "__main__":
    main()

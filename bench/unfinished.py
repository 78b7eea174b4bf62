"""A row of `python -m bench attack`: memory and `/auth` with 16,000 connections of unfinished headers from one address.

All are opened, one after the other; then `/auth` is measured while the attacker opens those again that were closed.
"""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from bench.cases import VERIFY, case
from bench.contenders import Contender
from bench.load import Measured, measure

NAME = "16,000 connections with 31 kB of unfinished headers"
LEAST = 0.7
CONNECTIONS = 16_000
MOST_MB = 200
AGAIN_A_SECOND = 100
"""Connections that are opened again while `/auth` is measured."""
RETURN_SECONDS = 3.0
_REQUEST = b"GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 31_000
_SPARE_FILES = 500
_FORGET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the worker, in MB."""

    before: float
    peak: float
    held: float
    after: float

    @property
    def holds(self) -> bool:
        return self.peak < MOST_MB

    def __str__(self) -> str:
        return f"RSS {self.before:.0f} MB before, peak {self.peak:.0f}, held {self.held:.0f}, after {self.after:.0f}"


def beside_unfinished(server: Contender, seconds: int) -> tuple[list[Measured], list[Measured], Memory]:
    """Verification alone and beside them."""
    need_files()
    alone = measure(server, case(VERIFY), weight=0, seconds=seconds)
    before = _resident(server)
    (worker,) = server.workers()
    Path(f"/proc/{worker.pid}/clear_refs").write_text(_FORGET_PEAK)
    held = [_unfinished(server.port) for _ in range(CONNECTIONS)]
    with _opening_again(server.port, held):
        beside = measure(server, case(VERIFY), weight=0, seconds=seconds)
        while_held = _resident(server)
    for connection in held:
        connection.close()
    time.sleep(RETURN_SECONDS)
    return [alone], [beside], Memory(before, _peak(worker.pid), while_held, _resident(server))


def need_files() -> None:
    """Call before the server starts, which inherits the limit."""
    wanted = CONNECTIONS + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < wanted:
        raise SystemExit(f"The bench needs {wanted:,} open files; the hard limit is {hard:,}.")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@contextmanager
def _opening_again(port: int, held: list[socket.socket]) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        for number in cycle(range(len(held))):
            if over.wait(1 / AGAIN_A_SECOND):
                return
            held[number].close()
            held[number] = _unfinished(port)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _unfinished(port: int) -> socket.socket:
    connection = socket.socket()
    connection.settimeout(30)
    with suppress(OSError):
        connection.connect(("127.0.0.1", port))
        connection.setblocking(False)
        connection.send(_REQUEST)
    return connection


def _resident(server: Contender) -> float:
    return sum(server.resident_mib()) * 1024**2 / 1e6


def _peak(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6

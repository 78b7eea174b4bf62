"""Free loopback ports, below the range from which the kernel takes those of outgoing connections."""

import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0)
_run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
_ports = itertools.cycle(range(12_000 + _worker * 1_000, 13_000 + _worker * 1_000))
for _ in range(_run * 7 % 1_000):  # two runs on one machine start at different places
    next(_ports)


def free_port() -> int:
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free port for a program that takes long to listen: no other run is given it meanwhile. Java lets two programs
    listen at one port, and each gets some of the other's requests.
    """
    port = free_port()
    with socket.socket() as holder:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            holder.setsockopt(socket.SOL_SOCKET, option, 1)
        holder.bind(("127.0.0.1", port))
        yield port

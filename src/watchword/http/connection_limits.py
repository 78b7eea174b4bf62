"""Limits on what the connections of a worker take. granian limits only their number, so the worker asks the kernel.

`ConnectionShares` limits the part of them that one peer holds. `UnfinishedRequests` limits the memory of unfinished
requests, as `ArrivingBodies` (`requests.py`) limits that of bodies: granian buffers the headers of a request before the
app sees it, and has no limit on their sum. Once there are many connections, the worker asks how much each has sent,
subtracts the requests that the app got from it, and closes those with the largest rest. What a client acknowledges is
no measure: it decides when.
"""

import asyncio
import fcntl
import os
import socket
import stat
import struct
import termios
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from watchword.basics.networks import Network, subscriber_of, within
from watchword.http.requests import Scope

SHARE_CHECK_SECONDS = 1.0
FULL = 0.75
"""The part of a worker's connection slots from which peer shares are enforced."""
PEER_SHARE = 0.5
MAX_HEADERS = 32 * 1024
"""Of one request."""
MAX_UNFINISHED = 10 * 1024 * 1024
"""Bytes of all requests of a worker that are not finished."""
LEAST_BUFFER = 8 * 1024
"""What granian allocates for the first byte of a connection."""
FEW_CONNECTIONS = MAX_UNFINISHED // MAX_HEADERS // 2
"""They cannot reach the limit, nor can twice as many."""
LOOK_SECONDS = 0.25
HURRY_SECONDS = 0.02
"""Instead, while much is unfinished or there are many new connections: thousands arrive in a second."""
MOST_OF_A_CORE = 0.2
"""What looks take of it at most, unless they found too much."""
SLACK = 512
"""For each request, besides its words: separators, escapes in the path, framing of the body and of TLS."""
TLS_SLACK = 4 * 1024
"""For each connection: what a client sends to agree on keys."""
_TCP_INFO_BYTES = 136
_RECEIVED = struct.Struct("=Q")
"""Of `struct tcp_info`: bytes received from the client."""
_RECEIVED_AT = 128
_OPEN_STATES = (1, 8)
"""Of the first byte of `struct tcp_info`: established, or closed by the client alone."""


def _open_files() -> list[int]:
    """Empty without /proc: then nothing here is limited."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - only names
    except OSError:
        return []


class ConnectionShares:
    """When a worker runs out of connection slots, limits each peer address to half of them.

    The worker inspects its sockets once a second and closes the surplus of an address, connections with unread
    responses first. Trusted proxies and Unix sockets are exempt.
    """

    def __init__(self, slots: int, port: int, exempt: tuple[Network, ...], logger: FilteringBoundLogger) -> None:
        self._slots = slots
        self._port = port
        self._exempt = exempt
        self._logger = logger

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SHARE_CHECK_SECONDS)
            files = _open_files()
            if len(files) >= self._slots * FULL:
                await asyncio.to_thread(self._enforce, files)

    def _enforce(self, files: list[int]) -> None:
        held: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for file in files:
            with suppress(OSError), self._accepted(file) as (connection, peer):
                held[peer].append((_unsent(connection), file))
        for peer, connections in held.items():
            surplus = sorted(connections, reverse=True)[: max(0, len(connections) - int(self._slots * PEER_SHARE))]
            for _, file in surplus:
                with suppress(OSError), self._accepted(file) as (connection, now):
                    if now == peer:  # the descriptor may have been reused
                        connection.shutdown(socket.SHUT_RDWR)  # granian closes it
            if surplus:
                self._logger.warning("too many connections", peer=peer, held=len(connections), closed=len(surplus))

    @contextmanager
    def _accepted(self, file: int) -> Iterator[tuple[socket.socket, str]]:
        """An accepted connection at our port and its peer; OSError for any other file."""
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise OSError
        with socket.socket(fileno=os.dup(file)) as connection:
            if connection.family == socket.AF_UNIX or connection.getsockname()[1] != self._port:
                raise OSError
            peer = connection.getpeername()[0].partition("%")[0]
            if within(peer, self._exempt):
                raise OSError
            yield connection, subscriber_of(peer)


def _unsent(connection: socket.socket) -> int:
    """Bytes that the client has not read."""
    count: int = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
    return count


@dataclass(slots=True)
class _Seen:
    """A connection when it was last looked at."""

    received: int
    finished: int
    """Bytes of requests that the app got, at most as many as were received."""

    def held(self, slack: int) -> int:
        rest = self.received - self.finished - slack
        return min(max(rest, LEAST_BUFFER), MAX_HEADERS) if rest > 0 else 0


class UnfinishedRequests:
    def __init__(self, port: int, logger: FilteringBoundLogger, *, has_tls: bool) -> None:
        self._port = port
        self._logger = logger
        self._slack = TLS_SLACK if has_tls else 0
        self._seen: dict[int, _Seen] = {}
        self._earlier: set[int] = set()
        """Connections from before there were many."""
        self._finished: dict[str, int] = {}
        """Since the last look, by the address and port of the client."""
        self._held = 0
        self._took = 0.0
        self.is_watching = False
        """Whether `add_headers` is to be called."""

    def add_headers(self, scope: Scope) -> None:
        """The headers of a request are complete."""
        headers = scope.headers
        lines = sum(len(name) + len(value) + 4 for name in set(headers) for value in headers.get_all(name))
        self.add_body(scope, lines + len(scope.path) + len(scope.query_string) + SLACK)

    def add_body(self, scope: Scope, size: int) -> None:
        """The body of a request is complete."""
        if self.is_watching:
            self._finished[scope.client] = self._finished.get(scope.client, 0) + size

    async def run(self) -> None:
        looked = 0.0
        while True:
            is_over = self._held > MAX_UNFINISHED  # then more have arrived by now: look again at once
            await asyncio.sleep(HURRY_SECONDS if is_over else max(HURRY_SECONDS, self._took / MOST_OF_A_CORE))
            files = _open_files()
            self.is_watching = len(files) > FEW_CONNECTIONS
            if not self.is_watching:
                self._seen, self._finished, self._held, self._took = {}, {}, 0, 0.0
                self._earlier = set(files)
                continue
            is_urgent = self._held > MAX_UNFINISHED / 4 or len(files) > len(self._seen) + FEW_CONNECTIONS / 2
            if is_urgent or time.monotonic() - looked >= LOOK_SECONDS:
                await asyncio.to_thread(self._limit, files)
                looked = time.monotonic()

    def _limit(self, files: list[int]) -> None:
        began = time.thread_time()
        seen: dict[int, _Seen] = {}
        finished, self._finished = self._finished, {}
        for file in files:
            with suppress(OSError):
                received, client = self._read(file, with_client=bool(finished))
                one = self._seen.get(file)
                if one is None or received < one.received:  # the descriptor was reused
                    one = _Seen(received, received if file in self._earlier else 0)
                one.received, one.finished = received, min(one.finished + finished.get(client, 0), received)
                seen[file] = one
        self._seen, self._earlier = seen, set()
        self._held = sum(one.held(self._slack) for one in seen.values())
        if self._held > MAX_UNFINISHED:
            self._close_largest()
        self._took = time.thread_time() - began

    def _close_largest(self) -> None:
        held, closed = self._held, 0
        for file, one in sorted(self._seen.items(), key=lambda pair: pair[1].held(self._slack), reverse=True):
            if held <= MAX_UNFINISHED / 2:
                break
            held -= one.held(self._slack)  # also if the client was first
            with suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
                if self._read(connection.fileno())[0] >= one.received:  # the descriptor was not reused
                    connection.shutdown(socket.SHUT_RDWR)  # granian closes it, later
                    closed += 1
        self._logger.warning("too many unfinished requests", closed=closed)

    def _read(self, file: int, *, with_client: bool = False) -> tuple[int, str]:
        """Bytes received from a client, and its address and port as the app has them; OSError unless the file is an
        open connection at our port.
        """
        # Without dup and detection, which took three times as long. The larger of the two families of addresses.
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=file)
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            if info[0] not in _OPEN_STATES or connection.getsockname()[1] != self._port:
                raise OSError
            host, port = connection.getpeername()[:2] if with_client else ("", 0)
        finally:
            connection.detach()
        (received,) = _RECEIVED.unpack_from(info, _RECEIVED_AT)
        return received, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

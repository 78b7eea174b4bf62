"""Limits the memory of unfinished requests per worker, as `ArrivingBodies` limits that of bodies.

granian buffers the headers of a request before the app sees it, and has no limit on their sum. So the worker asks the
kernel, once there are many connections, how much each has sent since it was last answered, and closes the largest.
"""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

MAX_HEADERS = 32 * 1024
"""Of one request."""
MAX_UNFINISHED = 12 * 1024 * 1024
"""Bytes of all requests of a worker that are not finished."""
LEAST_BUFFER = 8 * 1024
"""What granian allocates for the first byte of a connection."""
FEW_CONNECTIONS = MAX_UNFINISHED // MAX_HEADERS
"""They cannot reach the limit."""
LOOK_SECONDS = 0.25
_TCP_INFO_BYTES = 136
_BYTES = struct.Struct("=QQ")
"""Of `struct tcp_info`: bytes acknowledged by the client, and received from it."""
_BYTES_AT = 120


@dataclass(slots=True)
class _Seen:
    """A connection when it was last looked at."""

    acknowledged: int
    received: int
    answered: int = 0
    """What was received before the look at which the last answer was noticed: at most what the answer was for."""
    is_silent: bool = True

    def held(self) -> int:
        sent = min(self.received - self.answered, MAX_HEADERS)
        return max(sent, LEAST_BUFFER) if sent and self.acknowledged <= 1 else sent  # 1: the handshake

    def look(self, acknowledged: int, received: int) -> None:
        self.is_silent = acknowledged == self.acknowledged
        if not self.is_silent:
            self.answered = self.received
        self.acknowledged, self.received = acknowledged, received


class UnfinishedRequests:
    def __init__(self, port: int, logger: FilteringBoundLogger) -> None:
        self._port = port
        self._logger = logger
        self._seen: dict[int, _Seen] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            files: list[int] = []
            with suppress(OSError):  # without /proc there is no limit
                files = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - only names
            if len(files) > FEW_CONNECTIONS:
                await asyncio.to_thread(self._limit, files)
            else:
                self._seen.clear()

    def _limit(self, files: list[int]) -> None:
        seen: dict[int, _Seen] = {}
        for file in files:
            with suppress(OSError), self._connection(file) as connection:
                acknowledged, received = _counters(connection)
                one = self._seen.get(file)
                if one is None or received < one.received:  # the descriptor was reused
                    one = _Seen(acknowledged, received)
                else:
                    one.look(acknowledged, received)
                seen[file] = one
        self._seen = seen
        held = sum(one.held() for one in seen.values())
        if held <= MAX_UNFINISHED:
            return
        closed = 0
        for file, one in sorted(seen.items(), key=lambda pair: pair[1].held(), reverse=True):
            if held <= MAX_UNFINISHED / 2:
                break
            if one.is_silent:
                with suppress(OSError), self._connection(file) as connection:
                    if _counters(connection)[0] == one.acknowledged:
                        connection.shutdown(socket.SHUT_RDWR)  # granian closes it
                        held -= one.held()
                        closed += 1
        self._logger.warning("too many unfinished requests", closed=closed)

    @contextmanager
    def _connection(self, file: int) -> Iterator[socket.socket]:
        """An accepted connection at our port; OSError for any other file."""
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise OSError
        with socket.socket(fileno=os.dup(file)) as connection:
            if connection.family == socket.AF_UNIX or connection.getsockname()[1] != self._port:
                raise OSError
            connection.getpeername()  # the listener has none
            yield connection


def _counters(connection: socket.socket) -> tuple[int, int]:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    acknowledged, received = _BYTES.unpack_from(info, _BYTES_AT)
    return acknowledged, received

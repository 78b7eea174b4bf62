"""Limits the memory of unfinished requests per worker, as `ArrivingBodies` limits that of bodies.

granian buffers the headers of a request before the app sees it, and has no limit on their sum. So the worker asks the
kernel, once there are many connections, how much each has sent since it was last answered, and closes the largest.
"""

import asyncio
import os
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

MAX_HEADERS = 32 * 1024
"""Of one request."""
MAX_UNFINISHED = 10 * 1024 * 1024
"""Bytes of all requests of a worker that are not finished."""
LEAST_BUFFER = 8 * 1024
"""What granian allocates for the first byte of a connection."""
FEW_CONNECTIONS = MAX_UNFINISHED // MAX_HEADERS
"""They cannot reach the limit."""
LOOK_SECONDS = 0.25
HURRY_SECONDS = 0.02
"""Instead, while much is unfinished or there are many new connections: thousands arrive in a second."""
MOST_OF_A_CORE = 0.2
"""What looks take of it at most."""
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
        self._held = 0
        self._took = 0.0

    async def run(self) -> None:
        looked = 0.0
        while True:
            await asyncio.sleep(max(HURRY_SECONDS, self._took / MOST_OF_A_CORE))
            files: list[int] = []
            with suppress(OSError):  # without /proc there is no limit
                files = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - only names
            if len(files) <= FEW_CONNECTIONS:
                self._seen, self._held, self._took = {}, 0, 0.0
                continue
            is_urgent = self._held > MAX_UNFINISHED / 4 or len(files) > len(self._seen) + FEW_CONNECTIONS / 2
            if is_urgent or time.monotonic() - looked >= LOOK_SECONDS:
                await asyncio.to_thread(self._limit, files)
                looked = time.monotonic()

    def _limit(self, files: list[int]) -> None:
        began = time.thread_time()
        seen: dict[int, _Seen] = {}
        for file in files:
            with suppress(OSError):
                acknowledged, received = self._counters(file)
                one = self._seen.get(file)
                if one is None or received < one.received:  # the descriptor was reused
                    one = _Seen(acknowledged, received)
                else:
                    one.look(acknowledged, received)
                seen[file] = one
        self._seen = seen
        self._held = sum(one.held() for one in seen.values())
        if self._held > MAX_UNFINISHED:
            self._close_largest()
        self._took = time.thread_time() - began

    def _close_largest(self) -> None:
        held, closed = self._held, 0
        for file, one in sorted(self._seen.items(), key=lambda pair: pair[1].held(), reverse=True):
            if held <= MAX_UNFINISHED / 2:
                break
            if one.is_silent:
                with suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
                    if self._counters(connection.fileno())[0] == one.acknowledged:
                        connection.shutdown(socket.SHUT_RDWR)  # granian closes it
                        held -= one.held()
                        closed += 1
        self._logger.warning("too many unfinished requests", closed=closed)

    def _counters(self, file: int) -> tuple[int, int]:
        """Bytes acknowledged by the client and received from it; OSError unless it is a connection at our port."""
        # Without dup and detection, which took three times as long. The larger of the two families of addresses.
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=file)
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            if connection.getsockname()[1] != self._port:
                raise OSError
        finally:
            connection.detach()
        acknowledged, received = _BYTES.unpack_from(info, _BYTES_AT)
        return acknowledged, received

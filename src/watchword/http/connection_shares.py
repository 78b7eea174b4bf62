"""What part of a worker's connections one peer may hold."""

import asyncio
import fcntl
import os
import socket
import stat
import struct
import termios
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from structlog.typing import FilteringBoundLogger

from watchword.basics.networks import Network, subscriber_of, within

SHARE_CHECK_SECONDS = 1.0
FULL = 0.75
"""The part of a worker's connection slots from which peer shares are enforced."""
PEER_SHARE = 0.5


class ConnectionShares:
    """When a worker runs out of connection slots, limits each peer address to half of them.

    granian has no such limit. The worker inspects its sockets once a second and closes the surplus of an address,
    connections with unread responses first. Trusted proxies and Unix sockets are exempt.
    """

    def __init__(self, slots: int, port: int, exempt: tuple[Network, ...], logger: FilteringBoundLogger) -> None:
        self._slots = slots
        self._port = port
        self._exempt = exempt
        self._logger = logger

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SHARE_CHECK_SECONDS)
            files: list[int] = []
            with suppress(OSError):  # without /proc there are no shares
                files = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - only names
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

"""Connections: when a worker runs out of places, no peer address keeps more than half of them.

The server library has no such limit. So the worker looks at its own sockets once a second, and closes the surplus of an
address: first those whose client takes no answer. Trusted proxies are exempt, as is a Unix socket.
"""

import asyncio
import fcntl
import ipaddress
import os
import socket
import stat
import struct
import termios
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from structlog.typing import FilteringBoundLogger

from watchword.domain.token_limits import Network, within

PAUSE = 1.0
FULL = 0.75
"""From so much of the places on, shares are enforced."""
SHARE = 0.5


class ConnectionShares:
    def __init__(self, places: int, port: int, exempt: tuple[Network, ...], logger: FilteringBoundLogger) -> None:
        self._places = places
        self._port = port
        self._exempt = exempt
        self._logger = logger

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            files: list[int] = []
            with suppress(OSError):  # no /proc, no shares
                files = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names are all there is
            if len(files) >= self._places * FULL:
                await asyncio.to_thread(self._enforce, files)

    def _enforce(self, files: list[int]) -> None:
        held: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for file in files:
            with suppress(OSError), self._accepted(file) as (connection, peer):
                held[peer].append((_unsent(connection), file))
        for peer, theirs in held.items():
            surplus = sorted(theirs, reverse=True)[: max(0, len(theirs) - int(self._places * SHARE))]
            for _, file in surplus:
                with suppress(OSError), self._accepted(file) as (connection, now):
                    if now == peer:  # the file may be another's by now
                        connection.shutdown(socket.SHUT_RDWR)  # the server does the rest
            if surplus:
                self._logger.warning("too many connections", peer=peer, held=len(theirs), closed=len(surplus))

    @contextmanager
    def _accepted(self, file: int) -> Iterator[tuple[socket.socket, str]]:
        """A connection that was accepted at our port, and from where; OSError for every other file."""
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise OSError
        with socket.socket(fileno=os.dup(file)) as connection:
            if connection.family == socket.AF_UNIX or connection.getsockname()[1] != self._port:
                raise OSError
            peer = connection.getpeername()[0].partition("%")[0]
            if within(peer, self._exempt):
                raise OSError
            yield connection, _subscriber(peer)


def _unsent(connection: socket.socket) -> int:
    """Bytes that the client has not taken."""
    count: int = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
    return count


def _subscriber(peer: str) -> str:
    """Of IPv6 the network: a subscriber has all addresses of one."""
    address = ipaddress.ip_address(peer)
    if address.version == 4 or address.ipv4_mapped:
        return peer
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))

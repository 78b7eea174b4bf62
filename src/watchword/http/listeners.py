"""Listening sockets, and granian's HTTP server on a second one."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from granian._futures import _future_watcher_wrapper, _new_cbscheduler
from granian._granian import RSGIWorker, WorkerSignal
from granian.constants import HTTPModes, SSLProtocols
from granian.http import HTTP1Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]

from watchword.basics.networks import Endpoint
from watchword.http.connection_limits import MAX_HEADERS
from watchword.http.requests import Exchange, Scope

HEADER_SECONDS = 15
WRITE_SECONDS = 20
"""A client that reads nothing of its response for this long is disconnected."""
BACKLOG = 1_024
MAX_CONNECTIONS = 16_384
HTTP1_SETTINGS = HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000, max_buffer_size=MAX_HEADERS)
SECOND_CONNECTIONS = 64


@asynccontextmanager
async def second_listener(endpoint: Endpoint, app: Callable[[Scope, Exchange], Awaitable[None]]) -> AsyncIterator[None]:
    """A second granian server in the same worker and event loop: plain HTTP, few connections."""
    loop, stopped, stop = asyncio.get_running_loop(), asyncio.Event(), WorkerSignal()
    stop.add_cb(lambda: loop.call_soon_threadsafe(stopped.set))
    # In the order of granian's `_spawn_rsgi_worker`.
    number, ipc, threads, idle_seconds = 0, None, (1, 1, 1), 30
    http2, websockets, static_files, metrics = None, False, None, (None, None)
    tls: tuple[Any, ...] = (False, None, None, None, str(SSLProtocols.tls13), None, [], False)
    untyped: list[Any] = [RSGIWorker, _new_cbscheduler, _future_watcher_wrapper]
    make, scheduler, watched = untyped
    listener = make(
        *(number, (None, bound(endpoint)), ipc, *threads, idle_seconds, SECOND_CONNECTIONS, HTTPModes.http1),
        *(HTTP1_SETTINGS, http2, websockets, static_files, *tls, metrics),
    )
    listener.serve_str(scheduler(loop, watched(app), impl_asyncio=True), loop, stop)
    try:
        yield
    finally:
        stop.set()
        await stopped.wait()


def bound(endpoint: Endpoint) -> Any:  # granian's stub has another signature
    """As granian does: each worker has a socket on the same port and listens once the service is open."""
    family, address = endpoint
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Accepted sockets inherit it. It starts when the client's window is full or a packet is not acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, WRITE_SECONDS * 1000)
    listener.bind(address)
    return SocketHolder(listener.detach(), False, BACKLOG)  # type: ignore[call-arg]


def max_connections() -> int:
    """Connections per worker: the files it may open, minus those it needs itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + 256
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(128, min(MAX_CONNECTIONS, soft - 256))

"""The server: granian with one main process and any number of workers, each a process of its own."""

import asyncio
import errno
import ipaddress
import json
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from granian._futures import _future_watcher_wrapper, _new_cbscheduler
from granian._granian import RSGIWorker, WorkerSignal
from granian.constants import HTTPModes, Interfaces, Loops, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server import Server

from watchword import __version__
from watchword.domain.errors import OperatorError
from watchword.http.requests import Exchange, Scope
from watchword.settings import Endpoint, Settings, SettingsError

HEADER_SECONDS = 15
WRITE_SECONDS = 20
"""A client that takes nothing of its answer for so long is disconnected."""
BACKLOG = 1_024
MAX_CONNECTIONS = 16_384
MAX_HEADERS = 256 * 1024
HTTP1_SETTINGS = HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000, max_buffer_size=MAX_HEADERS)
SECOND_CONNECTIONS = 64
STOP_SECONDS = 30

_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "watchword.http.logs.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {"_granian": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
}

Load = Callable[[Settings, Path], Any]


def run(settings: Settings, load: Load, run_folder: Path, notes: Sequence[tuple[str, str]] = ()) -> None:
    """Until told to stop. The notes are said with where it listens: a word each and what there is to say of it."""
    _refuse_bad_certificate(settings)
    _refuse_taken_address(settings)
    server = _server(settings)
    threading.Thread(target=_announce, args=(settings, run_folder, notes), daemon=True).start()
    _keep_signals_for_workers()
    server.serve(
        spawn_target=partial(_spawn, settings), target_loader=partial(load, settings, run_folder), wrap_loader=False
    )


def _server(settings: Settings, *, interface: Interfaces = Interfaces.RSGI) -> Any:  # granian names no type
    return Server(
        "watchword",
        address=settings.address,
        port=settings.port,
        uds=settings.socket_path,
        uds_permissions=0o600,
        interface=interface,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        http1_settings=HTTP1_SETTINGS,
        websockets=False,
        workers=settings.workers,
        backlog=BACKLOG,
        backpressure=connection_places(),
        workers_kill_timeout=STOP_SECONDS,
        respawn_failed_workers=True,
        ssl_cert=settings.tls_cert,
        ssl_key=settings.tls_key,
        log_level=LogLevels.warning,
        log_dictconfig=_LOGGING,
    )


def _spawn(settings: Settings, number: int, name: str | None, load: Callable[[], Any], sock: Any, *rest: Any) -> None:
    """In the worker's process. Its TCP socket is ours, because granian's has no bound on how long a write may take."""
    if settings.socket_path is None:
        sock = ((None, _bound(settings.endpoint)), None)
    if settings.trusted_proxies:
        _spawn_asgi(number, name, load, sock, *rest)
    else:
        Server._spawn_rsgi_worker(number, name, load, sock, *rest)  # noqa: SLF001 - it calls whatever spawns


def _spawn_asgi(number: int, name: str | None, load: Callable[[], Any], sock: Any, *rest: Any) -> None:
    """A worker that is opened and closed as granian does it for RSGI, and sees every header line."""
    opened: list[Callable[[], None]] = []

    def load_and_open() -> Any:
        worker, loop = load(), asyncio.get_event_loop()
        worker.__rsgi_init__(loop)
        opened.append(lambda: worker.__rsgi_del__(loop))
        return worker.asgi

    Server._spawn_asgi_worker(number, name, load_and_open, sock, *rest)  # noqa: SLF001 - likewise
    for close in opened:
        close()


@asynccontextmanager
async def second_listener(endpoint: Endpoint, app: Callable[[Scope, Exchange], Awaitable[None]]) -> AsyncIterator[None]:
    """Another of granian's servers in the same worker, on the running loop: plain HTTP, for few connections."""
    loop, stopped, stop = asyncio.get_running_loop(), asyncio.Event(), WorkerSignal()
    stop.add_cb(lambda: loop.call_soon_threadsafe(stopped.set))
    # In the order in which granian's own `_spawn_rsgi_worker` gives them.
    number, ipc, threads, idle_seconds = 0, None, (1, 1, 1), 30
    http2, websockets, static_files, metrics = None, False, None, (None, None)
    tls: tuple[Any, ...] = (False, None, None, None, str(SSLProtocols.tls13), None, [], False)
    make, scheduler, watched = _untyped(RSGIWorker, _new_cbscheduler, _future_watcher_wrapper)
    listener = make(
        *(number, (None, _bound(endpoint)), ipc, *threads, idle_seconds, SECOND_CONNECTIONS, HTTPModes.http1),
        *(HTTP1_SETTINGS, http2, websockets, static_files, *tls, metrics),
    )
    listener.serve_str(scheduler(loop, watched(app), impl_asyncio=True), loop, stop)
    try:
        yield
    finally:
        stop.set()
        await stopped.wait()


def _untyped(*granians: Any) -> tuple[Any, ...]:
    """Granian's stubs lack these, or have another signature."""
    return granians


def _bound(endpoint: Endpoint) -> Any:  # granian's stub has another signature
    """As granian makes it: each worker has its own on the one port, and listens once the service is open."""
    family, address = endpoint
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Accepted sockets inherit it. It counts from when the client's window is full, or a packet unacknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, WRITE_SECONDS * 1000)
    listener.bind(address)
    return SocketHolder(listener.detach(), False, BACKLOG)  # type: ignore[call-arg]


def connection_places() -> int:
    """How many connections a worker may hold: as many files as it may open, less what it needs itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + 256
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(128, min(MAX_CONNECTIONS, soft - 256))


def _refuse_bad_certificate(settings: Settings) -> None:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, "")
    except OSError as error:
        raise SettingsError(
            "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must name a certificate chain and its private key, as PEM files; "
            f"{settings.tls_cert} and {settings.tls_key} are not: {error.strerror or error}."
        ) from None


def _refuse_taken_address(settings: Settings) -> None:
    """The server shares its port among its workers, so it would share it with a stranger too, in silence."""
    if settings.socket_path is not None:
        _clear_socket(settings.socket_path)
    elif (error := _bind_error(settings.endpoint)) is not None:
        flag = "--port" if error.errno == errno.EADDRINUSE else "--host"
        raise OperatorError(
            f"It cannot listen at {settings.listens_at}: {error.strerror}. Choose another address with {flag}."
        )
    if settings.metrics_endpoint is not None and (error := _bind_error(settings.metrics_endpoint)) is not None:
        raise OperatorError(
            f"It cannot listen at WATCHWORD_METRICS_ADDRESS, {settings.metrics_address}: {error.strerror}. "
            "Choose another address with --metrics-address."
        )


def _bind_error(endpoint: Endpoint) -> OSError | None:
    family, address = endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return error
    return None


def _clear_socket(path: Path) -> None:
    """A killed server leaves its socket behind, and nobody answers there: it is removed. Anything else is refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            if path.is_socket():
                probe.connect(str(path))
                raise OperatorError(f"WATCHWORD_HOST must name a free socket; another process listens at {path}.")
            probe.bind(str(path))
        except ConnectionRefusedError:
            pass
        except OSError as error:
            raise SettingsError(
                f"WATCHWORD_HOST must name a socket that can be made; {path} cannot: {error.strerror or error}."
            ) from None
    path.unlink()


def _keep_signals_for_workers() -> None:
    """A worker hears no signal until it serves; what was sent meanwhile reaches it then. It would meet the main
    process's handler, which it inherits, or an event loop between two runs, and be lost.
    """
    masks: list[set[int | signal.Signals]] = []
    os.register_at_fork(
        before=lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop()),
    )


def _announce(settings: Settings, run_folder: Path, notes: Sequence[tuple[str, str]]) -> None:
    wanted = [settings.endpoint, *([settings.metrics_endpoint] if settings.metrics_endpoint else [])]
    while sum(1 for _ in run_folder.glob("ready-*")) < settings.workers or not all(map(_accepts, wanted)):
        time.sleep(0.005)
    try:
        print(announcement(settings, notes), flush=True)  # noqa: T201 - these lines are for whoever started it
    except BrokenPipeError:  # nobody reads them; what is left in the buffer must not raise once more at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _accepts(endpoint: Endpoint) -> bool:
    """A worker is ready a moment before it listens; whoever reads the announcement may call at once."""
    family, address = endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(address) == 0


def announcement(settings: Settings, notes: Sequence[tuple[str, str]] = ()) -> str:
    off_because = settings.local_mode_off_because
    local = (
        f"off: {off_because}"
        if off_because
        else f"on: from this machine and user, {settings.actor_headers[0]} names the caller"
    )
    lines = [
        f"Watchword {__version__} listens at {settings.listens_at}",
        f"  store       {settings.place}",
        f"  index       {settings.index_url or settings.index_path}",
        f"  root actor  {settings.root_actor}",
        f"  local mode  {local}",
        *([f"  console     {settings.issuer}/"] if settings.console and settings.issuer.startswith("http") else []),
        *([f"  metrics     http://{settings.metrics_address}/metrics"] if settings.metrics_address else []),
        *(f"  {word:<12}{note}" for word, note in notes),
    ]
    if not settings.is_loopback and settings.socket_path is None and not settings.tls:
        lines += [
            "",
            "WARNING: it can be reached from other machines WITHOUT TLS: tokens travel in the clear.",
        ]
        lines += ["         Set WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY, or put a TLS proxy before it."]
    metrics = settings.metrics_address
    if metrics is not None and not ipaddress.ip_address(metrics.host).is_loopback:
        lines += [
            "",
            f"WARNING: other machines can reach the metrics at {metrics} WITHOUT TLS and without a token.",
            "         Listen on loopback or in a private network, or put a TLS proxy before it.",
        ]
    title = "A first token, made with the settings of this server:" if settings.is_shared else "A first token:"
    lines += ["", title, "", *(f"  {line}" for line in first_example(settings))]
    return "\n".join([*lines, ""])


def first_example(settings: Settings) -> list[str]:
    if not settings.local_mode_on:
        if settings.is_shared:  # its address may hold a password, so it stays where it was set
            return [f"watchword token create --local --actor {settings.root_actor} --name first"]
        return [
            f"watchword token create --local --actor {settings.root_actor} --name first --data-dir {settings.data_dir}"
        ]
    fields = f'type: PERSONAL, actorUrn: "{settings.root_actor}", duration: ONE_HOUR, name: "first"'
    query = f"mutation {{ createAccessToken(input: {{{fields}}}) {{ accessToken metadata {{ id name }} }} }}"
    return [
        f"curl -s {settings.listens_at}/api/graphql \\",
        f"  -H '{settings.actor_headers[0]}: {settings.root_actor}' -H 'Content-Type: application/json' \\",
        f"  -d '{json.dumps({'query': query})}'",
    ]

"""The HTTP server: granian with one main process and any number of worker processes.

This module uses private parts of granian, because its public interface has no write timeout, no second listener and no
worker hooks for ASGI: `_spawn_rsgi_worker`, `_spawn_asgi_worker`, `RSGIWorker`, `SocketHolder`, `_futures` and
`_signals`. The lock files in `requirements` pin granian's version.
"""

import asyncio
import errno
import fcntl
import ipaddress
import json
import os
import resource
import signal
import socket
import ssl
import stat
import struct
import sys
import termios
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from granian import _signals
from granian._futures import _future_watcher_wrapper, _new_cbscheduler
from granian._granian import RSGIWorker, WorkerSignal
from granian.constants import HTTPModes, Interfaces, Loops, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server import Server
from structlog.typing import FilteringBoundLogger

from watchword import __version__
from watchword.domain.errors import OperatorError
from watchword.domain.networks import Network, subscriber_of, within
from watchword.http.app import App, MetricsApp
from watchword.http.health import Health
from watchword.http.logs import make_logger
from watchword.http.metrics import Metrics
from watchword.http.requests import Exchange, Receive, Scope, Send
from watchword.http.run_folder import as_only_worker
from watchword.http.unfinished import MAX_HEADERS, UnfinishedRequests
from watchword.service import AllServices
from watchword.service.background import BackgroundTasks
from watchword.service.tokens import TokenCounters
from watchword.service.truncation import LogProblem
from watchword.settings import Endpoint, Settings, SettingsError, bind_error

HEADER_SECONDS = 15
WRITE_SECONDS = 20
"""A client that reads nothing of its response for this long is disconnected."""
BACKLOG = 1_024
MAX_CONNECTIONS = 16_384
HTTP1_SETTINGS = HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000, max_buffer_size=MAX_HEADERS)
SECOND_CONNECTIONS = 64
STOP_SECONDS = 30
SHARE_CHECK_SECONDS = 1.0
FULL = 0.75
"""The part of a worker's connection slots from which peer shares are enforced."""
PEER_SHARE = 0.5

_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "watchword.http.logs.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {"_granian": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
}

Load = Callable[[Settings, Path], "Worker"]
Open = Callable[
    [Settings, Callable[[str, float], None], TokenCounters, LogProblem], AbstractAsyncContextManager[AllServices]
]


def run(
    settings: Settings, load: Load, run_folder: Path, notes: Sequence[tuple[str, str]] = (), warning: str = ""
) -> None:
    """Run until stopped. The notes (a label and a text) and the warning are printed with the address."""
    _check_certificate(settings)
    _check_address_is_free(settings)
    server = _server(settings)
    threading.Thread(target=_announce, args=(settings, run_folder, notes, warning), daemon=True).start()
    _block_signals_in_workers()
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
        backpressure=max_connections(),
        workers_kill_timeout=STOP_SECONDS,
        respawn_failed_workers=True,
        ssl_cert=settings.tls_cert,
        ssl_key=settings.tls_key,
        log_level=LogLevels.warning,
        log_dictconfig=_LOGGING,
    )


def _spawn(settings: Settings, number: int, name: str | None, load: Callable[[], Any], sock: Any, *rest: Any) -> None:
    """Runs in the worker process. It binds the TCP socket itself: granian's has no write timeout."""
    if settings.socket_path is None:
        sock = ((None, _bound(settings.endpoint)), None)
    workers: list[Worker] = []

    def load_worker() -> Worker:
        workers.append(load())
        return workers[0]

    _signals.set_loop_signals = partial(_set_loop_signals, _signals.set_loop_signals, workers)
    if settings.trusted_proxies:
        _spawn_asgi(number, name, load_worker, sock, *rest)
    else:
        Server._spawn_rsgi_worker(number, name, load_worker, sock, *rest)  # noqa: SLF001 - see above


def _set_loop_signals(granians: Callable[[Any], Any], workers: "list[Worker]", loop: asyncio.AbstractEventLoop) -> Any:
    """As granian does, whose worker then stops when all requests are answered. So those that wait are answered now."""
    stop = granians(loop)

    def stop_all() -> None:
        stop.set()
        for worker in workers:
            worker.stop_waiting()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_all)
    return stop


def _spawn_asgi(number: int, name: str | None, load: Callable[[], Any], sock: Any, *rest: Any) -> None:
    """An ASGI worker with the start and stop hooks that granian has for RSGI."""
    opened: list[Callable[[], None]] = []

    def load_and_open() -> Any:
        worker, loop = load(), asyncio.get_event_loop()
        worker.__rsgi_init__(loop)
        opened.append(lambda: worker.__rsgi_del__(loop))
        return worker.asgi

    Server._spawn_asgi_worker(number, name, load_and_open, sock, *rest)  # noqa: SLF001 - see above
    for close in opened:
        close()


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
        *(number, (None, _bound(endpoint)), ipc, *threads, idle_seconds, SECOND_CONNECTIONS, HTTPModes.http1),
        *(HTTP1_SETTINGS, http2, websockets, static_files, *tls, metrics),
    )
    listener.serve_str(scheduler(loop, watched(app), impl_asyncio=True), loop, stop)
    try:
        yield
    finally:
        stop.set()
        await stopped.wait()


def _bound(endpoint: Endpoint) -> Any:  # granian's stub has another signature
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


def _check_certificate(settings: Settings) -> None:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, "")
    except OSError as error:
        raise SettingsError(
            "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must name a certificate chain and its private key, as PEM files; "
            f"{settings.tls_cert} and {settings.tls_key} are not: {error.strerror or error}."
        ) from None


def _check_address_is_free(settings: Settings) -> None:
    """Workers share the port (SO_REUSEPORT), so binding would also succeed beside another program."""
    if settings.socket_path is not None:
        _clear_socket(settings.socket_path)
    elif (error := bind_error(settings.endpoint)) is not None:
        flag = "--port" if error.errno == errno.EADDRINUSE else "--host"
        raise OperatorError(
            f"Cannot listen at {settings.listens_at}: {error.strerror}. Choose another address with {flag}."
        )
    if settings.metrics_endpoint is not None and (error := bind_error(settings.metrics_endpoint)) is not None:
        raise OperatorError(
            f"Cannot listen at WATCHWORD_METRICS_ADDRESS, {settings.metrics_address}: {error.strerror}. "
            "Choose another address with --metrics-address."
        )


def _clear_socket(path: Path) -> None:
    """Removes the socket that a killed server left behind. Any other file is an error."""
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
                f"WATCHWORD_HOST must name a socket that can be created; {path}: {error.strerror or error}."
            ) from None
    path.unlink()


def _block_signals_in_workers() -> None:
    """Block signals in a worker until it serves. Earlier ones would reach the inherited handler of the main process,
    or an event loop between two runs, and be lost; blocked signals are delivered later.
    """
    mask = threading.local()  # two threads fork: one starts workers, one the process of the embedded index

    def block() -> None:
        mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    os.register_at_fork(before=block, after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask.before))


def _announce(settings: Settings, run_folder: Path, notes: Sequence[tuple[str, str]], warning: str) -> None:
    wanted = [settings.endpoint, *([settings.metrics_endpoint] if settings.metrics_endpoint else [])]
    while sum(1 for _ in run_folder.glob("ready-*")) < settings.workers or not all(map(_accepts, wanted)):
        time.sleep(0.005)
    try:
        print(announcement(settings, notes, warning), flush=True)  # noqa: T201 - for the operator
    except BrokenPipeError:  # nothing reads them; the rest of the buffer must not raise at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _accepts(endpoint: Endpoint) -> bool:
    """A worker is ready shortly before it listens; the announcement must wait for both."""
    family, address = endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(address) == 0


def announcement(settings: Settings, notes: Sequence[tuple[str, str]] = (), warning: str = "") -> str:
    off_because = settings.local_mode_off_because
    local = (
        f"off: {off_because}"
        if off_because
        else f"on: from this machine and user, {settings.actor_headers[0]} names the caller"
    )
    lines = [
        f"Watchword {__version__} listens at {settings.listens_at}",
        f"  store       {settings.store_url}",
        f"  index       {settings.index_url or settings.index_path}",
        f"  root actor  {settings.root_actor}",
        f"  local mode  {local}",
        *([f"  console     {settings.issuer}/"] if settings.console and settings.issuer.startswith("http") else []),
        *([f"  metrics     http://{settings.metrics_address}/metrics"] if settings.metrics_address else []),
        *([f"  events      {settings.event_stream}"] if settings.event_stream else []),
        *(f"  {word:<12}{note}" for word, note in notes),
    ]
    if warning:
        lines += ["", f"WARNING: {warning}"]
    if not settings.is_loopback and settings.socket_path is None and not settings.tls:
        lines += ["", "WARNING: it can be reached from other machines WITHOUT TLS: tokens travel in the clear."]
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
        command = f"watchword token create --local --actor {settings.root_actor} --name first"
        # The URL of a shared store may contain a password, so it is not printed.
        return [command if settings.is_shared else f"{command} --data-dir {settings.data_dir}"]
    fields = f'type: PERSONAL, actorUrn: "{settings.root_actor}", duration: ONE_HOUR, name: "first"'
    query = f"mutation {{ createAccessToken(input: {{{fields}}}) {{ accessToken metadata {{ id name }} }} }}"
    return [
        f"curl -s {settings.listens_at}/api/graphql \\",
        f"  -H '{settings.actor_headers[0]}: {settings.root_actor}' -H 'Content-Type: application/json' \\",
        f"  -d '{json.dumps({'query': query})}'",
    ]


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


@dataclass
class Worker:
    _settings: Settings
    _run_folder: Path
    _open: Open
    _new_request_id: Callable[[], str]
    _app: App | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian calls this before the first request."""
        try:
            loop.run_until_complete(self._start())
        except Exception as error:  # noqa: BLE001 - logged, and the process ends
            make_logger(self._settings.log_level).error(
                "worker failed to start", cause=f"{type(error).__name__}: {error}"
            )
            sys.exit(1)
        # Runs when the event loop runs again, to serve requests.
        loop.call_soon(self._serving)

    def __rsgi__(self, scope: Scope, exchange: Exchange) -> Awaitable[None]:
        """Granian calls this for each request."""
        assert self._app is not None
        return self._app(scope, exchange)

    def asgi(self, scope: dict[str, Any], receive: Receive, send: Send) -> Awaitable[None]:
        """Granian calls this for each request behind trusted proxies."""
        assert self._app is not None
        return self._app(Scope(scope), Exchange(receive, send))

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian calls this after the last request."""
        loop.run_until_complete(self._stack.aclose())

    def stop_waiting(self) -> None:
        if self._app is not None:
            self._app.stop_waiting()

    def _serving(self) -> None:
        (self._run_folder / f"ready-{os.getpid()}").touch()
        # Blocked until here. SIGINT stays blocked: the main process stops its workers, also after Ctrl-C.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    async def _start(self) -> None:
        settings = self._settings
        metrics = Metrics(self._run_folder)
        logger = make_logger(settings.log_level)
        counters = TokenCounters(metrics.issued, metrics.revoked)
        tasks = BackgroundTasks(
            lambda task, cause: logger.error("background task failed", task=task, cause=cause), metrics.task_failure
        )
        unfinished = UnfinishedRequests(settings.port, logger, has_tls=settings.tls_cert is not None)
        shares = ConnectionShares(max_connections(), settings.port, settings.trusted_proxies, logger)

        def log_operation(operation: str, cause: str) -> None:
            logger.warning("operation", operation=operation, cause=cause)

        async with AsyncExitStack() as stack:
            services = await stack.enter_async_context(self._open(settings, metrics.store, counters, log_operation))
            core, mail = services.core, services.mail
            metrics.timeline = lambda: core.store.timeline
            core.counter.sink = metrics
            metrics.retention = lambda: services.retention_scheduler.numbers
            services.deliveries.count = metrics.delivery
            services.deliveries.log = lambda id_, cause: logger.error("webhook failed", webhook=id_, cause=cause)
            count_deliveries = partial(services.deliveries.keep_counting, metrics.delivery_counts)
            background: list[tuple[str, Callable[[], Awaitable[None]]]] = [
                ("expiry", core.expiry.run),
                ("usage", core.usage.run),
                ("purge", partial(core.purge.run, tasks)),
                ("rejections", core.rejections.run),
                ("operations", services.supervisor.run),
                ("retention", services.retention_scheduler.run),
                ("webhooks", services.deliveries.run),
                ("delivery counts", partial(as_only_worker, self._run_folder / "deliveries.lock", count_deliveries)),
                ("connections", shares.run),
                ("unfinished requests", unfinished.run),
                ("token counts", partial(as_only_worker, self._run_folder / "counts.lock", core.counter.publish)),
                (
                    "unused tokens",
                    partial(as_only_worker, self._run_folder / "unused.lock", core.counter.publish_unused),
                ),
            ]
            if services.stream is not None:
                services.stream.count = metrics.streamed
                background.append(("event-stream", services.stream.run))
            if mail is not None:
                metrics.mails_waiting, mail.count = (lambda: mail.waiting), metrics.mail
                background.append(("mail", mail.run))
            for name, task in background:
                metrics.task_failure(name, 0)
                stack.push_async_callback(_stopped, asyncio.ensure_future(tasks.keep_running(name, task)))
            health = Health(core.store, services.engine, tasks)
            self._app = App(settings, services, health, metrics, logger, self._new_request_id, unfinished)
            if settings.metrics_endpoint is not None:
                listener = second_listener(settings.metrics_endpoint, MetricsApp(metrics, health))
                await stack.enter_async_context(listener)
            stack.callback(self._app.close)
            self._stack = stack.pop_all()


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

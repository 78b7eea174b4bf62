"""The HTTP server: granian with one main process and any number of worker processes.

This module and `http/listeners.py` use private parts of granian, because its public interface has no write timeout, no
second listener and no worker hooks for ASGI: `_spawn_rsgi_worker`, `_spawn_asgi_worker`, `RSGIWorker`, `SocketHolder`,
`_futures` and `_signals`. The lock files in `requirements` pin granian's version.
"""

import asyncio
import errno
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from granian import _signals
from granian.constants import HTTPModes, Interfaces, Loops
from granian.log import LogLevels
from granian.server import Server

from watchword.app.announcement import announce
from watchword.app.worker import Worker
from watchword.basics.errors import OperatorError
from watchword.http.listeners import BACKLOG, HTTP1_SETTINGS, bound, max_connections
from watchword.settings import Settings, SettingsError, bind_error

STOP_SECONDS = 30

_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "watchword.http.logs.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {"_granian": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
}

Load = Callable[[Settings, Path], Worker]


def run(
    settings: Settings, load: Load, run_folder: Path, notes: Sequence[tuple[str, str]] = (), warning: str = ""
) -> None:
    """Run until stopped. The notes (a label and a text) and the warning are printed with the address."""
    _check_certificate(settings)
    _check_address_is_free(settings)
    server = _server(settings)
    threading.Thread(target=announce, args=(settings, run_folder, notes, warning), daemon=True).start()
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
        sock = ((None, bound(settings.endpoint)), None)
    workers: list[Worker] = []

    def load_worker() -> Worker:
        workers.append(load())
        return workers[0]

    _signals.set_loop_signals = partial(_set_loop_signals, _signals.set_loop_signals, workers)
    if settings.trusted_proxies:
        _spawn_asgi(number, name, load_worker, sock, *rest)
    else:
        Server._spawn_rsgi_worker(number, name, load_worker, sock, *rest)  # noqa: SLF001 - see above


def _set_loop_signals(granians: Callable[[Any], Any], workers: list[Worker], loop: asyncio.AbstractEventLoop) -> Any:
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
        step = "Choose another address with --host."
        if error.errno == errno.EADDRINUSE:
            other = settings.port % 65_535 + 1
            step = f"Choose another port: watchword serve --port {other}, or WATCHWORD_PORT={other} make serve."
        raise OperatorError(f"Cannot listen at {settings.listens_at}: {error.strerror}. {step}")
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

"""Servers to check: with a deliberate defect, or several on one PostgreSQL."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgres import Home
from tests.support.server import Server

QUIET = {"WATCHWORD_ACCESS_LOG": "off", "WATCHWORD_ACTOR_DAILY_CHANGES": "0"}
COUNT = 3


class StaleServer(Server):
    """A server that caches bearers for a moment."""

    @property
    def command(self) -> list[str]:
        return ["tests.linear.stale" if word == "watchword" else word for word in super().command]


@contextmanager
def instances(
    home: Home,
    folder: Path,
    kind: type[Server] = Server,
    count: int = COUNT,
    settings: Mapping[str, str] | None = None,
    each: Sequence[Mapping[str, str]] | None = None,
    attempts: int = 1,
) -> Iterator[list[Server]]:
    """Start this many instances on one database, with these settings, and more of its own for each. One that cannot
    reach its database exits; with more attempts it is started again, as a supervisor does.
    """
    env = QUIET | home.env | dict(settings or {})
    own = [dict(more) for more in each or [{}] * count]
    servers = [kind(folder / f"instance{n}", "--local-mode", "on", env=env | more) for n, more in enumerate(own)]
    failures: list[BaseException] = []

    def start(server: Server) -> None:
        for attempt in range(1, attempts + 1):
            try:
                server.start()
            except BaseException as error:  # noqa: BLE001 - told to the test
                if attempt == attempts:
                    failures.append(error)
            else:
                return

    try:
        _run_concurrently([threading.Thread(target=start, args=(server,)) for server in servers])
        assert failures == []
        yield servers
    finally:
        _run_concurrently([threading.Thread(target=server.stop) for server in servers])
        for server in servers:
            server.http.close()


def _run_concurrently(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """`SIGSTOP` every process; connections wait in the kernel."""
    assert server.process is not None
    os.killpg(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(server.process.pid, signal.SIGCONT)

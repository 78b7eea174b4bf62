"""A worker process: opens the service, serves requests, and closes it."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watchword.http.app import App, MetricsApp
from watchword.http.health import Health
from watchword.http.logs import make_logger
from watchword.http.metrics import Metrics
from watchword.http.requests import AsgiExchange, AsgiScope, Exchange, Receive, Scope, Send
from watchword.http.server import ConnectionShares, max_connections, second_listener
from watchword.service.background import BackgroundTasks
from watchword.service.services import AllServices
from watchword.service.supervisor import LogProblem
from watchword.service.tokens import TokenCounters
from watchword.settings import Settings

Open = Callable[
    [Settings, Callable[[str, float], None], TokenCounters, LogProblem], AbstractAsyncContextManager[AllServices]
]


@dataclass
class Worker:
    _settings: Settings
    _run_folder: Path
    _open: Open
    _request_ids: Callable[[], str]
    _app: App | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian calls this before the first request."""
        try:
            loop.run_until_complete(self._start())
        except Exception as error:  # noqa: BLE001 - logged, and the process ends
            make_logger(self._settings.log_level).error(
                "worker failed to start", why=f"{type(error).__name__}: {error}"
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
        return self._app(AsgiScope(scope), AsgiExchange(receive, send))

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian calls this after the last request."""
        loop.run_until_complete(self._stack.aclose())

    def _serving(self) -> None:
        (self._run_folder / f"ready-{os.getpid()}").touch()
        # Blocked until here. SIGINT stays blocked: the main process stops its workers, also after Ctrl-C.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    async def _start(self) -> None:
        settings = self._settings
        metrics = Metrics(self._run_folder)
        logger = make_logger(settings.log_level)
        counters = TokenCounters(metrics.issued, metrics.revoked)
        tasks = BackgroundTasks(lambda task, why: logger.error("background task failed", task=task, why=why))
        shares = ConnectionShares(max_connections(), settings.port, settings.trusted_proxies, logger)

        def log_operation(operation: str, why: str) -> None:
            logger.warning("operation", operation=operation, why=why)

        async with AsyncExitStack() as stack:
            services = await stack.enter_async_context(self._open(settings, metrics.store, counters, log_operation))
            core = services.core
            for name, task in (
                ("usage", core.usage.run),
                ("purge", core.purge.run),
                ("rejections", core.rejections.run),
                ("events", core.audit.run),
                ("operations", services.supervisor.run),
                ("connections", shares.run),
            ):
                stack.push_async_callback(_stopped, asyncio.ensure_future(tasks.keep_running(name, task)))
            health = Health(core.store, services.engine, tasks)
            self._app = App(settings, services, health, metrics, logger, self._request_ids)
            if settings.metrics_endpoint is not None:
                listener = second_listener(settings.metrics_endpoint, MetricsApp(metrics, health))
                await stack.enter_async_context(listener)
            self._stack = stack.pop_all()


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

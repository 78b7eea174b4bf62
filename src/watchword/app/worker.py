"""A worker of the server: its services, its background tasks and the application."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from watchword.app.app import App, MetricsApp
from watchword.app.health import Health, Probe
from watchword.app.metrics import CONTENT_TYPE, Metrics
from watchword.app.routes import Doors
from watchword.app.run_folder import as_only_worker
from watchword.app.services import Services
from watchword.basics.background import BackgroundTasks
from watchword.http.connection_limits import ConnectionShares, UnfinishedRequests
from watchword.http.errors import NO_STORE
from watchword.http.listeners import max_connections, second_listener
from watchword.http.logs import make_logger
from watchword.http.requests import Exchange, Receive, Response, Scope, Send
from watchword.index.jobs import LogProblem
from watchword.settings import Settings

Task = Callable[[], Awaitable[None]]
Open = Callable[[Settings, Metrics, LogProblem, Callable[[str, str], None]], AbstractAsyncContextManager[Services]]


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
        settings, folder = self._settings, self._run_folder
        metrics, logger = Metrics(folder), make_logger(settings.log_level)
        tasks = BackgroundTasks(
            lambda task, cause: logger.error("background task failed", task=task, cause=cause), metrics.task_failure
        )
        unfinished = UnfinishedRequests(settings.port, logger, has_tls=settings.tls_cert is not None)
        shares = ConnectionShares(max_connections(), settings.port, settings.trusted_proxies, logger)
        async with AsyncExitStack() as stack:
            opened = self._open(
                settings,
                metrics,
                lambda operation, cause: logger.warning("operation", operation=operation, cause=cause),
                lambda webhook, cause: logger.error("webhook failed", webhook=webhook, cause=cause),
            )
            services = await stack.enter_async_context(opened)
            own = {"connections": shares.run, "unfinished requests": unfinished.run}
            for name, task in (own | _background(services, tasks, metrics, folder)).items():
                metrics.task_failure(name, 0)
                stack.push_async_callback(_stopped, asyncio.ensure_future(tasks.keep_running(name, task)))
            health = Health(Probe(services.store.probe), Probe(services.engine.probe), tasks)

            async def show_metrics() -> Response:
                retention = services.retention_scheduler.numbers
                measured = {
                    "watchword_store_reachable": await health.reaches_store(),
                    "watchword_store_timeline": services.store.timeline,
                    "watchword_retention_waiting": retention.waiting,
                    "watchword_retention_overdue": retention.overdue,
                    "watchword_retention_clock_jumped": retention.unsteady,
                    "watchword_mails_waiting": 0 if services.mail is None else services.mail.waiting,
                }
                return Response(200, [("content-type", CONTENT_TYPE), NO_STORE], metrics.render(measured))

            doors = Doors(settings, services, metrics, logger)
            self._app = App(settings, doors, health, metrics, show_metrics, logger, self._new_request_id, unfinished)
            if settings.metrics_endpoint is not None:
                listener = second_listener(settings.metrics_endpoint, MetricsApp(metrics, show_metrics, health))
                await stack.enter_async_context(listener)
            stack.callback(self._app.close)
            self._stack = stack.pop_all()


def _background(services: Services, tasks: BackgroundTasks, metrics: Metrics, run_folder: Path) -> dict[str, Task]:
    def in_one_worker(lock: str, task: Task) -> Task:
        return partial(as_only_worker, run_folder / f"{lock}.lock", task)

    background: dict[str, Task] = {
        "expiry": services.expiry.run,
        "usage": services.usage.run,
        "purge": partial(services.purge.run, tasks),
        "rejections": services.rejections.run,
        "operations": services.supervisor.run,
        "retention": services.retention_scheduler.run,
        "webhooks": services.deliveries.run,
        "delivery counts": in_one_worker(
            "deliveries", partial(services.deliveries.keep_counting, metrics.delivery_counts)
        ),
        "token counts": in_one_worker("counts", partial(services.counter.publish, metrics.token_counts)),
    }
    if services.stream is not None:
        background["event-stream"] = services.stream.run
    if services.mail is not None:
        background["mail"] = services.mail.run
    return background


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

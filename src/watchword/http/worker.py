"""A worker process: opens the service, serves requests, and closes it."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from watchword.http.app import App, AppParts, MetricsApp
from watchword.http.authentication import Authenticator, ServerUser, TrustRules
from watchword.http.console import Console
from watchword.http.graphql.context import ProcessorBudget
from watchword.http.graphql.endpoint import GraphQLEndpoint
from watchword.http.graphql.schema import make_schema
from watchword.http.health import Health
from watchword.http.logs import AccessLog, make_logger
from watchword.http.metrics import Metrics
from watchword.http.oauth import OAuthEndpoints
from watchword.http.operations import OperationsEndpoint
from watchword.http.requests import (
    AsgiExchange,
    AsgiRequest,
    AsgiScope,
    Exchange,
    Receive,
    RequestReader,
    Scope,
    Send,
)
from watchword.http.server import ConnectionShares, max_connections, second_listener
from watchword.http.sessions import ConsoleRequests, SessionEndpoint
from watchword.http.verify import ForwardAuth
from watchword.service.background import BackgroundTasks
from watchword.service.services import AllServices
from watchword.service.supervisor import LogProblem
from watchword.service.tokens import TokenCounters
from watchword.settings import Settings

Open = Callable[
    [Settings, Callable[[str, float], None], TokenCounters, LogProblem], AbstractAsyncContextManager[AllServices]
]


class Worker:
    def __init__(
        self,
        settings: Settings,
        run_folder: Path,
        open_service: Open,
        request_ids: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._run_folder = run_folder
        self._open = open_service
        self._request_ids = request_ids
        self._app: App | None = None
        self._stack = AsyncExitStack()

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

    def asgi(self, scope: AsgiRequest, receive: Receive, send: Send) -> Awaitable[None]:
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
        async with AsyncExitStack() as stack:
            await self._open_all(stack)
            self._stack = stack.pop_all()

    async def _open_all(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        metrics = Metrics(self._run_folder)
        logger = make_logger(settings.log_level)
        services = await stack.enter_async_context(
            self._open(
                settings,
                metrics.store,
                TokenCounters(metrics.issued, metrics.revoked),
                partial(_log_operation, logger),
            )
        )
        core = services.core
        tasks = BackgroundTasks(partial(_log_task_failure, logger))
        shares = ConnectionShares(max_connections(), settings.port, settings.trusted_proxies, logger)
        for name, task in (
            ("usage", core.usage.run),
            ("purge", core.purge.run),
            ("rejections", core.rejections.run),
            ("events", core.audit.run),
            ("operations", services.supervisor.run),
            ("connections", shares.run),
        ):
            stack.push_async_callback(_stopped, asyncio.ensure_future(tasks.keep_running(name, task)))
        schema = make_schema(core.store.clock)
        rules = TrustRules(
            local_mode=settings.local_mode_on,
            trusted_peers=settings.trusted_peers,
            actor_headers=tuple(name.lower() for name in settings.actor_headers),
            audience=settings.issuer,
        )
        console = ConsoleRequests(settings.public_url, settings.trusted_proxies, local_mode=rules.local_mode)
        authenticator = Authenticator(
            core.authority,
            rules,
            ServerUser(),
            core.sessions,
            core.rejections,
            console if settings.console else None,
        )
        health = Health(core.store, services.engine, tasks)
        self._app = App(
            AppParts(
                reader=RequestReader(
                    settings.trusted_proxies, self._request_ids, on_unix_socket=settings.socket_path is not None
                ),
                authenticator=authenticator,
                graphql=GraphQLEndpoint(
                    schema,
                    services,
                    logger,
                    ProcessorBudget(settings.actor_processor_percent / 100),
                    metrics.graphql_fallback,
                ),
                forward_auth=ForwardAuth(authenticator, core.authority, core.rejections),
                operations=OperationsEndpoint(services.operations, core.rejections, core.store.clock),
                oauth=OAuthEndpoints(authenticator, core.tokens, core.keys, core.rejections),
                health=health,
                metrics=metrics,
                access_log=AccessLog(logger, settings.access_log),
                logger=logger,
                issuer=settings.issuer,
                hsts=settings.sends_hsts,
                has_metrics_listener=settings.metrics_address is not None,
                console=Console() if settings.console else None,
                sessions=SessionEndpoint(console, authenticator, core.sessions),
            )
        )
        if settings.metrics_endpoint is not None:
            listener = second_listener(settings.metrics_endpoint, MetricsApp(metrics, health))
            await stack.enter_async_context(listener)


def _log_operation(logger: FilteringBoundLogger, operation: str, why: str) -> None:
    logger.warning("operation", operation=operation, why=why)


def _log_task_failure(logger: FilteringBoundLogger, task: str, why: str) -> None:
    logger.error("background task failed", task=task, why=why)


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

"""The HTTP application: finds the route of a request, and turns faults into responses in one place."""

import re
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter

import orjson
from structlog.typing import FilteringBoundLogger

from watchword import __version__
from watchword.app.console import PREFIXES
from watchword.app.health import LIVE, Health
from watchword.app.metrics import Metrics
from watchword.app.routes import GRAPHQL, Doors, Handler
from watchword.authority.callers import Bearer
from watchword.basics.errors import Fault, Reason
from watchword.http.connection_limits import UnfinishedRequests
from watchword.http.errors import JSON, fault_response, internal_fault
from watchword.http.logs import AccessLog
from watchword.http.requests import Exchange, Header, Request, Response, Scope, WorkerState
from watchword.settings import Settings
from watchword.signin.openid_http import PAGES
from watchword.tokens.oauth_http import OAUTH, oauth_fault
from watchword.tokens.verify_http import identity_headers

GATEWAY_PREFIXES = ("/api/gms", "/gms")
# Unauthenticated callers get 401 here, never 404.
PROTECTED = ("/api", "/operations", "/oauth2", "/events", "/resources")
AUTH, BELOW_AUTH = "/auth", "/auth/"
# A gateway of another audience asks here. As below `/auth`, the rest of the path may be the application's.
RESOURCE_AUTH = re.compile(r"/resources/([^/]*)/auth(?:/.*)?", re.DOTALL)
METRICS = "/metrics"
OTHER = "other"
NO_SNIFFING = ("x-content-type-options", "nosniff")
# Without subdomains: they may belong to others.
HSTS = ("strict-transport-security", "max-age=31536000")
CLOSE = ("connection", "close")
MAX_ADDRESS = 8_192

ShowMetrics = Callable[[], Awaitable[Response]]


class _Done:
    """Awaited by the server after a response that needed no coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE = _Done()


class App:
    def __init__(
        self,
        settings: Settings,
        doors: Doors,
        health: Health,
        metrics: Metrics,
        show_metrics: ShowMetrics,
        logger: FilteringBoundLogger,
        new_id: Callable[[], str],
        unfinished: UnfinishedRequests,
    ) -> None:
        on_unix_socket = settings.socket_path is not None
        self._worker = WorkerState(settings.trusted_proxies, on_unix_socket, new_id, unfinished.add_body)
        self._unfinished = unfinished
        self._doors = doors
        self._authenticate_bearer = doors.authenticator.authenticate_bearer
        self._authenticate_bearer_now = doors.authenticator.authenticate_bearer_now
        self._rights_now = doors.rights_now
        self._console = doors.console
        self._health = health
        self._metrics = metrics
        self._show_metrics = show_metrics
        self._count = metrics.request
        self._access_log = AccessLog(logger, settings.access_log)
        self.close = self._access_log.flush
        self.stop_waiting = doors.events.stop_waiting
        self._is_logged = self._access_log.wants
        self._logger = logger
        self._has_metrics_listener = settings.metrics_address is not None
        self._browser_headers = [NO_SNIFFING, HSTS] if settings.sends_hsts else [NO_SNIFFING]
        index = {"service": "watchword", "version": __version__, "graphql": "/api/graphql"}
        self._index = Response(200, [JSON], orjson.dumps(index))
        self._routes: dict[str, dict[str, Handler]] = {
            "/": {"GET": self._index_page},
            "/health": {"GET": self._ready},
            "/health/ready": {"GET": self._ready},
            **({} if self._has_metrics_listener else {METRICS: {"GET": self._metrics_page}}),
            **doors.routes(),
        }

    def __call__(self, scope: Scope, exchange: Exchange) -> Awaitable[None]:
        """Most verifications are answered at once, without a coroutine; `_answer` does everything else."""
        began = perf_counter()
        request = Request(scope, exchange, self._worker)
        if self._unfinished.is_watching:
            self._unfinished.add_headers(scope)
        bearer = self._authenticate_bearer_now(request) if request.path == AUTH else None
        if bearer is not None and (headers := self._plain_headers(request, bearer)) is not None:
            self._respond(request, AUTH, began, 204, headers, b"")
            return DONE
        return self._answer(request, began, bearer)

    async def _answer(self, request: Request, began: float, bearer: Bearer | None) -> None:
        path = without_gateway(request.path)
        resource = RESOURCE_AUTH.fullmatch(path) if path.startswith("/resources/") else None
        if path == AUTH or path.startswith(BELOW_AUTH) or resource is not None:
            route = AUTH
        else:
            route = path if path in self._routes else self._family(path)
        try:
            if route is AUTH:
                bearer = bearer or await self._authenticate_bearer(request)
                headers = None if resource else self._plain_headers(request, bearer)
                if headers is not None:
                    status, extra, body = 204, headers, b""
                else:
                    name = None if resource is None else resource[1]
                    status, extra, body = await self._doors.forward_auth.answer(request, bearer, name)
            else:
                status, extra, body = await self._route(request, path)
        except Fault as fault:
            status, extra, body = self._fault_response(fault, request, path, route)
        except Exception as error:  # noqa: BLE001 - the last resort: the client gets no details of a bug
            status, extra, body = self._fault_response(internal_fault(error), request, path, route)
        self._respond(request, route, began, status, extra, body)

    def _plain_headers(self, request: Request, bearer: Bearer) -> list[Header] | None:
        """The answer to a token without limits that matter to a gateway, of which the gateway requires nothing. None:
        the answer needs more, or other policies than those in memory.
        """
        if request.scope.query_string or bearer.limits.concern_gateways:
            return None
        rights = self._rights_now(bearer)
        return None if rights is None else identity_headers(bearer.actor, bearer.token_id, rights.text)

    def _respond(
        self, request: Request, route: str, began: float, status: int, extra: list[Header], body: bytes
    ) -> None:
        exchange = request.exchange
        headers = [("x-request-id", request.id), *extra]
        if request.has_unread_body:
            headers.append(CLOSE)
        if status == 204 or status == 304:  # noqa: PLR1714 - faster: it is nearly always 204
            exchange.response_empty(status, headers)
        elif request.scope.method == "HEAD":
            exchange.response_empty(status, [*headers, *self._browser_headers, ("content-length", str(len(body)))])
        else:
            exchange.response_bytes(status, [*headers, *self._browser_headers], body)
        seconds = perf_counter() - began
        self._count(route, status, request.verdict, seconds)
        if self._is_logged(route, status):
            self._access_log.write(request, route, status, seconds)

    async def _route(self, request: Request, path: str) -> Response:
        if len(path) + len(request.scope.query_string) > MAX_ADDRESS:
            raise Fault(Reason.ADDRESS_TOO_LONG, f"Path and query must have at most {MAX_ADDRESS:,} characters.")
        methods = self._routes.get(path)
        if methods is None and self._console is not None and self._console.serves(request.path):
            methods = {"GET": self._console.answer}
        if methods is None:
            if (find := self._doors.finder(path)) is not None:
                caller = await self._doors.authenticator.authenticate(request)
                entity = await self._doors.entities.answer(caller.actor, lambda: find(request, path, caller))
                if entity is not None:
                    return entity
            elif path.startswith(PROTECTED) and any(path == p or path.startswith(p + "/") for p in PROTECTED):
                await self._doors.authenticator.authenticate(request)
            raise _not_found()
        method = request.scope.method
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise _method_not_allowed(", ".join([*methods, *(["HEAD"] if "GET" in methods else [])]))
        return await handler(request)

    def _fault_response(self, fault: Fault, request: Request, path: str, route: str) -> Response:
        self._metrics.error(fault.reason)
        if fault.reason is Reason.INTERNAL:
            self._logger.error("internal error", cause=fault.cause, request_id=request.id)
        elif fault.cause is not None:
            self._logger.warning("fault", reason=fault.reason.word, cause=fault.cause, request_id=request.id)
        if self._doors.sign_in is not None and path in PAGES:
            return self._doors.sign_in.error_page(fault, request)
        if path in OAUTH:
            response = oauth_fault(fault)
        else:
            has_status = self._doors.finder(path) is not None
            response = fault_response(fault, graphql=path in GRAPHQL, has_status=has_status)
        if route is AUTH:
            response.headers.extend(identity_headers("", "")[1:])
        return response

    def _family(self, path: str) -> str:
        """The route label in metrics of a path that is not in the table."""
        return next((prefix for prefix in PREFIXES if self._console and path.startswith(prefix)), OTHER)

    async def _index_page(self, request: Request) -> Response:
        """The console; under a gateway's prefix, or without a console, the name and version."""
        if self._console is None or request.path != "/":
            return self._index
        return await self._console.index(request)

    async def _ready(self, request: Request) -> Response:
        return await (self._health.status() if self._has_metrics_listener else self._health.ready())

    async def _metrics_page(self, request: Request) -> Response:
        if request.path != METRICS:  # a gateway's prefix would bypass a proxy rule for /metrics
            raise _not_found()
        return await self._show_metrics()


class MetricsApp:
    """The second listener: metrics and detailed probes only, without authentication."""

    def __init__(self, metrics: Metrics, show_metrics: ShowMetrics, health: Health) -> None:
        self._metrics = metrics
        self._show_metrics = show_metrics
        self._health = health

    async def __call__(self, scope: Scope, exchange: Exchange) -> None:
        began, path = perf_counter(), scope.path
        known = path in {METRICS, "/health", "/health/ready", "/health/live"}
        if not known:
            status, extra, body = fault_response(_not_found(), graphql=False)
        elif scope.method not in {"GET", "HEAD"}:
            status, extra, body = fault_response(_method_not_allowed("GET, HEAD"), graphql=False)
        elif path == METRICS:
            status, extra, body = await self._show_metrics()
        else:
            status, extra, body = LIVE if path == "/health/live" else await self._health.ready()
        headers = [*extra, NO_SNIFFING, CLOSE]
        if scope.method == "HEAD":
            exchange.response_empty(status, [*headers, ("content-length", str(len(body)))])
        else:
            exchange.response_bytes(status, headers, body)
        self._metrics.request(path if known else OTHER, status, None, perf_counter() - began)


def without_gateway(path: str) -> str:
    if not path.startswith(GATEWAY_PREFIXES):
        return path
    for prefix in GATEWAY_PREFIXES:
        if path == prefix or path.startswith(prefix + "/"):
            return path[len(prefix) :] or "/"
    return path


def _not_found() -> Fault:
    return Fault(Reason.NO_SUCH_ADDRESS, "Nothing is served at this address.")


def _method_not_allowed(allow: str) -> Fault:
    return Fault(Reason.METHOD_NOT_ALLOWED, f"This address answers {allow}.", allow=allow)

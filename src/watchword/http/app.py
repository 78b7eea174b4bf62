"""The HTTP application: one table of routes, one place that turns faults into responses."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

import orjson
from structlog.typing import FilteringBoundLogger

from watchword import __version__
from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.tokens import DATAHUB_TOKENS
from watchword.http.authentication import Authenticator
from watchword.http.console import PREFIXES, Console
from watchword.http.datahub import DataHubEndpoints, is_datahub
from watchword.http.errors import JSON, NO_STORE, fault_response, internal_fault
from watchword.http.events import EventsEndpoint
from watchword.http.graphql.endpoint import GraphQLEndpoint
from watchword.http.graphql.schema import make_schema
from watchword.http.health import LIVE, Health
from watchword.http.logs import AccessLog
from watchword.http.metrics import CONTENT_TYPE, Metrics
from watchword.http.oauth import (
    DEVICE,
    DEVICE_AUTHORIZATION,
    INTROSPECT,
    JWKS,
    OAUTH,
    REVOKE,
    TOKEN,
    DeviceEndpoints,
    DevicePage,
    OAuthEndpoints,
    metadata,
    oauth_fault,
)
from watchword.http.operations import OperationsEndpoint
from watchword.http.processor_budget import MeteredAddress, ProcessorBudget
from watchword.http.requests import Exchange, Header, Request, Response, Scope, WorkerState
from watchword.http.sessions import (
    CALLBACK,
    LOGOUT,
    PAGES,
    SESSION,
    SIGN_IN,
    ConsoleRequests,
    SessionEndpoint,
    SignInEndpoint,
)
from watchword.http.unfinished import UnfinishedRequests
from watchword.http.verify import ForwardAuth, IgnoredParameters, identity_headers
from watchword.service import AllServices
from watchword.settings import Settings

GATEWAY_PREFIXES = ("/api/gms", "/gms")
GRAPHQL = frozenset({"/api/graphql", "/api/v2/graphql"})
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

Handler = Callable[[Request], Awaitable[Response]]
P = TypeVar("P", Bearer, Caller)

# The version from which DataHub's MCP server has `get_me`; a pre-release, because clients recommend a downgrade to a
# release.
COMPATIBLE_WITH = "v1.4.0-dev"
CONFIG: dict[str, Any] = {
    "noCode": "true",
    "versions": {"acryldata/datahub": {"version": COMPATIBLE_WITH}},
    "datahub": {"serverType": "prod", "serverEnv": "core"},
    "patchCapable": False,
    "statefulIngestionCapable": False,
    "telemetry": {"enabledCli": False},
}
CAPABILITIES = ("tokens", "accounts", "policies", "groups", "events", "operations")


def _config(settings: Settings) -> dict[str, Any]:
    more = [] if settings.datahub_salt is None else [DATAHUB_TOKENS]
    return CONFIG | {"watchword": {"version": __version__, "capabilities": [*CAPABILITIES, *more]}}


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
        services: AllServices,
        health: Health,
        metrics: Metrics,
        logger: FilteringBoundLogger,
        new_id: Callable[[], str],
        unfinished: UnfinishedRequests,
    ) -> None:
        core = services.core
        pages = ConsoleRequests(settings)
        on_unix_socket = settings.socket_path is not None
        self._worker = WorkerState(settings.trusted_proxies, on_unix_socket, new_id, unfinished.add_body)
        self._unfinished = unfinished
        self._authenticator = Authenticator(settings, core, pages.session_of if settings.console else None)
        self._authenticate_bearer = self._authenticator.authenticate_bearer
        self._authenticate_bearer_now = self._authenticator.authenticate_bearer_now
        self._rights_now = core.authority.rights_now
        budget = ProcessorBudget(settings.actor_processor_percent / 100)
        graphql = GraphQLEndpoint(make_schema(core.store.clock), services, logger, budget, metrics)
        ignored = IgnoredParameters(logger, metrics.ignored_parameter)
        self._forward_auth = ForwardAuth(self._authenticator, core.authority, core.rejections, metrics.error, ignored)
        operations = OperationsEndpoint(services.operations, core.rejections, core.store.clock)
        self._datahub = DataHubEndpoints(core, operations)
        self._entities = MeteredAddress(budget)
        events = EventsEndpoint(self._authenticator, core.audit, core.rejections, budget)
        self.stop_waiting = events.stop_waiting
        oauth = OAuthEndpoints(self._authenticator, core.tokens, core.keys, core.rejections)
        self._console = Console() if settings.console else None
        self._health = health
        self._metrics = metrics
        self._count = metrics.request
        self._access_log = AccessLog(logger, settings.access_log)
        self.close = self._access_log.flush
        self._is_logged = self._access_log.wants
        self._logger = logger
        self._has_metrics_listener = settings.metrics_address is not None
        self._browser_headers = [NO_SNIFFING, HSTS] if settings.sends_hsts else [NO_SNIFFING]
        index = {"service": "watchword", "version": __version__, "graphql": "/api/graphql"}
        self._index = Response(200, [JSON], orjson.dumps(index))
        bearer_only, any_caller = self._authenticator.authenticate, self._authenticator.authenticate_graphql
        self._routes: dict[str, dict[str, Handler]] = {
            "/": {"GET": self._index_page},
            "/config": {"GET": _always(Response(200, [JSON], orjson.dumps(_config(settings))))},
            "/health": {"GET": self._ready},
            "/health/live": {"GET": _always(LIVE)},
            "/health/ready": {"GET": self._ready},
            METRICS: {"GET": self._metrics_page},
            JWKS: {"GET": oauth.jwks},
            INTROSPECT: {"POST": _for(self._authenticate_bearer, oauth.introspect)},
            REVOKE: {"POST": oauth.revoke},
            **{
                path: {"GET": _always(response)}
                for path, response in metadata(settings.issuer, devices=settings.has_devices).items()
            },
            "/events": {"GET": events.answer},
            "/operations": {"POST": _for(bearer_only, _metered(budget, operations.answer))},
            **{
                path: {method: _for(bearer_only, _metered(budget, answer))}
                for path, (method, answer) in self._datahub.routes.items()
            },
            **{path: {"POST": _for(any_caller, graphql.answer)} for path in GRAPHQL},
        }
        if self._has_metrics_listener:
            del self._routes[METRICS]
        self._sign_in: SignInEndpoint | None = None
        if services.provider is not None:
            self._sign_in = endpoint = SignInEndpoint(services.provider, services, settings)
            self._routes[SIGN_IN], self._routes[CALLBACK] = {"GET": endpoint.begin}, {"GET": endpoint.callback}
            self._routes[LOGOUT] = {"POST": endpoint.logout}
        if settings.console:
            sessions = SessionEndpoint(
                *(pages, self._authenticator, core.sessions, core.policies, services.provider),
                *(settings.issuer, settings.data_dir),
            )
            self._routes[SESSION] = {"GET": sessions.show, "POST": sessions.sign_in, "DELETE": sessions.sign_out}
        if settings.has_devices and self._console is not None:
            devices = DeviceEndpoints(settings.issuer, core.devices, core.tokens, core.rejections)
            page = DevicePage(pages, self._authenticator, core.devices, core.rejections)
            self._routes[DEVICE_AUTHORIZATION] = {"POST": devices.start}
            self._routes[TOKEN] = {"POST": devices.token}
            self._routes[DEVICE] = {"GET": self._console.index, "POST": page.answer}

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
                    status, extra, body = await self._forward_auth.answer(request, bearer, name)
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
        limits = bearer.limits
        if limits.scopes is not None or limits.audience is not None or request.scope.query_string:
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
            if is_datahub(path):
                caller = await self._authenticator.authenticate(request)
                entity = await self._entities.answer(caller.actor, lambda: self._datahub.find(request, path, caller))
                if entity is not None:
                    return entity
            elif path.startswith(PROTECTED) and any(path == p or path.startswith(p + "/") for p in PROTECTED):
                await self._authenticator.authenticate(request)
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
        if self._sign_in is not None and path in PAGES:
            return self._sign_in.error_page(fault, request)
        if path in OAUTH:
            response = oauth_fault(fault)
        else:
            response = fault_response(fault, graphql=path in GRAPHQL, datahub=is_datahub(path))
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
        return await _metrics_text(self._metrics, self._health)


class MetricsApp:
    """The second listener: metrics and detailed probes only, without authentication."""

    def __init__(self, metrics: Metrics, health: Health) -> None:
        self._metrics = metrics
        self._health = health

    async def __call__(self, scope: Scope, exchange: Exchange) -> None:
        began, path = perf_counter(), scope.path
        known = path in {METRICS, "/health", "/health/ready", "/health/live"}
        if not known:
            status, extra, body = fault_response(_not_found(), graphql=False)
        elif scope.method not in {"GET", "HEAD"}:
            status, extra, body = fault_response(_method_not_allowed("GET, HEAD"), graphql=False)
        elif path == METRICS:
            status, extra, body = await _metrics_text(self._metrics, self._health)
        else:
            status, extra, body = LIVE if path == "/health/live" else await self._health.ready()
        headers = [*extra, NO_SNIFFING, CLOSE]
        if scope.method == "HEAD":
            exchange.response_empty(status, [*headers, ("content-length", str(len(body)))])
        else:
            exchange.response_bytes(status, headers, body)
        self._metrics.request(path if known else OTHER, status, None, perf_counter() - began)


async def _metrics_text(metrics: Metrics, health: Health) -> Response:
    metrics.store_reachable = await health.reaches_store()
    return Response(200, [("content-type", CONTENT_TYPE), NO_STORE], metrics.render())


def _for(
    authenticate: Callable[[Request], Awaitable[P]], answer: Callable[[Request, P], Awaitable[Response]]
) -> Handler:
    async def authenticate_and_answer(request: Request) -> Response:
        return await answer(request, await authenticate(request))

    return authenticate_and_answer


def _metered(
    budget: ProcessorBudget, answer: Callable[[Request, Caller], Coroutine[Any, Any, Response]]
) -> Callable[[Request, Caller], Awaitable[Response]]:
    address = MeteredAddress(budget)
    return lambda request, caller: address.answer(caller.actor, lambda: answer(request, caller))


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


def _always(response: Response) -> Handler:
    async def answer(request: Request) -> Response:
        return response

    return answer

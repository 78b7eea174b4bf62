"""The HTTP door, in RSGI. One table of addresses, one place where errors take their shape."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import orjson
from structlog.typing import FilteringBoundLogger

from watchword import __version__
from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.http.callers import Callers
from watchword.http.console import PREFIXES, Console
from watchword.http.faults import JSON, NO_STORE, fault_response, internal_fault, printable, redact
from watchword.http.graphql.endpoint import GraphQLEndpoint
from watchword.http.health import LIVE, Health
from watchword.http.logs import AccessLog
from watchword.http.metrics import CONTENT_TYPE, Metrics
from watchword.http.oauth import INTROSPECT, JWKS, OAUTH, REVOKE, OAuthDoor, metadata, oauth_fault
from watchword.http.operations import OperationsDoor
from watchword.http.requests import Exchange, Header, Request, RequestReader, Response, Scope
from watchword.http.requirements import WANTS_200, Requirements, required
from watchword.http.sessions import SESSION, SessionDoor
from watchword.service.refusals import Refusals
from watchword.service.sessions import Visit

GATEWAY_PREFIXES = ("/api/gms", "/gms")
GRAPHQL = frozenset({"/api/graphql", "/api/v2/graphql"})
# Below these, whoever brings no valid credential learns nothing of what exists.
PROTECTED = ("/api", "/operations", "/openapi", "/oauth2")
AUTH, BELOW_AUTH = "/auth", "/auth/"
METRICS = "/metrics"
OTHER = "other"
NO_SCOPES = ("x-auth-scopes", "")
NO_SNIFFING = ("x-content-type-options", "nosniff")
# Without subdomains: those may be others'.
HSTS = ("strict-transport-security", "max-age=31536000")
CLOSE = ("connection", "close")
MAX_ADDRESS = 8_192
MAX_TOLD = 200

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T", Caller, Visit)

# So old that DataHub's clients leave out what newer servers have; and a pre-release, because for a release theirs
# advise to be downgraded to it.
COMPATIBLE_WITH = "v1.0.0-dev"
CONFIG: dict[str, Any] = {
    "noCode": "true",
    "versions": {"acryldata/datahub": {"version": COMPATIBLE_WITH}},
    "datahub": {"serverType": "prod", "serverEnv": "core"},
    "patchCapable": False,
    "statefulIngestionCapable": False,
    "telemetry": {"enabledCli": False},
    "watchword": {
        "version": __version__,
        "capabilities": ["tokens", "accounts", "policies", "groups", "events", "operations"],
    },
}
_VERDICTS = {
    Reason.MISSING_CREDENTIAL: "missing",
    Reason.INVALID_TOKEN: "invalid",
    Reason.TOKEN_EXPIRED: "expired",
    Reason.TOKEN_REVOKED: "revoked",
    Reason.SESSION_OVER: "invalid",
    Reason.INVALID_HEADER: "invalid",
    Reason.STORE_UNAVAILABLE: "unavailable",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What the door uses, and nothing else."""

    reader: RequestReader
    callers: Callers
    graphql: GraphQLEndpoint
    operations: OperationsDoor
    requirements: Requirements
    oauth: OAuthDoor
    health: Health
    refusals: Refusals
    metrics: Metrics
    access_log: AccessLog
    logger: FilteringBoundLogger
    issuer: str
    hsts: bool
    has_metrics_listener: bool
    console: Console | None
    sessions: SessionDoor
    """Asked only where there is a console."""


class App:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._reader = parts.reader
        self._count = parts.metrics.request
        self._is_logged = parts.access_log.wants
        self._verify = parts.callers.bearer
        self._browser_rules = [NO_SNIFFING, HSTS] if parts.hsts else [NO_SNIFFING]
        config = Response(200, [JSON], orjson.dumps(CONFIG))
        self._index = Response(
            200,
            [JSON],
            orjson.dumps({"service": "watchword", "version": __version__, "graphql": "/api/graphql"}),
        )
        self._routes: dict[str, dict[str, Handler]] = {
            "/": {"GET": self._front},
            "/config": {"GET": _always(config)},
            "/health": {"GET": self._ready},
            "/health/live": {"GET": _always(LIVE)},
            "/health/ready": {"GET": self._ready},
            METRICS: {"GET": self._metrics},
            JWKS: {"GET": parts.oauth.jwks},
            INTROSPECT: {"POST": self._introspect},
            REVOKE: {"POST": parts.oauth.revoke},
            **{path: {"GET": _always(told)} for path, told in metadata(parts.issuer).items()},
            "/operations": {"POST": self._operations},
            "/openapi/operations/identity/user/urn": {"GET": self._urn},
            **{path: {"POST": self._graphql} for path in GRAPHQL},
        }
        if parts.has_metrics_listener:
            del self._routes[METRICS]
        self._console = parts.console
        if parts.console is not None:
            sessions: dict[str, Handler] = {
                "GET": self._session,
                "POST": self._sign_in,
                "DELETE": parts.sessions.sign_out,
            }
            self._routes[SESSION] = sessions

    async def __call__(self, scope: Scope, exchange: Exchange) -> None:
        """One request. Every error of every address takes its shape here."""
        began = perf_counter()
        request = Request(scope, exchange, self._reader)
        path = without_gateway(request.path)
        route = (
            AUTH
            if path == AUTH or path.startswith(BELOW_AUTH)
            else path
            if path in self._routes
            else self._family(path)
        )
        try:
            if route is AUTH:
                bearer = await self._bearer(request)
                limits = bearer.limits
                if limits.scopes is None and limits.audience is None and not request.query:
                    status, own, body = 204, identity(bearer.actor, bearer.token_id), b""
                else:
                    status, own, body = await self._required(request, bearer)
            else:
                status, own, body = await self._routed(request, path)
        except Fault as fault:
            status, own, body = self._shaped(fault, request, path, route)
        except Exception as error:  # noqa: BLE001 - the last resort: no client sees a defect's inside
            status, own, body = self._shaped(internal_fault(error), request, path, route)
        headers = [("x-request-id", request.id), *own]
        if request.has_unread_body:
            headers.append(CLOSE)
        if status == 204 or status == 304:  # noqa: PLR1714 - the first of them is nearly all
            exchange.response_empty(status, headers)
        elif request.method == "HEAD":
            exchange.response_empty(status, [*headers, *self._browser_rules, ("content-length", str(len(body)))])
        else:
            exchange.response_bytes(status, [*headers, *self._browser_rules], body)
        seconds = perf_counter() - began
        self._count(route, status, request.verdict, seconds)
        if self._is_logged(route, status):
            self._parts.access_log.write(request, route, status, seconds)

    async def _routed(self, request: Request, path: str) -> Response:
        if len(path) + len(request.query) > MAX_ADDRESS:
            raise Fault(Reason.ADDRESS_TOO_LONG, f"Path and query must have at most {MAX_ADDRESS:,} characters.")
        methods = self._routes.get(path)
        if methods is None and self._console is not None and self._console.serves(request.path):
            methods = {"GET": self._console.answer}
        if methods is None:
            if path.startswith(PROTECTED) and any(path == p or path.startswith(p + "/") for p in PROTECTED):
                await self._identify(request)
            raise _nothing_here()
        return await _handler(methods, request.method)(request)

    def _shaped(self, fault: Fault, request: Request, path: str, route: str) -> Response:
        if fault.reason is Reason.INTERNAL:
            self._parts.logger.error("defect", why=fault.why, request_id=request.id)
        elif fault.why is not None:
            self._parts.logger.warning("fault", reason=fault.reason.word, why=fault.why, request_id=request.id)
        response = oauth_fault(fault) if path in OAUTH else fault_response(fault, graphql=path in GRAPHQL)
        if route is AUTH:
            response.headers.extend(identity("", "")[1:])
        return response

    def _family(self, path: str) -> str:
        """What the metrics call an address that has no name of its own."""
        return next((prefix for prefix in PREFIXES if self._console and path.startswith(prefix)), OTHER)

    async def _identify(self, request: Request) -> Caller:
        return await self._known(request, self._parts.callers.identify(request))

    async def _known(self, request: Request, asked: Awaitable[T]) -> T:
        """Whoever it turns out to be, or the refusal, noted with the request."""
        try:
            found = await asked
        except Fault as fault:
            self._refused(request, fault)
            raise
        request.verdict = "accepted" if found.bearer_id is not None else "believed"
        request.actor = found.actor
        return found

    def _refused(self, request: Request, fault: Fault) -> None:
        request.verdict = _VERDICTS.get(fault.reason, "refused")
        self._parts.refusals.failed(request.client, request.id, printable(redact(request.path))[:MAX_TOLD], fault)

    async def _graphql(self, request: Request) -> Response:
        caller = await self._known(request, self._parts.callers.anybody(request))
        return await self._parts.graphql.answer(request, caller)

    async def _front(self, request: Request) -> Response:
        """The console; to who comes through a gateway's prefix, what this is."""
        if self._console is None or request.path != "/":
            return self._index
        return await self._console.front(request)

    async def _session(self, request: Request) -> Response:
        return await self._parts.sessions.tell(request, self._known)

    async def _sign_in(self, request: Request) -> Response:
        return await self._parts.sessions.sign_in(request, self._known)

    async def _operations(self, request: Request) -> Response:
        return await self._parts.operations.answer(request, await self._identify(request))

    async def _urn(self, request: Request) -> Response:
        caller = await self._identify(request)
        return Response(200, [JSON, NO_STORE], orjson.dumps(caller.actor))

    async def _introspect(self, request: Request) -> Response:
        return await self._parts.oauth.introspect(request, await self._bearer(request))

    async def _bearer(self, request: Request) -> Bearer:
        """`_identify` where only a bearer counts, whatever its audience, and no more than who it is gets asked."""
        try:
            bearer = await self._verify(request)
        except Fault as fault:
            self._refused(request, fault)
            raise
        request.verdict = "accepted"
        request.actor = bearer.actor
        return bearer

    async def _required(self, request: Request, bearer: Bearer) -> Response:
        """The answer about a live token of which something is required, or that has scopes or an audience."""
        scopes = " ".join(bearer.limits.scopes or ())
        try:
            wanted = required(request.query)
            await self._parts.requirements.check(bearer, request, wanted)
        except Fault as fault:
            response = fault_response(fault, graphql=False)
            response.headers.extend(identity(bearer.actor, bearer.token_id, scopes)[1:])
            return response
        return Response(200 if WANTS_200 in wanted else 204, identity(bearer.actor, bearer.token_id, scopes))

    async def _ready(self, request: Request) -> Response:
        parts = self._parts
        return await (parts.health.status() if parts.has_metrics_listener else parts.health.ready())

    async def _metrics(self, request: Request) -> Response:
        if request.path != METRICS:  # under a gateway's prefix: past a proxy's rule for /metrics
            raise _nothing_here()
        return _metrics_text(self._parts.metrics)


class MetricsApp:
    """The second listener: metrics, probes with their parts, and nothing else. Nobody needs a credential there."""

    def __init__(self, metrics: Metrics, health: Health) -> None:
        async def text() -> Response:
            return _metrics_text(metrics)

        async def live() -> Response:
            return LIVE

        self._count = metrics.request
        self._routes: dict[str, Callable[[], Awaitable[Response]]] = {
            METRICS: text,
            "/health": health.ready,
            "/health/ready": health.ready,
            "/health/live": live,
        }

    async def __call__(self, scope: Scope, exchange: Exchange) -> None:
        began = perf_counter()
        route = self._routes.get(scope.path)
        if route is None:
            status, own, body = fault_response(_nothing_here(), graphql=False)
        elif scope.method not in {"GET", "HEAD"}:
            status, own, body = fault_response(_method_not_allowed("GET, HEAD"), graphql=False)
        else:
            status, own, body = await route()
        headers = [*own, NO_SNIFFING, CLOSE]
        if scope.method == "HEAD":
            exchange.response_empty(status, [*headers, ("content-length", str(len(body)))])
        else:
            exchange.response_bytes(status, headers, body)
        self._count(OTHER if route is None else scope.path, status, None, perf_counter() - began)


def _metrics_text(metrics: Metrics) -> Response:
    return Response(200, [("content-type", CONTENT_TYPE), NO_STORE], metrics.render())


def without_gateway(path: str) -> str:
    if not path.startswith(GATEWAY_PREFIXES):
        return path
    for prefix in GATEWAY_PREFIXES:
        if path == prefix or path.startswith(prefix + "/"):
            return path[len(prefix) :] or "/"
    return path


def identity(urn: str, token_id: str, scopes: str = "") -> list[Header]:
    """Always all three: some gateways pass the client's own copy on where the answer lacks one. Never to be stored."""
    return [
        NO_STORE,
        ("x-auth-urn", urn),
        ("x-auth-token-id", token_id),
        ("x-auth-scopes", scopes) if scopes else NO_SCOPES,
    ]


def _nothing_here() -> Fault:
    return Fault(Reason.NO_SUCH_ADDRESS, "Nothing is served at this address.")


def _handler(methods: dict[str, Handler], method: str) -> Handler:
    handler = methods.get("GET" if method == "HEAD" else method)
    if handler is None:
        allow = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        raise _method_not_allowed(allow)
    return handler


def _method_not_allowed(allow: str) -> Fault:
    return Fault(Reason.METHOD_NOT_ALLOWED, f"This address answers {allow}.", allow=allow)


def _always(response: Response) -> Handler:
    async def answer(request: Request) -> Response:
        return response

    return answer

"""The HTTP door: a plain ASGI application. One table of addresses, one place where errors take their shape."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from structlog.typing import FilteringBoundLogger

from watchword import __version__
from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.doors.http.callers import Callers
from watchword.doors.http.faults import JSON, NO_STORE, fault_response, internal_fault, printable, redact
from watchword.doors.http.graphql.endpoint import GraphQLEndpoint
from watchword.doors.http.health import LIVE, Health
from watchword.doors.http.logs import AccessLog
from watchword.doors.http.metrics import CONTENT_TYPE, Metrics
from watchword.doors.http.oauth import INTROSPECT, JWKS, OAUTH, REVOKE, OAuthDoor, metadata, oauth_fault
from watchword.doors.http.operations import OperationsDoor
from watchword.doors.http.requests import Receive, Request, RequestReader, Response, Scope, Send
from watchword.doors.http.requirements import WANTS_200, Requirements, required
from watchword.service.refusals import Refusals

GATEWAY_PREFIXES = ("/api/gms", "/gms")
GRAPHQL = frozenset({"/api/graphql", "/api/v2/graphql"})
# Below these, whoever brings no valid credential learns nothing of what exists.
PROTECTED = ("/api", "/operations", "/openapi", "/oauth2")
OTHER = "other"
NO_SCOPES = (b"x-auth-scopes", b"")
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
BODY = "http.response.body"
NO_BODY: dict[str, Any] = {"type": BODY, "body": b""}
MAX_ADDRESS = 8_192
MAX_TOLD = 200

Handler = Callable[[Request], Awaitable[Response]]

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


class App:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        config = Response(200, [JSON], orjson.dumps(CONFIG))
        index = Response(
            200,
            [JSON],
            orjson.dumps({"service": "watchword", "version": __version__, "graphql": "/api/graphql"}),
        )
        self._routes: dict[str, dict[str, Handler]] = {
            "/": {"GET": _always(index)},
            "/config": {"GET": _always(config)},
            "/health": {"GET": self._ready},
            "/health/live": {"GET": _always(LIVE)},
            "/health/ready": {"GET": self._ready},
            "/metrics": {"GET": self._metrics},
            JWKS: {"GET": parts.oauth.jwks},
            INTROSPECT: {"POST": self._introspect},
            REVOKE: {"POST": parts.oauth.revoke},
            **{path: {"GET": _always(told)} for path, told in metadata(parts.issuer).items()},
            "/operations": {"POST": self._operations},
            "/openapi/operations/identity/user/urn": {"GET": self._urn},
            **{path: {"POST": self._graphql} for path in GRAPHQL},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        parts = self._parts
        request = parts.reader.read(scope, receive)
        path = without_gateway(request.path)
        route, response = await self._answer(request, path)
        status, own, body = response
        headers = [(b"x-request-id", request.id.encode()), NO_SNIFFING, *own]
        if status != 204:
            headers.append((b"content-length", str(len(body)).encode()))
        if request.has_unread_body:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send(NO_BODY if status == 204 or request.method == "HEAD" else {"type": BODY, "body": body})
        seconds = time.perf_counter() - began
        parts.metrics.request(route, status, seconds)
        if parts.access_log.wants(route, status):
            parts.access_log.write(
                method=request.method,
                path=request.path,
                status=status,
                seconds=seconds,
                client=request.client,
                request_id=request.id,
                actor=request.actor,
            )

    async def _answer(self, request: Request, path: str) -> tuple[str, Response]:
        """The route's name and the answer. Every error of every address takes its shape here."""
        route = OTHER
        try:
            if path == "/auth" or path.startswith("/auth/"):
                route = "/auth"
                return route, await self._auth(request)
            _check_address(request)
            methods = self._routes.get(path)
            if methods is None:
                await self._unknown(request, path)
            else:
                route = path
                return route, await _handler(methods, request.method)(request)
        except Fault as fault:
            response = _shaped(fault, path)
            if fault.why is not None:
                self._parts.logger.warning("fault", reason=fault.reason.word, why=fault.why, request_id=request.id)
        except Exception as error:  # noqa: BLE001 - the last resort: no client sees a defect's inside
            defect = internal_fault(error)
            self._parts.logger.error("defect", why=defect.why, request_id=request.id)  # noqa: TRY400 - no traceback
            response = _shaped(defect, path)
        if route == "/auth":
            response.headers.extend(identity("", "")[1:])
        return route, response

    async def _identify(self, request: Request, *, actor_header: bool = False) -> Caller:
        try:
            caller = await self._parts.callers.identify(request, actor_header=actor_header)
        except Fault as fault:
            self._refused(request, fault)
            raise
        self._parts.metrics.verified("accepted" if caller.bearer_id is not None else "believed")
        request.actor = caller.actor
        return caller

    async def _bearer(self, request: Request) -> Bearer:
        """`_identify` where only a bearer counts, whatever its audience, and no more than who it is gets asked."""
        try:
            bearer = await self._parts.callers.bearer(request)
        except Fault as fault:
            self._refused(request, fault)
            raise
        self._parts.metrics.verified("accepted")
        request.actor = bearer.actor
        return bearer

    def _refused(self, request: Request, fault: Fault) -> None:
        self._parts.metrics.verified(_VERDICTS.get(fault.reason, "refused"))
        self._parts.refusals.failed(request.client, request.id, printable(redact(request.path))[:MAX_TOLD], fault)

    async def _graphql(self, request: Request) -> Response:
        caller = await self._identify(request, actor_header=True)
        return await self._parts.graphql.answer(request, caller)

    async def _operations(self, request: Request) -> Response:
        return await self._parts.operations.answer(request, await self._identify(request))

    async def _urn(self, request: Request) -> Response:
        caller = await self._identify(request)
        return Response(200, [JSON, NO_STORE], orjson.dumps(caller.actor))

    async def _introspect(self, request: Request) -> Response:
        return await self._parts.oauth.introspect(request, await self._bearer(request))

    async def _auth(self, request: Request) -> Response:
        bearer = await self._bearer(request)
        if bearer.limits.scopes is None and not request.query:
            return Response(204, identity(bearer.actor, bearer.token_id))
        scopes = " ".join(bearer.limits.scopes or ())
        wanted = required(request.query)
        if wanted:
            try:
                await self._parts.requirements.check(bearer, request, wanted)
            except Fault as fault:
                response = fault_response(fault, graphql=False)
                response.headers.extend(identity(bearer.actor, bearer.token_id, scopes)[1:])
                return response
        return Response(200 if WANTS_200 in wanted else 204, identity(bearer.actor, bearer.token_id, scopes))

    async def _unknown(self, request: Request, path: str) -> None:
        if path.startswith(PROTECTED) and any(path == p or path.startswith(p + "/") for p in PROTECTED):
            await self._identify(request)
        raise Fault(Reason.NO_SUCH_ADDRESS, "Nothing is served at this address.")

    async def _ready(self, request: Request) -> Response:
        return await self._parts.health.ready()

    async def _metrics(self, request: Request) -> Response:
        return Response(200, [(b"content-type", CONTENT_TYPE), NO_STORE], self._parts.metrics.render())


def without_gateway(path: str) -> str:
    if not path.startswith(GATEWAY_PREFIXES):
        return path
    for prefix in GATEWAY_PREFIXES:
        if path == prefix or path.startswith(prefix + "/"):
            return path[len(prefix) :] or "/"
    return path


def identity(urn: str, token_id: str, scopes: str = "") -> list[tuple[bytes, bytes]]:
    """Always all three: some gateways pass the client's own copy on where the answer lacks one. Never to be stored."""
    return [
        NO_STORE,
        (b"x-auth-urn", urn.encode()),
        (b"x-auth-token-id", token_id.encode()),
        (b"x-auth-scopes", scopes.encode()) if scopes else NO_SCOPES,
    ]


def _shaped(fault: Fault, path: str) -> Response:
    return oauth_fault(fault) if path in OAUTH else fault_response(fault, graphql=path in GRAPHQL)


def _check_address(request: Request) -> None:
    if len(request.path) + len(request.query) > MAX_ADDRESS:
        raise Fault(Reason.ADDRESS_TOO_LONG, f"Path and query must have at most {MAX_ADDRESS:,} characters.")


def _handler(methods: dict[str, Handler], method: str) -> Handler:
    handler = methods.get("GET" if method == "HEAD" else method)
    if handler is None:
        allow = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        raise Fault(Reason.METHOD_NOT_ALLOWED, f"This address answers {allow}.", allow=allow)
    return handler


def _always(response: Response) -> Handler:
    async def answer(request: Request) -> Response:
        return response

    return answer

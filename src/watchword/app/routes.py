"""The table of routes, and the doors behind it: what each is given."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import orjson
from structlog.typing import FilteringBoundLogger

from watchword import __version__
from watchword.app.console import Console
from watchword.app.graphql_endpoint import GraphQLEndpoint
from watchword.app.graphql_schema import make_schema
from watchword.app.health import LIVE
from watchword.app.metrics import Metrics
from watchword.app.services import Services
from watchword.audit.http import EventsEndpoint
from watchword.authority.callers import Bearer, Caller
from watchword.datahub.http import DataHubEndpoints
from watchword.http.errors import JSON
from watchword.http.processor_budget import MeteredAddress, ProcessorBudget
from watchword.http.requests import Request, Response
from watchword.index.http import OperationsEndpoint
from watchword.settings import Settings
from watchword.signin.authentication_http import Authenticator
from watchword.signin.device_http import DeviceEndpoints, DevicePage
from watchword.signin.openid_http import CALLBACK, LOGOUT, SIGN_IN, SignInEndpoint
from watchword.signin.session_http import SESSION, ConsoleRequests, SessionEndpoint
from watchword.tokens import oauth_http
from watchword.tokens.rules import DATAHUB_TOKENS
from watchword.tokens.verify_http import ForwardAuth, IgnoredParameters

GRAPHQL = frozenset({"/api/graphql", "/api/v2/graphql"})
Handler = Callable[[Request], Awaitable[Response]]
Find = Callable[[Request, str, Caller], Coroutine[Any, Any, Response | None]]
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
OTHER_SERVERS = (DataHubEndpoints,)
"""Addresses of other servers, for their clients. Nothing else here knows them."""
CAPABILITIES = ("tokens", "accounts", "policies", "groups", "events", "operations")


def _config(settings: Settings) -> dict[str, Any]:
    more = [] if settings.datahub_salt is None else [DATAHUB_TOKENS]
    return CONFIG | {"watchword": {"version": __version__, "capabilities": [*CAPABILITIES, *more]}}


class Doors:
    def __init__(self, settings: Settings, services: Services, metrics: Metrics, logger: FilteringBoundLogger) -> None:
        rejections, clock = services.rejections, services.store.clock
        self._settings, self._services = settings, services
        self._pages = ConsoleRequests(settings.public_url, settings.trusted_proxies, local_mode=settings.local_mode_on)
        self.authenticator = Authenticator(
            services.authority,
            services.sessions,
            rejections,
            audience=settings.issuer,
            local_mode=settings.local_mode_on,
            actor_headers=settings.actor_headers,
            trusted_peers=settings.trusted_peers,
            session_of=self._pages.session_of if settings.console else None,
        )
        self.rights_now = services.authority.rights_now
        ignored = IgnoredParameters(logger, metrics.ignored_parameter)
        self.forward_auth = ForwardAuth(
            self.authenticator.require_audience, services.authority, rejections, metrics.error, ignored
        )
        self._budget = ProcessorBudget(settings.actor_processor_percent / 100)
        self.entities = MeteredAddress(self._budget)
        self._graphql = GraphQLEndpoint(make_schema(clock), services, logger, self._budget, metrics)
        self._operations = OperationsEndpoint(services.operations, rejections, clock)
        self._others = [
            endpoints(services.actors, services.policies, services.audit, rejections, clock, self._operations)
            for endpoints in OTHER_SERVERS
        ]
        self.events = EventsEndpoint(self.authenticator.authenticate, services.audit, rejections, self._budget)
        self._oauth = oauth_http.OAuthEndpoints(
            self.authenticator.caller, services.introspector, services.revoker, services.keys, rejections
        )
        self.console = Console() if settings.console else None
        self.sign_in = None
        if services.provider is not None:
            self.sign_in = SignInEndpoint(
                services.provider,
                services.sessions,
                rejections,
                services.cookie_seal,
                clock,
                settings.claim_rules,
                settings.issuer,
            )

    def finder(self, path: str) -> Find | None:
        """What finds an entity at the path, if that is an address of another server."""
        return next((endpoints.find for endpoints in self._others if endpoints.has(path)), None)

    def routes(self) -> dict[str, dict[str, Handler]]:
        settings, oauth = self._settings, self._oauth
        bearer_only, any_caller = self.authenticator.authenticate, self.authenticator.authenticate_graphql
        described = oauth_http.metadata(settings.issuer, devices=settings.has_devices)
        return {
            "/config": {"GET": _always(Response(200, [JSON], orjson.dumps(_config(settings))))},
            "/health/live": {"GET": _always(LIVE)},
            oauth_http.JWKS: {"GET": oauth.jwks},
            oauth_http.INTROSPECT: {"POST": _for(self.authenticator.authenticate_bearer, oauth.introspect)},
            oauth_http.REVOKE: {"POST": oauth.revoke},
            **{path: {"GET": _always(response)} for path, response in described.items()},
            "/events": {"GET": self.events.answer},
            "/operations": {"POST": _for(bearer_only, self._metered(self._operations.answer))},
            **{
                path: {method: _for(bearer_only, self._metered(answer))}
                for endpoints in self._others
                for path, (method, answer) in endpoints.routes.items()
            },
            **{path: {"POST": _for(any_caller, self._graphql.answer)} for path in GRAPHQL},
            **self._sign_in_routes(),
            **self._device_routes(),
        }

    def _sign_in_routes(self) -> dict[str, dict[str, Handler]]:
        services, routes = self._services, dict[str, dict[str, Handler]]()
        if self.sign_in is not None:
            routes[SIGN_IN], routes[CALLBACK] = {"GET": self.sign_in.begin}, {"GET": self.sign_in.callback}
            routes[LOGOUT] = {"POST": self.sign_in.logout}
        if self.console is not None:
            sessions = SessionEndpoint(
                self._pages,
                self.authenticator,
                services.sessions,
                services.actors,
                services.provider,
                self._settings.issuer,
                self._settings.data_dir,
            )
            routes[SESSION] = {"GET": sessions.show, "POST": sessions.sign_in, "DELETE": sessions.sign_out}
        return routes

    def _device_routes(self) -> dict[str, dict[str, Handler]]:
        services = self._services
        if not self._settings.has_devices or self.console is None:
            return {}
        devices = DeviceEndpoints(self._settings.issuer, services.devices, services.issuer, services.rejections)
        page = DevicePage(self._pages, self.authenticator.authenticate_session, services.devices, services.rejections)
        return {
            oauth_http.DEVICE_AUTHORIZATION: {"POST": devices.start},
            oauth_http.TOKEN: {"POST": devices.token},
            oauth_http.DEVICE: {"GET": self.console.index, "POST": page.answer},
        }

    def _metered(
        self, answer: Callable[[Request, Caller], Coroutine[Any, Any, Response]]
    ) -> Callable[[Request, Caller], Awaitable[Response]]:
        address = MeteredAddress(self._budget)
        return lambda request, caller: address.answer(caller.actor, lambda: answer(request, caller))


def _for(
    authenticate: Callable[[Request], Awaitable[P]], answer: Callable[[Request, P], Awaitable[Response]]
) -> Handler:
    async def authenticate_and_answer(request: Request) -> Response:
        return await answer(request, await authenticate(request))

    return authenticate_and_answer


def _always(response: Response) -> Handler:
    async def answer(request: Request) -> Response:
        return response

    return answer

"""Authentication: who is calling, from the headers and the connection of a request.

A bearer token is proof: any `Authorization` header decides alone. The actor header is a claim. It is accepted only on
the GraphQL addresses, and only from a trusted peer or, in local mode, from a process of the server's own user, when
nothing in the request indicates a browser page or a proxy. On the same addresses the console sends a session cookie.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Concatenate, ParamSpec, TypeVar

from watchword.authority.callers import Bearer, Caller
from watchword.authority.limits import Limits
from watchword.authority.rejections_service import RejectionLog
from watchword.authority.service import Authority
from watchword.basics.errors import AUTHORIZATION_TOO_LONG, MAX_AUTHORIZATION, Fault, Reason
from watchword.basics.networks import Network, within
from watchword.basics.secret import Secret
from watchword.http.errors import printable, redact
from watchword.http.own_user import not_of_own_user
from watchword.http.requests import UNIX_PEER, UNREADABLE, Request
from watchword.signin.session_service import SessionCaller, Sessions

CONSOLE_HEADER = "x-watchword-console"
"""The console sends it with every request."""
HOW_TO_AUTHENTICATE = "Send a token: Authorization: Bearer <token>."
NOT_SIGNED_IN = "Not signed in. Sign in first."
ACCEPTED = "accepted"
MAX_LOGGED_PATH = 200

_VERDICTS = {
    Reason.MISSING_CREDENTIAL: "missing",
    Reason.INVALID_TOKEN: "invalid",
    Reason.TOKEN_EXPIRED: "expired",
    Reason.TOKEN_REVOKED: "revoked",
    Reason.SESSION_OVER: "invalid",
    Reason.INVALID_HEADER: "invalid",
    Reason.STORE_UNAVAILABLE: "unavailable",
}

P = TypeVar("P", Bearer, Caller, SessionCaller)
A = ParamSpec("A")
ReadSession = Callable[[Request], Secret[str] | None]


def _recorded(
    method: Callable[Concatenate["Authenticator", Request, A], Awaitable[P]],
) -> Callable[Concatenate["Authenticator", Request, A], Awaitable[P]]:
    """Records the result of an authentication in the metrics, the access log and the audit log."""

    async def authenticate(self: "Authenticator", request: Request, /, *args: A.args, **kwargs: A.kwargs) -> P:
        try:
            principal = await method(self, request, *args, **kwargs)
        except Fault as fault:
            request.verdict = _VERDICTS.get(fault.reason, "refused")
            path = printable(redact(request.path))[:MAX_LOGGED_PATH]
            self._rejections.record_failed_authentication(request.client, request.id, path, fault)
            raise
        request.verdict = "believed" if principal.bearer_id is None else ACCEPTED
        request.actor = principal.actor
        return principal

    return authenticate


class Authenticator:
    def __init__(
        self,
        authority: Authority,
        sessions: Sessions,
        rejections: RejectionLog,
        *,
        audience: str,
        local_mode: bool,
        actor_headers: Collection[str],
        trusted_peers: Collection[Network | None],
        session_of: ReadSession | None,
    ) -> None:
        """None among the peers is a Unix socket. `session_of` reads the cookie; without it, no session is accepted."""
        self._authority = authority
        self._sessions = sessions
        self._rejections = rejections
        self._audience = audience
        self._local_mode = local_mode
        self._actor_headers = [name.lower() for name in actor_headers]
        self._networks = tuple([peer for peer in trusted_peers if peer is not None])
        self._trusts_unix = None in trusted_peers
        self._session_of = session_of

    def authenticate_bearer_now(self, request: Request) -> Bearer | None:
        """`authenticate_bearer` without waiting, where that can be done and succeeds."""
        if not self._authority.verifies_now:
            return None
        try:
            bearer = self._authority.verify_now(bearer_token(request), request.client)
        except Exception:  # noqa: BLE001 - `authenticate_bearer` finds and reports the same problem
            return None
        if bearer is not None:
            request.verdict, request.actor = ACCEPTED, bearer.actor
        return bearer

    @_recorded
    async def authenticate_bearer(self, request: Request) -> Bearer:
        """By bearer token only, whatever its audience."""
        return await self._authority.verify(bearer_token(request), request.client, request.id)

    @_recorded
    async def authenticate(self, request: Request) -> Caller:
        """By bearer token only, for this service."""
        return await self._verify(bearer_token(request), request)

    @_recorded
    async def authenticate_graphql(self, request: Request) -> Caller:
        """By bearer token, actor header or session."""
        if "authorization" in request.headers:
            return await self._verify(bearer_token(request), request)
        # The console uses its session, whatever headers a gateway adds.
        is_console = CONSOLE_HEADER in request.headers
        headers = [] if is_console else [name for name in self._actor_headers if name in request.headers]
        objection = self._objection(request) if headers else None
        if headers and objection is None:
            return await self._claimed(_claimed_actor(request, headers), headers[0], request)
        session = None if self._session_of is None else self._session_of(request)
        if session is not None:
            return (await self._session(session, request)).caller
        if objection is not None:
            raise Fault(Reason.MISSING_CREDENTIAL, f"{headers[0]} is not accepted: {objection}. {HOW_TO_AUTHENTICATE}")
        raise Fault(Reason.MISSING_CREDENTIAL, NOT_SIGNED_IN if is_console else HOW_TO_AUTHENTICATE)

    @_recorded
    async def authenticate_session(self, request: Request, session: Secret[str]) -> SessionCaller:
        return await self._session(session, request)

    @_recorded
    async def authenticate_token(self, request: Request, token: bytes) -> Caller:
        """By a token in the body, to sign in."""
        return await self._verify(token, request)

    @_recorded
    async def authenticate_actor(self, request: Request, actor: str) -> Caller:
        """By choosing an actor, to sign in in local mode."""
        objection = self._not_local(request)
        if objection is not None:
            raise Fault(
                Reason.FOREIGN_REQUEST,
                "An actor can be chosen only in local mode, by the user that the server runs as; "
                f"{objection}. Sign in with a token.",
            )
        return await self._claimed(actor, "actor", request)

    async def _verify(self, token: bytes, request: Request) -> Caller:
        bearer = self._authority.verify_now(token, request.client)
        return self.caller(bearer or await self._authority.verify(token, request.client, request.id), request)

    async def _session(self, session: Secret[str], request: Request) -> SessionCaller:
        by = await self._sessions.authenticate(session, request.client, request.id, local=self.is_local(request))
        self.require_audience(by.caller.limits)
        return by

    def caller(self, bearer: Bearer, request: Request) -> Caller:
        self.require_audience(bearer.limits)
        return Caller.with_bearer(bearer, request.client, request.id)

    def require_audience(self, limits: Limits) -> None:
        if limits.audience is not None and self._audience not in limits.audience:
            raise Fault(
                Reason.WRONG_AUDIENCE,
                f"The token is limited to another audience. Use one whose audience names {self._audience}.",
            )

    async def _claimed(self, actor: str, field: str, request: Request) -> Caller:
        return Caller(actor, await self._authority.claim(actor, field), None, request.client, request.id)

    def _objection(self, request: Request) -> str | None:
        """Why the actor header of this request is not accepted; None: it is."""
        if not self._is_trusted(request):
            return self._not_local(request)
        if "origin" not in request.headers and "sec-fetch-site" not in request.headers:
            return None
        # The peer may be a browser on a trusted machine that shows a page of another site.
        if self.is_local(request):
            return None
        return "a browser page sent it (Origin or Sec-Fetch-Site is present)"

    def _is_trusted(self, request: Request) -> bool:
        if request.peer == UNIX_PEER:
            return self._trusts_unix
        return bool(self._networks) and within(request.peer, self._networks)

    def is_local(self, request: Request) -> bool:
        """Whether a process of the server's own user sent it directly. That user can read the data folder anyway."""
        return self._not_local(request) is None

    def _not_local(self, request: Request) -> str | None:
        """Why a request is not local; None: it is."""
        return not_of_own_user(request) if self._local_mode else "local mode is off"


def _claimed_actor(request: Request, headers: list[str]) -> str:
    actors = {request.header(name).strip() for name in headers}
    if len(actors) > 1 or any(map(request.is_repeated, headers)):
        raise Fault(Reason.INVALID_HEADER, "The actor header must be given once.", field=headers[0])
    return actors.pop()


def bearer_token(request: Request) -> bytes:
    headers = request.headers
    given = headers.get_all("authorization")
    if len(given) != 1 or headers.get("authorization") is None:
        if given:
            raise Fault(Reason.INVALID_HEADER, "The Authorization header must be given once.", field="Authorization")
        if "authorization" not in headers:
            raise Fault(Reason.MISSING_CREDENTIAL, HOW_TO_AUTHENTICATE)
        given = [UNREADABLE]
    (value,) = given
    if len(value) > MAX_AUTHORIZATION:
        raise Fault(Reason.INVALID_HEADER, AUTHORIZATION_TOO_LONG, field="Authorization")
    if value == UNREADABLE:  # not ASCII, so no token of this service
        return UNREADABLE.encode()
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer":
        raise Fault(Reason.MISSING_CREDENTIAL, HOW_TO_AUTHENTICATE)
    return token.strip(" ").encode()

"""Callers: who is calling, from the headers of one request.

A bearer is a proof, and where any `Authorization` header is present it alone decides. The actor header is a claim.
It is believed only on the GraphQL addresses, and only from a trusted peer or, in local mode, from a process of the
server's own user, when nothing about the request shows a browser's page or a proxy in between. The check has three
answers: not mine (no credential), bad (refused), or the caller. On the same addresses the console's pages have their
session in place of both.
"""

import ipaddress
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol, cast

from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.secret import Secret
from watchword.domain.token_limits import Limits, Network, within
from watchword.domain.tokens import AUTHORIZATION_TOO_LONG, MAX_AUTHORIZATION
from watchword.http.requests import UNIX_PEER, UNREADABLE, Request
from watchword.http.socket_owner import OwnUser
from watchword.service.authority import Authority
from watchword.service.sessions import Sessions, Visit

CONSOLE_HEADER = "x-watchword-console"
"""What our own pages send with all they ask."""
HOW_TO_AUTHENTICATE = "Send a token: Authorization: Bearer <token>."
MAX_NAME = 60

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@]+)(?::\d{1,5})?")
_FORWARDED = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip", "x-client-ip"})
_FORWARDED_FAMILIES = ("x-forwarded-", "x-envoy-", "tailscale-")
_OWN_SITES = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class TrustRules:
    local_mode: bool
    trusted_peers: tuple[Network | None, ...]
    actor_headers: tuple[str, ...]
    audience: str = ""
    """Who we are to a token that is limited to an audience."""


class Carried(Protocol):
    """How a session comes with a request."""

    def carried(self, request: Request, /) -> Secret[str] | None: ...


class Callers:
    def __init__(
        self,
        authority: Authority,
        rules: TrustRules,
        own_user: OwnUser,
        sessions: Sessions,
        pages: Carried | None = None,
    ) -> None:
        """Without pages of our own no session counts."""
        self._authority = authority
        self._rules = rules
        self._own_user = own_user
        self._sessions = sessions
        self._pages = pages
        self._networks = cast("tuple[Network, ...]", tuple(p for p in rules.trusted_peers if p is not None))
        self._trusts_unix = None in rules.trusted_peers

    def bearer(self, request: Request) -> Awaitable[Bearer]:
        """The live token that came, and nothing else will do; or the fault that says why there is none."""
        return self._authority.verify(bearer_token(request), request.client, request.id)

    async def identify(self, request: Request) -> Caller:
        """The caller with a bearer, or the fault that says why there is none."""
        if "authorization" in request.headers:
            return self.caller(await self.bearer(request), request)
        raise missing_credential()

    async def anybody(self, request: Request) -> Caller:
        """The caller, also where an actor header or a session says who it is. What our own pages ask is asked by their
        session, whatever headers a gateway adds.
        """
        if "authorization" in request.headers:
            return self.caller(await self.bearer(request), request)
        is_page = CONSOLE_HEADER in request.headers
        claims = [] if is_page else [name for name in self._rules.actor_headers if name in request.headers]
        objection = self._objection(request) if claims else None
        if claims and objection is None:
            return await self._believed(_claimed(request, claims), claims[0], request)
        held = None if self._pages is None else self._pages.carried(request)
        if held is not None:
            return (await self.visit(held, request)).caller
        if objection is not None:
            raise Fault(Reason.MISSING_CREDENTIAL, f"{claims[0]} is not believed: {objection}. {HOW_TO_AUTHENTICATE}")
        raise not_signed_in() if is_page else missing_credential()

    async def holder(self, token: bytes, request: Request) -> Caller:
        """Who signs in with this token."""
        return self.caller(await self._authority.verify(token, request.client, request.id), request)

    async def chosen(self, actor: str, request: Request) -> Caller:
        """Who signs in as this actor."""
        objection = self._foreign(request)
        if objection is not None:
            raise Fault(
                Reason.FOREIGN_REQUEST,
                "An actor can be chosen only in local mode, by the user that the server runs as; "
                f"{objection}. Sign in with a token.",
            )
        return await self._believed(actor, "actor", request)

    async def visit(self, held: Secret[str], request: Request) -> Visit:
        """The session that this is the id of, or the fault that says why there is none."""
        visit = await self._sessions.visit(held, request.client, request.id, local=self.is_local(request))
        self.need_audience(visit.caller.limits)
        return visit

    def caller(self, bearer: Bearer, request: Request) -> Caller:
        """Who calls with this bearer; it must be meant for us, where it is limited to an audience."""
        self.need_audience(bearer.limits)
        return Caller.with_bearer(bearer, request.client, request.id)

    def need_audience(self, limits: Limits) -> None:
        """Raise unless the token is meant for this service."""
        if limits.audience is not None and self._rules.audience not in limits.audience:
            raise Fault(
                Reason.WRONG_AUDIENCE,
                f"The token is limited to another audience. Use one whose audience names {self._rules.audience}.",
            )

    async def _believed(self, actor: str, field: str, request: Request) -> Caller:
        return Caller(actor, await self._authority.claim(actor, field), None, request.client, request.id)

    def _objection(self, request: Request) -> str | None:
        """Why a claim in this request is not believed; None when it is."""
        if not self._is_trusted(request):
            return self._foreign(request)
        if "origin" not in request.headers and "sec-fetch-site" not in request.headers:
            return None
        # The peer may be a browser on a trusted machine, and the page in it anybody's.
        if self.is_local(request):
            return None
        return "a browser's page sent it (Origin or Sec-Fetch-Site is present)"

    def _is_trusted(self, request: Request) -> bool:
        if request.peer == UNIX_PEER:
            return self._trusts_unix
        return bool(self._networks) and within(request.peer, self._networks)

    def is_local(self, request: Request) -> bool:
        """Whether a process of the server's own user sent it to this very server, without a secret but with every
        right: that user can read the data folder anyway.
        """
        return self._foreign(request) is None

    def _foreign(self, request: Request) -> str | None:
        """Why a request is not local; None when it is. The look-up in the kernel comes last."""
        if not self._rules.local_mode:
            return "local mode is off"
        if not is_loopback(request.peer):
            return "the connection does not come from loopback"
        if not request.is_direct:
            return "it is not an HTTP/1.1 request in origin form, so a proxy may have sent it"
        forwarded = next(filter(is_forwarded, request.headers), None)
        if forwarded is not None:
            return f"the header {forwarded[:MAX_NAME]} shows a proxy"
        if request.is_repeated("host") or not is_loopback_host(request.header("host")):
            return "Host is not a loopback name"
        if not is_own_origin(request):
            return "Origin is another site"
        if "sec-fetch-site" in request.headers and (
            request.is_repeated("sec-fetch-site") or request.header("sec-fetch-site") not in _OWN_SITES
        ):
            return "Sec-Fetch-Site shows a page of another site"
        return self._own_user.objection(*request.ends)


def _claimed(request: Request, claims: list[str]) -> str:
    """The one actor that these headers name."""
    actors = {request.header(name).strip() for name in claims}
    if len(actors) > 1 or any(map(request.is_repeated, claims)):
        raise Fault(Reason.INVALID_HEADER, "The actor header must be given once.", field=claims[0])
    return actors.pop()


def is_forwarded(name: str) -> bool:
    return name in _FORWARDED or name.startswith(_FORWARDED_FAMILIES)


def bearer_token(request: Request) -> bytes:
    given = request.headers.get_all("authorization")
    if len(given) != 1 or request.headers.get("authorization") is None:
        return _unusual(request, len(given))
    value = given[0]
    if len(value) > MAX_AUTHORIZATION:
        raise Fault(Reason.INVALID_HEADER, AUTHORIZATION_TOO_LONG, field="Authorization")
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer":
        if value == UNREADABLE:
            return UNREADABLE.encode()
        raise missing_credential()
    return token.strip(" ").encode()


def _unusual(request: Request, times: int) -> bytes:
    """None, several (strange bytes and a readable one are), or one of strange bytes, which is no token of ours."""
    if times:
        raise Fault(Reason.INVALID_HEADER, "The Authorization header must be given once.", field="Authorization")
    if "authorization" not in request.headers:
        raise missing_credential()
    return UNREADABLE.encode()


def missing_credential() -> Fault:
    return Fault(Reason.MISSING_CREDENTIAL, HOW_TO_AUTHENTICATE)


def not_signed_in() -> Fault:
    return Fault(Reason.MISSING_CREDENTIAL, "Nobody is signed in here. Sign in first.")


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_loopback_host(host: str) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match["name"].strip("[]").lower()
    return name == "localhost" or is_loopback(name)


def is_own_origin(request: Request) -> bool:
    if "origin" not in request.headers:
        return True
    own = f"{request.scheme}://{request.header('host')}"
    return not request.is_repeated("origin") and request.header("origin").lower() == own.lower()

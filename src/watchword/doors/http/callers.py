"""Callers: who is calling, from the headers of one request.

A bearer is a proof, and where any `Authorization` header is present it alone decides. The actor header is a claim.
It is believed only on the GraphQL addresses, and only from a trusted peer or, in local mode, when everything about
the request says that it was made on this machine for this server: loopback peer and `Host`, no foreign `Origin`, no
sign of a proxy. The check has three answers: not mine (no credential), bad (refused), or the caller. On the same
addresses the console's pages have their session in place of both.
"""

import ipaddress
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol, cast

from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.limits import Limits, Network, within
from watchword.domain.secret import Secret
from watchword.domain.tokens import AUTHORIZATION_TOO_LONG, MAX_AUTHORIZATION
from watchword.doors.http.requests import UNIX_PEER, UNREADABLE, Request
from watchword.service.authority import Authority
from watchword.service.sessions import Sessions, Visit

CONSOLE_HEADER = "x-watchword-console"
"""What our own pages send with all they ask."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@]+)(?::\d{1,5})?")
_FORWARDED = ("forwarded", "x-real-ip", "via")


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
        self, authority: Authority, rules: TrustRules, sessions: Sessions, pages: Carried | None = None
    ) -> None:
        """Without pages of our own no session counts."""
        self._authority = authority
        self._rules = rules
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
        claimed = None if CONSOLE_HEADER in request.headers else self._claimed(request)
        if claimed is not None:
            actor, header = claimed
            return await self._believed(actor, header, request)
        held = None if self._pages is None else self._pages.carried(request)
        if held is None:
            raise not_signed_in() if CONSOLE_HEADER in request.headers else missing_credential()
        return (await self.visit(held, request)).caller

    async def holder(self, token: bytes, request: Request) -> Caller:
        """Who signs in with this token."""
        return self.caller(await self._authority.verify(token, request.client, request.id), request)

    async def chosen(self, actor: str, request: Request) -> Caller:
        """Who signs in as this actor."""
        if not self.is_local(request):
            raise Fault(
                Reason.FOREIGN_REQUEST,
                "An actor can be chosen only in local mode, on the machine of the server. Sign in with a token.",
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

    def _claimed(self, request: Request) -> tuple[str, str] | None:
        """The actor the headers name, and the header that does, when such a claim is to be believed."""
        present = [name for name in self._rules.actor_headers if name in request.headers]
        if not present or not (self._is_trusted(request) or self.is_local(request)):
            return None
        actors = {request.header(name).strip() for name in present}
        if len(actors) > 1 or any(map(request.is_repeated, present)):
            raise Fault(Reason.INVALID_HEADER, "The actor header must be given once.", field=present[0])
        return actors.pop(), present[0]

    def _is_trusted(self, request: Request) -> bool:
        if request.peer == UNIX_PEER:
            return self._trusts_unix
        return bool(self._networks) and within(request.peer, self._networks)

    def is_local(self, request: Request) -> bool:
        """Whether whoever asks is taken for who they say, because they are on this machine."""
        return (
            self._rules.local_mode
            and is_loopback(request.peer)
            and not request.is_repeated("host")
            and is_loopback_host(request.header("host"))
            and is_own_origin(request)
            and not any(name in _FORWARDED or name.startswith("x-forwarded-") for name in request.headers)
        )


def bearer_token(request: Request) -> bytes:
    given = request.headers.get_all("authorization")
    if len(given) != 1 or request.headers.get("authorization") is None:
        return _unusual(request, len(given))
    value = given[0]
    if len(value) > MAX_AUTHORIZATION:
        raise Fault(Reason.INVALID_HEADER, AUTHORIZATION_TOO_LONG, field="Authorization")
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer":
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
    return Fault(Reason.MISSING_CREDENTIAL, "Send a token: Authorization: Bearer <token>.")


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

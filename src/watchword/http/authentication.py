"""Authentication: who is calling, from the headers and the connection of a request.

A bearer token is proof: any `Authorization` header decides alone. The actor header is a claim. It is accepted only on
the GraphQL addresses, and only from a trusted peer or, in local mode, from a process of the server's own user, when
nothing in the request indicates a browser page or a proxy. On the same addresses the console sends a session cookie.
"""

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.networks import within
from watchword.domain.secret import Secret
from watchword.domain.token_limits import Limits
from watchword.domain.tokens import AUTHORIZATION_TOO_LONG, MAX_AUTHORIZATION
from watchword.files import user_name
from watchword.http.errors import printable, redact
from watchword.http.requests import UNIX_PEER, UNREADABLE, Request
from watchword.service import CoreServices
from watchword.service.sessions import SessionCaller
from watchword.settings import Settings

CONSOLE_HEADER = "x-watchword-console"
"""The console sends it with every request."""
HOW_TO_AUTHENTICATE = "Send a token: Authorization: Bearer <token>."
NOT_SIGNED_IN = "Not signed in. Sign in first."
ACCEPTED = "accepted"
MAX_HEADER_NAME = 60
MAX_LOGGED_PATH = 200

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@]+)(?::\d{1,5})?")
_FORWARDED = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip", "x-client-ip"})
_FORWARDED_PREFIXES = ("x-forwarded-", "x-envoy-", "tailscale-")
_OWN_SITES = frozenset({"same-origin", "none"})
_VERDICTS = {
    Reason.MISSING_CREDENTIAL: "missing",
    Reason.INVALID_TOKEN: "invalid",
    Reason.TOKEN_EXPIRED: "expired",
    Reason.TOKEN_REVOKED: "revoked",
    Reason.SESSION_OVER: "invalid",
    Reason.INVALID_HEADER: "invalid",
    Reason.STORE_UNAVAILABLE: "unavailable",
}

_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_DEFAULT_OVERFLOW_UID = 65_534

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ESTABLISHED = 1
_NO_COOKIE = (0xFFFF_FFFF, 0xFFFF_FFFF)
_EVERY_STATE = 0xFFFF_FFFF

_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_QUERY = struct.Struct("=BBBxI")
"""inet_diag_req_v2 up to its socket id: family, protocol, extensions, states."""
_ENDS = struct.Struct("!HH16s16s")
"""inet_diag_sockid: local and remote port, local and remote address."""
_REST_OF_ID = struct.Struct("=III")
"""inet_diag_sockid, continued: interface, cookie."""
_FOUND = struct.Struct(f"=BBxx{_ENDS.size + _REST_OF_ID.size}x12xII")
"""inet_diag_msg: family, state; then uid and inode."""

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
            self.rejections.record_failed_authentication(request.client, request.id, path, fault)
            raise
        request.verdict = "believed" if principal.bearer_id is None else ACCEPTED
        request.actor = principal.actor
        return principal

    return authenticate


class Authenticator:
    def __init__(self, settings: Settings, core: CoreServices, session_of: ReadSession | None) -> None:
        """Without `session_of`, which reads the cookie, no session is accepted."""
        self._authority = core.authority
        self._sessions = core.sessions
        self.rejections = core.rejections
        self._session_of = session_of
        self._local_mode = settings.local_mode_on
        self._actor_headers = [name.lower() for name in settings.actor_headers]
        self._networks = tuple([peer for peer in settings.trusted_peers if peer is not None])
        self._trusts_unix = None in settings.trusted_peers
        self._audience = settings.issuer

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


def not_of_own_user(request: Request) -> str | None:
    """Why a request does not come directly from a process of the server's own user; None: it does. The query to the
    kernel comes last.
    """
    if not is_loopback(request.peer):
        return "the connection does not come from loopback"
    if not request.is_direct:
        return "it is not an HTTP/1.1 request in origin form, so a proxy may have sent it"
    forwarded = next(filter(is_forwarded, request.headers), None)
    if forwarded is not None:
        return f"the header {forwarded[:MAX_HEADER_NAME]} shows a proxy"
    if request.is_repeated("host") or not is_loopback_host(request.header("host")):
        return "Host is not a loopback name"
    if not is_own_origin(request):
        return "Origin is another site"
    if "sec-fetch-site" in request.headers and (
        request.is_repeated("sec-fetch-site") or request.header("sec-fetch-site") not in _OWN_SITES
    ):
        return "Sec-Fetch-Site shows a page of another site"
    return _other_user(request.scope.client, request.scope.server)


def _claimed_actor(request: Request, headers: list[str]) -> str:
    actors = {request.header(name).strip() for name in headers}
    if len(actors) > 1 or any(map(request.is_repeated, headers)):
        raise Fault(Reason.INVALID_HEADER, "The actor header must be given once.", field=headers[0])
    return actors.pop()


def is_forwarded(name: str) -> bool:
    return name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)


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
    own = f"{request.scope.scheme}://{request.header('host')}"
    return not request.is_repeated("origin") and request.header("origin").lower() == own.lower()


class SocketAddress(NamedTuple):
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> "SocketAddress":
        """Read `127.0.0.1:8080` or `[::1]:8080`; ValueError for anything else."""
        host, _, port = text.rpartition(":")
        return cls(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")), int(port))


def _other_user(client: str, server: str) -> str | None:
    """Why the client of this connection is not known to be the user that the server runs as; None: it is."""
    try:
        owner = socket_owner(SocketAddress.parse(client), SocketAddress.parse(server))
    except (OSError, ValueError):
        return "the server cannot look up which user's process connected (sock_diag)"
    if owner is None:
        return "the client has closed its end of the connection, so its user is unknown"
    if owner == _overflow_uid():  # every user that is not mapped in our namespace
        return f"the connection comes from a process of a user that the server cannot identify (uid {owner})"
    if owner != os.geteuid():
        return f"the connection comes from a process of {_name(owner)}; the server runs as {_name(os.geteuid())}"
    return None


def socket_owner(local: SocketAddress, remote: SocketAddress) -> int | None:
    """The uid that owns the established socket with these addresses, by one exact `sock_diag` query (man 7 sock_diag).
    None: there is no such socket, or no process holds it. OSError: the kernel does not answer.

    The query needs no privilege, walks no table, and finds a socket opened as IPv6 for an IPv4-mapped address. For a
    process that sends and closes, the kernel reports uid 0 and inode 0: state and inode are checked before the uid.
    """
    family = socket.AF_INET if isinstance(local.address, ipaddress.IPv4Address) else socket.AF_INET6
    query = (
        _QUERY.pack(family, socket.IPPROTO_TCP, 0, _EVERY_STATE)
        + _ENDS.pack(local.port, remote.port, local.address.packed, remote.address.packed)
        + _REST_OF_ID.pack(0, *_NO_COOKIE)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + query)
        # The kernel answers before `send` returns; only the kernel has the sender number 0.
        answer, (sender, _) = kernel.recvfrom(8_192, socket.MSG_DONTWAIT)
    if (
        sender != 0
        or len(answer) < _HEADER.size + _FOUND.size
        or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY
    ):
        return None
    # Without such a connection the kernel returns the listening socket at the local address, in another state.
    _, state, uid, inode = _FOUND.unpack_from(answer, _HEADER.size)
    return int(uid) if state == _ESTABLISHED and inode != 0 else None


def _name(uid: int) -> str:
    return f"user {user_name(uid)} (uid {uid})"


@cache
def _overflow_uid() -> int:
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):  # systemd's ProcSubset=pid hides it
        return _DEFAULT_OVERFLOW_UID

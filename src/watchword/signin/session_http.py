"""Sessions of the console: `/session` signs in with a token (in local mode, as an actor), shows the session and signs
out.

The token comes in the body. The browser keeps only a session id, in a cookie.

A browser adds the cookie to every request to this server, whichever page sends it. So a session is accepted only in a
request with a header that no form, link or image can send and no foreign script may send (the server answers no
preflight), and with the server's own `Origin`. In local mode, where signing in needs no secret, the origin must be a
loopback address or the public URL: another name that resolves to this machine may be an attacker's (DNS rebinding).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from watchword import __version__
from watchword.access.actor_service import Actors
from watchword.authority.callers import Caller
from watchword.authority.privileges import PRIVILEGE_FIELDS
from watchword.basics.errors import MAX_AUTHORIZATION, UNAUTHENTICATED, UNAUTHORIZED, Fault, Reason, invalid
from watchword.basics.networks import Network, within
from watchword.basics.secret import Secret
from watchword.http.errors import NO_STORE, json_response, redact
from watchword.http.own_user import is_loopback_host, not_of_own_user
from watchword.http.requests import Header, Request, Response, read_json
from watchword.signin.authentication_http import CONSOLE_HEADER, Authenticator
from watchword.signin.session_rules import Session
from watchword.signin.session_service import Sessions

if TYPE_CHECKING:
    from watchword.signin.openid import OpenIdProvider

SESSION = "/session"
MAX_SIGN_IN = 64 * 1024
PLAIN_COOKIE, SECURE_COOKIE = "watchword", "__Host-watchword"
_EXPECTED = 'an object with one field: {"token": "..."}, or in local mode {"actor": "urn:..."}'
_READ_METHODS = frozenset({"GET", "HEAD"})
_PORTS = {"http": ":80", "https": ":443"}
MAX_COOKIES = 200
"""Browsers send at most about 180."""


class ConsoleRequests:
    """Checks that a request comes from a page of the console, and reads its session cookie."""

    def __init__(self, public_url: str | None, proxies: tuple[Network, ...], *, local_mode: bool) -> None:
        self._public = None if public_url is None else _origin(*urlsplit(public_url)[:2])
        self._proxies = proxies
        self._local_mode = local_mode

    def check(self, request: Request) -> bool:
        """Whether it came by https. Raises unless a page of the console sent it."""
        if request.header(CONSOLE_HEADER) != "1" or request.is_repeated(CONSOLE_HEADER):
            raise _foreign("A session is accepted only with the header X-Watchword-Console: 1.")
        own = self._own_origin(request)
        if self._local_mode and own != self._public and not is_loopback_host(own.partition("://")[2]):
            raise _foreign(
                "In local mode, open the console at a loopback address, such as http://127.0.0.1:8080, or at "
                "WATCHWORD_PUBLIC_URL; not under this Host."
            )
        if "origin" in request.headers:
            origin = request.header("origin").lower()
            if request.is_repeated("origin") or origin not in {own, self._public}:
                raise _foreign("The header Origin must be the address of this service. Use the console's own pages.")
            return origin.startswith("https:")
        # Browsers omit Origin in same-origin reads; not all send Sec-Fetch-Site.
        if request.scope.method not in _READ_METHODS or request.header("sec-fetch-site") not in {"", "same-origin"}:
            raise _foreign("The header Origin must be sent, with the address of this service.")
        return own.startswith("https:")

    def session_of(self, request: Request) -> Secret[str] | None:
        """The session id in the cookie; a request with such a cookie must come from a page of the console."""
        cookies = cookies_of(request)
        if not (PLAIN_COOKIE in cookies or SECURE_COOKIE in cookies):
            return None
        secure = self.check(request)
        # A site that shares a parent domain can set the plain cookie.
        value = cookies.get(SECURE_COOKIE) or (None if secure else cookies.get(PLAIN_COOKIE))
        return Secret(value) if value else None

    def _own_origin(self, request: Request) -> str:
        """The server's origin as the browser sees it, from the request or from a trusted proxy."""
        scheme, host = request.scope.scheme, _single(request, "host")
        if self._proxies and within(request.peer, self._proxies):
            forwarded = _single(request, "x-forwarded-proto").lower()
            scheme = forwarded if forwarded in _PORTS else scheme
            host = _single(request, "x-forwarded-host") or host
        return _origin(scheme, host)


@dataclass(frozen=True, slots=True)
class SessionEndpoint:
    _console: ConsoleRequests
    _authenticator: Authenticator
    _sessions: Sessions
    _actors: Actors
    _provider: "OpenIdProvider | None"
    _own_url: str
    _data_dir: Path

    async def sign_in(self, request: Request) -> Response:
        secure = self._console.check(request)
        field, value = _credential(await read_json(request, _EXPECTED, MAX_SIGN_IN))
        if field == "token":
            caller = await self._authenticator.authenticate_token(request, value.encode())
        else:
            caller = await self._authenticator.authenticate_actor(request, value)
        session_id, session = await self._sessions.sign_in(caller)
        await self._end(request)  # the new cookie replaces the old one, which nothing could end later
        content = {"actorUrn": session.actor, "tokenId": session.token_id, "expiresAt": session.ends_at}
        return json_response(content, session_cookie(session_id.reveal(), secure=secure))

    async def show(self, request: Request) -> Response:
        secure = self._console.check(request)
        # Whether local mode is on or off, the server's user may learn where the data folder is, and nothing else.
        own_user = not_of_own_user(request) is None
        content: dict[str, Any] = {
            "signedIn": False,
            "actorUrn": None,
            "tokenId": None,
            "expiresAt": None,
            "method": None,
            "localMode": own_user and self._authenticator.is_local(request),
            "dataDir": str(self._data_dir.resolve()) if own_user else None,
            "provider": None if self._provider is None else urlsplit(self._provider.issuer).hostname,
            "version": __version__,
        }
        headers: list[Header] = []
        session_id = self._console.session_of(request)
        if session_id is not None:
            try:
                session = await self._authenticator.authenticate_session(request, session_id)
            except Fault as fault:
                if fault.kind not in {UNAUTHENTICATED, UNAUTHORIZED}:
                    raise
                content |= {"reason": fault.reason.word, "message": redact(fault.message)}
                headers.append(_clear_cookie(secure=secure))
            else:
                content["signedIn"] = True
                content |= {"actorUrn": session.actor, "tokenId": session.bearer_id, "expiresAt": session.found.ends_at}
                content["method"] = session.found.session.method.value
                content |= await self._rights(session.caller)
        return json_response(content, *headers)

    async def _rights(self, caller: Caller) -> dict[str, Any]:
        """What a page shows at once, without another request."""
        grant = await self._actors.authorize_any(caller)
        names = await self._actors.names_of([caller.actor])
        privileges = {field: one in grant.privileges for field, one in PRIVILEGE_FIELDS.items()}
        return {"displayName": names.get(caller.actor), "privileges": privileges}

    async def sign_out(self, request: Request) -> Response:
        secure = self._console.check(request)
        ended = await self._end(request)
        cookie = _clear_cookie(secure=secure)
        if ended is None or ended.issuer is None or self._provider is None:
            return Response(204, [NO_STORE, cookie])
        return json_response({"providerSignOutUrl": await self._provider.end_session_url(self._own_url + "/")}, cookie)

    async def _end(self, request: Request) -> Session | None:
        session_id = self._console.session_of(request)
        return None if session_id is None else await self._sessions.sign_out(session_id, request.client, request.id)


def _credential(content: Any) -> tuple[str, str]:
    if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= {"token", "actor"}:
        raise Fault(Reason.INVALID_JSON, f"The body must be {_EXPECTED}.")
    ((field, value),) = content.items()
    value = value.strip() if isinstance(value, str) else ""
    if not value or len(value) > MAX_AUTHORIZATION:
        raise invalid(field, f"{field} must be a text of 1 to {MAX_AUTHORIZATION:,} characters.")
    return field, value


def session_cookie(value: str, *, secure: bool) -> Header:
    """No script can read it, and pages of other sites do not send it."""
    name, flag = (SECURE_COOKIE, "; Secure") if secure else (PLAIN_COOKIE, "")
    return "set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{flag}"


def _clear_cookie(*, secure: bool) -> Header:
    name, value = session_cookie("", secure=secure)
    return name, value + "; Max-Age=0"


def cookies_of(request: Request) -> dict[str, str]:
    """Return the cookies by name; empty for a repeated name, because it is unclear which to use. Of more than
    MAX_COOKIES none is used: one of them might repeat another.
    """
    text = ";".join(request.headers.get_all("cookie"))
    if text.count(";") >= MAX_COOKIES:
        return {}
    found: dict[str, str] = {}
    for part in text.split(";"):
        name, _, value = part.strip().partition("=")
        found[name] = "" if name in found else value
    return found


def _single(request: Request, name: str) -> str:
    """The value of a header; empty for several values."""
    value = request.header(name).strip()
    return "" if request.is_repeated(name) or "," in value else value


def _origin(scheme: str, host: str) -> str:
    return f"{scheme}://{host.lower().removesuffix(_PORTS.get(scheme, ' '))}".lower()


def _foreign(message: str) -> Fault:
    return Fault(Reason.FOREIGN_REQUEST, message)

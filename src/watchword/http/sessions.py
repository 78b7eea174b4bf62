"""Sessions of the console: `/session` signs in with a token (in local mode, as an actor), shows the session and signs
out; `/sign-in` sends the browser to the identity provider, `/sign-in/callback` receives the answer, and at
`/sign-in/logout` the provider says that a person signed out.

The token comes in the body. The browser keeps only a session id, in a cookie.

A browser adds the cookie to every request to this server, whichever page sends it. So a session is accepted only in a
request with a header that no form, link or image can send and no foreign script may send (the server answers no
preflight), and with the server's own `Origin`. In local mode, where signing in needs no secret, the origin must be a
loopback address or the public URL: another name that resolves to this machine may be an attacker's (DNS rebinding).

What a sign-in must remember (state, nonce, PKCE's verifier, the page to return to) is sealed in a cookie of the browser
that began it. So an answer is accepted only in that browser, once, for ten minutes, by any instance, and a sign-in
costs the store nothing before it succeeds.
"""

import hmac
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from watchword import __version__
from watchword.domain.actors import Caller
from watchword.domain.errors import UNAUTHENTICATED, UNAUTHORIZED, Fault, OperatorError, Reason, invalid
from watchword.domain.networks import origin_of, within
from watchword.domain.policies import PRIVILEGE_FIELDS
from watchword.domain.ports import IdentityProvider
from watchword.domain.secret import Secret
from watchword.domain.sessions import Session
from watchword.domain.tokens import MAX_AUTHORIZATION
from watchword.http.authentication import ACCEPTED, CONSOLE_HEADER, Authenticator, is_loopback_host, not_of_own_user
from watchword.http.console import HEADERS as PAGE_HEADERS
from watchword.http.console import assets
from watchword.http.errors import NO_STORE, fault_headers, json_response, redact
from watchword.http.requests import Header, Request, Response, read_form, read_json
from watchword.service import AllServices
from watchword.service.policies import Policies
from watchword.service.sessions import Sessions, SignInRate
from watchword.settings import Settings

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

    def __init__(self, settings: Settings) -> None:
        self._public = None if settings.public_url is None else _origin(*urlsplit(settings.public_url)[:2])
        self._proxies = settings.trusted_proxies
        self._local_mode = settings.local_mode_on

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
    _policies: Policies
    _provider: IdentityProvider | None
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
        grant = await self._policies.authorize_for(caller, caller.actor)
        names = await self._policies.names_of([caller.actor])
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


SIGN_IN, CALLBACK, LOGOUT = "/sign-in", "/sign-in/callback", "/sign-in/logout"
PAGES = frozenset({SIGN_IN, CALLBACK})
MINUTES = 10
MAX_NEXT = 1_000
MAX_PARAMETERS = 20
MAX_CODE = 8_192
MAX_SESSION_ID = 100
EXCHANGES, EXCHANGE_INTERVAL = 60, 1_000
"""Failed sign-ins of an address: a burst, and one more per interval in milliseconds. Each asks the provider."""
_NEXT = re.compile(r"/(console(/[\w./~%+-]*)?|device)?(\?[\w.~%+=&:-]*)?", re.ASCII)
_LABEL = "sign-in"
_ERROR = re.compile(r"[a-z_]{1,40}")


class PendingSignIn(NamedTuple):
    """What the browser that began a sign-in keeps, sealed."""

    state: str
    nonce: str
    verifier: str
    next: str
    at: int
    session_id: str  # which the sign-in replaces; empty for none


class SignInEndpoint:
    def __init__(self, provider: IdentityProvider, services: AllServices, settings: Settings) -> None:
        self._provider = provider
        self._rules = settings.claim_rules
        self._sessions = services.core.sessions
        self._rejections = services.core.rejections
        self._seal = services.cookie_seal
        self._clock = services.core.store.clock
        self._own_url = settings.issuer
        self._exchanges = SignInRate(self._clock, EXCHANGES, EXCHANGE_INTERVAL)
        self._is_secure = self._own_url.startswith("https:")
        self._cookie = "__Host-watchword-sign-in" if self._is_secure else "watchword-sign-in"

    async def begin(self, request: Request) -> Response:
        wanted = dict(_parameters(request)).get("next", "/")
        pending = PendingSignIn(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(32),
            next=wanted if len(wanted) <= MAX_NEXT and _NEXT.fullmatch(wanted) else "/",
            at=self._clock(),
            session_id=self._session_id(request),
        )
        address = await self._provider.authorization_url(pending.state, pending.nonce, Secret(pending.verifier))
        sealed = self._seal.seal(Secret(json.dumps(pending).encode()), _LABEL)
        cookie = self._set_cookie(urlsafe_b64encode(sealed).decode(), MINUTES * 60)
        return Response(303, [("location", address), cookie, NO_STORE, ("referrer-policy", "no-referrer")])

    async def callback(self, request: Request) -> Response:
        pending = self._pending(request)
        given = _parameters(request)
        if len({name for name, _ in given}) < len(given):
            raise _invalid("The answer of the identity provider has a parameter twice.")
        answer = dict(given)
        if not hmac.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
            raise _invalid("The answer does not belong to the sign-in that this browser began.")
        await self._provider.check_issuer(answer.get("iss"))
        if "error" in answer:
            raise _said_no(answer["error"])
        origin = origin_of(request.client)
        self._exchanges.take(origin, "This address")
        code = answer.get("code", "")
        if not 0 < len(code) <= MAX_CODE:
            raise _invalid("The answer of the identity provider has no code.")
        claims = await self._provider.claims(code, pending.nonce, Secret(pending.verifier), self._rules.needed)
        person = self._rules.person(self._provider.issuer, claims)
        self._exchanges.give_back(origin)  # the sign-ins of a person have limits of their own
        session_id, session = await self._sessions.sign_in_person(person, request.client, request.id)
        # The provider's redirect comes from another site: the browser usually sends the session's cookie only before.
        for former in {pending.session_id, self._session_id(request)} - {""}:
            await self._sessions.sign_out(Secret(former), request.client, request.id)
        request.actor, request.verdict = session.actor, ACCEPTED
        cookie = session_cookie(session_id.reveal(), secure=self._is_secure)
        return Response(303, [("location", pending.next), cookie, self._set_cookie("", 0), NO_STORE])

    async def logout(self, request: Request) -> Response:
        """Back-channel logout. The answers are those of its specification."""
        try:
            token = (await read_form(request)).get("logout_token", "")
            notice = await self._provider.logout_notice(token)
        except Fault as fault:
            if fault.kind.code != 400:
                raise
            return json_response({"error": "invalid_request", "error_description": redact(fault.message)}, status=400)
        await self._sessions.end_by_notice(notice, request.client, request.id)
        return Response(200, [NO_STORE])

    def _pending(self, request: Request) -> PendingSignIn:
        kept = cookies_of(request).get(self._cookie, "")
        try:
            opened = self._seal.open(urlsafe_b64decode(kept), _LABEL)
            pending = PendingSignIn(*json.loads(opened.reveal()))
        except (ValueError, TypeError, OperatorError):
            raise _invalid(
                "This sign-in did not begin in this browser, or it is over. "
                f"Begin at {self._own_url}/, and allow cookies."
            ) from None
        if self._clock() - pending.at > MINUTES * 60_000:
            raise _invalid(f"The sign-in took more than {MINUTES} minutes. Sign in again.")
        return pending

    def _session_id(self, request: Request) -> str:
        held = cookies_of(request).get(SECURE_COOKIE if self._is_secure else PLAIN_COOKIE, "")
        return held if len(held) <= MAX_SESSION_ID else ""

    def _set_cookie(self, value: str, seconds: int) -> Header:
        """Lax: the browser comes back from a page of the provider."""
        flag = "; Secure" if self._is_secure else ""
        return "set-cookie", f"{self._cookie}={value}; Path=/; HttpOnly; SameSite=Lax{flag}; Max-Age={seconds}"

    def error_page(self, fault: Fault, request: Request) -> Response:
        """A sign-in is a navigation, so its errors are pages. It is over: the browser forgets it."""
        self._rejections.record_failed_authentication(request.client, request.id, SIGN_IN, fault)
        body = _PAGE.format(assets=assets(), message=escape(redact(fault.message)), reason=fault.reason.word)
        headers = [("content-type", "text/html; charset=utf-8"), NO_STORE, *fault_headers(fault)]
        headers += [header for header in PAGE_HEADERS if header[0] != "vary"]
        return Response(fault.kind.code, [*headers, self._set_cookie("", 0)], body.encode())


_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>Not signed in - Watchword</title>
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <link rel="icon" type="image/svg+xml" href="{assets}mark.svg">
  <link rel="stylesheet" href="{assets}style.css">
</head>
<body>
  <main id="main"><div class="sign-in stack">
    <h1>Not signed in</h1>
    <p role="alert">{message}</p>
    <p><a class="button" href="/console/sign-in">Back to sign-in</a></p>
    <p class="quiet small">Reason: <code>{reason}</code></p>
  </div></main>
</body>
</html>
"""


def _parameters(request: Request) -> list[tuple[str, str]]:
    try:
        return parse_qsl(request.scope.query_string, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise _invalid(f"The address must have at most {MAX_PARAMETERS} parameters.") from None


def _said_no(code: str) -> Fault:
    if code == "access_denied":
        return Fault(Reason.SIGN_IN_REFUSED, "The sign-in was refused or broken off at the identity provider.")
    shown = code if _ERROR.fullmatch(code) else "an unknown error"
    return _invalid(f"The identity provider answered: {shown}. Sign in again.")


def _invalid(message: str) -> Fault:
    return Fault(Reason.INVALID_SIGN_IN, message)

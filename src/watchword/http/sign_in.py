"""Signing in at the identity provider: `/sign-in` sends the browser there, `/sign-in/callback` receives the answer, and
at `/sign-in/logout` the provider says that a person signed out.

What a sign-in must remember (state, nonce, PKCE's verifier, the page to return to) is sealed in a cookie of the browser
that began it. So an answer is accepted only in that browser, once, for ten minutes, by any instance, and a sign-in
costs the store nothing before it succeeds.
"""

import hmac
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from html import escape
from typing import NamedTuple
from urllib.parse import parse_qsl

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.networks import origin_of
from watchword.domain.ports import Clock, IdentityProvider, Seal
from watchword.domain.secret import Secret
from watchword.domain.sessions import ClaimRules
from watchword.http.authentication import ACCEPTED
from watchword.http.console import HEADERS as PAGE_HEADERS
from watchword.http.console import assets
from watchword.http.errors import JSON, NO_STORE, fault_headers, redact
from watchword.http.requests import Header, Request, Response, read_form
from watchword.http.sessions import cookies_of, session_cookie
from watchword.service.audit import RejectionLog
from watchword.service.sessions import Sessions, SignInRate

SIGN_IN, CALLBACK, LOGOUT = "/sign-in", "/sign-in/callback", "/sign-in/logout"
PAGES = frozenset({SIGN_IN, CALLBACK})
MINUTES = 10
MAX_NEXT = 1_000
MAX_PARAMETERS = 20
MAX_CODE = 8_192
EXCHANGES, EXCHANGE_INTERVAL = 60, 1_000
"""Failed sign-ins of an address: so many at once, and one more after so many milliseconds. Each asks the provider."""
_NEXT = re.compile(r"/(console(/[\w./~%+-]*)?|device)?(\?[\w.~%+=&:-]*)?", re.ASCII)
_LABEL = "sign-in"
_ERROR = re.compile(r"[a-z_]{1,40}")


class _Begun(NamedTuple):
    """What the browser that began a sign-in keeps, sealed."""

    state: str
    nonce: str
    verifier: str
    next: str
    at: int


class SignInEndpoint:
    def __init__(
        self,
        provider: IdentityProvider,
        rules: ClaimRules,
        sessions: Sessions,
        rejections: RejectionLog,
        seal: Seal,
        clock: Clock,
        own_url: str,
    ) -> None:
        self._provider = provider
        self._rules = rules
        self._sessions = sessions
        self._rejections = rejections
        self._seal = seal
        self._clock = clock
        self._own_url = own_url
        self._exchanges = SignInRate(clock, EXCHANGES, EXCHANGE_INTERVAL)
        self._is_secure = own_url.startswith("https:")
        self._cookie = "__Host-watchword-sign-in" if self._is_secure else "watchword-sign-in"

    async def begin(self, request: Request) -> Response:
        wanted = dict(_parameters(request)).get("next", "/")
        begun = _Begun(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(32),
            next=wanted if len(wanted) <= MAX_NEXT and _NEXT.fullmatch(wanted) else "/",
            at=self._clock(),
        )
        address = await self._provider.authorization_url(begun.state, begun.nonce, Secret(begun.verifier))
        sealed = self._seal.seal(Secret(json.dumps(begun).encode()), _LABEL)
        cookie = self._set_cookie(urlsafe_b64encode(sealed).decode(), MINUTES * 60)
        return Response(303, [("location", address), cookie, NO_STORE, ("referrer-policy", "no-referrer")])

    async def callback(self, request: Request) -> Response:
        begun = self._begun(request)
        given = _parameters(request)
        if len({name for name, _ in given}) < len(given):
            raise _invalid("The answer of the identity provider has a parameter twice.")
        answer = dict(given)
        if not hmac.compare_digest(answer.get("state", "").encode(), begun.state.encode()):
            raise _invalid("The answer does not belong to the sign-in that this browser began.")
        await self._provider.check_issuer(answer.get("iss"))
        if "error" in answer:
            raise _said_no(answer["error"])
        origin = origin_of(request.client)
        self._exchanges.take(origin, "This address")
        code = answer.get("code", "")
        if not 0 < len(code) <= MAX_CODE:
            raise _invalid("The answer of the identity provider has no code.")
        claims = await self._provider.claims(code, begun.nonce, Secret(begun.verifier), self._rules.needed)
        person = self._rules.person(self._provider.issuer, claims)
        session_id, session = await self._sessions.sign_in_person(person, request.client, request.id)
        self._exchanges.give_back(origin)
        request.actor, request.verdict = session.actor, ACCEPTED
        cookie = session_cookie(session_id.reveal(), secure=self._is_secure)
        return Response(303, [("location", begun.next), cookie, self._set_cookie("", 0), NO_STORE])

    async def logout(self, request: Request) -> Response:
        """Back-channel logout. The answers are those of its specification."""
        try:
            token = (await read_form(request)).get("logout_token", "")
            notice = await self._provider.logout_notice(token)
        except Fault as fault:
            if fault.kind.code != 400:
                raise
            content = json.dumps({"error": "invalid_request", "error_description": redact(fault.message)})
            return Response(400, [JSON, NO_STORE], content.encode())
        await self._sessions.end_by_notice(notice, request.client, request.id)
        return Response(200, [NO_STORE])

    def _begun(self, request: Request) -> _Begun:
        kept = cookies_of(request).get(self._cookie, "")
        try:
            opened = self._seal.open(urlsafe_b64decode(kept), _LABEL)
            begun = _Begun(*json.loads(opened.reveal()))
        except (ValueError, TypeError, OperatorError):
            raise _invalid(
                "This sign-in did not begin in this browser, or it is over. "
                f"Begin at {self._own_url}/, and allow cookies."
            ) from None
        if self._clock() - begun.at > MINUTES * 60_000:
            raise _invalid(f"The sign-in took more than {MINUTES} minutes. Sign in again.")
        return begun

    def _set_cookie(self, value: str, seconds: int) -> Header:
        """Lax: the browser comes back from a page of the provider."""
        flag = "; Secure" if self._is_secure else ""
        content = f"{self._cookie}={value}; Path=/; HttpOnly; SameSite=Lax{flag}; Max-Age={seconds}"
        return "set-cookie", content

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

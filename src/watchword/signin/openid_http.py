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
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from watchword.authority.rejections_service import RejectionLog
from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.basics.networks import origin_of
from watchword.basics.secret import Seal, Secret
from watchword.basics.times import Clock
from watchword.http.errors import NO_STORE, fault_headers, json_response, redact
from watchword.http.pages import HEADERS, assets
from watchword.http.requests import Header, Request, Response, read_form
from watchword.signin.authentication_http import ACCEPTED
from watchword.signin.session_http import PLAIN_COOKIE, SECURE_COOKIE, cookies_of, session_cookie
from watchword.signin.session_rules import ClaimRules
from watchword.signin.session_service import Sessions, SignInRate

if TYPE_CHECKING:
    from watchword.signin.openid import OpenIdProvider

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
    def __init__(
        self,
        provider: "OpenIdProvider",
        sessions: Sessions,
        rejections: RejectionLog,
        seal: Seal,
        clock: Clock,
        rules: ClaimRules,
        own_url: str,
    ) -> None:
        self._provider = provider
        self._sessions = sessions
        self._rejections = rejections
        self._seal = seal
        self._clock = clock
        self._rules = rules
        self._own_url = own_url
        self._exchanges = SignInRate(clock, EXCHANGES, EXCHANGE_INTERVAL)
        self._is_secure = own_url.startswith("https:")
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
        headers += [header for header in HEADERS if header[0] != "vary"]
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

"""Device authorization (RFC 8628).

There are two addresses for the terminal, which is not authenticated: it holds its device code. What the console's page
/device sends needs a session, and no bearer token replaces it: a program that has a token must not approve another
program.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from watchword.authority.limits import check_limits
from watchword.authority.rejections_service import RejectionLog
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.secret import Secret
from watchword.http.errors import json_response
from watchword.http.requests import Request, Response, read_form, read_json
from watchword.journal.preconditions import system_precondition
from watchword.signin.authentication_http import NOT_SIGNED_IN
from watchword.signin.device_rules import check_host, check_user_code, shown
from watchword.signin.device_service import Devices
from watchword.signin.session_http import ConsoleRequests
from watchword.signin.session_service import SessionCaller
from watchword.tokens.issue_service import CreatedToken, TokenIssuer
from watchword.tokens.oauth_http import DEVICE, DEVICE_CODE, TOKEN, required

MAX_DECISION = 4_096
_EXPECTED = 'an object {"userCode": "BCDF-GHJK"}, with "approve": true or false to decide'


class DeviceEndpoints:
    def __init__(self, url: str, devices: Devices, issuer: TokenIssuer, rejections: RejectionLog) -> None:
        self._page = url + DEVICE
        self._devices = devices
        self._issuer = issuer
        self._rejections = rejections

    async def start(self, request: Request) -> Response:
        form = await _form(request)
        started = await self._devices.start(
            required(form, "client_id"), check_host(form.get("host", "")), _scopes(form), request.client
        )
        user_code = shown(started.user_code)
        return json_response(
            {
                "device_code": started.code.reveal(),
                "user_code": user_code,
                "verification_uri": self._page,
                "verification_uri_complete": f"{self._page}?user_code={user_code}",
                "expires_in": started.seconds,
                "interval": started.interval,
            }
        )

    async def token(self, request: Request) -> Response:
        form = await _form(request)
        if required(form, "grant_type") != DEVICE_CODE:
            raise Fault(Reason.UNSUPPORTED_GRANT_TYPE, f"grant_type must be {DEVICE_CODE}.")
        code, client = Secret(required(form, "device_code")), required(form, "client_id")
        disconnect = request.watch_disconnect()
        try:
            created = await self._devices.poll(code, client, request.client, request.id)
            if disconnect.done():
                await self._issuer.withdraw(system_precondition("undelivered", request.id), created.record.id)
        except Fault as fault:
            self._rejections.record_failed_authentication(request.client, request.id, TOKEN, fault)
            raise
        finally:
            disconnect.cancel()
        return json_response(_token_answer(created))


@dataclass(frozen=True, slots=True)
class DevicePage:
    _console: ConsoleRequests
    _authenticate: Callable[[Request, Secret[str]], Awaitable[SessionCaller]]
    _devices: Devices
    _rejections: RejectionLog

    async def answer(self, request: Request) -> Response:
        """Show the terminal with a user code; with `approve`, approve or deny it."""
        self._console.check(request)
        session = self._console.session_of(request)
        if session is None:
            raise Fault(Reason.MISSING_CREDENTIAL, NOT_SIGNED_IN)
        caller = (await self._authenticate(request, session)).caller
        with self._rejections.recording_denial(caller, "device"):
            grant = await self._devices.authorize(caller)
        code, approve = _decision(await read_json(request, _EXPECTED, MAX_DECISION))
        try:
            if approve is None:
                device = await self._devices.find(grant, code)
            else:
                device = await self._devices.decide(grant, code, approve=approve)
        except Fault as fault:
            self._rejections.record_failed_authentication(request.client, request.id, DEVICE, fault)
            raise
        limits = grant.caller.limits
        return json_response(
            {
                "userCode": shown(check_user_code(code)),
                "client": device.client,
                "host": device.host,
                "address": device.peer,
                "createdAt": device.created_at,
                "expiresAt": device.ends_at,
                "scopes": limits.scopes if device.scopes is None else device.scopes,
                "tokenSeconds": self._devices.token_seconds,
            }
        )


def _token_answer(created: CreatedToken) -> dict[str, Any]:
    record = created.record
    assert record.expires_at is not None
    content = {
        "access_token": created.token.reveal(),
        "token_type": "Bearer",
        "expires_in": (record.expires_at - record.created_at) // 1_000,
    }
    return content if record.limits.scopes is None else content | {"scope": " ".join(record.limits.scopes)}


def _decision(content: Any) -> tuple[str, bool | None]:
    if not isinstance(content, dict) or not content.keys() <= {"userCode", "approve"}:
        raise Fault(Reason.INVALID_JSON, f"The body must be {_EXPECTED}.")
    code, approve = content.get("userCode"), content.get("approve")
    if not isinstance(code, str):
        raise invalid("userCode", "userCode must be the code that the terminal shows, such as BCDF-GHJK.")
    if approve is not None and not isinstance(approve, bool):
        raise invalid("approve", "approve must be true or false.")
    return code, approve


async def _form(request: Request) -> dict[str, str]:
    """The parameters as UTF-8; one without a value counts as omitted (RFC 6749, section 3.1)."""
    form = await read_form(request)
    try:
        return {name: value.encode("latin-1").decode() for name, value in form.items() if value}
    except UnicodeDecodeError:
        raise invalid("body", "The parameters must be UTF-8.") from None


def _scopes(form: dict[str, str]) -> tuple[str, ...] | None:
    words = form.get("scope", "").split()
    try:
        return check_limits(words, None, None).scopes if words else None
    except Fault as fault:
        raise Fault(Reason.INVALID_SCOPE, fault.message) from None

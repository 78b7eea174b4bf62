"""Device authorization (RFC 8628): the two addresses of the terminal, and what the console's page /device sends.

A terminal is not authenticated: it holds its device code. The page needs a session, and no bearer token replaces it: a
program that has a token must not approve another program.
"""

from typing import Any

import orjson

from watchword.domain.actors import Caller, Grant, system_precondition
from watchword.domain.devices import Device, check_host, check_user_code, shown
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.secret import Secret
from watchword.domain.token_limits import check_limits
from watchword.http.authentication import NOT_SIGNED_IN, Authenticator
from watchword.http.errors import JSON, NO_STORE
from watchword.http.requests import Request, Response, read_form, read_json
from watchword.http.sessions import ConsoleRequests
from watchword.service.audit import RejectionLog
from watchword.service.devices import Devices
from watchword.service.tokens import CreatedToken, Tokens

DEVICE = "/device"
DEVICE_AUTHORIZATION = "/oauth2/device_authorization"
TOKEN = "/oauth2/token"  # noqa: S105 - an address
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
MAX_CONTENT = 4_096
_EXPECTED = 'an object {"userCode": "BCDF-GHJK"}, with "approve": true or false to decide'


class DeviceEndpoints:
    def __init__(self, issuer: str, devices: Devices, tokens: Tokens, rejections: RejectionLog) -> None:
        self._page = issuer + DEVICE
        self._devices = devices
        self._tokens = tokens
        self._rejections = rejections

    async def start(self, request: Request) -> Response:
        form = await _form(request)
        started = await self._devices.start(
            _required(form, "client_id"), check_host(form.get("host", "")), _scopes(form), request.client
        )
        content = {
            "device_code": started.code.reveal(),
            "user_code": shown(started.user_code),
            "verification_uri": self._page,
            "verification_uri_complete": f"{self._page}?user_code={shown(started.user_code)}",
            "expires_in": started.seconds,
            "interval": started.interval,
        }
        return Response(200, [JSON, NO_STORE], orjson.dumps(content))

    async def token(self, request: Request) -> Response:
        form = await _form(request)
        if _required(form, "grant_type") != DEVICE_CODE:
            raise Fault(Reason.UNSUPPORTED_GRANT_TYPE, f"grant_type must be {DEVICE_CODE}.")
        code, client = Secret(_required(form, "device_code")), _required(form, "client_id")
        disconnect = request.watch_disconnect()
        try:
            created = await self._devices.poll(code, client, request.client, request.id)
            if disconnect.done():
                await self._tokens.withdraw(system_precondition("undelivered", request.id), created.record.id)
        except Fault as fault:
            self._rejections.record_failed_authentication(request.client, request.id, TOKEN, fault)
            raise
        finally:
            disconnect.cancel()
        return Response(200, [JSON, NO_STORE], orjson.dumps(_token(created)))


class DevicePage:
    def __init__(
        self, console: ConsoleRequests, authenticator: Authenticator, devices: Devices, rejections: RejectionLog
    ) -> None:
        self._console = console
        self._authenticator = authenticator
        self._devices = devices
        self._rejections = rejections

    async def answer(self, request: Request) -> Response:
        """Show the terminal with a user code; with `approve`, approve or deny it."""
        grant = await self._authorize(request)
        code, approve = _decision(await read_json(request, _EXPECTED, MAX_CONTENT))
        try:
            if approve is None:
                device = await self._devices.find(grant, code)
            else:
                device = await self._devices.decide(grant, code, approve=approve)
        except Fault as fault:
            self._rejections.record_failed_authentication(request.client, request.id, DEVICE, fault)
            raise
        return Response(200, [JSON, NO_STORE], orjson.dumps(self._content(device, code, grant.caller)))

    async def _authorize(self, request: Request) -> Grant:
        self._console.check(request)
        session = self._console.session_of(request)
        if session is None:
            raise Fault(Reason.MISSING_CREDENTIAL, NOT_SIGNED_IN)
        caller = (await self._authenticator.authenticate_session(request, session)).caller
        try:
            return await self._devices.authorize(caller)
        except Fault as fault:
            if fault.reason is Reason.MISSING_PRIVILEGE:
                self._rejections.record_denial(caller, "device", fault)
            raise

    def _content(self, device: Device, code: str, caller: Caller) -> dict[str, Any]:
        return {
            "userCode": shown(check_user_code(code)),
            "client": device.client,
            "host": device.host,
            "address": device.peer,
            "createdAt": device.created_at,
            "expiresAt": device.ends_at,
            "scopes": caller.limits.scopes if device.scopes is None else device.scopes,
            "tokenSeconds": self._devices.token_seconds,
        }


def _token(created: CreatedToken) -> dict[str, Any]:
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


def _required(form: dict[str, str], name: str) -> str:
    if name not in form:
        raise invalid(name, f"{name} must be given, as a parameter in the body.")
    return form[name]


def _scopes(form: dict[str, str]) -> tuple[str, ...] | None:
    words = form.get("scope", "").split()
    try:
        return check_limits(words, None, None).scopes if words else None
    except Fault as fault:
        raise Fault(Reason.INVALID_SCOPE, fault.message) from None

"""The OAuth endpoints: introspection (RFC 7662), revocation (RFC 7009), keys (JWKS), metadata (RFC 8414) and
device authorization (RFC 8628).

Parameters come in a form in the body, never in the query, which proxies log. Errors have the shape of RFC 6749.
Introspection needs a token of the caller. Revocation needs only the token to revoke.

Device authorization has two addresses for the terminal, which is not authenticated: it holds its device code. What the
console's page /device sends needs a session, and no bearer token replaces it: a program that has a token must not
approve another program.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from watchword.domain.actors import Bearer, system_precondition
from watchword.domain.devices import check_host, check_user_code, shown
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.keys import KEYS_CACHE_SECONDS
from watchword.domain.names import username_of
from watchword.domain.ports import Keys
from watchword.domain.secret import Secret
from watchword.domain.token_limits import check_limits
from watchword.http.authentication import NOT_SIGNED_IN, Authenticator
from watchword.http.errors import CHALLENGE, JSON, NO_STORE, fault_headers, json_response, redact
from watchword.http.requests import Request, Response, read_form, read_json
from watchword.http.sessions import ConsoleRequests
from watchword.service.audit import RejectionLog
from watchword.service.devices import Devices
from watchword.service.tokens import CreatedToken, TokenIntrospection, Tokens

INTROSPECT = "/oauth2/introspect"
REVOKE = "/oauth2/revoke"
FOUND_BY, SCAN = "found_by", "scan"
"""A parameter of revocation that is not in the RFC: how the token was found."""
DEVICE = "/device"
DEVICE_AUTHORIZATION = "/oauth2/device_authorization"
TOKEN = "/oauth2/token"  # noqa: S105 - an address
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
JWKS = "/.well-known/jwks.json"
METADATA = "/.well-known/oauth-authorization-server"
OAUTH = frozenset({INTROSPECT, REVOKE, DEVICE_AUTHORIZATION, TOKEN})

# The next key is published before it signs, so a client that caches the set for this long misses no rotation.
KEYS_CACHED = ("cache-control", f"public, max-age={KEYS_CACHE_SECONDS}")
METADATA_CACHED = ("cache-control", "public, max-age=3600")
INACTIVE = Response(200, [JSON, NO_STORE], b'{"active":false}')

_ERROR_CODES = {
    401: "invalid_token",
    403: "insufficient_scope",
    429: "temporarily_unavailable",
    500: "server_error",
    503: "temporarily_unavailable",
}
# Reasons that are error codes of RFC 6749 and RFC 8628.
_OAUTH_REASONS = frozenset(
    {
        *(Reason.INVALID_CLIENT, Reason.INVALID_SCOPE, Reason.INVALID_GRANT, Reason.UNSUPPORTED_GRANT_TYPE),
        *(Reason.AUTHORIZATION_PENDING, Reason.SLOW_DOWN, Reason.ACCESS_DENIED, Reason.EXPIRED_TOKEN),
    }
)


class OAuthEndpoints:
    def __init__(self, authenticator: Authenticator, tokens: Tokens, keys: Keys, rejections: RejectionLog) -> None:
        self._authenticator = authenticator
        self._tokens = tokens
        self._keys = keys
        self._rejections = rejections

    async def introspect(self, request: Request, bearer: Bearer) -> Response:
        token = _required(await read_form(request), "token").encode("latin-1")
        result: TokenIntrospection | Fault | None = await self._tokens.introspect_own(bearer, token)
        if result is None:
            caller = self._authenticator.caller(bearer, request)
            with self._rejections.recording_denial(caller, "introspect"):
                grant = await self._tokens.authorize_introspect(caller)
            result = await self._tokens.introspect(grant, token)
        if isinstance(result, Fault):
            self._rejections.record_failed_authentication(request.client, request.id, INTROSPECT, result)
            return INACTIVE
        return json_response(_introspection(result))

    async def revoke(self, request: Request) -> Response:
        form = await read_form(request)
        token, by_scan = _required(form, "token").encode("latin-1"), form.get(FOUND_BY) == SCAN
        await self._tokens.revoke_by_possession(token, request.client, request.id, by_scan=by_scan)
        return Response(200, [NO_STORE])

    async def jwks(self, request: Request) -> Response:
        return Response(200, [JSON, KEYS_CACHED], orjson.dumps(await self._keys.jwks()))


def metadata(issuer: str, *, devices: bool) -> dict[str, Response]:
    """The metadata by path. RFC 8414 appends the path of the issuer. An issuer on a Unix socket has no addresses."""
    parts = urlsplit(issuer)
    if not parts.hostname:
        return {}
    content = {
        "issuer": issuer,
        "jwks_uri": issuer + JWKS,
        "introspection_endpoint": issuer + INTROSPECT,
        "introspection_endpoint_auth_methods_supported": ["Bearer"],
        "revocation_endpoint": issuer + REVOKE,
        "revocation_endpoint_auth_methods_supported": ["none"],
        # Empty lists: the first is required, and a missing second one would mean grant types that are not here.
        "response_types_supported": [],
        "grant_types_supported": [],
    }
    if devices:
        content |= {
            "device_authorization_endpoint": issuer + DEVICE_AUTHORIZATION,
            "token_endpoint": issuer + TOKEN,
            "token_endpoint_auth_methods_supported": ["none"],
            "grant_types_supported": [DEVICE_CODE],
        }
    response = Response(200, [JSON, METADATA_CACHED], orjson.dumps(content))
    return dict.fromkeys((METADATA, METADATA + parts.path), response)


def oauth_fault(fault: Fault) -> Response:
    known = fault.reason in _OAUTH_REASONS
    code = fault.reason.word if known else _ERROR_CODES.get(fault.kind.code, "invalid_request")
    headers = fault_headers(fault)
    if fault.kind.code == 403:
        headers.append(("www-authenticate", _insufficient(fault)))
    return json_response({"error": code, "error_description": redact(fault.message)}, *headers, status=fault.kind.code)


def _insufficient(fault: Fault) -> str:
    """RFC 6750: the error code, and the missing scope if it is one."""
    challenge = CHALLENGE + f', error="insufficient_scope", error_description="{fault.message}"'
    missing = fault.details.get("privilege") or fault.details.get("scope")
    return challenge if missing is None else challenge + f', scope="{missing}"'


def _introspection(introspection: TokenIntrospection) -> dict[str, Any]:
    bearer, claims, scope = introspection
    content = {
        "active": True,
        "client_id": claims["client_id"],
        "username": username_of(bearer.actor),
        "token_type": "Bearer",
        "iat": claims["iat"],
        "sub": bearer.actor,
        "aud": claims["aud"],
        "iss": claims["iss"],
        "jti": claims["jti"],
        "scope": scope,
    }
    if bearer.limits.networks is not None:
        # Not in the RFC: the caller must check from where the token was used.
        content["allowed_networks"] = bearer.limits.networks
    if bearer.expires_at is not None:
        # From the store: a rotation or the parent may have shortened the signed lifetime.
        content["exp"] = bearer.expires_at // 1000
    return content


MAX_DECISION = 4_096
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
        return json_response(_token_answer(created))


@dataclass(frozen=True, slots=True)
class DevicePage:
    _console: ConsoleRequests
    _authenticator: Authenticator
    _devices: Devices
    _rejections: RejectionLog

    async def answer(self, request: Request) -> Response:
        """Show the terminal with a user code; with `approve`, approve or deny it."""
        self._console.check(request)
        session = self._console.session_of(request)
        if session is None:
            raise Fault(Reason.MISSING_CREDENTIAL, NOT_SIGNED_IN)
        caller = (await self._authenticator.authenticate_session(request, session)).caller
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


def _required(form: dict[str, str], name: str) -> str:
    value = form.get(name)
    if not value:
        raise invalid(name, f"{name} must be given, as a parameter in the body.")
    return value


def _scopes(form: dict[str, str]) -> tuple[str, ...] | None:
    words = form.get("scope", "").split()
    try:
        return check_limits(words, None, None).scopes if words else None
    except Fault as fault:
        raise Fault(Reason.INVALID_SCOPE, fault.message) from None

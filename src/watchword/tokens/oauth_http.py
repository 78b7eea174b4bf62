"""The OAuth endpoints: introspection (RFC 7662), revocation (RFC 7009), keys (JWKS) and metadata (RFC 8414).

Parameters come in a form in the body, never in the query, which proxies log. Errors have the shape of RFC 6749.
Introspection needs a token of the caller. Revocation needs only the token to revoke.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from watchword.authority.callers import Bearer, Caller
from watchword.authority.rejections_service import RejectionLog
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import username_of
from watchword.http.errors import CHALLENGE, JSON, NO_STORE, fault_headers, json_response, redact
from watchword.http.requests import Request, Response, read_form
from watchword.tokens.introspect_service import TokenIntrospection, TokenIntrospector
from watchword.tokens.keys import KEYS_CACHE_SECONDS
from watchword.tokens.keys_service import KeyRing
from watchword.tokens.revoke_service import TokenRevoker

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

CallerOf = Callable[[Bearer, Request], Caller]
"""The caller with this token, which must be for this service."""


@dataclass(frozen=True, slots=True)
class OAuthEndpoints:
    _caller_of: CallerOf
    _introspector: TokenIntrospector
    _revoker: TokenRevoker
    _keys: KeyRing
    _rejections: RejectionLog

    async def introspect(self, request: Request, bearer: Bearer) -> Response:
        token = required(await read_form(request), "token").encode("latin-1")
        result: TokenIntrospection | Fault | None = await self._introspector.introspect_own(bearer, token)
        if result is None:
            caller = self._caller_of(bearer, request)
            with self._rejections.recording_denial(caller, "introspect"):
                grant = await self._introspector.authorize(caller)
            result = await self._introspector.introspect(grant, token)
        if isinstance(result, Fault):
            self._rejections.record_failed_authentication(request.client, request.id, INTROSPECT, result)
            return INACTIVE
        return json_response(_introspection(result))

    async def revoke(self, request: Request) -> Response:
        form = await read_form(request)
        token, by_scan = required(form, "token").encode("latin-1"), form.get(FOUND_BY) == SCAN
        await self._revoker.revoke_by_possession(token, request.client, request.id, by_scan=by_scan)
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


def required(form: dict[str, str], name: str) -> str:
    value = form.get(name)
    if not value:
        raise invalid(name, f"{name} must be given, as a parameter in the body.")
    return value

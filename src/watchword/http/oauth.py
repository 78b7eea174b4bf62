"""The OAuth doors: introspection (RFC 7662), revocation (RFC 7009), the published keys and the metadata (RFC 8414).

Parameters come in the body as a form, each once: no token is read from a query, which others log. An error has the
shape that OAuth's clients read. Who asks about a token brings one of its own; who ends one needs nothing but it.
"""

from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from watchword.domain.actors import Bearer
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.ports import Keys
from watchword.domain.urns import name_of
from watchword.http.callers import Callers
from watchword.http.faults import CHALLENGE, JSON, NO_STORE, fault_headers, redact
from watchword.http.requests import Request, Response
from watchword.service.introspection import Introspection, Shown
from watchword.service.refusals import Refusals
from watchword.service.tokens import Tokens

INTROSPECT = "/oauth2/introspect"
REVOKE = "/oauth2/revoke"
JWKS = "/.well-known/jwks.json"
METADATA = "/.well-known/oauth-authorization-server"
OAUTH = frozenset({INTROSPECT, REVOKE})
MAX_FORM = 64 * 1024
MAX_FIELDS = 20
MAX_ESCAPES = 5_000
FORM = "application/x-www-form-urlencoded"

# The next key is published before it signs, so whoever keeps the set for so long misses no rotation.
KEYS_KEPT = ("cache-control", "public, max-age=300")
METADATA_KEPT = ("cache-control", "public, max-age=3600")
INACTIVE = Response(200, [JSON, NO_STORE], b'{"active":false}')

_WORDS = {401: "invalid_token", 403: "insufficient_scope", 500: "server_error", 503: "temporarily_unavailable"}


class OAuthDoor:
    def __init__(
        self, callers: Callers, introspection: Introspection, tokens: Tokens, keys: Keys, refusals: Refusals
    ) -> None:
        self._callers = callers
        self._introspection = introspection
        self._tokens = tokens
        self._keys = keys
        self._refusals = refusals

    async def introspect(self, request: Request, bearer: Bearer) -> Response:
        token = await _token(request)
        found = self._introspection.own(bearer, token) or await self._other(request, bearer, token)
        if isinstance(found, Fault):
            self._refusals.failed(request.client, request.id, INTROSPECT, found)
            return INACTIVE
        return Response(200, [JSON, NO_STORE], orjson.dumps(_told(found)))

    async def _other(self, request: Request, bearer: Bearer, token: bytes) -> Shown | Fault:
        caller = self._callers.caller(bearer, request)
        try:
            return await self._introspection.other(caller, token)
        except Fault as fault:
            if fault.reason is Reason.MISSING_PRIVILEGE:
                self._refusals.denied(caller, "introspect", fault)
            raise

    async def revoke(self, request: Request) -> Response:
        await self._tokens.revoke_by_possession(await _token(request), request.client, request.id)
        return Response(200, [NO_STORE])

    async def jwks(self, request: Request) -> Response:
        return Response(200, [JSON, KEYS_KEPT], orjson.dumps(await self._keys.jwks()))


def metadata(issuer: str) -> dict[str, Response]:
    """The metadata by their addresses: RFC 8414 puts the path of an issuer that has one after the well-known part. An
    issuer that is a Unix socket has no addresses to name.
    """
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
        # Nothing is granted by redirects here. Left out, the one would be missing, and the other mean two that are.
        "response_types_supported": [],
        "grant_types_supported": [],
    }
    answer = Response(200, [JSON, METADATA_KEPT], orjson.dumps(content))
    return dict.fromkeys((METADATA, METADATA + parts.path), answer)


def oauth_fault(fault: Fault) -> Response:
    word = _WORDS.get(fault.kind.code, "invalid_request")
    headers = [JSON, NO_STORE, *fault_headers(fault)]
    if fault.kind.code == 403:
        headers.append(("www-authenticate", _insufficient(fault)))
    content = {"error": word, "error_description": redact(fault.message)}
    return Response(fault.kind.code, headers, orjson.dumps(content))


def _insufficient(fault: Fault) -> str:
    """RFC 6750: the word, and which scope it takes, where it is one."""
    challenge = CHALLENGE + f', error="insufficient_scope", error_description="{fault.message}"'
    privilege = fault.details.get("privilege")
    return challenge if privilege is None else challenge + f', scope="{privilege}"'


def _told(found: Shown) -> dict[str, Any]:
    bearer, claims = found
    told = {
        "active": True,
        "client_id": claims["client_id"],
        "username": name_of(bearer.actor),
        "token_type": "Bearer",
        "iat": claims["iat"],
        "sub": bearer.actor,
        "aud": claims["aud"],
        "iss": claims["iss"],
        "jti": claims["jti"],
    }
    if "scope" in claims:
        told["scope"] = claims["scope"]
    if bearer.limits.networks is not None:
        # Not of the RFC: whoever asks must judge from where the token was brought.
        told["allowed_networks"] = bearer.limits.networks
    if bearer.expires_at is not None:
        # As the store has it: a rotation or a parent may have brought it nearer than what was signed.
        told["exp"] = bearer.expires_at // 1000
    return told


async def _token(request: Request) -> bytes:
    token = (await _form(request)).get("token")
    if not token:
        raise invalid("token", "token must be given, as a parameter in the body.")
    return token.encode("latin-1")


async def _form(request: Request) -> dict[str, str]:
    """The parameters of the body, byte by byte: what is no UTF-8 is no error, only no token of ours."""
    kind = request.header("content-type").lower().partition(";")[0].strip()
    if kind != FORM or request.is_repeated("content-type") or "content-encoding" in request.headers:
        raise Fault(
            Reason.INVALID_HEADER,
            f"Send the parameters in the body as Content-Type: {FORM}, uncompressed.",
            field="Content-Type",
        )
    body = (await request.body(MAX_FORM)).decode("latin-1")
    if body.count("%") > MAX_ESCAPES:
        raise invalid("body", f"The body may have at most {MAX_ESCAPES:,} escapes.")
    try:
        given = parse_qsl(body, keep_blank_values=True, encoding="latin-1", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise invalid("body", f"The body may have at most {MAX_FIELDS} parameters.") from None
    if any(times > 1 for times in Counter(name for name, _ in given).values()):
        raise invalid("body", "The body must have each parameter once.")
    return dict(given)

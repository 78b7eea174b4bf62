"""Authlib and PyJWT, called as the lines on standard input say; prints what each call returned or raised.

What they fetch they keep, as they do in a service that runs for long: keys are asked for once, unless the library
itself asks again. Each `memory` is that of a service of its own.
"""

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import jwt
import requests
from authlib.integrations.requests_client import OAuth2Session
from authlib.jose import JsonWebKey, JsonWebToken
from authlib.oauth2 import ResourceProtector
from authlib.oauth2.rfc6749.requests import JsonRequest
from authlib.oauth2.rfc7662 import IntrospectTokenValidator
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url

SECONDS = 20


@functools.cache
def metadata(issuer: str) -> Any:
    """Fetch the metadata of RFC 8414 and validate it with Authlib."""
    found = AuthorizationServerMetadata(requests.get(get_well_known_url(issuer, external=True), timeout=SECONDS).json())
    found.validate_issuer()
    found.validate_jwks_uri()
    found.validate_authorization_endpoint()
    found.validate_introspection_endpoint()
    found.validate_introspection_endpoint_auth_methods_supported()
    found.validate_revocation_endpoint()
    found.validate_revocation_endpoint_auth_methods_supported()
    return found


@functools.cache
def jwks_client(issuer: str, memory: str, **options: Any) -> jwt.PyJWKClient:
    return jwt.PyJWKClient(metadata(issuer)["jwks_uri"], **options)


def pyjwt(issuer: str, token: str, memory: str, options: dict[str, Any]) -> Any:
    key = jwks_client(issuer, memory, **options).get_signing_key_from_jwt(token)
    return jwt.decode(token, key, ["EdDSA", "RS256"], audience=issuer, issuer=issuer)


@functools.cache
def keys(issuer: str, memory: str) -> Any:
    return JsonWebKey.import_key_set(requests.get(metadata(issuer)["jwks_uri"], timeout=SECONDS).json())


def authlib(issuer: str, token: str, memory: str, options: dict[str, Any]) -> Any:
    """Not with its RFC 9068 validator, which does not support EdDSA."""
    wanted = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": issuer}}
    claims = JsonWebToken(["EdDSA", "RS256"]).decode(token, keys(issuer, memory), claims_options=wanted, **options)
    claims.validate()
    return claims


def session(bearer: str) -> OAuth2Session:
    return OAuth2Session(token={"access_token": bearer, "token_type": "Bearer"})


def introspect(issuer: str, token: str, bearer: str) -> Any:
    asking = session(bearer)
    answer = asking.introspect_token(metadata(issuer)["introspection_endpoint"], token=token, auth=asking.token_auth)
    return {"status": answer.status_code, "body": answer.json()}


def protect(issuer: str, token: str, bearer: str, scopes: list[str]) -> Any:
    """Authlib's resource protector, which introspects each token."""

    class ByAsking(IntrospectTokenValidator):  # type: ignore[misc]
        def introspect_token(self, token_string: str) -> Any:
            return introspect(issuer, token_string, bearer)["body"]

    guard = ResourceProtector()
    guard.register_token_validator(ByAsking())
    came = JsonRequest("GET", "https://orders.example/", headers={"Authorization": f"Bearer {token}"})
    return guard.validate_request(scopes, came)


def revoke(issuer: str, token: str) -> Any:
    ending = OAuth2Session(client_id="anybody", revocation_endpoint_auth_method="none")
    answer = ending.revoke_token(metadata(issuer)["revocation_endpoint"], token=token)
    return {"status": answer.status_code, "text": answer.text}


def device_token(issuer: str, device_code: str) -> Any:
    """One poll, by Authlib's session of a public client."""
    found = metadata(issuer)
    asking = OAuth2Session(client_id="anybody", token_endpoint_auth_method="none")
    return asking.fetch_token(
        found["token_endpoint"], grant_type=found["grant_types_supported"][0], device_code=device_code
    )


CALLS: dict[str, Callable[..., Any]] = {
    made.__name__: made for made in (metadata, pyjwt, authlib, introspect, protect, revoke, device_token)
}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"returned": CALLS[asked.pop("call")](**asked)}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the outcome
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"raised": {"kinds": kinds, "info": getattr(error, "error", None), "message": str(error)}}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)

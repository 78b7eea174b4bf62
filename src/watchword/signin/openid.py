"""The identity provider: OpenID Connect with the authorization code flow, PKCE, `state`, `nonce` and RFC 9207's `iss`.

Addresses and keys come from the provider's discovery document and are kept for an hour. A token with an unknown key
makes them be read again, at most every half minute. Of a sign-in only the claims are used: the provider's tokens are
dropped. Requests to the provider go through the process for outgoing requests, are bounded in time and size, follow no
redirect, and at most MAX_AT_ONCE run at once, so that a slow provider costs nothing but the sign-ins that wait for it.
"""

import asyncio
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet, import_key

from watchword.basics.errors import Fault, Reason
from watchword.basics.secret import Secret
from watchword.basics.times import Clock
from watchword.outbound.client import OutboundProcess
from watchword.outbound.rules import AnswerBounds, OutboundError, OutboundRequest, parse_url
from watchword.signin.session_rules import MAX_SUBJECT, LogoutNotice, is_name, is_secure

SECONDS = 5.0
MAX_BYTES = 1024 * 1024
BOUNDS = AnswerBounds(SECONDS, received=MAX_BYTES, pieces=4_000, kept=MAX_BYTES)
MAX_TOKEN = 64 * 1024
MAX_KEYS = 100
MAX_AT_ONCE = 16
KEPT = 3_600_000  # milliseconds that the discovery document and the keys are kept
READ_AGAIN = 30_000  # milliseconds between readings for the sake of an unknown key
RETRY_DELAY = 2_000  # milliseconds in which a provider that did not answer is not asked again: every sign-in would wait
SKEW = 60  # seconds that the provider's clock may differ
MAX_AGE = 600  # seconds since a token was issued
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Signatures with a public key. `none`, and those with a shared secret, are never accepted."""
_SHOWN = ("name", "email")
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """How the provider knows this service."""

    issuer: str
    client_id: str
    client_secret: Secret[str] | None
    scopes: str
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class _Provider:
    """What was read from the provider, and when."""

    metadata: dict[str, Any]
    keys: KeySet
    read_at: int

    def address(self, name: str) -> str | None:
        """An endpoint. None: the provider has none, or one that is not secure."""
        url = self.metadata.get(name)
        return url if isinstance(url, str) and is_secure(url) else None


class OpenIdProvider:
    """PROVIDER_UNAVAILABLE if it does not answer; INVALID_SIGN_IN if its answer is not valid."""

    def __init__(self, client: ClientRegistration, outbound: OutboundProcess, clock: Clock) -> None:
        self._client = client
        self._outbound = outbound
        self._clock = clock
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)
        self._reading = asyncio.Lock()
        self._provider: _Provider | None = None
        self._read_again_at = self._retry_at = 0

    @property
    def issuer(self) -> str:
        return self._client.issuer

    async def authorization_url(self, state: str, nonce: str, verifier: Secret[str]) -> str:
        endpoint = self._required(await self._read(), "authorization_endpoint")
        challenge = urlsafe_b64encode(sha256(verifier.reveal().encode()).digest()).rstrip(b"=").decode()
        parameters = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_uri,
            "scope": self._client.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(endpoint, parameters)

    async def end_session_url(self, return_to: str) -> str | None:
        """Where a person can end the session at the provider too. None: the provider offers none, or is unavailable."""
        try:
            endpoint = (await self._read()).address("end_session_endpoint")
        except Fault:
            return None
        parameters = {"client_id": self._client.client_id, "post_logout_redirect_uri": return_to}
        return None if endpoint is None else _with_query(endpoint, parameters)

    async def check_issuer(self, named: str | None) -> None:
        """RFC 9207: an answer names its issuer, so that one provider's answer is not taken for another's."""
        is_named = (await self._read()).metadata.get("authorization_response_iss_parameter_supported") is True
        if named != self._client.issuer and (named is not None or is_named):
            raise _invalid("The answer comes from another identity provider than the one that was asked.")

    async def claims(self, code: str, nonce: str, verifier: Secret[str], needed: frozenset[str]) -> dict[str, Any]:
        """Return the claims of the person who signed in. Missing claims are read from userinfo. Errors are ignored if
        only name or address is missing.
        """
        answer = await self._exchange(code, verifier)
        claims = await self._verified(answer.get("id_token"), require={"sub", "aud", "exp", "iat", "nonce"})
        if claims["nonce"] != nonce:
            raise _invalid("The ID token was made for another sign-in (nonce).")
        endpoint = (await self._read()).address("userinfo_endpoint")
        access_token = answer.get("access_token")
        if endpoint is None or not isinstance(access_token, str) or {*needed, *_SHOWN} <= claims.keys():
            return claims
        try:
            more = await self._request("GET", endpoint, {"authorization": f"Bearer {access_token}"})
        except Fault:
            if needed <= claims.keys():
                return claims
            raise
        if more.get("sub") != claims["sub"]:
            raise _invalid("The answer of userinfo is about another person.")
        return {**more, **claims}

    async def logout_notice(self, token: str) -> LogoutNotice:
        """The notice in a logout token (OpenID Connect Back-Channel Logout)."""
        claims = await self._verified(token, require={"aud", "iat", "events"})
        subject, sid, events = claims.get("sub"), claims.get("sid"), claims["events"]
        if not isinstance(events, dict) or LOGOUT_EVENT not in events or "nonce" in claims:
            raise _invalid("This is not a logout token.")
        if (subject is None and sid is None) or not all(one is None or is_name(one) for one in (subject, sid)):
            raise _invalid("The logout token must name sub or sid.")
        return LogoutNotice(self._client.issuer, subject, sid, int(claims["iat"] + SKEW) * 1_000)

    async def _exchange(self, code: str, verifier: Secret[str]) -> dict[str, Any]:
        provider, client = await self._read(), self._client
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": client.redirect_uri,
            "code_verifier": verifier.reveal(),
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if client.client_secret is None:
            form["client_id"] = client.client_id
        elif "client_secret_basic" in provider.metadata.get(
            "token_endpoint_auth_methods_supported", ["client_secret_basic"]
        ):
            # RFC 6749: both are encoded before they are joined.
            pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret.reveal())}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": client.client_id, "client_secret": client.client_secret.reveal()}
        endpoint = self._required(provider, "token_endpoint")
        body = urlencode(form).encode()
        return await self._request("POST", endpoint, headers, body, refusal="The code was not accepted")

    async def _verified(self, token: Any, require: set[str]) -> dict[str, Any]:
        """The claims of a token that the provider signed for this service, recently."""
        if not isinstance(token, str) or not 0 < len(token) <= MAX_TOKEN:
            raise _invalid("The identity provider's answer has no token.")
        provider = await self._read()
        try:
            try:
                claims = _decoded(token, provider.keys)
            except InvalidKeyIdError:
                claims = _decoded(token, (await self._read(after=provider)).keys)
        except (JoseError, ValueError, TypeError) as error:
            raise _invalid(
                "The signature of the identity provider's token is not valid.", type(error).__name__
            ) from None
        self._check(claims, require)
        return claims

    def _check(self, claims: dict[str, Any], require: set[str]) -> None:
        client, now = self._client, self._clock() / 1_000
        audience = claims.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience
        times = {name: claims[name] for name in ("exp", "iat", "nbf") if name in claims}
        if not require <= claims.keys():
            raise _invalid(f"The token lacks a claim: {', '.join(sorted(require - claims.keys()))}.")
        if claims.get("iss") != client.issuer:
            raise _invalid("The token is of another issuer.")
        if not isinstance(audiences, list) or client.client_id not in audiences:
            raise _invalid("The token is for another client (aud).")
        if claims.get("azp", client.client_id) != client.client_id or (len(audiences) > 1 and "azp" not in claims):
            raise _invalid("The token is for another client (azp).")
        if any(isinstance(at, bool) or not isinstance(at, int | float) or not abs(at) < 1e11 for at in times.values()):
            raise _invalid("exp, iat and nbf must be times.")
        if times.get("exp", now) < now - SKEW or times["iat"] < now - MAX_AGE:
            raise _invalid("The token has expired.")
        if max(times["iat"], times.get("nbf", 0)) > now + SKEW:
            raise _invalid("The token is from the future. Check the clocks.")
        if "sub" in require and not is_name(claims.get("sub")):
            raise _invalid(f"sub must be a text of 1 to {MAX_SUBJECT} characters.")

    async def _read(self, after: _Provider | None = None) -> _Provider:
        """The discovery document and the keys. With `after`, whose keys lack one, they are read again, now and then."""
        known, now = self._provider, self._clock()
        if after is None and known is not None and now - known.read_at < KEPT:
            return known  # also while others wait for newer keys
        async with self._reading:
            known, now = self._provider, self._clock()
            if after is not None:
                if known is not after or now < self._read_again_at:
                    return known or after
                self._read_again_at = now + READ_AGAIN
            elif known is not None and now - known.read_at < KEPT:
                return known
            elif known is None and now < self._retry_at:
                raise provider_unavailable("it did not answer a moment ago")
            try:
                self._provider = await self._discover(now)
            except Fault:
                self._retry_at = self._clock() + RETRY_DELAY
                if known is None or after is not None:
                    raise
                # The provider is unavailable. What is known is used until it answers.
                self._provider = _Provider(known.metadata, known.keys, now - KEPT + READ_AGAIN)
            return self._provider

    async def _discover(self, now: int) -> _Provider:
        metadata = await self._request("GET", f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration")
        if metadata.get("issuer") != self._client.issuer:
            raise provider_unavailable("its discovery document names another issuer than WATCHWORD_OIDC_ISSUER")
        address = metadata.get("jwks_uri")
        if not isinstance(address, str) or not is_secure(address):
            raise provider_unavailable("its discovery document has no jwks_uri with https")
        found = (await self._request("GET", address)).get("keys")
        keys = []
        for key in found[:MAX_KEYS] if isinstance(found, list) else ():
            if isinstance(key, dict) and key.get("kty") in {"RSA", "EC", "OKP"} and key.get("use", "sig") == "sig":
                try:
                    keys.append(import_key(key))
                except (JoseError, ValueError, TypeError, KeyError):
                    continue  # a kind that is not known here
        if not keys:
            raise provider_unavailable("it publishes no keys for signatures")
        return _Provider(metadata, KeySet(keys), now)

    def _required(self, provider: _Provider, name: str) -> str:
        address = provider.address(name)
        if address is None:
            raise provider_unavailable(f"its discovery document has no {name} with https")
        return address

    async def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes = b"",
        *,
        refusal: str | None = None,
    ) -> dict[str, Any]:
        """The JSON object of an answer. With `refusal`, a 4xx answer says no; otherwise it is a failure."""
        try:
            target = parse_url(url)
        except Fault as fault:
            raise provider_unavailable(f"{urlsplit(url).hostname}: {fault.message}") from None
        request = OutboundRequest(method, target, BOUNDS, {"accept": "application/json", **headers}, body)
        try:
            async with asyncio.timeout(SECONDS), self._at_once:
                answer = await self._outbound.send(request)
        except (OutboundError, TimeoutError) as error:
            raise provider_unavailable(f"{target.host}: {error or 'no answer in time'}") from None
        if not answer.is_whole:
            raise provider_unavailable("its answer is too long")
        if refusal is not None and 400 <= answer.status < 500:
            raise _invalid(f"{refusal} by the identity provider. Sign in again.", _error_code(answer.body))
        if answer.status != 200:
            raise provider_unavailable(f"{target.host}{urlsplit(url).path} answered {answer.status}")
        try:
            content = json.loads(answer.body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise provider_unavailable(f"{target.host}{urlsplit(url).path} answered no JSON object")
        return content


def _decoded(token: str, keys: KeySet) -> dict[str, Any]:
    return dict(jwt.decode(token, keys, algorithms=ALGORITHMS).claims)


def _with_query(url: str, parameters: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def _error_code(body: bytes) -> str:
    """OAuth's error code, for the log."""
    try:
        return str(json.loads(body)["error"])[:100]
    except (ValueError, RecursionError, KeyError, TypeError):
        return "no error code"


def _invalid(message: str, cause: str | None = None) -> Fault:
    return Fault(Reason.INVALID_SIGN_IN, message, cause=cause)


def provider_unavailable(cause: str) -> Fault:
    message = "The identity provider does not answer as expected. Try again later; tokens and open sessions work on."
    return Fault(Reason.PROVIDER_UNAVAILABLE, message, cause=f"identity provider: {cause}")

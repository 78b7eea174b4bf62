"""Introspection: what a token allows, for the services that it is sent to."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, NamedTuple

from watchword.authority.callers import Bearer, Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.rejections_service import REJECTED_CREDENTIALS
from watchword.authority.service import Authority, not_accepted
from watchword.basics.errors import Fault
from watchword.tokens.keys import Claims
from watchword.tokens.keys_service import KeyRing
from watchword.tokens.rules import DATAHUB_HEADER
from watchword.tokens.store import TokenStore


class TokenIntrospection(NamedTuple):
    """A live token: its state in the store, its claims and its effective scopes."""

    bearer: Bearer
    claims: dict[str, Any]
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIntrospector:
    store: TokenStore
    authority: Authority
    signer: KeyRing

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self.authority.authorize(caller, Privilege.INTROSPECT_TOKENS)

    async def introspect_own(self, bearer: Bearer, token: bytes) -> TokenIntrospection | None:
        """The bearer, if the token in question is that of the request."""
        return await self._introspection(bearer, token) if self.authority.token_id(token) == bearer.token_id else None

    async def introspect(self, grant: Grant, token: bytes) -> TokenIntrospection | Fault:
        """The live token with this text; or why it is not live, for the audit log. The client's network is not checked:
        only the caller knows where the token was used.
        """
        grant.expect(Privilege.INTROSPECT_TOKENS)
        try:
            caller = grant.caller
            bearer = await self.authority.verify(token, caller.peer, caller.request_id, introspected_by=caller.actor)
            return await self._introspection(bearer, token)
        except Fault as fault:
            if fault.reason in REJECTED_CREDENTIALS:
                return fault
            raise

    async def _introspection(self, bearer: Bearer, token: bytes) -> TokenIntrospection:
        claims = await self._datahub_claims(bearer) if token.startswith(DATAHUB_HEADER) else _claims(token)
        return TokenIntrospection(bearer, claims, (await self.authority.rights(bearer)).text)

    async def _datahub_claims(self, bearer: Bearer) -> dict[str, Any]:
        """What the token of DataHub would claim if this service had signed it; its id in place of a `jti`."""
        record = await self.store.get_token(bearer.token_id)
        if record is None:  # deleted since it was verified
            raise not_accepted()
        claims = Claims(record.actor_urn, record.created_at, record.expires_at, record.limits, record.id)
        return self.signer.claims(claims)


def _claims(token: bytes) -> dict[str, Any]:
    """The payload of a token. The store has its digest, so this service signed it."""
    payload = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    return claims

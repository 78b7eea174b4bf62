"""Introspection: what there is to tell of a token that somebody was shown. Its text is all it is known by.

Who asks about the very token it calls with needs nothing more. Who asks about another needs a privilege, and is denied
before anything is looked up. Of a token that is not live, whatever the reason, nothing is told.
"""

import json
from base64 import urlsafe_b64decode
from typing import Any, NamedTuple

from watchword.domain.actors import Bearer, Caller
from watchword.domain.errors import Fault
from watchword.domain.policies import Privilege
from watchword.domain.secret import Secret
from watchword.domain.tokens import token_id
from watchword.service.authority import Authority
from watchword.service.refusals import FAILURES

INTROSPECT = Privilege.INTROSPECT_TOKENS


class Shown(NamedTuple):
    """A live token: what the store knows of it, and the claims that were signed."""

    bearer: Bearer
    claims: dict[str, Any]


class Introspection:
    def __init__(self, authority: Authority, salt: Secret[bytes]) -> None:
        self._authority = authority
        self._salt = salt

    def own(self, bearer: Bearer, token: bytes) -> Shown | None:
        """The bearer itself, where the token asked about is just that."""
        return Shown(bearer, _claims(token)) if token_id(token, self._salt) == bearer.token_id else None

    async def other(self, caller: Caller, token: bytes) -> Shown | Fault:
        """The live token with this text, whose use this is; or why it is none, which is not for the caller to know.

        From where it was brought to the caller only the caller knows, so that is not judged.
        """
        (await self._authority.grant(caller)).require(INTROSPECT)
        try:
            bearer = await self._authority.verify(token, caller.peer, caller.request_id, anywhere=True)
        except Fault as fault:
            if fault.reason in FAILURES:
                return fault
            raise
        return Shown(bearer, _claims(token))


def _claims(token: bytes) -> dict[str, Any]:
    """What a token says of itself. Its digest was found, so it is one of ours, byte by byte."""
    payload = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    return claims

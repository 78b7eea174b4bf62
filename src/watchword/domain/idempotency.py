"""Retries: the same request under the same key gives the same token, though no token was ever stored.

The number in a token made under a key (`jti`) is an HMAC over actor, credential, key and what was asked. Signing again
with the same key and times gives the same token, bit by bit. Kept is only what that takes: the key's digest, the times,
the signing key's name, and the id of the token, which every list shows.

The credential is the token, the session or the believed header that the request came with. The key's digest is the
actor's alone: so the same key from another credential of the actor finds the record, and its signature gives another
id than the one that is kept. It is refused, and no second token is made.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import digest
from typing import Any

from watchword.domain.errors import Fault, Reason
from watchword.domain.lifetimes import DAY
from watchword.domain.secret import Secret

KEPT = DAY
HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """What is kept of a request made under a key."""

    actor: str
    digest: str
    kid: str
    token_id: str
    created_at: int
    expires_at: int | None


class IdempotentRequest:
    """A request under a key: its digest, and the number of the token it makes."""

    __slots__ = ("_asked", "_secret", "actor", "digest")

    def __init__(self, salt: Secret[bytes], actor: str, key: str, asked: Mapping[str, Any], credential: str) -> None:
        self.actor = actor
        self._secret = Secret(digest(salt.reveal(), b"watchword idempotency", sha256))
        self._asked = _text([actor, credential, key, dict(asked)])
        self.digest = self._mac(b"key", _text([actor, key])).hex()

    def jti(self) -> str:
        return self._mac(b"jti", self._asked)[:16].hex()

    def _mac(self, purpose: bytes, content: bytes) -> bytes:
        return digest(self._secret.reveal(), purpose + b"\0" + content, sha256)


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def check_key(value: str) -> str:
    if not _KEY.fullmatch(value):
        raise Fault(Reason.INVALID_HEADER, f"{HEADER} must have 1 to 255 characters of printable ASCII.", field=HEADER)
    return value


def other_request() -> Fault:
    return Fault(
        Reason.KEY_REUSED,
        f"This {HEADER} was used with another request or another credential in the last 24 hours. Use a new one.",
        field=HEADER,
    )


def signing_key_gone() -> Fault:
    return Fault(
        Reason.KEY_REUSED,
        f"The token made under this {HEADER} cannot be signed again: its signing key is gone. Take a new one.",
        field=HEADER,
    )


def token_ended() -> Fault:
    return Fault(
        Reason.KEY_REUSED, f"The token made under this {HEADER} was ended since; take a new one.", field=HEADER
    )

"""Idempotency keys: the same request with the same key returns the same token, although tokens are not stored.

The token's `jti` is an HMAC over actor, credential, key and request. Signing again with the same signing key and times
gives the same token, bit by bit. Only the digest of the key, the times, the signing key's id and the token's id are
stored.

The credential is the token, session or actor header of the request. The key's digest depends on the actor only: the
same key from another credential of the actor finds the record, and its signature gives another token id than the
stored one. The service rejects it and creates no second token.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import digest
from typing import Any

from watchword.basics.errors import Fault, Reason
from watchword.basics.secret import Secret
from watchword.basics.times import DAY

KEPT = DAY
HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The stored part of a request with an idempotency key."""

    actor: str
    digest: str
    kid: str
    token_id: str
    created_at: int
    expires_at: int | None


class Repeated(Exception):
    """Another request with the same idempotency key was first. Never reaches a client."""


class IdempotentRequest:
    """A request with an idempotency key: the digest of the key and the `jti` of its token."""

    __slots__ = ("_arguments", "_secret", "actor", "digest")

    def __init__(
        self, salt: Secret[bytes], actor: str, key: str, arguments: Mapping[str, Any], credential: str
    ) -> None:
        self.actor = actor
        self._secret = Secret(digest(salt.reveal(), b"watchword idempotency", sha256))
        self._arguments = _text([actor, credential, key, dict(arguments)])
        self.digest = self._mac(b"key", _text([actor, key])).hex()

    def jti(self) -> str:
        return self._mac(b"jti", self._arguments)[:16].hex()

    def _mac(self, purpose: bytes, content: bytes) -> bytes:
        return digest(self._secret.reveal(), purpose + b"\0" + content, sha256)


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def check_key(value: str) -> str:
    if not _KEY.fullmatch(value):
        raise Fault(Reason.INVALID_HEADER, f"{HEADER} must have 1 to 255 printable ASCII characters.", field=HEADER)
    return value


def key_reused(problem: str) -> Fault:
    return Fault(Reason.IDEMPOTENCY_KEY_REUSED, f"{problem} Use a new key.", field=HEADER)

"""Signing keys as the store has them, and their kinds."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from watchword.authority.limits import UNLIMITED, Limits
from watchword.basics.secret import Secret

ED25519_BYTES = 32
KEYS_CACHE_SECONDS = 300
"""How long the published keys may be cached."""


class KeyKind(Enum):
    """The algorithm of a signing key, as tokens name it. Not PS256: its signatures are random, and a repeated request
    with an Idempotency-Key must get the same token, signed again.
    """

    EDDSA = "EdDSA"
    RS256 = "RS256"


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A signing key as stored. It is published until its last token has expired; `published_until` None: for good."""

    kid: str
    public: bytes  # the 32 bytes of an Ed25519 key; an RSA key in DER
    sealed_private: bytes
    created_at: int
    retired_at: int | None = None
    published_until: int | None = None

    @property
    def kind(self) -> KeyKind:
        return KeyKind.EDDSA if len(self.public) == ED25519_BYTES else KeyKind.RS256

    def is_published(self, now: int) -> bool:
        return self.retired_at is None or self.published_until is None or self.published_until > now


class PreparedKey(NamedTuple):
    """The next key."""

    key: SealedKey
    is_new: bool
    waits_until: int | None
    """When no service has a cached set of keys without it; None: that time has passed."""


@dataclass(frozen=True, slots=True)
class Signed:
    token: Secret[str]
    kid: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. `jti` is random if it is not given."""

    actor: str
    created_at: int
    expires_at: int | None
    limits: Limits = UNLIMITED
    jti: str | None = None

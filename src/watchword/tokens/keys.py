"""Signing keys as the store has them, and their kinds."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from watchword.authority.limits import UNLIMITED, Limits
from watchword.basics.secret import Secret
from watchword.journal.preconditions import WritePrecondition

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


class Keys(Protocol):
    """The signing keys, without the libraries that make them and sign."""

    def sign(self, claims: Claims) -> Signed:
        """The token, and the key it was signed with."""

    async def sign_again(self, claims: Claims, kid: str) -> Signed | None:
        """With the key it was signed with before; None if that key is gone."""

    def claims(self, claims: Claims) -> dict[str, Any]:
        """The claims by their names in the token, issuer and audience included."""

    async def refresh(self) -> None:
        """Load the current key from the store."""

    async def all(self) -> tuple[SealedKey, ...]: ...

    async def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The published keys as a JSON Web Key Set."""

    async def following(self) -> SealedKey:
        """The key that signs after the next rotation. It is published already."""

    async def prepare(self, precondition: WritePrecondition, kind: KeyKind) -> PreparedKey:
        """Make the next key one of this kind, unless it is."""

    async def rotate(self, precondition: WritePrecondition) -> SealedKey:
        """Sign with the next key from now on. The one after it is of the same kind."""

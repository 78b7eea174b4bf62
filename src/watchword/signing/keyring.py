"""The key ring: signs with the newest key, publishes every key whose tokens may still live.

Tokens are JWTs in the style of RFC 9068. The signature is for others, who check it by the published keys and
cannot see revocations; here a token is known by its digest. Signing is PyJWT's, keys are cryptography's.
"""

import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.domain.actors import Warrant
from watchword.domain.ports import Clock, KeyStore, SealedKey, Signed
from watchword.domain.secret import Secret
from watchword.signing.sealing import Randomness, Sealer

SALT_BYTES = 32
CLIENT_ID = "watchword"


class KeyRing:
    def __init__(
        self, store: KeyStore, sealer: Sealer, issuer: str, clock: Clock, randomness: Randomness = os.urandom
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._issuer = issuer
        self._clock = clock
        self._randomness = randomness
        self._kid = ""
        self._private: Ed25519PrivateKey | None = None

    async def settle(self) -> Secret[bytes]:
        """At start: make the first salt and key if there are none, and prove that the master key opens them."""
        if await self._store.sealed_salt() is None:
            salt = self._sealer.seal(Secret(self._randomness(SALT_BYTES)), "salt")
            await self._store.settle_keys(salt, self._new_key())
        sealed = await self._store.sealed_salt()
        assert sealed is not None
        await self.refresh()
        return self._sealer.open(sealed, "salt")

    async def refresh(self) -> None:
        """Sign with the key the store names now."""
        newest = (await self._store.keys())[0]
        if newest.kid != self._kid:
            raw = self._sealer.open(newest.sealed_private, _label(newest.kid))
            self._private = Ed25519PrivateKey.from_private_bytes(raw.reveal())
            self._kid = newest.kid

    def sign(self, actor: str, created_at: int, expires_at: int | None) -> Signed:
        assert self._private is not None
        claims: dict[str, Any] = {
            "iss": self._issuer,
            "sub": actor,
            "aud": self._issuer,
            "client_id": CLIENT_ID,
            "iat": created_at // 1000,
            "jti": self._randomness(16).hex(),
        }
        if expires_at is not None:
            claims["exp"] = expires_at // 1000
        token = jwt.encode(claims, self._private, algorithm="EdDSA", headers={"kid": self._kid, "typ": "at+jwt"})
        return Signed(Secret(token), self._kid)

    async def all(self) -> tuple[SealedKey, ...]:
        return await self._store.keys()

    async def jwks(self) -> dict[str, list[dict[str, str]]]:
        now = self._clock()
        return {"keys": [_jwk(key) for key in await self._store.keys() if key.is_published(now)]}

    async def rotate(self, warrant: Warrant) -> SealedKey:
        key = self._new_key()
        await self._store.rotate_key(warrant, key)
        await self.refresh()
        return key

    def _new_key(self) -> SealedKey:
        private = Ed25519PrivateKey.generate()
        kid = secrets.token_urlsafe(12)
        return SealedKey(
            kid=kid,
            public=private.public_key().public_bytes_raw(),
            sealed_private=self._sealer.seal(Secret(private.private_bytes_raw()), _label(kid)),
            created_at=self._clock(),
        )


def prove_opens(sealer: Sealer, salt: bytes, private_keys: Iterable[tuple[str, bytes]]) -> None:
    """Raise unless this master key opens the salt and every signing key (by kid)."""
    sealer.open(salt, "salt")
    for kid, sealed in private_keys:
        sealer.open(sealed, _label(kid))


def _label(kid: str) -> str:
    return f"key:{kid}"


def _jwk(key: SealedKey) -> dict[str, str]:
    x = urlsafe_b64encode(key.public).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": key.kid, "x": x}

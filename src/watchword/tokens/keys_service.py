"""Signing and sealing: tokens are JWTs of EdDSA or RS256, and the store holds the signing keys encrypted by a master
key.

The key ring signs with the newest key and publishes the keys whose tokens may still be valid, and the next key. Tokens
are JWTs in the style of RFC 9068. Other services verify the signature by the published keys, which do not show
revocations. Watchword itself finds a token by its digest.

The next key is published before it signs, so that services that cache the published keys do not notice a rotation. Keys
are random: a stolen backup does not reveal keys that are created later. The master key is kept outside the store.
"""

import json
import os
from base64 import b64decode, b64encode
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from watchword.basics.errors import OperatorError, Stale
from watchword.basics.files import close_advice, draft, open_bits, sync
from watchword.basics.secret import Secret
from watchword.basics.times import Clock
from watchword.journal.preconditions import WritePrecondition
from watchword.tokens.keys import KEYS_CACHE_SECONDS, Claims, KeyKind, PreparedKey, SealedKey, Signed
from watchword.tokens.keys_store import KeyStore

KEY_BYTES = 32
RSA_BITS = 2_048
NONCE_BYTES = 12
KID_LENGTH = 16
CLIENT_ID = "watchword"

Randomness = Callable[[int], bytes]

_to_json = json.JSONEncoder(separators=(",", ":")).encode
_to_url = bytes.maketrans(b"+/", b"-_")


class SigningKey(NamedTuple):
    kid: str
    kind: KeyKind
    sign: Callable[[bytes], bytes]


class MasterKeyError(OperatorError):
    """The master key cannot be used."""


def load_master_key(path: Path, *, create: bool) -> Secret[bytes]:
    """The key in this file. With `create`, a missing key is created."""
    if create and not path.exists():
        make_master_key(path)
    try:
        with path.open("rb") as file:
            seen = os.fstat(file.fileno())
            text = file.read(1_024).decode("ascii").strip()
    except FileNotFoundError:
        raise MasterKeyError(
            f"There is no master key at {path}. Put the key of this store there, or create one for a new store: "
            f"watchword key new-master {path}"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise MasterKeyError(f"The master key at {path} cannot be read.") from None
    if open_bits(seen):
        raise MasterKeyError(f"Other users can read the master key {path}. {close_advice(path, seen)}")
    try:
        key = b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise MasterKeyError(f"The file {path} does not hold a master key: 32 bytes, as base64.")
    return Secret(key)


def make_master_key(path: Path) -> bool:
    """Create a key in this file; False if the file exists. It is linked into place, so that of two processes that start
    together one wins.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with draft(path, b64encode(os.urandom(KEY_BYTES)) + b"\n") as written:
        try:
            path.hardlink_to(written)
        except FileExistsError:
            return False
    sync(path.parent)
    return True


class Sealer:
    """AES-256-GCM under the master key. A secret opens only with the label it was sealed with."""

    def __init__(self, master_key: Secret[bytes], randomness: Randomness = os.urandom) -> None:
        self._cipher = AESGCM(master_key.reveal())
        self._randomness = randomness

    def seal(self, plain: Secret[bytes], label: str) -> bytes:
        nonce = self._randomness(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain.reveal(), label.encode())

    def open(self, sealed: bytes, label: str) -> Secret[bytes]:
        try:
            return Secret(self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], label.encode()))
        except InvalidTag:
            raise MasterKeyError(
                "The store is sealed with another master key. Set WATCHWORD_MASTER_KEY_FILE to the right one."
            ) from None


class KeyRing:
    def __init__(
        self, store: KeyStore, sealer: Sealer, issuer: str, clock: Clock, randomness: Randomness = os.urandom
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._issuer = issuer
        self._clock = clock
        self._randomness = randomness
        self._key: SigningKey | None = None

    async def settle(self) -> Secret[bytes]:
        """At start: create the first salt and keys if there are none, and check that the master key opens them."""
        if await self._store.sealed_salt() is None:
            salt = self._sealer.seal(Secret(self._randomness(KEY_BYTES)), "salt")
            await self._store.settle_keys(salt, self._fresh(KeyKind.EDDSA), self._fresh(KeyKind.EDDSA))
        sealed = await self._store.sealed_salt()
        assert sealed is not None
        await self.refresh()
        opened = self._sealer.open(sealed, "salt")
        # After the check: a wrong master key must not seal a next key.
        self._opened(await self.following())
        return opened

    async def refresh(self) -> None:
        """Sign with the newest key of the store."""
        newest = (await self._store.keys())[0]
        if self._key is None or newest.kid != self._key.kid:
            self._key = self._opened(newest)

    def sign(self, claims: Claims) -> Signed:
        assert self._key is not None
        return self._signed(claims, self._key)

    async def sign_again(self, claims: Claims, kid: str) -> Signed | None:
        """With the key it was signed with before; None if that key is gone."""
        for key in await self._store.keys():
            if key.kid == kid:
                return self._signed(claims, self._opened(key))
        return None

    def claims(self, claims: Claims) -> dict[str, Any]:
        """The claims by their names in the token, issuer and audience included."""
        limits = claims.limits
        content: dict[str, Any] = {
            "iss": self._issuer,
            "sub": claims.actor,
            "aud": self._issuer if limits.audience is None else list(limits.audience),
            "client_id": CLIENT_ID,
            "iat": claims.created_at // 1000,
            "jti": claims.jti or self._randomness(16).hex(),
        }
        if claims.expires_at is not None:
            content["exp"] = claims.expires_at // 1000
        if limits.scopes is not None:
            content["scope"] = " ".join(limits.scopes)
        return content

    def _signed(self, claims: Claims, key: SigningKey) -> Signed:
        return Signed(Secret(signed_token(self.claims(claims), key)), key.kid)

    async def all(self) -> tuple[SealedKey, ...]:
        return await self._store.keys()

    async def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The published keys as a JSON Web Key Set."""
        # In this order: after a rotation in between, the signing key is listed twice and not missing.
        following = await self.following()
        now = self._clock()
        published = [key for key in await self._store.keys() if key.is_published(now)]
        known = {key.kid: key for key in (*published, following)}
        return {"keys": [_jwk(key) for key in known.values()]}

    async def prepare(self, precondition: WritePrecondition, kind: KeyKind) -> PreparedKey:
        """Make the next key one of this kind, unless it is."""
        key = await self.following()
        if is_new := key.kind is not kind:
            replaced, key = key.kid, self._fresh(kind)
            try:
                await self._store.replace_next(precondition, replaced, key)
            except Stale:  # another process replaced or activated it
                return await self.prepare(precondition, kind)
        known_at = key.created_at + KEYS_CACHE_SECONDS * 1_000
        return PreparedKey(key, is_new, known_at if self._clock() < known_at else None)

    async def rotate(self, precondition: WritePrecondition) -> SealedKey:
        """Sign with the next key from now on. The one after it is of the same kind."""
        key = await self.following()
        try:
            await self._store.rotate_key(precondition, key.kid, self._fresh(key.kind))
        except Stale:
            # A concurrent rotation to the same key is a success.
            if key.kid not in {known.kid for known in await self._store.keys()}:
                raise
        await self.refresh()
        return key

    async def following(self) -> SealedKey:
        """The key that signs after the next rotation. It is published already. Created if it is missing, as in a
        restored store: of the kind that signs.
        """
        kept = await self._store.next_key()
        if kept is None:
            await self._store.settle_next(self._fresh((await self._store.keys())[0].kind))
            kept = await self._store.next_key()
        assert kept is not None
        return kept

    def _opened(self, key: SealedKey) -> SigningKey:
        raw = self._sealer.open(key.sealed_private, _label(key.kid)).reveal()
        sign = rsa_signer(raw) if key.kind is KeyKind.RS256 else Ed25519PrivateKey.from_private_bytes(raw).sign
        return SigningKey(key.kid, key.kind, sign)

    def _fresh(self, kind: KeyKind) -> SealedKey:
        if kind is KeyKind.RS256:
            public, private = new_rsa_key()
        else:
            made = Ed25519PrivateKey.from_private_bytes(self._randomness(KEY_BYTES))
            public, private = made.public_key().public_bytes_raw(), Secret(made.private_bytes_raw())
        kid = encoded(sha256(public).digest())[:KID_LENGTH].decode()
        return SealedKey(kid, public, self._sealer.seal(private, _label(kid)), self._clock())


def check_master_key(sealer: Sealer, salt: bytes, private_keys: Iterable[tuple[str, bytes]]) -> None:
    """Raise unless the master key opens the salt and every signing key (by kid)."""
    sealer.open(salt, "salt")
    for kid, sealed in private_keys:
        sealer.open(sealed, _label(kid))


def _label(kid: str) -> str:
    return f"key:{kid}"


def _jwk(key: SealedKey) -> dict[str, str]:
    if key.kind is KeyKind.RS256:
        numbers = {name: encoded(number).decode() for name, number in rsa_numbers(key.public).items()}
        return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": key.kid, **numbers}
    x = encoded(key.public).decode()
    return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": key.kid, "x": x}


# RSA. The modules are loaded by those who use such keys.


def new_rsa_key() -> tuple[bytes, Secret[bytes]]:
    """The public and the private key, in DER. OpenSSL draws the random numbers."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    made = generate_private_key(public_exponent=65_537, key_size=RSA_BITS)
    public = made.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return public, Secret(made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def rsa_signer(private: bytes) -> Callable[[bytes], bytes]:
    """The signatures of RS256, which are always the same for the same content."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    # The check of its numbers takes longer than a signature. The seal proves that the key is ours.
    key = load_der_private_key(private, None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(key, RSAPrivateKey)
    sign, padding, digest = key.sign, PKCS1v15(), SHA256()
    return lambda content: sign(content, padding, digest)


def rsa_numbers(public: bytes) -> dict[str, bytes]:
    """The modulus and the exponent, under their names in a JWK."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    key = load_der_public_key(public)
    assert isinstance(key, RSAPublicKey)
    numbers = {"n": key.public_numbers().n, "e": key.public_numbers().e}
    return {name: number.to_bytes((number.bit_length() + 7) // 8) for name, number in numbers.items()}


def signed_token(claims: Mapping[str, Any], key: SigningKey) -> str:
    """A token in the compact form of RFC 7515. Not by a library: PyJWT adds half the time of the signature. Tests
    compare the result with PyJWT's byte by byte.
    """
    content = _header(key.kid, key.kind.value) + b"." + encoded(_to_json(claims).encode())
    return (content + b"." + encoded(key.sign(content))).decode()


def encoded(content: bytes) -> bytes:
    """In base64url, without padding."""
    return b2a_base64(content, newline=False).translate(_to_url).rstrip(b"=")


@lru_cache(16)
def _header(kid: str, algorithm: str) -> bytes:
    # `token scan` finds the start of a token by this order.
    return encoded(_to_json({"alg": algorithm, "kid": kid, "typ": "at+jwt"}).encode())

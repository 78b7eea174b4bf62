"""Tokens have the same compact form as PyJWT's."""

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_der_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from watchword.tokens.keys import KeyKind
from watchword.tokens.keys_service import SigningKey, new_rsa_key, rsa_signer, signed_token

values = st.text(max_size=20) | st.integers() | st.lists(st.text(max_size=5), max_size=3)
claims = st.dictionaries(st.text(max_size=8).filter(lambda name: name not in {"iat", "exp", "nbf", "iss"}), values)
seeds = st.binary(min_size=32, max_size=32)


@settings(max_examples=50, deadline=None)
@given(claims, st.text(max_size=20), seeds)
def test_signed_token_equals_pyjwt_output(content: dict[str, Any], kid: str, seed: bytes) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    expected = jwt.encode(content, private, algorithm="EdDSA", headers={"kid": kid, "typ": "at+jwt"})
    assert signed_token(content, SigningKey(kid, KeyKind.EDDSA, private.sign)) == expected


def test_token_of_an_rsa_key_equals_pyjwt_output() -> None:
    _, private = new_rsa_key()
    content, loaded = {"sub": "é", "aud": ["a", "b"]}, load_der_private_key(private.reveal(), None)
    assert isinstance(loaded, RSAPrivateKey)
    expected = jwt.encode(content, loaded, algorithm="RS256", headers={"kid": "k", "typ": "at+jwt"})
    assert signed_token(content, SigningKey("k", KeyKind.RS256, rsa_signer(private.reveal()))) == expected


@settings(max_examples=30, deadline=None)
@given(claims, seeds)
def test_pyjwt_verifies_signed_token(content: dict[str, Any], seed: bytes) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    token = signed_token(content, SigningKey("k", KeyKind.EDDSA, private.sign))
    told = jwt.decode_complete(
        token,
        private.public_key(),
        algorithms=["EdDSA"],
        options={"verify_sub": False, "verify_jti": False, "verify_aud": False},
    )
    assert told["payload"] == content
    assert told["header"] == {"alg": "EdDSA", "typ": "at+jwt", "kid": "k"}

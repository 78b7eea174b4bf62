"""Tokens have the same compact form as PyJWT's."""

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from watchword.signing import signed_token

values = st.text(max_size=20) | st.integers() | st.lists(st.text(max_size=5), max_size=3)
claims = st.dictionaries(st.text(max_size=8).filter(lambda name: name not in {"iat", "exp", "nbf", "iss"}), values)
seeds = st.binary(min_size=32, max_size=32)


@settings(max_examples=50, deadline=None)
@given(claims, st.text(max_size=20), seeds)
def test_signed_token_equals_pyjwt_output(content: dict[str, Any], kid: str, seed: bytes) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    expected = jwt.encode(content, private, algorithm="EdDSA", headers={"kid": kid, "typ": "at+jwt"})
    assert signed_token(content, kid, private) == expected


@settings(max_examples=30, deadline=None)
@given(claims, seeds)
def test_pyjwt_verifies_signed_token(content: dict[str, Any], seed: bytes) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    token = signed_token(content, "k", private)
    told = jwt.decode_complete(
        token,
        private.public_key(),
        algorithms=["EdDSA"],
        options={"verify_sub": False, "verify_jti": False, "verify_aud": False},
    )
    assert told["payload"] == content
    assert told["header"] == {"alg": "EdDSA", "typ": "at+jwt", "kid": "k"}

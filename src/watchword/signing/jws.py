"""Tokens in the compact form of RFC 7515 and RFC 9068, signed with Ed25519.

Not by a library: PyJWT adds half the time of the signature. Tests compare the result with PyJWT's byte by byte.
"""

import json
from binascii import b2a_base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CACHED_HEADERS = 16

_to_json = json.JSONEncoder(separators=(",", ":")).encode
_to_url = bytes.maketrans(b"+/", b"-_")


def signed(claims: Mapping[str, Any], kid: str, private: Ed25519PrivateKey) -> str:
    content = _header(kid) + b"." + encoded(_to_json(claims).encode())
    return (content + b"." + encoded(private.sign(content))).decode()


def encoded(content: bytes) -> bytes:
    """In base64url, without padding."""
    return b2a_base64(content, newline=False).translate(_to_url).rstrip(b"=")


@lru_cache(CACHED_HEADERS)
def _header(kid: str) -> bytes:
    # `token scan` finds the start of a token by this order.
    return encoded(_to_json({"alg": "EdDSA", "kid": kid, "typ": "at+jwt"}).encode())

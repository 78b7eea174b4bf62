"""Texts that look like a token of ours and are none."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization

from tests.support.server import Server


def forgeries(server: Server, token: str, stranger: str) -> dict[str, str | bytes]:
    """By what is wrong with each. `stranger` is a token of another server."""
    header, claims = jwt.get_unverified_header(token), jwt.decode(token, options={"verify_signature": False})
    head, payload, signature = token.split(".")
    published = jwt.PyJWK(server.http.get("/.well-known/jwks.json").json()["keys"][0]).key
    encodings = serialization.Encoding, serialization.PublicFormat
    public = [
        published.public_bytes(encodings[0].Raw, encodings[1].Raw),
        published.public_bytes(encodings[0].PEM, encodings[1].SubjectPublicKeyInfo),
    ]

    def headed(**changes: Any) -> str:
        text = json.dumps(header | changes, separators=(",", ":")).encode()
        return f"{urlsafe_b64encode(text).rstrip(b'=').decode()}.{payload}.{signature}"

    def signed_with(secret: bytes) -> str:
        unsigned = f"{headed(alg='HS256').split('.')[0]}.{payload}"
        # By hand: PyJWT refuses to take a public key for a secret, as a verifier should.
        mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(unsigned.encode(), secret)
        return f"{unsigned}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    return {
        "of another issuer": stranger,
        "alg none": jwt.encode(claims, "", algorithm="none", headers={"kid": header["kid"], "typ": "at+jwt"}),
        "alg none, signed": headed(alg="none"),
        "HS256 with our public key": signed_with(public[0]),
        "HS256 with our public key as PEM": signed_with(public[1]),
        "kid that climbs": headed(kid="../../../../etc/passwd"),
        "kid that is a query": headed(kid="x' OR '1'='1"),
        "kid of 10 kB": headed(kid="k" * 10_000),
        "kid that is a list": headed(kid=["a"]),
        "trailing zero": token.encode() + b"\0",
        "trailing line": token + "\n",
        "trailing blank": token + " ",
        "trailing letter": token + "A",
        "trailing padding": token + "==",
        "trailing part": token + "." + signature,
        "no UTF-8": token.encode() + b"\xff\xfe",
        "leading blank": " " + token,
        "with its scheme": "Bearer " + token,
        "without its signature": f"{head}.{payload}.",
        "10 kB": "a" * 10_000,
        "dots": "..",
        "beyond ASCII": "…é€",
    }

"""Access tokens of DataHub, signed and identified as it does."""

import time
import uuid
from base64 import b64encode
from hashlib import sha256
from typing import Any, NamedTuple

import jwt

SALT = "dGhlIHNhbHQgb2YgRGF0YUh1Yg=="
SIGNING_KEY = "the signing key of DataHub, of at least 32 bytes"
ISSUER = "datahub-metadata-service"
DAY = 86_400_000
COLUMNS = ("id", "type", "name", "actor_urn", "owner_urn", "created_at", "expires_at")


class DataHubToken(NamedTuple):
    token: str
    id: str
    actor: str
    created_at: int
    expires_at: int

    @property
    def urn(self) -> str:
        return f"urn:li:dataHubAccessToken:{self.id}"

    @property
    def row(self) -> tuple[Any, ...]:
        """The values of `COLUMNS`, as an import writes them."""
        return (self.id, "PERSONAL", "from DataHub", self.actor, self.actor, self.created_at, self.expires_at)


def datahub_token(actor: str, expires_at: int | None = None) -> DataHubToken:
    created_at = time.time_ns() // 1_000_000 - DAY
    end = created_at + 2 * DAY if expires_at is None else expires_at
    name = actor.rpartition(":")[2]
    claims = {
        "actorId": name, "actorType": "USER", "type": "PERSONAL", "version": "2",
        "sub": name, "jti": str(uuid.uuid4()), "iss": ISSUER, "exp": end // 1000,
    }  # fmt: skip
    token = jwt.encode(claims, SIGNING_KEY, "HS256", headers={"typ": None})
    digest = sha256(token.encode() + SALT.encode()).digest()
    return DataHubToken(token, b64encode(digest).decode(), actor, created_at, end)

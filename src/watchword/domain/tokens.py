"""Tokens: what is kept of one, and what its id is.

The token itself is kept nowhere but in its holder's hands: the record carries only
`base64(sha256(token ‖ salt))`, which is its id. A record is ACTIVE until it is revoked or its end has come.
"""

import unicodedata
from base64 import b64decode
from binascii import Error as Base64Error
from binascii import b2a_base64
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from watchword.domain.errors import invalid
from watchword.domain.secret import Secret
from watchword.domain.urns import TOKEN_PREFIX

MAX_NAME = 200
MAX_DESCRIPTION = 1_000
# With these a name can be made to look like another.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class TokenType(Enum):
    PERSONAL = "PERSONAL"


class TokenStatus(Enum):
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token as the store keeps it. Times are milliseconds since 1970, UTC."""

    id: str
    type: TokenType
    name: str
    description: str | None
    actor_urn: str
    owner_urn: str
    created_at: int
    expires_at: int | None
    minted_with: str | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None

    def status(self, now: int) -> TokenStatus:
        if self.revoked_at is not None:
            return TokenStatus.REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return TokenStatus.EXPIRED
        return TokenStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a caller asks for; the domain's own checks have passed."""

    type: TokenType
    actor_urn: str
    name: str
    description: str | None


def token_id(token: bytes, salt: Secret[bytes]) -> str:
    return b2a_base64(sha256(token + salt.reveal()).digest(), newline=False).decode()


def check_token_id(value: str, field: str) -> str:
    """An id, or the urn that ends in one. A secret pasted here by mistake is never repeated back."""
    bare = value.removeprefix(TOKEN_PREFIX)
    try:
        if len(bare) == 44 and len(b64decode(bare, validate=True)) == 32:
            return bare
    except (Base64Error, ValueError):
        pass
    raise invalid(field, f"{field} must be a token's id (44 characters of base64), not the token itself.")


def check_name(value: str, field: str = "name") -> str:
    check_text(value, field, MAX_NAME)
    if not any(unicodedata.category(character)[0] in "LMNPS" for character in value):
        raise invalid(field, f"{field} must have 1 to {MAX_NAME} characters, not all of them blank.")
    if any(character in "\n\r\t\u2028\u2029" or character in _TURNING for character in value):
        raise invalid(field, f"{field} must be one line, without marks that turn the direction of writing.")
    return value


def check_description(value: str | None, field: str = "description") -> str | None:
    return None if value is None else check_text(value, field, MAX_DESCRIPTION)


def check_text(value: str, field: str, longest: int) -> str:
    """Text that every store keeps as it is: bounded, without control characters or lone surrogates."""
    if len(value) > longest:
        raise invalid(field, f"{field} must have at most {longest:,} characters.")
    if any((c < " " and c not in "\n\r\t") or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" for c in value):
        raise invalid(field, f"{field} must not contain control characters or lone surrogates.")
    return value

"""Token records, token ids and rotation.

The token itself is not stored, only its record under its id, `base64(sha256(token ‖ salt))`. A token of DataHub, known
by its header, has the same id as there, by DataHub's salt. A token is ACTIVE until it is revoked or expires.

Rotation replaces a token by a successor, and at least one of the two always works. Until the successor's first use, the
old token keeps its expiry and the successor expires with the overlap, so an undelivered successor expires by itself.
The first use is committed before it is answered: the successor gets its full lifetime, and the old token expires after
the grace period.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from watchword.authority.limits import UNLIMITED, Limits
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import TOKEN_PREFIX, ShownActor, own_token_urn
from watchword.basics.secret import Secret
from watchword.basics.times import DAY, iso, parse_iso
from watchword.tokens.idempotency import IdempotencyRecord
from watchword.tokens.lifetimes import SHORTEST

DATAHUB_HEADER = b"eyJhbGciOiJIUzI1NiJ9."
"""How every token of DataHub begins, and none of ours: `{"alg":"HS256"}` in base64url, and the dot."""
DATAHUB_TOKENS = "datahubTokens"
"""The capability of a server that accepts such tokens. `token scan` sends them to no other."""


class TokenType(Enum):
    PERSONAL = "PERSONAL"
    SERVICE_ACCOUNT = "SERVICE_ACCOUNT"


class TokenStatus(Enum):
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


SUSPENDED = "SUSPENDED"  # the effective status of an ACTIVE token whose actor is suspended


class TokenRecord(NamedTuple):
    """One stored token. Times are milliseconds since 1970, UTC. A named tuple, because lists create many: a sixth of
    the cost of a frozen dataclass.
    """

    id: str
    type: TokenType
    name: str
    description: str | None
    actor_urn: str
    owner_urn: str
    created_at: int
    expires_at: int | None
    created_with: str | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None
    limits: Limits = UNLIMITED
    parent: str | None = None  # the token it was derived from; revoked and expired together with it
    root: str | None = None  # The oldest token among its parents and predecessors. None: itself.
    replaces: str | None = None
    replaced_by: str | None = None
    replaced_at: int | None = None  # first use of its successor
    grace: int | None = None  # only of an unused successor: the grace period of its predecessor after the first use
    full_end: int | None = None  # the expiry of a successor after its first use; until then it expires with the overlap
    use_count: int = 0
    last_network: str | None = None
    suspended: bool = False  # Whether its actor is suspended. Not stored with the token; looked up for display.
    actor_name: str | None = None  # Display names, looked up in the same way.
    owner_name: str | None = None
    owner: ShownActor | None = None  # for GraphQL documents that select more of its owner than the name
    uses: Mapping[int, int] | None = None  # uses by day, and networks, for documents that select them
    networks: tuple[str, ...] | None = None

    def is_live(self, now: int) -> bool:
        return self.status(now) is TokenStatus.ACTIVE

    @property
    def family(self) -> str:
        return self.root or self.id

    def status(self, now: int) -> TokenStatus:
        if self.revoked_at is not None:
            return TokenStatus.REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return TokenStatus.EXPIRED
        return TokenStatus.ACTIVE

    def effective_status(self, now: int) -> str:
        """The status, or SUSPENDED while its actor is suspended. An effectively ACTIVE token is live: this decides in
        the API, in lists, in counts (tokens/counts_store.py) and in metrics.
        """
        status = self.status(now)
        return SUSPENDED if self.suspended and status is TokenStatus.ACTIVE else status.value


@dataclass(frozen=True, slots=True)
class TokenRequest:
    type: TokenType
    actor_urn: str
    name: str
    description: str | None
    limits: Limits = UNLIMITED


def identifier(salt: Secret[bytes], datahub_salt: Secret[bytes] | None = None) -> Callable[[bytes], str]:
    """A function that computes token ids. Without DataHub's salt, its tokens get ids that no record has."""
    own = salt.reveal()
    datahub = own if datahub_salt is None else datahub_salt.reveal()

    def token_id(token: bytes) -> str:
        salted = token + (datahub if token.startswith(DATAHUB_HEADER) else own)
        return b2a_base64(sha256(salted).digest(), newline=False).decode()

    return token_id


def check_token_id(value: str, field: str) -> str:
    """The id from an id or urn, ours or DataHub's. The error never repeats the value, which may be a pasted secret."""
    bare = own_token_urn(value).removeprefix(TOKEN_PREFIX)
    try:
        if len(bare) == 44 and len(b64decode(bare, validate=True)) == 32:
            return bare
    except (Base64Error, ValueError):
        pass
    raise invalid(field, f"{field} must be a token's id (44 characters of base64), not the token itself.")


DEFAULT_OVERLAP = DAY
DEFAULT_GRACE = 5 * 60_000
LONGEST_OVERLAP = 90 * DAY
LONGEST_GRACE = 30 * DAY


@dataclass(frozen=True, slots=True)
class RotationWindow:
    """How long the successor may stay unused, and the grace period of the old token. None: the default."""

    overlap: int | None
    grace: int

    def overlap_of(self, old: TokenRecord, now: int) -> int:
        """The end of the overlap, never after the expiry of the old token."""
        if old.expires_at is None:
            return now + (DEFAULT_OVERLAP if self.overlap is None else self.overlap)
        left = old.expires_at - now
        if self.overlap is None:
            return now + min(DEFAULT_OVERLAP, left)
        if self.overlap > left:
            raise invalid("overlap", f"overlap must end before the token expires, at {iso(old.expires_at)}.")
        return now + self.overlap


def check_rotation_window(overlap: str | None, grace: str | None) -> RotationWindow:
    wait = None if overlap is None else parse_iso(overlap, "overlap")
    if wait is not None and not SHORTEST <= wait <= LONGEST_OVERLAP:
        raise invalid("overlap", f"overlap must be from PT1M to P{LONGEST_OVERLAP // DAY}D.")
    rest = DEFAULT_GRACE if grace is None else parse_iso(grace, "grace")
    if rest > LONGEST_GRACE:
        raise invalid("grace", f"grace must be from PT0S to P{LONGEST_GRACE // DAY}D.")
    return RotationWindow(wait, rest)


def check_rotates(old: TokenRecord, before: TokenRecord | None, now: int) -> None:
    """Raise unless the token may be rotated. Its predecessor `before` must have expired, so that at most two tokens
    are valid.
    """
    if old.revoked_at is not None:
        raise Fault(Reason.ALREADY_REVOKED, "The token was revoked.", revokedAt=old.revoked_at)
    if old.expires_at is not None and old.expires_at <= now:
        raise Fault(Reason.NOT_LIVE, f"The token expired at {iso(old.expires_at)}. Create a new one.")
    if old.grace is not None:
        raise Fault(Reason.NOT_LIVE, "The token is a successor that was never used. Use it before you rotate it.")
    if before is not None and before.is_live(now):
        end = None if before.expires_at is None else iso(before.expires_at)
        raise Fault(
            Reason.ROTATION_UNDER_WAY,
            f"The previous token stays valid until {end} (grace period). Rotate after that.",
            until=before.expires_at,
        )
    if old.replaced_at is not None:
        raise Fault(
            Reason.ALREADY_REPLACED, "The token was rotated and its successor is in use.", replacedBy=old.replaced_by
        )


@dataclass(frozen=True, slots=True)
class Issue:
    """What a new token needs besides its record."""

    kid: str
    max_live: int
    idempotency: IdempotencyRecord | None = None
    """Stored in the same transaction, if the request has an idempotency key."""


def no_token(to: str = "revoke") -> Fault:
    return Fault(Reason.TOKEN_NOT_FOUND, f"There is no token with this id that you may {to}.")


def already_revoked(at: int) -> Fault:
    return Fault(Reason.ALREADY_REVOKED, "The token is already revoked.", revokedAt=at)


def actor_suspended() -> Fault:
    return Fault(Reason.ACTOR_SUSPENDED, "The actor is suspended. Resume it first.")


def no_room(max_live: int) -> Fault:
    return Fault(Reason.TOO_MANY_TOKENS, f"The actor has {max_live:,} live tokens, the maximum. Revoke some first.")

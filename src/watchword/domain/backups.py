"""Backups: what one holds, and what putting it back would undo.

A backup knows nothing of what was revoked after it was made: put back, it makes those tokens work again. So whoever
puts one back chooses what becomes of its live tokens, and is told how many each choice concerns.
"""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Choice(Enum):
    REVOKE_ALL = "revoke-all-issued-before-now"
    ACCEPT_REVIVED = "accept-revived-tokens"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds. Live tokens are neither revoked nor, by this machine's clock, expired; the last change is that
    of the newest event.
    """

    schema_version: int
    tokens: int
    unrevoked: int
    live: int
    last_change: int | None


@dataclass(frozen=True, slots=True)
class Backup:
    file: Path
    size: int
    contents: Contents


@dataclass(frozen=True, slots=True)
class Since:
    """What the store here knows and the backup does not."""

    revived: tuple[str, ...]
    """Ids of tokens that are live in the backup and revoked here."""
    unknown: int
    """Tokens that the backup does not have, and how many of them are live."""
    unknown_live: int
    suspensions: int
    policies: int
    memberships: int
    keys: int
    policy_version: int
    last_event: int
    last_operation: int


@dataclass(frozen=True, slots=True)
class Prospect:
    """What putting a file back means. Without a store here that can be read, what was since cannot be known."""

    file: Path
    contents: Contents
    since: Since | None
    unknown_because: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    prospect: Prospect
    choice: Choice
    revoked: int
    store: Path
    kept: Path | None
    """The store that was there before: the way back."""

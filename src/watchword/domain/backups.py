"""Backups: what one holds, and what putting it back would undo.

A backup knows nothing of what was revoked after it was made: put back, it makes those tokens work again. So whoever
puts one back chooses what becomes of its live tokens, and is told how many each choice concerns.
"""

from collections.abc import Mapping
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
    key_opens: bool | None = None
    """Whether the master key of the settings is the one it is sealed with; None where there is none."""


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
class RestorePreview:
    """What putting a file back means. Without a store here that can be read, what was since cannot be known."""

    file: Path
    contents: Contents
    since: Since | None
    unknown_because: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    preview: RestorePreview
    choice: Choice
    revoked: int
    store: str
    kept: str | None
    """The store that was there before, a file or a schema: the way back."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What went from one store to another: rows by their table, and the digest of all, the same on both sides."""

    rows: Mapping[str, int]
    digest: str


_WORDS = {
    "tokens": ("token", "tokens"),
    "service_accounts": ("service account", "service accounts"),
    "policies": ("policy", "policies"),
    "groups": ("group", "groups"),
    "group_members": ("membership", "memberships"),
    "actors": ("actor that was suspended", "actors that were suspended"),
    "keys": ("signing key", "signing keys"),
    "events": ("event", "events"),
    "operations": ("operation", "operations"),
}


def counted(rows: Mapping[str, int]) -> str:
    """What there is, in words; empty where there is nothing."""
    found = ((rows.get(table, 0), words) for table, words in _WORDS.items())
    return ", ".join(f"{count:,} {words[count != 1]}" for count, words in found if count)

"""What an operator's commands report: the contents of a backup, what a restore would undo, and what `doctor` finds.

A backup does not contain later revocations, so a restore makes those tokens valid again. The operator chooses whether
to revoke every token of the backup or to accept this, and sees how many tokens each choice affects. The first choice
also carries over from the current store what protects: holds, deleted accounts, suspensions and links to identities.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple


class RestoreChoice(Enum):
    REVOKE_ALL = "revoke-all-issued-before-now"
    ACCEPT_REVIVED = "accept-revived-tokens"


@dataclass(frozen=True, slots=True)
class BackupContents:
    """Live tokens are neither revoked nor expired. The last change is the time of the newest event."""

    schema_version: int
    tokens: int
    unrevoked: int
    live: int
    last_change: int | None


@dataclass(frozen=True, slots=True)
class Backup:
    file: Path
    size: int
    contents: BackupContents
    key_opens: bool | None = None  # whether the configured master key opens it; None if there is no such key file


@dataclass(frozen=True, slots=True)
class ChangesSinceBackup:
    """What the current store contains and the backup does not."""

    names: Mapping[str, tuple[str, ...]]
    """By the words of `watchword db restore --json`: `revived` are the ids of tokens that are live in the backup and
    revoked in the current store. `holds`, `deletedAccounts` and `suspensions` are not in the backup. `releasedHolds`
    and `resumedActors` are held and suspended in the backup only."""
    counts: Mapping[str, int]
    """`unknown` tokens are not in the backup; what else differs, by the same words."""
    numbers: Mapping[str, int]
    """The highest number ever used, by table."""
    protection: Mapping[str, Sequence[Any]]
    """Rows to carry over, by table."""
    policy_version: int

    @property
    def protections(self) -> str:
        """What protects in the current store and not in the backup, in words; empty if there is nothing."""
        named = (("holds", "hold"), ("deletedAccounts", "deleted account"), ("suspensions", "suspension"))
        found = [(len(self.names[what]), word, some(self.names[what])) for what, word in named]
        found.append((self.counts["linksChanged"], "changed link", ""))
        return ", ".join(f"{count:,} {word}{'s' * (count != 1)}{names}" for count, word, names in found if count)


MAX_NAMED = 5


def some(names: Sequence[str]) -> str:
    """The first names, in parentheses."""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f" ({', '.join(names[:MAX_NAMED])}{more})"


@dataclass(frozen=True, slots=True)
class RestorePreview:
    """What a restore changes. `since` is None if the current store cannot be read; `unknown_reason` says why."""

    file: Path
    contents: BackupContents
    since: ChangesSinceBackup | None
    unknown_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreResult:
    preview: RestorePreview
    choice: RestoreChoice
    revoked: int
    store: str
    kept: str | None  # the file or schema that holds the previous store

    @property
    def carried_over(self) -> bool:
        return self.choice is RestoreChoice.REVOKE_ALL and self.preview.since is not None


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Row counts by table, and the digest of all rows, which is the same in both stores."""

    rows: Mapping[str, int]
    digest: str


class SealedSecrets(NamedTuple):
    """The secrets of a store that its master key opens; no salt in a store without keys."""

    salt: bytes | None
    private_keys: list[tuple[str, bytes]]  # by key id, including the next key


CheckMasterKey = Callable[[SealedSecrets], None]  # raises unless the configured master key opens these secrets

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


def describe_rows(rows: Mapping[str, int]) -> str:
    """The counts in words; empty if there are no rows."""
    found = ((rows.get(table, 0), words) for table, words in _WORDS.items())
    return ", ".join(f"{count:,} {words[count != 1]}" for count, words in found if count)


class Level(Enum):
    OK = "ok"
    WARN = "warn"
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What `doctor` finds, and how to fix it."""

    level: Level
    about: str
    what: str
    fix: str | None = None


def ok(about: str, what: str) -> Diagnostic:
    return Diagnostic(Level.OK, about, what)


def warn(about: str, what: str, fix: str) -> Diagnostic:
    return Diagnostic(Level.WARN, about, what, fix)


def bad(about: str, what: str, fix: str) -> Diagnostic:
    return Diagnostic(Level.BAD, about, what, fix)

"""Events: every change leaves one, in the transaction that makes it; so do denials and failed authentications.

Who, what, which, when, from which peer. They are read newest first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Self

from watchword.domain.errors import invalid
from watchword.domain.filters import DEFAULT_COUNT, MAX_COUNT
from watchword.domain.texts import check_text

MAX_WORDS = 100
MAX_PAGE_BYTES = 1024 * 1024
"""Of details together; a page that would be heavier ends earlier."""
MAX_WORD = 500


class Action(Enum):
    """What can happen, each with what its event tells."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        made = object.__new__(cls)
        made._value_ = word
        made.meaning = meaning
        return made

    TOKEN_CREATED = "token.created", "A token was made: for which actor, until when."
    TOKEN_REPLAYED = (
        "token.replayed",
        "A token was given out again, to the credential that asked for it under the same Idempotency-Key.",
    )
    TOKEN_REVOKED = "token.revoked", "A token was ended; by the service itself where its answer reached nobody."
    TOKEN_DERIVED = "token.derived", "A token was derived from another, with which it dies: from which, until when."
    TOKEN_ROTATED = "token.rotated", "A token was made to replace another and awaits its first use: which, until when."
    TOKEN_REPLACED = "token.replaced", "The successor of a token was first used: the old one ends after the grace."
    TOKENS_REVOKED = "tokens.revoked", "Many tokens were ended at once: how many, the digest of their ids, how chosen."
    ACCOUNT_CREATED = "account.created", "A service account was made."
    ACCOUNT_DELETED = "account.deleted", "A service account was deleted, and its tokens ended with it: how many."
    POLICY_CREATED = "policy.created", "A policy was made: what it grants to whom, and who keeps it."
    POLICY_UPDATED = "policy.updated", "A policy was replaced: what it grants to whom from now on."
    POLICY_DELETED = "policy.deleted", "A policy was deleted."
    GROUP_CREATED = "group.created", "A group was made."
    GROUP_DELETED = "group.deleted", "A group was deleted, and its memberships with it."
    GROUP_MEMBERS_ADDED = "group.members_added", "Actors were put into a group: which."
    GROUP_MEMBERS_REMOVED = "group.members_removed", "Actors were taken out of a group: which."
    ACTOR_SUSPENDED = "actor.suspended", "An actor was suspended."
    ACTOR_RESUMED = "actor.resumed", "An actor may act again."
    KEY_CREATED = "key.created", "The first signing key was made."
    KEY_ROTATED = "key.rotated", "Tokens are signed with this key from now on."
    OPERATION_PLANNED = "operation.planned", "A truncation was asked for: of what, up to when, how and why so."
    OPERATION_RUNNING = "operation.running", "An operation began, or began anew: in which way, on which index."
    OPERATION_VERIFYING = "operation.verifying", "An operation has done its rows and checks them."
    OPERATION_SWAPPING = "operation.swapping", "The copy is complete and takes the place of the index."
    OPERATION_DONE = "operation.done", "An operation is over, with the numbers of its post-check."
    OPERATION_FAILED = "operation.failed", "An operation ended without its goal: why."
    OPERATION_CANCEL_ASKED = "operation.cancel_asked", "Somebody asked to end an operation early."
    OPERATION_CANCELLED = "operation.cancelled", "An operation was ended early, and what it had made was removed."
    SESSION_STARTED = "session.started", "A browser signed in with a token, or as an actor in local mode: until when."
    SESSION_ENDED = "session.ended", "A browser signed out, or the sessions of an actor were ended: how many."
    SETTING_CHANGED = "setting.changed", "The service started with another value of a setting: before and after."
    ACCESS_DENIED = "access.denied", "A caller lacked a privilege: which, and what was asked for. Bounded."
    AUTHENTICATION_FAILED = (
        "authentication.failed",
        "A credential was not accepted: why, and at which address. Bounded.",
    )
    STORE_RESTORED = "store.restored", "The store was put back from a backup: what was chosen, and what it concerned."


_WORDS = tuple(action.value for action in Action)

Detail = str | int | bool | list[str] | None


@dataclass(frozen=True, slots=True)
class Event:
    """What was done to which. Who, when and from where are the warrant's and the store's to add."""

    action: Action
    target: str
    detail: dict[str, Detail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event with everything: as it is kept, and as it is read."""

    at: int
    actor: str
    bearer_id: str | None
    action: str
    target: str
    peer: str
    request_id: str
    detail: Mapping[str, Any]
    seq: int = 0
    """Its number in the store: the order of commits, and the tie-breaker of one millisecond."""


class EventPage(NamedTuple):
    events: tuple[KeptEvent, ...]
    more: bool
    """Whether older ones match too."""


class Cursor(NamedTuple):
    """The last event a reader has seen."""

    at: int
    seq: int

    def __str__(self) -> str:
        return f"{self.at}-{self.seq}"


@dataclass(frozen=True, slots=True)
class EventSearch:
    """One page of events. Empty means any; the values of one field are ORed, the fields ANDed."""

    count: int = DEFAULT_COUNT
    after: Cursor | None = None
    actors: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None

    def matches(self, event: KeptEvent) -> bool:
        return (
            (self.after is None or (event.at, event.seq) < self.after)
            and (not self.actors or event.actor in self.actors)
            and (not self.actions or event.action in self.actions)
            and (not self.targets or event.target in self.targets)
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at < self.until)
        )


_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)


def parse_event_search(
    count: int | None,
    cursor: str | None,
    actors: Sequence[str] | None,
    actions: Sequence[str] | None,
    targets: Sequence[str] | None,
    since: int | None,
    until: int | None,
) -> EventSearch:
    """A page as a caller asks for it."""
    if count is None:
        count = DEFAULT_COUNT
    if not 1 <= count <= MAX_COUNT:
        raise invalid("count", f"count must be from 1 to {MAX_COUNT:,}.")
    return EventSearch(
        count=count,
        after=None if cursor is None else _parse_cursor(cursor),
        actors=_words(actors, "actorUrns"),
        actions=tuple(_known_action(word) for word in _words(actions, "actions")),
        targets=_words(targets, "targets"),
        since=since,
        until=until,
    )


def _parse_cursor(text: str) -> Cursor:
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise invalid("cursor", "cursor must be one that an answer to this query gave.")
    return Cursor(int(match[1]), int(match[2]))


def _words(words: Sequence[str] | None, field_name: str) -> tuple[str, ...]:
    if words is not None and len(words) > MAX_WORDS:
        raise invalid(field_name, f"{field_name} may have at most {MAX_WORDS} entries.")
    return tuple(dict.fromkeys(check_text(word, field_name, MAX_WORD) for word in words or ()))


def _known_action(word: str) -> str:
    if word not in _WORDS:
        raise invalid("actions", f"actions must be among: {', '.join(_WORDS)}.")
    return word

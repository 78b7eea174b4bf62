"""Events: every change leaves one, in the transaction that makes it. Who, what, which, when, from which peer."""

from dataclasses import dataclass, field
from enum import Enum


class Action(Enum):
    TOKEN_CREATED = "token.created"  # noqa: S105 - a word, not a password
    TOKEN_REVOKED = "token.revoked"  # noqa: S105
    POLICY_CREATED = "policy.created"
    POLICY_UPDATED = "policy.updated"
    POLICY_DELETED = "policy.deleted"
    GROUP_CREATED = "group.created"
    GROUP_DELETED = "group.deleted"
    GROUP_MEMBERS_ADDED = "group.members_added"
    GROUP_MEMBERS_REMOVED = "group.members_removed"
    ACTOR_SUSPENDED = "actor.suspended"
    ACTOR_RESUMED = "actor.resumed"
    KEY_CREATED = "key.created"
    KEY_ROTATED = "key.rotated"


Detail = str | int | list[str] | None


@dataclass(frozen=True, slots=True)
class Event:
    """What was done to which. Who, when and from where are the warrant's and the store's to add."""

    action: Action
    target: str
    detail: dict[str, Detail] = field(default_factory=dict)

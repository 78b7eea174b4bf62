"""What is known of actors: status, profile, holdings, and the pages of their list."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from watchword.authority.callers import ActorStatus
from watchword.basics.names import MAX_URN, USER_PREFIX, check_email, check_name, check_text
from watchword.basics.paging import DEFAULT_COUNT, check_page_size

MAX_GROUPS_SHOWN = 100
MAX_LIVE_COUNTED = 1_000  # tokens of each actor in a list


@dataclass(frozen=True, slots=True)
class ActorState:
    """The stored status of an actor; most actors have none."""

    urn: str
    status: ActorStatus
    changed_at: int | None = None
    changed_by: str | None = None
    email: str | None = None

    @property
    def is_suspended(self) -> bool:
        return self.status is ActorStatus.SUSPENDED


@dataclass(frozen=True, slots=True)
class KnownActor:
    state: ActorState
    live_tokens: int  # 0 if it is suspended; at most MAX_LIVE_COUNTED
    groups: tuple[str, ...] = ()  # at most MAX_GROUPS_SHOWN


@dataclass(frozen=True, slots=True)
class ActorHoldings:
    """What suspending an actor stops."""

    live_tokens: int  # 0 while it is suspended
    sessions: int
    known: bool
    """Whether the store knows the actor by a name, token, group, session, account or policy. A status alone does not
    count: a mistyped urn can have one.
    """
    suspended_tokens: int = 0  # those that would be live if it were not suspended


@dataclass(frozen=True, slots=True)
class ActorSearch:
    """One page of the known actors, by urn, as an index range; with a query, all of the range are read."""

    count: int = DEFAULT_COUNT
    after: str = ""
    prefix: str = ""
    only_suspended: bool = False
    query: str = ""
    """Part of the urn, name or e-mail address, in any case."""

    @property
    def least(self) -> str:
        """The lower bound. Excludes `after` itself: every character of a urn is above \\x01."""
        return max(self.prefix, self.after and self.after + "\x01")

    @property
    def bound(self) -> str:
        """The exclusive upper bound."""
        return self.prefix + "\x7f"


class ProfileField(Enum):
    """What is known of a person, under its name in the API."""

    DISPLAY_NAME = "displayName"
    EMAIL = "email"


Profile = Mapping[ProfileField, str | None]
"""None: the person has none. A field that is absent stays as it is."""


def check_profile(profile: Profile) -> Profile:
    name, email = profile.get(ProfileField.DISPLAY_NAME), profile.get(ProfileField.EMAIL)
    if name is not None:
        check_name(name, "displayName")
    if email is not None:
        check_email(email)
    return profile


class ActorPage(NamedTuple):
    actors: tuple[KnownActor, ...]
    more: bool


def parse_actor_search(fields: Mapping[str, Any]) -> ActorSearch:
    """Validate the page that a caller requests. A prefix without `urn:` is a user name."""
    count = check_page_size(fields.get("count"))
    after = check_text(fields.get("cursor") or "", "cursor", MAX_URN)
    prefix = check_text(fields.get("prefix") or "", "prefix", MAX_URN)
    if prefix and not prefix.startswith("urn:"):
        prefix = USER_PREFIX + prefix
    query = check_text(fields.get("query") or "", "query", MAX_URN)
    return ActorSearch(count, after, prefix, bool(fields.get("onlySuspended")), query)

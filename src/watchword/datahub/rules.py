"""Import from DataHub: what the rows of its table `metadata_aspect_v2` become here, and why some do not come.

DataHub never validated names, descriptions and urns. A name that breaks our rules is cleaned, so that no token is lost
for its name. What has no meaning here is skipped and reported, never guessed.
"""

import json
import unicodedata
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeGuard

from watchword.access.actor_rules import ProfileField
from watchword.authority.declared_parts import DATAHUB_SET
from watchword.authority.policies import ROOT_POLICY, Policy, PolicySource, PolicyState, check_policy
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault
from watchword.basics.names import (
    DATAHUB_POLICY_PREFIX,
    DATAHUB_TOKEN_PREFIX,
    GROUP_PREFIX,
    MAX_DESCRIPTION,
    MAX_NAME,
    POLICY_PREFIX,
    USER_PREFIX,
    check_actor,
    check_description,
    check_email,
    check_group,
    check_name,
    check_short_id,
    check_urn,
    contains_token,
    is_account,
    name_of,
)
from watchword.tokens.rules import TokenRecord, TokenType, check_token_id

TOKEN_INFO, USER_KEY, POLICY_INFO = "dataHubAccessTokenInfo", "corpUserKey", "dataHubPolicyInfo"
PERSON_ASPECTS = (
    USER_KEY, "corpUserInfo", "corpUserEditableInfo", "corpUserStatus", "status", "groupMembership",
    "nativeGroupMembership",
)  # fmt: skip
GROUP_ASPECTS = ("corpGroupKey", "corpGroupInfo", "corpGroupEditableInfo", "status")
ASPECTS: Mapping[str, tuple[str, ...]] = {
    USER_PREFIX: PERSON_ASPECTS,
    GROUP_PREFIX: GROUP_ASPECTS,
    DATAHUB_TOKEN_PREFIX: (TOKEN_INFO,),
    DATAHUB_POLICY_PREFIX: (POLICY_INFO,),
}
"""What is read, by the beginning of the urn."""
UNREADABLE: Mapping[str, Mapping[str, Any]] = {
    USER_KEY: {},
    "corpUserStatus": {"status": "SUSPENDED"},
    "status": {"removed": True},
}
"""What a row counts for whose JSON cannot be read: the person exists, and is suspended. Other such rows count for
nothing."""
MAX_MILLIS = 253_402_300_799_999  # the end of the year 9999
MOST_EXAMPLES = 3
_NO_NAME = "Without a name in DataHub"


class AspectRow(NamedTuple):
    urn: str
    aspect: str
    metadata: str


class DataHubSource(Protocol):
    """One consistent snapshot of DataHub's rows."""

    async def count(self, prefix: str, aspect: str) -> int:
        """How many urns that begin so have this aspect."""

    def rows(self, prefix: str) -> AsyncIterator[list[AspectRow]]:
        """The rows of ASPECTS of all urns that begin so, in batches, by the bytes of their urns."""


class Noun(Enum):
    PEOPLE = "people"
    ACCOUNTS = "accounts"
    GROUPS = "groups"
    TOKENS = "tokens"
    POLICIES = "policies"


class Outcome(Enum):
    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REVOKED = "revoked"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    REMOVED = "removed"
    CONFLICT = "conflict"
    LEFT_OUT = "left out"
    NOTE = "note"


CHANGES = (Outcome.NEW, Outcome.CHANGED, Outcome.REVOKED, Outcome.SUSPENDED, Outcome.RESUMED, Outcome.REMOVED)


@dataclass(slots=True)
class ReportLine:
    what: str
    outcome: str
    reason: str | None = None
    count: int = 0
    examples: list[str] = field(default_factory=list)


class Report:
    """What one run changed, or would change, and what it left out and why."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Noun, Outcome, str], ReportLine] = {}
        self.refusal: str | None = None
        """Why nothing was revoked or removed."""

    def add(self, what: Noun, outcome: Outcome, example: str = "", reason: str = "", count: int = 1) -> None:
        if not count:
            return
        key = (what, outcome, reason)
        line = self._lines.setdefault(key, ReportLine(what.value, outcome.value, reason or None))
        line.count += count
        if example and len(line.examples) < MOST_EXAMPLES:
            line.examples.append(example)

    def count(self, what: Noun, *outcomes: Outcome) -> int:
        return sum(
            line.count for (noun, outcome, _), line in self._lines.items() if noun is what and outcome in outcomes
        )

    @property
    def lines(self) -> list[ReportLine]:
        nouns, outcomes = list(Noun), list(Outcome)
        ordered = sorted(self._lines, key=lambda key: (nouns.index(key[0]), outcomes.index(key[1]), key[2]))
        return [self._lines[key] for key in ordered]

    @property
    def changes(self) -> dict[str, int]:
        """Return how many of each noun were changed."""
        return {noun.value: count for noun in Noun if (count := self.count(noun, *CHANGES))}


class LeftOut(Exception):
    """Why a row does not come."""


def parsed(metadata: str) -> dict[str, Any]:
    """The JSON object of a row."""
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LeftOut("its row is not a JSON object")
    return found


def cleaned(value: object, most: int) -> str:
    """The text in one line, without characters that control a terminal, a database or the direction of text. Empty if
    it contains a token.
    """
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    if contains_token(text):
        return ""
    kept = (" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    return " ".join("".join(kept).split())[:most].rstrip()


def name_from(value: object, instead: str) -> str:
    """The name if it is valid, else the name cleaned, else another."""
    for name in (value, cleaned(value, MAX_NAME)):
        if _passes(name, check_name):
            return name
    return cleaned(instead, MAX_NAME)


def description_from(value: object) -> str | None:
    if isinstance(value, str):
        try:
            return check_description(value)
        except Fault:
            pass
    return cleaned(value, MAX_DESCRIPTION) or None


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _passes(value: object, check: Callable[[str, str], str]) -> TypeGuard[str]:
    """Return whether it is a text that passes this check."""
    try:
        return isinstance(value, str) and bool(check(value, "value"))
    except Fault:
        return False


@dataclass(frozen=True, slots=True)
class ImportedPerson:
    """A person or service account. `suspended` is None where DataHub has no row about it: that changes
    nothing.
    """

    urn: str
    suspended: bool | None = None
    display_name: str | None = None
    email: str | None = None
    description: str | None = None
    groups: frozenset[str] = frozenset()

    @property
    def profile(self) -> dict[ProfileField, str | None]:
        """A service account has its name elsewhere."""
        if is_account(self.urn):
            return {}
        return {ProfileField.DISPLAY_NAME: self.display_name, ProfileField.EMAIL: self.email}

    @property
    def account_name(self) -> str:
        return self.display_name or name_of(self.urn)


def read_person(urn: str, aspects: Mapping[str, Mapping[str, Any]]) -> ImportedPerson:
    if USER_KEY not in aspects:
        raise LeftOut(f"it has no row {USER_KEY}: DataHub does not accept its tokens")
    if not _passes(urn, check_actor):
        raise LeftOut("its urn is reserved or not valid here")
    status, removed = (aspects.get(name, {}) for name in ("corpUserStatus", "status"))
    states = [status["status"] == "SUSPENDED"] if status.get("status") in ("SUSPENDED", "ACTIVE") else []
    states += [removed["removed"] is not False] if "removed" in removed else []
    info, edited = (aspects.get(name, {}) for name in ("corpUserInfo", "corpUserEditableInfo"))
    names = [name for source in (edited, info) for name in (source.get("displayName"), source.get("fullName")) if name]
    emails = [email for email in (edited.get("email"), info.get("email")) if _passes(email, check_email)]
    groups = _texts(aspects.get("groupMembership", {}).get("groups"))
    groups += _texts(aspects.get("nativeGroupMembership", {}).get("nativeGroups"))
    return ImportedPerson(
        urn,
        suspended=any(states) if states else None,
        display_name=name_from(names[0], name_of(urn)) if names else None,
        email=emails[0] if emails else None,
        description=description_from(edited.get("aboutMe") or info.get("title")),
        groups=frozenset(groups),
    )


class ImportedGroup(NamedTuple):
    urn: str
    name: str
    description: str | None


def read_group(urn: str, aspects: Mapping[str, Mapping[str, Any]]) -> ImportedGroup:
    if not _passes(urn, check_group):
        raise LeftOut("its urn is not valid here")
    if aspects.get("status", {}).get("removed") is True:
        raise LeftOut("it was removed in DataHub")
    if not aspects.keys() & {"corpGroupKey", "corpGroupInfo"}:
        raise LeftOut("it does not exist in DataHub any more")
    info, edited = aspects.get("corpGroupInfo", {}), aspects.get("corpGroupEditableInfo", {})
    description = description_from(edited.get("description") or info.get("description"))
    return ImportedGroup(urn, name_from(info.get("displayName"), name_of(urn)), description)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What decides whether a token is imported."""

    now: int
    actors: Collection[str]
    """Those that exist in DataHub."""
    dead_accounts: Collection[str]
    """Service accounts that were deleted here."""
    root_actors: Collection[str]
    escalating: Callable[[str], Collection[str]]
    """The privileges of an actor here with which it can get more."""
    allow_no_expiry: bool
    allow_root: bool


NO_ACTOR = f"its actor has no row {USER_KEY}: DataHub does not accept it"


def token_id_of(urn: str) -> str:
    """The id, as it is in the urn: the order of the urns is that of the ids."""
    token_id = urn.removeprefix(DATAHUB_TOKEN_PREFIX)
    try:
        if check_token_id(token_id, "urn") == token_id:
            return token_id
    except Fault:
        pass
    raise LeftOut("its urn has no token id")


def read_token(token_id: str, info: Mapping[str, Any], rules: TokenRules) -> TokenRecord:
    """The token's record. DataHub stores no type: an actor with the urn of a service account decides. The claim in the
    token itself does not correct it at the first use, because a service account is one by its urn here.
    """
    actor, end = info.get("actorUrn"), info.get("expiresAt")
    if not _passes(actor, check_actor):
        raise LeftOut("its actor is reserved, or its urn is not valid here")
    if actor not in rules.actors:
        raise LeftOut(NO_ACTOR)
    if actor in rules.dead_accounts:
        raise LeftOut("its service account was deleted here")
    if actor in rules.root_actors and not rules.allow_root:
        raise LeftOut("its actor is the root actor here, who may do everything: --allow-root")
    if not rules.allow_root and (held := rules.escalating(actor)):
        names = ", ".join(sorted(held))
        raise LeftOut(f"its actor can get any privilege here, by {names}: --allow-root")
    if end is None and not rules.allow_no_expiry:
        raise LeftOut("it never expires: --allow-no-expiry")
    if end is not None and not _is_time(end):
        raise LeftOut("its expiresAt is not a time")
    if end is not None and end <= rules.now:
        raise LeftOut("it has expired")
    owner, made = info.get("ownerUrn"), info.get("createdAt")
    return TokenRecord(
        id=token_id,
        type=TokenType.SERVICE_ACCOUNT if is_account(actor) else TokenType.PERSONAL,
        name=name_from(info.get("name"), _NO_NAME),
        description=description_from(info.get("description")),
        actor_urn=actor,
        owner_urn=owner if _passes(owner, check_urn) else actor,
        created_at=made if _is_time(made) else rules.now,
        expires_at=end,
    )


def _is_time(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_MILLIS


def read_policy(urn: str, info: Mapping[str, Any], other_groups: Collection[str]) -> tuple[Policy, list[str]]:
    """The policy, and what it has in DataHub that does not come. What is left grants less, never more. `other_groups`
    have the urn of a group in DataHub, and other members.
    """
    if info.get("type") != "PLATFORM":
        raise LeftOut("it is about the catalogue, not about the platform")
    if _is_limited(info.get("resources")):
        raise LeftOut("it is limited to resources of the catalogue")
    actors = info.get("actors")
    actors = actors if isinstance(actors, dict) else {}
    words = _texts(info.get("privileges"))
    users, groups = frozenset(_texts(actors.get("users"))), frozenset(_texts(actors.get("groups")))
    known_users, known_groups = (
        frozenset(user for user in users if _passes(user, check_actor)),
        frozenset(group for group in groups - frozenset(other_groups) if _passes(group, check_group)),
    )
    lost = _listed("privileges", (word for word in words if word not in Privilege.__members__))
    lost += _listed("roles", _texts(actors.get("roles")))
    lost += _listed("users", users - known_users) + _listed("groups", groups - known_groups)
    lost += [name for name in ("allGroups", "resourceOwners") if actors.get(name) is True]
    made = Policy(
        urn=POLICY_PREFIX + urn.removeprefix(DATAHUB_POLICY_PREFIX),
        name=name_from(info.get("displayName"), name_of(urn)),
        description=description_from(info.get("description")),
        state=PolicyState.ACTIVE if info.get("state") == "ACTIVE" else PolicyState.INACTIVE,
        privileges=frozenset(Privilege[word] for word in words if word in Privilege.__members__),
        users=known_users,
        groups=known_groups,
        all_users=actors.get("allUsers") is True,
        source=PolicySource.FILE,
        set_name=DATAHUB_SET,
    )
    if not made.privileges:
        raise LeftOut("none of its privileges exists here")
    if not (made.users or made.groups or made.all_users):
        raise LeftOut("it names no user or group that can be named here; roles do not exist here")
    try:
        check_short_id(urn.removeprefix(DATAHUB_POLICY_PREFIX), "id")
        check_policy(made)
    except Fault as fault:
        raise LeftOut(fault.message) from None
    if made.urn == ROOT_POLICY:
        raise LeftOut("the service manages the policy of this id itself")
    return made, lost


def _is_limited(resources: object) -> bool:
    """Return whether a policy counts for some resources only."""
    if not isinstance(resources, dict):
        return False
    criteria = resources.get("filter")
    return bool(resources.get("resources") or (isinstance(criteria, dict) and criteria.get("criteria")))


def _listed(what: str, words: Iterable[str]) -> list[str]:
    found = sorted(words)
    return [f"{what} {', '.join(found)}"] if found else []


class ImportStatus(NamedTuple):
    """Counts of the first MAX_COUNTED imported tokens."""

    tokens: int
    live: int
    never_expiring: int
    used_lately: int
    last_expires_at: int | None
    last_changed_at: int | None


class PersonChange(Enum):
    SUSPENDED = "SUSPENDED"
    RESUMED = "RESUMED"
    NAMED = "NAMED"
    STAYS_SUSPENDED = "STAYS_SUSPENDED"


class TokenMatch(Enum):
    """How a token of DataHub relates to what is stored here."""

    NEW = "new"
    UNCHANGED = "unchanged"
    NO_ACCOUNT = "its service account was deleted here"
    OWN = "a token that was created here has its id"
    DEAD = "it was revoked here, and stays revoked"
    DEAD_CHANGED = "it was revoked here, and stays revoked; its expiry in DataHub changed"
    SHORTENED = "it expires earlier in DataHub now: the earlier time counts"
    EXPIRY_DIFFERS = "it expires later in DataHub now: the time here stays"
    NAME_DIFFERS = "its name in DataHub changed: the name here stays"

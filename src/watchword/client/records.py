"""What the server answers with, as frozen records.

A record's fields are GraphQL's, in Python's spelling: from them come both the selection that is asked for and the
reading of the answer. Words such as a status stay strings: a newer server may know more of them. Times are
milliseconds since 1970; the properties beside them are datetimes in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

from watchword.domain.secret import Secret

Json = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int) -> datetime:
    """Exact, where a float of seconds would not be."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True, slots=True)
class Me:
    urn: str
    username: str


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token's record; the token itself is known to its holder alone."""

    id: str
    urn: str
    name: str
    description: str | None
    actor_urn: str
    owner_urn: str
    token_type: str
    status: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None
    scopes: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None
    allowed_networks: tuple[str, ...] | None = None
    parent_id: str | None = None
    minted_with: str | None = None
    replaces: str | None = None
    replaced_by: str | None = None
    replaced_at: int | None = None
    awaits_first_use: bool = False
    expires_at_once_used: int | None = None
    use_count: int = 0
    last_network: str | None = None
    effective_status: str = "ACTIVE"
    """The status, or SUSPENDED where that would be ACTIVE and the actor is suspended."""

    @property
    def created(self) -> datetime:
        return moment(self.created_at)

    @property
    def expires(self) -> datetime | None:
        """None: never."""
        return None if self.expires_at is None else moment(self.expires_at)


@dataclass(frozen=True, slots=True)
class NewToken:
    """The token, this once, and its record."""

    token: Secret[str]
    metadata: TokenInfo


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the holder of a token is to a gateway."""

    urn: str
    token_id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActorTokenCount:
    actor_urn: str
    count: int


@dataclass(frozen=True, slots=True)
class RevocationPlan:
    """How many tokens would be ended, with those that die with them, and whose: most first, at most 100 actors."""

    count: int
    actors: tuple[ActorTokenCount, ...]


@dataclass(frozen=True, slots=True)
class RevocationReceipt:
    """How many tokens were ended, and from when on no instance accepts any. The digest is SHA-256 over their ids in
    their order, each followed by a line feed.
    """

    count: int
    digest: str
    revoked_at: int


@dataclass(frozen=True, slots=True)
class ServiceAccountInfo:
    urn: str
    display_name: str
    description: str | None
    status: str
    created_at: int
    created_by: str


@dataclass(frozen=True, slots=True)
class PolicyActors:
    """Whom a policy grants to."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    all_users: bool = False


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    urn: str
    name: str
    state: str
    description: str | None
    privileges: tuple[str, ...]
    actors: PolicyActors
    editable: bool
    source: str
    set: str | None


@dataclass(frozen=True, slots=True)
class DeclaredPolicy:
    """A policy as a file states it; `id` is what stands at the end of its urn."""

    id: str
    name: str
    privileges: tuple[str, ...]
    actors: PolicyActors
    description: str | None = None
    state: str = "ACTIVE"


@dataclass(frozen=True, slots=True)
class PolicyDiff:
    """`change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: PolicyInfo | None
    after: PolicyInfo | None


@dataclass(frozen=True, slots=True)
class AppliedPolicies:
    """`undeclared` has the policies of the set that are not declared and stay, because pruning was not asked for."""

    set: str
    dry_run: bool
    changes: tuple[PolicyDiff, ...]
    unchanged: int
    undeclared: tuple[PolicyInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    urn: str
    name: str
    description: str | None
    member_count: int


@dataclass(frozen=True, slots=True)
class ActorInfo:
    urn: str
    status: str
    changed_at: int | None
    changed_by: str | None
    known: bool
    live_token_count: int
    session_count: int


@dataclass(frozen=True, slots=True)
class OffboardedTokens:
    """`ids` has at most 1,000; the digest is over all of them."""

    count: int
    digest: str
    revoked_at: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffboardingResult:
    """`minted_tokens` is None where they were left alone."""

    at: int
    status: str
    tokens: OffboardedTokens
    minted_tokens: OffboardedTokens | None
    session_count: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffboardingReport:
    """What there was of an actor before, and what was done about it: nothing, where `receipt` is None. `tokens`,
    `minted_tokens` (which it made for others) and `service_accounts` (which it made) have at most 100.
    """

    dry_run: bool
    urn: str
    status: str
    known: bool
    token_count: int
    tokens: tuple[TokenInfo, ...]
    minted_token_count: int
    minted_tokens: tuple[TokenInfo, ...]
    session_count: int
    service_accounts: tuple[ServiceAccountInfo, ...]
    groups: tuple[str, ...]
    policies: tuple[PolicyInfo, ...]
    receipt: OffboardingResult | None


@dataclass(frozen=True, slots=True)
class ActorSummary:
    """`groups` has at most 100; `token_count` counts those that are not revoked."""

    urn: str
    username: str
    status: str
    changed_at: int | None
    changed_by: str | None
    token_count: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyGrant:
    """A policy that grants a privilege, and how: `via` is USER, GROUP or ALL_USERS."""

    policy_urn: str
    policy_name: str
    via: str
    group_urn: str | None
    privilege: str


@dataclass(frozen=True, slots=True)
class PrivilegeExplanation:
    """`sentence` says by which policies it is allowed, or what the actor would be told."""

    actor_urn: str
    privilege: str
    allowed: bool
    suspended: bool
    grounds: tuple[PolicyGrant, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class PrivilegeDescription:
    name: str
    display_name: str
    allows: str
    includes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventInfo:
    id: str
    at: int
    action: str
    actor_urn: str
    token_id: str | None
    target: str
    peer: str
    request_id: str
    detail: Json

    @property
    def moment(self) -> datetime:
        return moment(self.at)


@dataclass(frozen=True, slots=True)
class EventAction:
    """What can happen: `means` says what its event tells."""

    name: str
    means: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    version: str
    capabilities: tuple[str, ...]


class _Record(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=_Record)


@cache
def _nested(kind: type[_Record]) -> Mapping[str, type[_Record]]:
    """Which fields hold records themselves: one, perhaps none, or a tuple of them."""
    hints = {name: (hint, *get_args(hint)) for name, hint in get_type_hints(kind).items()}
    return {
        name: one for name, within in hints.items() for one in within if isinstance(one, type) and is_dataclass(one)
    }


def selection(kind: type[_Record]) -> str:
    """What to ask for: the fields of the record."""
    nested = _nested(kind)
    return " ".join(
        f"{camel(field.name)} {{ {selection(nested[field.name])} }}" if field.name in nested else camel(field.name)
        for field in fields(kind)
    )


def record(kind: type[R], answer: Json) -> R:
    nested = _nested(kind)
    return kind(**{field.name: _value(nested.get(field.name), answer[camel(field.name)]) for field in fields(kind)})


def _value(kind: type[_Record] | None, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(kind, one) for one in value)
    return value if kind is None or value is None else record(kind, value)

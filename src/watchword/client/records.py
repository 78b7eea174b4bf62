"""What the server answers with, as frozen records.

A record's fields are those of the GraphQL type, in snake case. They determine what a request selects and how the answer
is read. Enum values such as a status stay strings, because a newer server may add values. Times are timezone-aware
datetimes in UTC.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

from watchword.domain.scopes import covering, is_scope
from watchword.domain.secret import Secret

Json = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OLDEST, _NEWEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
GRAPHQL_NAME = "graphql"
"""Metadata key: the field's name in GraphQL, where that is not the camel case of its Python name."""
_FINAL_STATES = frozenset({"DONE", "FAILED", "CANCELLED"})


def from_millis(milliseconds: int) -> datetime:
    """Exact, unlike a float of seconds. Times outside the years 1 to 9999 are clamped to them."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return _OLDEST if milliseconds < 0 else _NEWEST


def to_millis(argument: str, when: datetime) -> int:
    """Milliseconds since 1970. Without a time zone a datetime could mean any of 24 hours."""
    if not isinstance(when, datetime):
        raise TypeError(f"{argument} must be a datetime with a time zone.")
    if when.tzinfo is None:
        raise ValueError(f"{argument} must have a time zone, such as datetime(2026, 10, 1, tzinfo=UTC).")
    return (when - _EPOCH) // _MILLISECOND


def graphql_name(field: Field[Any]) -> str:
    """The camel case of a field's name, unless its metadata names it."""
    first, *rest = field.name.split("_")
    return field.metadata.get(GRAPHQL_NAME) or first + "".join(word.capitalize() for word in rest)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """The base of all records: makes each a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class UserInfo(Record):
    """An actor. `username` is `alice` of `urn:li:corpuser:alice`, otherwise the urn. `display_name` is None if it has
    none.
    """

    urn: str
    username: str
    display_name: str | None


class TokenInfo(Record):
    """What the server stores about a token. It never stores the token itself."""

    id: str
    urn: str
    name: str
    description: str | None
    actor_urn: str
    owner_urn: str
    token_type: str
    status: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    scopes: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None
    allowed_networks: tuple[str, ...] | None = None
    parent_id: str | None = None
    created_with: str | None = None
    replaces: str | None = None
    replaced_by: str | None = None
    replaced_at: datetime | None = None
    awaits_first_use: bool = False
    expires_at_once_used: datetime | None = None
    use_count: int = 0
    last_network: str | None = None
    effective_status: str = "ACTIVE"
    """Like `status`, but SUSPENDED instead of ACTIVE while the actor is suspended."""
    actor_name: str | None = None
    """The display name of the actor, if it has one."""
    owner_name: str | None = None


class DayCountInfo(Record):
    """A count on one UTC day, written YYYY-MM-DD."""

    day: str
    count: int


class TokenDetails(TokenInfo):
    """What the server stores about one token, with its uses on each of the last 14 days."""

    uses_by_day: tuple[DayCountInfo, ...] = ()
    networks: tuple[str, ...] = ()
    """The networks it was used from, the first one first."""


class NewToken(Record):
    """A token that was just issued, and its record. The server shows the token only this once."""

    token: Secret[str] = field(metadata={GRAPHQL_NAME: "accessToken"})
    metadata: TokenInfo


class DeviceLogin(Record):
    """A device authorization (RFC 8628) that waits for a person to approve it in a browser."""

    device_code: Secret[str]
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: float
    """Seconds until both codes expire."""
    interval: float
    """Seconds to wait between polls."""


class VerifiedToken(Record):
    """Whose token it is and which scopes it has now, as a gateway gets it."""

    urn: str
    token_id: str
    scopes: tuple[str, ...]

    def has_scope(self, scope: str) -> bool:
        """Whether the scopes name it or have a wildcard that covers it, such as orders:* for orders:read."""
        return is_scope(scope) and covering(self.scopes, scope) is not None


class ActorTokenCount(Record):
    """How many tokens of one actor a revocation affects, or an actor created."""

    actor_urn: str
    actor_name: str | None
    count: int


class OverviewInfo(Record):
    """Numbers of tokens, when they expire, and what happened on the last 30 days."""

    live: int
    expiring_7_days: int = field(metadata={GRAPHQL_NAME: "expiring7Days"})
    unused_90_days: int | None = field(metadata={GRAPHQL_NAME: "unused90Days"})
    """None until the server has read through a large store."""
    never_expiring: int
    suspended: int
    """Tokens of suspended actors. They are not live."""
    uses_by_day: tuple[DayCountInfo, ...]
    expiries_by_day: tuple[DayCountInfo, ...]
    """84 days from today."""
    denials_by_day: tuple[DayCountInfo, ...] | None
    """None without View Audit Log, as failed sign-ins."""
    failed_sign_ins_by_day: tuple[DayCountInfo, ...] | None
    owners: tuple[ActorTokenCount, ...]
    """Who created most of the live tokens."""


class RevocationPlan(Record):
    """How many tokens would be revoked, derived ones included, and whose: at most 100 actors, most tokens first."""

    count: int
    actors: tuple[ActorTokenCount, ...]


class RevocationReceipt(Record):
    """How many tokens were revoked, and when. No instance accepts any of them after `revoked_at`. The digest is the
    SHA-256 of their sorted ids, each followed by a line feed.
    """

    count: int
    digest: str
    revoked_at: datetime


class ServiceAccountInfo(Record):
    """An actor for a program."""

    urn: str
    display_name: str
    description: str | None
    status: str
    created_at: datetime
    created_by: str
    created_by_name: str | None
    set: str | None


class PolicyActors(Record):
    """To whom a policy grants its privileges and scopes."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    all_users: bool = False


class GrantedActors(PolicyActors):
    """The actors of a policy that the server stores. `resolved_users` has the names of `users`."""

    resolved_users: tuple[UserInfo, ...] = ()


class PolicyInfo(Record):
    """A policy as the server stores it."""

    urn: str
    name: str
    state: str
    description: str | None
    privileges: tuple[str, ...]
    scopes: tuple[str, ...]
    actors: GrantedActors
    editable: bool
    source: str
    set: str | None
    revision: str


class DeclaredPolicyInfo(Record):
    """A policy to apply. Its urn ends with `id`."""

    id: str
    name: str
    privileges: tuple[str, ...]
    actors: PolicyActors
    description: str | None = None
    state: str = "ACTIVE"
    scopes: tuple[str, ...] = ()


class DeclaredGroupInfo(Record):
    """A group to apply. Its urn ends with `id`. `members` has the urns of all members; None: they stay as they are."""

    id: str
    name: str
    description: str | None = None
    members: tuple[str, ...] | None = None


class DeclaredAccountInfo(Record):
    """A service account to apply. Its urn ends with `id`. `groups` are urns of groups that are declared with it."""

    id: str
    name: str
    description: str | None = None
    groups: tuple[str, ...] = ()


class EntityDiff(Record):
    """A group or service account before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: Json | None
    after: Json | None


class PolicyDiff(Record):
    """A policy before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: PolicyInfo | None
    after: PolicyInfo | None


class RetentionRuleDiff(Record):
    """A retention rule before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    series: str
    before: Json | None
    after: Json | None


class WebhookDiff(Record):
    """A change of a webhook: what a policy file declares of it, before and after."""

    change: str
    id: str
    before: Json | None
    after: Json | None


class ResourceInfo(Record):
    """A service whose gateway verifies tokens for an audience of its own, `id`, at `/resources/<name>/auth`."""

    name: str
    id: str
    set: str


class ResourceDiff(Record):
    """A resource before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    name: str
    before: Json | None
    after: Json | None


class AppliedPolicies(Record):
    """What `apply_policies` changed: policies, groups and accounts (`entities`), retention rules, webhooks, resources.
    `undeclared` has the policies of the set that were not declared and were kept, because `prune` was not set;
    `undeclared_entities` has the urns of groups and accounts, `undeclared_retention` the series of rules,
    `undeclared_webhooks` the ids of webhooks, `undeclared_resources` the names of resources.
    """

    set: str
    dry_run: bool
    changes: tuple[PolicyDiff, ...]
    entities: tuple[EntityDiff, ...]
    retention: tuple[RetentionRuleDiff, ...]
    webhooks: tuple[WebhookDiff, ...]
    resources: tuple[ResourceDiff, ...]
    unchanged: int
    undeclared: tuple[PolicyInfo, ...]
    undeclared_entities: tuple[str, ...]
    undeclared_retention: tuple[str, ...]
    undeclared_webhooks: tuple[str, ...]
    undeclared_resources: tuple[str, ...]


class GroupInfo(Record):
    """A group of users."""

    urn: str
    name: str
    description: str | None
    member_count: int
    set: str | None


class ActorIdentity(Record):
    """A person of the identity provider, who alone signs in as an actor."""

    issuer: str
    subject: str
    linked_at: datetime
    signed_in_at: datetime | None


class SessionInfo(Record):
    """A console session. `method` is OIDC, TOKEN or LOCAL."""

    id: str
    actor_urn: str
    actor_name: str | None
    method: str
    token_id: str | None
    created_at: datetime
    seen_at: datetime
    ends_at: datetime
    peer: str
    current: bool


class ActorInfo(Record):
    """The name, status and groups of an actor, how many tokens and sessions it has, and the person it is linked to."""

    urn: str
    display_name: str | None
    email: str | None
    status: str
    changed_at: datetime | None
    changed_by: str | None
    changed_by_name: str | None
    known: bool
    live_token_count: int
    """0 while the actor is suspended."""
    suspended_token_count: int
    """Those that would be live if the actor were not suspended."""
    session_count: int
    groups: tuple[str, ...]
    external_groups: tuple[str, ...]
    identity: ActorIdentity | None


class OffboardedTokens(Record):
    """Tokens that an offboarding revoked. `ids` has at most 1,000; the digest covers all of them."""

    count: int
    digest: str
    revoked_at: datetime
    ids: tuple[str, ...]


class OffboardingResult(Record):
    """What an offboarding did. `tokens_for_others` is None if it did not revoke them."""

    at: datetime
    status: str
    tokens: OffboardedTokens
    tokens_for_others: OffboardedTokens | None
    session_count: int
    groups: tuple[str, ...]


class FormerMembership(Record):
    """A group or policy that an actor was removed from. `set` is the policy set that declares the group and may make
    the actor a member again.
    """

    urn: str
    name: str
    set: str | None


class OffboardingSuspension(Record):
    """Who suspended the actor, and what ended since: its own tokens, those it created for others, sessions, memberships
    in groups, and policies that named it.
    """

    at: datetime
    actor_urn: str
    actor_name: str | None
    tokens: OffboardedTokens
    tokens_for_others: OffboardedTokens
    session_count: int
    groups: tuple[FormerMembership, ...]
    policies: tuple[FormerMembership, ...]


class DeclaredMembership(Record):
    """A group of an actor, and the policy set that declares it and may make the actor a member again."""

    urn: str
    set: str


class OffboardingReport(Record):
    """What an actor had before its offboarding. `receipt` says what was done; it is None after a dry run. `suspension`
    is None if the actor was active. `tokens`, `tokens_for_others` (issued by the actor for others; both the last used
    first) and `service_accounts` (created by it) have at most 100 entries.
    """

    dry_run: bool
    urn: str
    display_name: str | None
    status: str
    known: bool
    token_count: int
    tokens: tuple[TokenInfo, ...]
    tokens_for_others_count: int
    tokens_for_others: tuple[TokenInfo, ...]
    session_count: int
    service_accounts: tuple[ServiceAccountInfo, ...]
    groups: tuple[str, ...]
    declared_groups: tuple[DeclaredMembership, ...]
    policies: tuple[PolicyInfo, ...]
    suspension: OffboardingSuspension | None
    receipt: OffboardingResult | None


class ActorSummary(Record):
    """An actor in a list. `groups` has at most 100 entries; `live_token_count` counts at most 1,000."""

    urn: str
    username: str
    display_name: str | None
    email: str | None
    status: str
    changed_at: datetime | None
    changed_by: str | None
    changed_by_name: str | None
    live_token_count: int
    groups: tuple[str, ...]


class PolicyGrant(Record):
    """A policy that grants a privilege or scope. `via` is USER, GROUP or ALL_USERS."""

    policy_urn: str
    policy_name: str
    via: str
    group_urn: str | None
    privilege: str


class PrivilegeExplanation(Record):
    """Whether an actor has a privilege or scope. `explanation` names the policies that grant it, or the error the actor
    gets.
    """

    actor_urn: str
    privilege: str
    allowed: bool
    suspended: bool
    grants: tuple[PolicyGrant, ...]
    explanation: str


class PrivilegeDescription(Record):
    """A privilege and what it allows."""

    name: str
    display_name: str
    allows: str
    includes: tuple[str, ...]
    escalates: bool


class PrivilegeHolder(Record):
    """One way in which an actor holds a privilege or scope. `actor_urn` is None for all users."""

    actor_urn: str | None
    actor_name: str | None
    status: str | None
    policy_urn: str
    policy_name: str
    via: str
    group_urn: str | None
    privilege: str


class EventInfo(Record):
    """One entry of the audit log. `target_name` is the name that the target had; `names` has the names of actors by
    urn.
    """

    id: str
    at: datetime
    action: str
    actor_urn: str
    actor_name: str | None
    token_id: str | None
    target: str
    target_name: str | None
    names: Json
    peer: str
    request_id: str
    detail: Json


class EventAction(Record):
    """An action that the audit log records; `description` explains it."""

    name: str
    description: str
    kind: str


class WebhookInfo(Record):
    """A subscription to events."""

    id: str
    name: str
    url: str
    actions: tuple[str, ...]
    actor_urns: tuple[str, ...]
    group_urns: tuple[str, ...]
    state: str
    stop_reason: str | None
    created_at: datetime
    created_by: str
    created_by_name: str | None
    set: str | None
    last_delivered_at: datetime | None
    waiting: int
    dropped: int
    failing_since: datetime | None
    next_attempt_at: datetime | None
    previous_secret_until: datetime | None


class NewWebhook(Record):
    """A webhook and its secret, which the server shows only this once."""

    webhook: WebhookInfo
    secret: Secret[str]


class WebhookAttempt(Record):
    """One attempt to deliver a message. `answer` is the beginning of the receiver's answer."""

    at: datetime
    millis: int
    succeeded: bool
    status: int | None
    error: str | None
    answer: str | None


class WebhookDelivery(Record):
    """A message to a webhook, and the latest attempts to deliver it."""

    id: str
    message_id: str
    event_id: str | None
    type: str
    state: str
    created_at: datetime
    delivered_at: datetime | None
    payload: str
    attempts: tuple[WebhookAttempt, ...]


class WebhookReplay(Record):
    """How many deliveries are sent again; `until` is where to go on if not all could be queued."""

    queued: int
    until: datetime | None


class ImportStatusInfo(Record):
    """What came from DataHub, and how much of it is still in use."""

    tokens: int
    live: int
    never_expiring: int
    used_in_30_days: int
    last_expires_at: datetime | None
    last_changed_at: datetime | None
    has_salt: bool


class MailPreference(Record):
    """A kind of mail, whether the caller wants it, and whether the server sends it at all."""

    kind: str
    description: str
    enabled: bool
    sent: bool


class ServerInfo(Record):
    """The version of a server and what it can do."""

    version: str
    capabilities: tuple[str, ...]


class TaskCounters(Record):
    """What a task has done so far, in rows."""

    total: int
    updated: int
    created: int
    deleted: int
    batches: int
    version_conflicts: int
    noops: int
    bulk_retries: int
    search_retries: int
    throttled_millis: int
    requests_per_second: float
    throttled_until_millis: int

    @property
    def done(self) -> int:
        """Rows processed so far."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts


class TaskInfo(Record):
    """The progress of an operation, or of a task of the search index."""

    task_id: str
    completed: bool
    run_time_nanos: int
    status: TaskCounters
    failures: tuple[str, ...]
    error: str | None

    @property
    def failed(self) -> bool:
        return self.error is not None or bool(self.failures)


class TruncationPlan(Record):
    """What a truncation deletes, counted before it starts. `share` is a percentage."""

    entity_type: str
    aspect: str
    index_name: str
    end_time: datetime = field(metadata={GRAPHQL_NAME: "endTimeMillis"})
    """Rows up to this time are deleted."""
    rows: int
    rows_to_delete: int
    share: float
    size_in_bytes: int
    bytes_to_free: int
    strategy: str
    reason: str
    batch_size: int
    timeout_seconds: int | None
    summary: str


class EngineTaskInfo(Record):
    """A task that the search index ran for an operation, as last seen."""

    id: str
    purpose: str
    completed: bool
    status: TaskCounters


class PostCheckInfo(Record):
    """The check after a truncation: how many rows remain, and how many old ones among them."""

    passed: bool
    rows: int
    rows_left: int
    expected: int | None


class OperationInfo(Record):
    """A truncation, from its plan to its check afterwards. `id` is also a task id."""

    id: str
    state: str
    plan: TruncationPlan
    actor_urn: str
    actor_name: str | None
    created_at: datetime
    started_at: datetime | None
    changed_at: datetime | None
    finished_at: datetime | None
    percent: float
    rows_done: int
    rows_to_do: int
    rows_per_second: float | None
    estimated_end_at: datetime | None
    note: str | None
    error: str | None
    attempts: int
    source_index: str | None
    target_index: str | None
    tasks: tuple[EngineTaskInfo, ...]
    status: TaskCounters
    post_check: PostCheckInfo | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None

    @property
    def is_over(self) -> bool:
        return self.state in _FINAL_STATES


class RetentionHold(Record):
    """A hold: nothing of the series is removed while it lasts. The series `*` is every series."""

    series: str
    reason: str
    set_by: str
    set_by_name: str | None
    set_at: datetime
    by_rule: bool


class RetentionRuleInfo(Record):
    """A retention rule, with the values as a policy file has them. `hold` is the hold in effect, if any;
    `hold_reason` the reason of the hold that the rule itself declares.
    """

    series: str
    keep: str
    remove_after: str | None
    max_size: str | None
    max_rows: int | None
    keep_last: int | None
    schedule: str
    time_zone: str
    window: str | None
    at_most: str
    mode: str
    hold_reason: str | None
    set: str | None
    changed_at: datetime
    changed_by: str
    changed_by_name: str | None
    hold: RetentionHold | None


class HeldSeries(Record):
    """A hold that was set, and the operations on the series that are not over yet. All are cancelled, except one
    that is SWAPPING.
    """

    hold: RetentionHold
    active_operations: tuple[OperationInfo, ...]


class RetentionRunInfo(Record):
    """A run of a retention rule. `state` is that of its operation where it has one. `rule` is the rule as it was."""

    number: int
    series: str
    due_at: datetime
    created_at: datetime
    state: str
    rule: Json
    plan: TruncationPlan | None
    operation: OperationInfo | None
    requested_by: str
    requested_by_name: str | None
    approved_by: str | None
    approved_by_name: str | None
    approved_at: datetime | None
    error: str | None


class TimeSpan(Record):
    """The rows between the start of this span and the start of the next one."""

    start: datetime = field(metadata={GRAPHQL_NAME: "startMillis"})
    rows: int


class PlannedSpan(TimeSpan):
    """A span, and how many of its rows would be removed."""

    rows_to_remove: int


class SeriesPlanInfo(Record):
    """What a run of the retention rule would do to a series now."""

    series: str
    rows: int
    size_in_bytes: int
    rule: RetentionRuleInfo | None
    hold: RetentionHold | None
    next_due_at: datetime | None
    outcome: str | None
    plan: TruncationPlan | None
    spans: tuple[PlannedSpan, ...]
    waiting: RetentionRunInfo | None
    error: str | None


class SeriesSize(Record):
    """The size of a series on a day."""

    series: str
    day: datetime = field(metadata={GRAPHQL_NAME: "dayMillis"})
    rows: int
    size_in_bytes: int


class TimeseriesHistogram(Record):
    """The rows of a time series by time, oldest first."""

    index_name: str
    rows: int
    rows_without_time: int
    span: timedelta | None = field(metadata={GRAPHQL_NAME: "spanMillis"})
    """The length of each span; None when there is no row with a time."""
    spans: tuple[TimeSpan, ...]


class IndexInfo(Record):
    """The size of one time series index."""

    index_name: str
    entity_name: str
    aspect_name: str
    size_in_mb: float
    size_in_bytes: int
    rows: int


class TokenClaims(Record):
    """The lifetime that a token states about itself. Only the server can verify it."""

    issued_at: datetime
    expires_at: datetime | None

    def elapsed_share(self) -> float:
        """0.0 for a token that never expires, 1.0 or more for one that has expired."""
        if self.expires_at is None:
            return 0.0
        whole = max(self.expires_at - self.issued_at, timedelta(seconds=1))
        return (datetime.now(UTC) - self.issued_at) / whole


def read_claims(token: Secret[str]) -> TokenClaims | None:
    """None for text that is not a token of Watchword's form."""
    try:
        _, claims, _ = token.reveal().split(".")
        found = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        issued, expires = found["iat"], found.get("exp")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(issued, int) or not isinstance(expires, int | None):
        return None
    return TokenClaims(from_millis(issued * 1000), None if expires is None else from_millis(expires * 1000))


R = TypeVar("R", bound=Record)
# How values that are no records are read from JSON. Other types are taken as they are.
_READERS: Mapping[Any, Callable[[Any], Any]] = {
    datetime: from_millis,
    timedelta: lambda millis: timedelta(milliseconds=millis),
    Secret: Secret,
}


@cache
def _graphql_fields(kind: type[Record]) -> tuple[tuple[str, str, Any], ...]:
    """Each field's name in Python and in GraphQL, and its type: a record, one of _READERS, or None for others."""
    hints = get_type_hints(kind)

    def converted(hint: Any) -> Any:
        if hint is None or hint in _READERS or is_dataclass(hint):
            return hint
        return next(filter(None, map(converted, (get_origin(hint), *get_args(hint)))), None)

    return tuple((one.name, graphql_name(one), converted(hints[one.name])) for one in fields(kind))


def selection(kind: type[Record]) -> str:
    """The GraphQL selection of a record's fields."""
    return " ".join(
        name if inner is None or inner in _READERS else f"{name} {{ {selection(inner)} }}"
        for _, name, inner in _graphql_fields(cast("Any", kind))
    )


def record(kind: type[R], answer: Json) -> R:
    """Read a record from the JSON of an answer."""
    found = _graphql_fields(cast("Any", kind))
    return kind(**{name: _read_value(inner, answer[graphql]) for name, graphql, inner in found})


def _read_value(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read_value(kind, one) for one in value)
    if kind is None or value is None:
        return value
    reader = _READERS.get(kind)
    return record(kind, value) if reader is None else reader(value)

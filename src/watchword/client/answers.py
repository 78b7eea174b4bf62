# Generated. Change the GraphQL schema or scripts/generate-client, then run: make reference
"""Records: what the server answers with, one for each type of its GraphQL schema that the client reads.

Enum values such as a status are strings, because a newer server may add values. Times are datetimes in UTC.
"""

from dataclasses import field
from datetime import datetime, timedelta

from watchword.basics.secret import Secret
from watchword.client.records import GRAPHQL_NAME, Json, OperationEnd, PolicyActors, Record, TaskFailure, TaskProgress


class ActorIdentity(Record):
    """A person of the identity provider, who alone signs in as an actor."""

    issuer: str
    subject: str
    linked_at: datetime
    signed_in_at: datetime | None


class ActorInfo(Record):
    """The name, status and groups of an actor, how many tokens and sessions it has, and the person it is linked to."""

    urn: str
    display_name: str | None
    """Null if it has none. Of a service account, the name of the account."""
    email: str | None
    status: str
    changed_at: datetime | None
    changed_by: str | None
    changed_by_name: str | None
    known: bool
    """Whether the service knows the actor by more than its status: by a name, a token of it or created by it, a group,
    a session, a service account, or a policy that names it. Actors need no registration, so an unknown actor is no
    error."""
    live_token_count: int
    """Tokens that are neither revoked nor expired; 0 while the actor is suspended."""
    suspended_token_count: int
    """Tokens that would be live if the actor were not suspended."""
    session_count: int
    """Sessions of the console. Suspending the actor ends them."""
    groups: tuple[str, ...]
    """Groups made here."""
    external_groups: tuple[str, ...]
    """Groups of the identity provider, as of the last sign-in."""
    identity: ActorIdentity | None
    """The person at the identity provider; null before the first sign-in."""


class ActorSummary(Record):
    """An actor in a list. `groups` has at most 100 entries; `live_token_count` counts at most 1,000."""

    urn: str
    username: str
    """`alice` of `urn:li:corpuser:alice`; of any other urn, the whole urn."""
    display_name: str | None
    """Null if it has none. Of a service account, the name of the account."""
    email: str | None
    status: str
    changed_at: datetime | None
    """When the status last changed; null: never."""
    changed_by: str | None
    changed_by_name: str | None
    live_token_count: int
    """Tokens that are accepted: neither revoked nor expired; 0 while it is suspended. At most 1,000 are counted."""
    groups: tuple[str, ...]
    """The urns of its groups, at most 100."""


class ActorTokenCount(Record):
    """How many tokens of one actor a revocation affects, or an actor created."""

    actor_urn: str
    actor_name: str | None
    count: int


class DayCountInfo(Record):
    """A count on one UTC day, written YYYY-MM-DD."""

    day: str
    """A UTC day, YYYY-MM-DD."""
    count: int


class DeclaredMembership(Record):
    """A group of an actor, and the policy set that declares it and may make the actor a member again."""

    urn: str
    set: str


class EntityDiff(Record):
    """A group or service account before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: Json | None
    after: Json | None


class EventAction(Record):
    """An action that the audit log records; `description` explains it."""

    name: str
    """A value for `actions` in listEvents, such as token.revoked."""
    description: str
    kind: str


class EventInfo(Record):
    """One entry of the audit log. `target_name` is the name that the target had; `names` has the names of actors by
    urn.
    """

    id: str
    at: datetime
    action: str
    actor_urn: str
    """The actor; urn:li:corpuser:__system for the service itself, urn:li:corpuser:__unknown for an unknown caller."""
    actor_name: str | None
    token_id: str | None
    """The id of the bearer token, if any."""
    target: str
    target_name: str | None
    """The name that the target had: of a token, policy, group, service account or webhook. Of an actor, the name that
    it has now."""
    names: Json
    """The display names, by urn, of the actors in the event that have one now."""
    peer: str
    """The address of the caller."""
    request_id: str
    detail: Json


class FormerMembership(Record):
    """A group or policy that an actor was removed from. `set` is the policy set that declares the group and may make
    the actor a member again.
    """

    urn: str
    name: str
    set: str | None
    """Of a group: the policy set that declares it. If its file lists the actor as a member, the next apply or start
    makes it a member again: remove it there too."""


class GroupInfo(Record):
    """A group of users."""

    urn: str
    name: str
    description: str | None
    member_count: int
    """Null for groups of the identity provider, whose `relationships` count them, and without View Policies."""
    set: str | None
    """The policy set that declares it; null if none does, and without View Policies."""


class ImportStatusInfo(Record):
    """What came from DataHub, and how much of it is still in use."""

    tokens: int
    """Imported tokens that are stored: those that have not expired in DataHub. At most 10,000 are counted."""
    live: int
    """Those of them that are accepted: not revoked, not expired, their actors not suspended."""
    never_expiring: int
    """Live ones that never expire."""
    used_in_30_days: int
    """Live ones that were used in the last 30 days."""
    last_expires_at: datetime | None
    """When the last live one expires, without those that never do."""
    last_changed_at: datetime | None
    """When an import last changed something. Null: never, or the event was deleted since."""
    has_salt: bool
    """Whether the service has DataHub's salt. Without it, it rejects every imported token."""


class IndexInfo(Record):
    """The size of one time series index."""

    index_name: str
    entity_name: str
    aspect_name: str
    size_in_mb: float
    """Millions of bytes."""
    size_in_bytes: int
    rows: int


class MailPreference(Record):
    """A kind of mail, whether the caller wants it, and whether the server sends it at all."""

    kind: str
    """A word such as token-expiring."""
    description: str
    enabled: bool
    """Whether the caller wants it."""
    sent: bool
    """Whether this service sends it at all."""


class OffboardedTokens(Record):
    """Tokens that an offboarding revoked. `ids` has at most 1,000; the digest covers all of them."""

    count: int
    digest: str
    """SHA-256 over the sorted ids, each followed by a line feed."""
    revoked_at: datetime
    ids: tuple[str, ...]
    """At most 1,000."""


class OffboardingResult(Record):
    """What an offboarding did. `tokens_for_others` is None if it did not revoke them."""

    at: datetime
    status: str
    """SUSPENDED."""
    tokens: OffboardedTokens
    tokens_for_others: OffboardedTokens | None
    """Null: not revoked."""
    session_count: int
    """The number of ended sessions."""
    groups: tuple[str, ...]
    """Groups that it was removed from."""


class OffboardingSuspension(Record):
    """Who suspended the actor, and what ended since: its own tokens, those it created for others, sessions,
    memberships in groups, and policies that named it.
    """

    at: datetime
    actor_urn: str
    """Who suspended it."""
    actor_name: str | None
    tokens: OffboardedTokens
    """Of the actor."""
    tokens_for_others: OffboardedTokens
    """Created by it for others."""
    session_count: int
    """Sessions that ended with the suspension."""
    groups: tuple[FormerMembership, ...]
    """Groups that it was removed from and is not a member of again."""
    policies: tuple[FormerMembership, ...]
    """Policies that no longer name it."""


class OverviewInfo(Record):
    """Numbers of tokens, when they expire, and what happened on the last 30 days."""

    live: int
    expiring_7_days: int
    """Live tokens that expire within 7 days."""
    unused_90_days: int | None
    """Live tokens neither created nor used for 90 days."""
    never_expiring: int
    """Live tokens that never expire."""
    suspended: int
    """Tokens neither revoked nor expired whose actor is suspended. They are not live."""
    uses_by_day: tuple[DayCountInfo, ...]
    """30 days up to today, oldest first. Of your tokens: without those that were revoked since."""
    expiries_by_day: tuple[DayCountInfo, ...]
    """How many live tokens expire on each of 84 days from today."""
    denials_by_day: tuple[DayCountInfo, ...] | None
    """Denied requests of all callers, 30 days. Null without View Audit Log."""
    failed_sign_ins_by_day: tuple[DayCountInfo, ...] | None
    """Rejected credentials: tokens, sessions and sign-ins, of all callers, 30 days. Null without View Audit Log."""
    owners: tuple[ActorTokenCount, ...]
    """Who created most of the live tokens, at most ten."""


class PolicyGrant(Record):
    """A policy that grants a privilege or scope. `via` is USER, GROUP or ALL_USERS."""

    policy_urn: str
    policy_name: str
    via: str
    """How the policy includes the actor."""
    group_urn: str | None
    """The group, for GROUP."""
    privilege: str
    """What the policy grants: the one in question, a privilege that includes it or a wildcard that covers it."""


class PostCheckInfo(Record):
    """The check after a truncation: how many rows remain, and how many old ones among them."""

    passed: bool
    rows: int
    """Rows after the operation; for a copy, at the time of the swap."""
    rows_left: int
    """Old rows that are left."""
    expected: int | None
    """For a copy: the number of rows it must have."""


class PrivilegeDescription(Record):
    """A privilege and what it allows."""

    name: str
    display_name: str
    allows: str
    """What it allows."""
    includes: tuple[str, ...]
    """Privileges that it includes."""
    escalates: bool
    """Whether its holder can get more privileges with it."""


class PrivilegeExplanation(Record):
    """Whether an actor has a privilege or scope. `explanation` names the policies that grant it, or the error the
    actor gets.
    """

    actor_urn: str
    privilege: str
    allowed: bool
    suspended: bool
    """A suspended actor has no privileges, whatever its policies grant."""
    grants: tuple[PolicyGrant, ...]
    """The policies that grant it, once for each way they include the actor."""
    explanation: str
    """The policies that allow it, or the error that the actor would get."""


class PrivilegeHolder(Record):
    """One way in which an actor holds a privilege or scope. `actor_urn` is None for all users."""

    actor_urn: str | None
    """Null: all users."""
    actor_name: str | None
    status: str | None
    """A suspended actor has no privileges, whatever its policies grant."""
    policy_urn: str
    policy_name: str
    via: str
    """How the policy includes the actor."""
    group_urn: str | None
    privilege: str
    """In the policy: the requested one, a privilege that includes it or a wildcard that covers it."""


class ResourceDiff(Record):
    """A resource before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    name: str
    before: Json | None
    after: Json | None


class ResourceInfo(Record):
    """A service whose gateway verifies tokens for an audience of its own, `id`, at `/resources/<name>/auth`."""

    name: str
    id: str
    """What a token's audience must contain."""
    set: str
    """The policy set that declares it."""


class RetentionHold(Record):
    """A hold: nothing of the series is removed while it lasts. The series `*` is every series."""

    series: str
    """In lower case; `*`: every series."""
    reason: str
    set_by: str
    set_by_name: str | None
    set_at: datetime
    by_rule: bool
    """Whether the retention rule of the series declares it."""


class RetentionRuleDiff(Record):
    """A retention rule before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    series: str
    before: Json | None
    after: Json | None


class RetentionRuleInfo(Record):
    """A retention rule, with the values as a policy file has them. `hold` is the hold in effect, if any; `hold_reason`
    the reason of the hold that the rule itself declares.
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
    """The reason of the hold that the rule declares."""
    set: str | None
    """The policy set that declares the rule; null: made over the API."""
    changed_at: datetime
    changed_by: str
    changed_by_name: str | None
    hold: RetentionHold | None
    """The hold in effect on the series, if any."""


class RevocationPlan(Record):
    """How many tokens would be revoked, derived ones included, and whose: at most 100 actors, most tokens first."""

    count: int
    """The number of tokens revoked (in a dry run: to revoke), derived tokens included."""
    actors: tuple[ActorTokenCount, ...]
    """Their actors, most tokens first, at most 100; only in a dry run."""


class RevocationReceipt(Record):
    """How many tokens were revoked, and when. No instance accepts any of them after `revoked_at`. The digest is the
    SHA-256 of their sorted ids, each followed by a line feed.
    """

    count: int
    """The number of tokens revoked (in a dry run: to revoke), derived tokens included."""
    digest: str
    """The receipt: SHA-256 over the sorted ids, each followed by a line feed; null for a dry run."""
    revoked_at: datetime
    """When they were revoked; null for a dry run."""


class SeriesSize(Record):
    """The size of a series on a day."""

    series: str
    """In lower case."""
    day: datetime = field(metadata={GRAPHQL_NAME: "dayMillis"})
    """The start of the day in UTC."""
    rows: int
    size_in_bytes: int


class ServiceAccountInfo(Record):
    """An actor for a program."""

    urn: str
    """The `actorUrn` for createAccessToken."""
    display_name: str
    description: str | None
    created_by: str
    created_by_name: str | None
    created_at: datetime
    status: str
    set: str | None
    """The policy set that declares it; null if none does."""


class SessionInfo(Record):
    """A console session. `method` is OIDC, TOKEN or LOCAL."""

    id: str
    """For endSession. It is not what the browser holds."""
    actor_urn: str
    actor_name: str | None
    method: str
    token_id: str | None
    """The token it was opened with."""
    created_at: datetime
    seen_at: datetime
    """Its last request, to the minute."""
    ends_at: datetime
    peer: str
    """The address that signed in."""
    current: bool
    """Whether this request came by it."""


class TaskCounters(TaskProgress, Record):
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
    """-1: not throttled."""
    throttled_until_millis: int


class TaskInfo(TaskFailure, Record):
    """The progress of an operation, or of a task of the search index."""

    task_id: str
    completed: bool
    run_time_nanos: int
    status: TaskCounters
    failures: tuple[str, ...]
    error: str | None
    """Why the task failed, or that it was cancelled."""


class TimeSpan(Record):
    """The rows between the start of this span and the start of the next one."""

    start: datetime = field(metadata={GRAPHQL_NAME: "startMillis"})
    """The start of the span."""
    rows: int


class TimeseriesHistogram(Record):
    """The rows of a time series by time, oldest first."""

    index_name: str
    rows: int
    rows_without_time: int
    """Rows without a time, which no truncation removes."""
    span: timedelta | None = field(metadata={GRAPHQL_NAME: "spanMillis"})
    """The length of each span; null if no row has a time."""
    spans: tuple[TimeSpan, ...]
    """Contiguous, from the oldest row to the newest. The first and last include rows beyond the years 1 to 9999."""


class TokenInfo(Record):
    """What the server stores about a token. It never stores the token itself."""

    urn: str
    id: str
    """The `tokenId` for revokeAccessToken."""
    name: str
    description: str | None
    actor_urn: str
    """The actor of the token."""
    actor_name: str | None
    """The display name of the actor, as of all actors here; null if it has none."""
    owner_urn: str
    """The actor that created it."""
    owner_name: str | None
    token_type: str
    status: str
    effective_status: str
    """`status`, or SUSPENDED for an ACTIVE token of a suspended actor."""
    created_at: datetime
    """Milliseconds since 1970, like all times here."""
    expires_at: datetime | None
    """Null: never."""
    last_used_at: datetime | None
    """Updated within a minute; null until used."""
    use_count: int
    """How often it was accepted; updated within a minute."""
    last_network: str | None
    """The network of its last use: an IPv4 /24, an IPv6 /48, or `unix`; null until used."""
    revoked_at: datetime | None
    scopes: tuple[str, ...] | None
    """Null: no limit."""
    audience: tuple[str, ...] | None
    """Null: this service."""
    allowed_networks: tuple[str, ...] | None
    """Null: any."""
    parent_id: str | None
    """The id of the token it was derived from and ends with. Null for callers who may not see that token."""
    created_with: str | None
    """The id of the token it was created with. Null for callers who may not see that token."""
    replaces: str | None
    """The id of the token it replaces."""
    replaced_by: str | None
    """The id of its successor."""
    replaced_at: datetime | None
    """When its successor was first used, which started the grace period."""
    awaits_first_use: bool
    """Whether it is a successor that was not used yet; it then expires with the overlap."""
    expires_at_once_used: datetime | None
    """When an unused successor will expire after its first use; null: never, or it was used."""


class TokenDetails(TokenInfo):
    """What the server stores about one token, with its uses on each of the last 14 days."""

    uses_by_day: tuple[DayCountInfo, ...]
    """Uses on each of the last `days` UTC days, at most 30, oldest first; updated within a minute. Uses that are
    counted together are those of the day of the last of them."""
    networks: tuple[str, ...]
    """The networks it was used from, the first one first, at most 16. In the form of `lastNetwork`."""


class TruncationPlan(Record):
    """What a truncation deletes, counted before it starts. `share` is a percentage."""

    entity_type: str
    aspect: str
    index_name: str
    end_time: datetime = field(metadata={GRAPHQL_NAME: "endTimeMillis"})
    rows: int
    rows_to_delete: int
    share: float
    """The percentage of rows to delete."""
    size_in_bytes: int
    bytes_to_free: int
    """An estimate from the share of rows."""
    strategy: str
    reason: str
    """Why this strategy was chosen."""
    batch_size: int
    timeout_seconds: int | None
    summary: str
    """The sentence that `/operations` returns for a dry run."""


class UserInfo(Record):
    """An actor. `username` is `alice` of `urn:li:corpuser:alice`, otherwise the urn. `display_name` is None if it has
    none.
    """

    urn: str
    username: str
    """`alice` of `urn:li:corpuser:alice`; of any other urn, the whole urn."""
    display_name: str | None
    """Null if it has none. Of a service account, the name of the account."""


class WebhookAttempt(Record):
    """One attempt to deliver a message. `answer` is the beginning of the receiver's answer."""

    at: datetime
    millis: int
    succeeded: bool
    status: int | None
    """The HTTP status of the answer, if there was one."""
    error: str | None
    """Why there was no answer."""
    answer: str | None
    """The first 1,024 bytes of the answer."""


class WebhookDelivery(Record):
    """A message to a webhook, and the latest attempts to deliver it."""

    id: str
    message_id: str
    """The `webhook-id` of the message: the same for the same event."""
    event_id: str | None
    """Null for a message that is about no event."""
    type: str
    state: str
    created_at: datetime
    delivered_at: datetime | None
    payload: str
    """The body of the message."""
    attempts: tuple[WebhookAttempt, ...]
    """The latest 20 attempts, oldest first."""


class WebhookDiff(Record):
    """A change of a webhook: what a policy file declares of it, before and after."""

    change: str
    id: str
    before: Json | None
    after: Json | None


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
    """Why it was stopped or disabled by the service: failed, queue_full, or gone (the receiver answered 410)."""
    created_at: datetime
    created_by: str
    created_by_name: str | None
    set: str | None
    """The policy set that declares it, if one does."""
    last_delivered_at: datetime | None
    """When it last delivered a message. Null: not within 30 days, which is how long deliveries are stored."""
    waiting: int
    """How many deliveries wait."""
    dropped: int
    """How many events had no room among those that wait, at most 10,000, or waited for 30 days. A replay since a time
    sends them and sets this to 0."""
    failing_since: datetime | None
    """Since when the receiver has not accepted the first delivery that waits."""
    next_attempt_at: datetime | None
    """When that delivery is tried again. Null if the webhook is not ENABLED."""
    previous_secret_until: datetime | None
    """Until when the secret before the last rotation signs too."""


class WebhookReplay(Record):
    """How many deliveries are sent again; `until` is where to go on if not all could be queued."""

    queued: int
    """How many deliveries are sent again."""
    until: datetime | None
    """If not all events since the time could be queued: the time to go on from, once these are delivered."""


class EngineTaskInfo(Record):
    """A task that the search index ran for an operation, as last seen."""

    id: str
    purpose: str
    """delete, copy, or catch up."""
    completed: bool
    status: TaskCounters
    """As last read."""


class GrantedActors(PolicyActors):
    """The actors of a policy that the server stores. `resolved_users` has the names of `users`."""

    resolved_users: tuple[UserInfo, ...] = ()
    """The same users, with their names."""


class NewToken(Record):
    """A token that was just issued, and its record. The server shows the token only this once."""

    token: Secret[str] = field(metadata={GRAPHQL_NAME: "accessToken"})
    """The token, a secret. It is shown once."""
    metadata: TokenInfo


class NewWebhook(Record):
    """A webhook and its secret, which the server shows only this once."""

    webhook: WebhookInfo
    secret: Secret[str]
    """Shown only this once. Receivers verify the signature with it."""


class OperationInfo(OperationEnd, Record):
    """A truncation, from its plan to its check afterwards. `id` is also a task id."""

    id: str
    """`<node>:<number>`; also the task id for getEsTaskStatus."""
    state: str
    plan: TruncationPlan
    actor_urn: str
    """The actor that requested it."""
    actor_name: str | None
    created_at: datetime
    started_at: datetime | None
    changed_at: datetime | None
    finished_at: datetime | None
    percent: float
    rows_done: int
    rows_to_do: int
    rows_per_second: float | None
    """Null until it is known."""
    estimated_end_at: datetime | None
    """The expected end at this rate."""
    note: str | None
    """The current step."""
    error: str | None
    attempts: int
    """The number of restarts."""
    source_index: str | None
    target_index: str | None
    tasks: tuple[EngineTaskInfo, ...]
    """Its tasks in the search index."""
    status: TaskCounters
    """Sums over those tasks."""
    post_check: PostCheckInfo | None
    """Null until it was done."""
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None


class PlannedSpan(TimeSpan):
    """A span, and how many of its rows would be removed."""

    rows_to_remove: int
    """How many of them would be removed; with `keepLast` an estimate."""


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
    """False for policies that the service manages itself."""
    revision: str
    """Changes with whatever updatePolicy can change."""
    source: str
    set: str | None
    """The policy set that declares it; null unless its source is FILE."""


class RetentionRunInfo(Record):
    """A run of a retention rule. `state` is that of its operation where it has one. `rule` is the rule as it was."""

    number: int
    series: str
    """In lower case."""
    due_at: datetime
    """The moment of the schedule, or when a person asked."""
    created_at: datetime
    state: str
    rule: Json
    """The rule as it was, with the fields of a policy file."""
    plan: TruncationPlan | None
    operation: OperationInfo | None
    requested_by: str
    """The caller; the service itself for a scheduled run."""
    requested_by_name: str | None
    approved_by: str | None
    approved_by_name: str | None
    approved_at: datetime | None
    error: str | None


class SeriesPlanInfo(Record):
    """What a run of the retention rule would do to a series now."""

    series: str
    rows: int
    size_in_bytes: int
    rule: RetentionRuleInfo | None
    """Null: no rule is for this series."""
    hold: RetentionHold | None
    """The hold in effect, if any."""
    next_due_at: datetime | None
    """When the next run is due."""
    outcome: str | None
    """The state that the run would get: REPORTED, NOTHING_TO_REMOVE, HELD, WAITING or STARTED."""
    plan: TruncationPlan | None
    spans: tuple[PlannedSpan, ...]
    """The rows by time, with or without a rule."""
    waiting: RetentionRunInfo | None
    """The run of this series that waits for approval."""
    error: str | None
    """Why the run that is due could not be planned yet, if this worker tried."""


class HeldSeries(Record):
    """A hold that was set, and the operations on the series that are not over yet. All are cancelled, except one that
    is SWAPPING.
    """

    hold: RetentionHold
    active_operations: tuple[OperationInfo, ...]
    """Operations on the series that are not over yet. All are cancelled, except one that is SWAPPING."""


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
    """Tokens of the actor that are neither revoked nor expired."""
    tokens: tuple[TokenInfo, ...]
    """The first 100 of them, the last used first."""
    tokens_for_others_count: int
    """Tokens that it created for others, neither revoked nor expired."""
    tokens_for_others: tuple[TokenInfo, ...]
    """The first 100 of them, the last used first."""
    session_count: int
    service_accounts: tuple[ServiceAccountInfo, ...]
    """Service accounts that it created, at most 100."""
    groups: tuple[str, ...]
    declared_groups: tuple[DeclaredMembership, ...]
    """Those of them that a policy set declares. If its file lists the actor as a member, the next apply or start makes
    it a member again: remove it there too."""
    policies: tuple[PolicyInfo, ...]
    """Policies that name it."""
    suspension: OffboardingSuspension | None
    """Who suspended it and what was revoked since then; null while it is active."""
    receipt: OffboardingResult | None
    """Null for a dry run."""


class PolicyDiff(Record):
    """A policy before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: PolicyInfo | None
    after: PolicyInfo | None


class AppliedPolicies(Record):
    """What `policies.apply` changed: policies, groups and accounts (`entities`), retention rules, webhooks, resources.
    `undeclared` has the policies of the set that were not declared and were kept, because `prune` was not set;
    `undeclared_entities` has the urns of groups and accounts, `undeclared_retention` the series of rules,
    `undeclared_webhooks` the ids of webhooks, `undeclared_resources` the names of resources.
    """

    set: str
    dry_run: bool
    changes: tuple[PolicyDiff, ...]
    """Changes of policies."""
    entities: tuple[EntityDiff, ...]
    """Changes of groups and service accounts."""
    retention: tuple[RetentionRuleDiff, ...]
    """Changes of retention rules."""
    webhooks: tuple[WebhookDiff, ...]
    """Changes of webhooks."""
    resources: tuple[ResourceDiff, ...]
    """Changes of resources."""
    unchanged: int
    """How much of what is declared did not change."""
    undeclared: tuple[PolicyInfo, ...]
    """Policies of the set that are not declared and stay because `prune` is not true."""
    undeclared_entities: tuple[str, ...]
    """The urns of such groups and service accounts."""
    undeclared_retention: tuple[str, ...]
    """The series of such retention rules."""
    undeclared_webhooks: tuple[str, ...]
    """The ids of such webhooks."""
    undeclared_resources: tuple[str, ...]
    """The names of such resources."""

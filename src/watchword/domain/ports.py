"""Ports: what the service needs from a store.

Every implementation guarantees:

- A read sees everything that any process committed before the read began, and nothing else.
- A write is durable when it returns. It re-checks its precondition in its own transaction and raises `Stale` if the
  bearer is no longer live, the actor is suspended, or the policies have another version.
- A change and its event are one transaction.
- A store that cannot answer in time raises `Fault(STORE_UNAVAILABLE)`, and nothing was changed; or
  `Fault(OUTCOME_UNKNOWN)` if it cannot tell.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from watchword.domain.actors import (
    AccountPage,
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorSnapshot,
    ActorState,
    ActorStatus,
    Bearer,
    Profile,
    ServiceAccount,
    WritePrecondition,
)
from watchword.domain.bulk_revocation import Receipt, Revocation, RevocationPreview, Selection, TokenVisibility
from watchword.domain.counts import COUNT_SECONDS, DayCounter, TokenCounts, UnusedBatch
from watchword.domain.datahub import ImportedPerson, ImportStatus, PersonChange, TokenMatch
from watchword.domain.declared_entities import Entity
from watchword.domain.devices import Device, DeviceLimits, DeviceStatus
from watchword.domain.events import Cursor, Detail, EventPage, EventSearch, KeptEvent, TimedCount
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.idempotency import IdempotencyRecord
from watchword.domain.keys import KeyKind, PreparedKey, SealedKey
from watchword.domain.lifetimes import ExpiringPage
from watchword.domain.mail import Mail, MailDraft, MailKind, MailRules, MailState, SendResult
from watchword.domain.names import ShownActor
from watchword.domain.operations import Operation, OperationPage, Plan
from watchword.domain.outbound import AddressRule, OutboundAnswer, OutboundRequest, OutboundUrl
from watchword.domain.policies import Policy, PolicyDeclaration, PolicyPlan, PolicySet, Require, deny
from watchword.domain.retention import (
    Hold,
    PlannedRun,
    RetentionRule,
    RetentionRun,
    RetentionSnapshot,
    RetentionState,
    RunPage,
    SeriesSize,
    ShownRun,
    StoredRule,
)
from watchword.domain.secret import Secret
from watchword.domain.sessions import FoundSession, Identity, LogoutNotice, Membership, Person, Session, SessionPage
from watchword.domain.stores import LastStart
from watchword.domain.token_limits import UNLIMITED, Limits
from watchword.domain.tokens import TokenRecord
from watchword.domain.webhooks import (
    Attempt,
    Delivery,
    DeliveryCounts,
    DeliveryPage,
    DeliveryState,
    Webhook,
    WebhookPage,
)


class Clock(Protocol):
    def __call__(self) -> int:
        """Milliseconds since 1970."""


class JsonRows(NamedTuple):
    number: int
    text: str
    """A JSON array of objects."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows and their total, from one snapshot."""

    total: int
    rows: tuple[TokenRecord, ...]
    seconds: float = field(default=0.0, compare=False)
    """Processor time that the store used for it."""
    json: JsonRows | None = None
    """In place of the rows, for a search with `json_fields`."""


@dataclass(frozen=True, slots=True)
class Group:
    urn: str
    name: str
    description: str | None
    members: int | None = 0  # None: not counted, or not for the caller to see
    set_name: str | None = None  # the set that declares it; None: made by the API
    external: bool = False  # whether it is a group of the identity provider, known by its members alone


@dataclass(frozen=True, slots=True)
class Signed:
    token: Secret[str]
    kid: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. `jti` is random if it is not given."""

    actor: str
    created_at: int
    expires_at: int | None
    limits: Limits = UNLIMITED
    jti: str | None = None


class TokenSigner(Protocol):
    def sign(self, claims: Claims) -> Signed:
        """The token, and the key it was signed with."""

    async def sign_again(self, claims: Claims, kid: str) -> Signed | None:
        """With the key it was signed with before; None if that key is gone."""

    def claims(self, claims: Claims) -> dict[str, Any]:
        """The claims by their names in the token, issuer and audience included."""

    async def refresh(self) -> None:
        """Load the current key from the store."""


@dataclass(frozen=True, slots=True)
class Use:
    """The uses of one token since the last write."""

    last: int
    count: int
    network: str  # of the last use
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Issue:
    """What a new token needs besides its record."""

    kid: str
    max_live: int
    idempotency: IdempotencyRecord | None = None
    """Stored in the same transaction, if the request has an idempotency key."""


class Repeated(Exception):
    """Another request with the same idempotency key was first. Never reaches a client."""


class Keys(Protocol):
    """The signing keys, as the HTTP layer uses them."""

    async def all(self) -> tuple[SealedKey, ...]: ...

    async def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The published keys as a JSON Web Key Set."""

    async def following(self) -> SealedKey:
        """The key that signs after the next rotation. It is published already."""

    async def prepare(self, precondition: WritePrecondition, kind: KeyKind) -> PreparedKey:
        """Make the next key one of this kind, unless it is."""

    async def rotate(self, precondition: WritePrecondition) -> SealedKey:
        """Sign with the next key from now on. The one after it is of the same kind."""


class Seal(Protocol):
    """Encrypts and signs. What was sealed opens only with the label it was sealed with."""

    def seal(self, plain: Secret[bytes], label: str) -> bytes: ...

    def open(self, sealed: bytes, label: str) -> Secret[bytes]:
        """OperatorError if it was not sealed here."""


class OutboundClient(Protocol):
    """Sends requests to strangers, outside of the process that verifies. Failures are an `OutboundError`."""

    async def check(self, url: OutboundUrl, rule: AddressRule, seconds: float) -> None:
        """Look the host up. NOT_ALLOWED unless all its addresses are allowed."""

    async def send(self, request: OutboundRequest) -> OutboundAnswer: ...


class MessageClient(Protocol):
    """Sends messages to the receivers of webhooks."""

    async def check(self, url: str) -> None:
        """INVALID_FIELD unless messages may be sent there."""

    async def send(self, url: str, headers: dict[str, str], body: bytes) -> Attempt: ...


class IdentityProvider(Protocol):
    """Where people sign in. PROVIDER_UNAVAILABLE if it does not answer; INVALID_SIGN_IN if its answer is not valid."""

    @property
    def issuer(self) -> str: ...

    async def authorization_url(self, state: str, nonce: str, verifier: Secret[str]) -> str: ...

    async def check_issuer(self, named: str | None) -> None:
        """Of the answer to a sign-in: RFC 9207."""

    async def claims(self, code: str, nonce: str, verifier: Secret[str], needed: frozenset[str]) -> dict[str, Any]:
        """The claims of the person who signed in, those that are needed among them if the provider has them."""

    async def logout_notice(self, token: str) -> LogoutNotice: ...

    async def end_session_url(self, return_to: str) -> str | None:
        """Where a person can end the session at the provider too. None: the provider offers none, or is unavailable."""


class TokenStore(Protocol):
    async def find_bearer(self, token_id: str) -> Bearer | None:
        """The token with this id and the state of its actor, in one read. Costs the same at any size."""

    @property
    def find_bearer_now(self) -> Callable[[str], Bearer | None] | None:
        """`find_bearer` without waiting. It returns None for an unknown token, and where the store must be waited for.
        None: this store must always be waited for.
        """

    async def actor_snapshot(self, actor: str) -> ActorSnapshot: ...

    async def suspended_among(self, actors: Collection[str]) -> frozenset[str]: ...

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        """Add a new token. `Stale` if the signing key has changed, or the parent (the bearer) expires before the token
        or was never used; TOO_MANY_TOKENS beyond `max_live`; ACTOR_SUSPENDED if the token's actor is suspended;
        ACCOUNT_NOT_FOUND if the service account does not exist; `Repeated` if the idempotency key was used less than a
        day ago.
        """

    async def redeem_device(
        self, precondition: WritePrecondition, device_id: str, record: TokenRecord, issue: Issue
    ) -> None:
        """Add the token of an approved terminal, and delete the terminal: INVALID_GRANT if it was; SESSION_OVER if the
        session in which it was approved has ended. Otherwise as `add_token`.
        """

    async def rotate_token(
        self, precondition: WritePrecondition, seen: TokenRecord, successor: TokenRecord, issue: Issue
    ) -> int:
        """Add the successor of a token. An earlier successor that was never used is revoked; returns how many were.
        `Stale` if the token is not as it was seen, or the signing key has changed; `Repeated` as above. The limit on
        the number of tokens does not apply.
        """

    async def note_first_use(self, precondition: WritePrecondition, token_id: str) -> None:
        """Note the first use of a successor: it gets its full lifetime, and the token it replaces, with all tokens
        derived from it, expires after the grace period. Does nothing if it was used before, is revoked or has expired.
        """

    async def get_token(self, token_id: str) -> TokenRecord | None: ...

    async def get_idempotency_record(self, actor: str, digest: str) -> IdempotencyRecord | None:
        """The record of a request with this idempotency key, if it is less than a day old."""

    async def note_replay(self, precondition: WritePrecondition, record: TokenRecord) -> bool:
        """Write the event of a token that is returned again for its idempotency key. False, and no event, if the token
        is revoked or has expired.
        """

    async def update_token(
        self,
        precondition: WritePrecondition,
        token_id: str,
        visible: TokenVisibility | None,
        *,
        name: str | None,
        description: str | None,
    ) -> TokenRecord:
        """Change the name and description of a token; None stays, an empty description is removed. Returns the record.
        TOKEN_NOT_FOUND and ALREADY_REVOKED as in `revoke_token`.
        """

    async def revoke_token(
        self, precondition: WritePrecondition, token_id: str, visible: TokenVisibility | None, *, cascade: bool = False
    ) -> Revocation:
        """Revoke a token; returns when, and how many. Revoked with it are the live tokens derived from it, and the
        token it replaces or that replaces it while the older of the two is live; with `cascade` also the live tokens
        created with any of them. Each has its event. TOKEN_NOT_FOUND if the token does not exist or is not visible;
        ALREADY_REVOKED; TOO_MANY_AT_ONCE if a cascade would revoke more than MOST.
        """

    async def withdraw_token(self, precondition: WritePrecondition, token_id: str) -> int:
        """Revoke a token that its caller never received, and no other: the token it would replace stays valid. Returns
        how many were revoked: 0 if it already was.
        """

    async def revoke_tokens(
        self, precondition: WritePrecondition, selection: Selection, seconds: float = SEARCH_SECONDS
    ) -> Receipt:
        """Revoke all selected live tokens, and the tokens that are revoked with them, in one transaction. A selection
        that needs a search is searched first, under a deadline (DEADLINE). Each token has its event, and there is one
        for all. TOO_MANY_AT_ONCE, MORE_THAN_ALLOWED_FOR, or INVALID_FIELD if it selects everything without saying so.
        """

    async def revocation_preview(self, selection: Selection, seconds: float = SEARCH_SECONDS) -> RevocationPreview:
        """What `revoke_tokens` would revoke, whatever `at_most` is; otherwise the same errors."""

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        """Rows and total from one snapshot; DEADLINE if that takes longer."""

    async def record_uses(self, uses: Mapping[str, Use]) -> None:
        """Add to the counts of uses, by token id, in all and on the day of the last use. Never moves a time back."""

    async def uses_of(self, ids: Collection[str], since: int) -> Mapping[str, Mapping[int, int]]:
        """The uses of these tokens by day, from this day on. Days without uses are absent."""

    async def networks_of(self, ids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """The networks that these tokens were used from, at most MAX_NETWORKS each, the first one first."""

    async def purge_uses(self, before: int, most: int) -> int:
        """Delete counts of days before this one: at most `most` of tokens; returns how many."""

    async def purge_tokens(self, before: int, most: int) -> int:
        """Delete at most `most` tokens that were revoked or expired before this time; returns how many. A token
        created with a deleted one counts as created with the creator of that one: at most `most` are changed. If there
        are more, none is deleted yet, and it returns `most`: call it again.
        """

    async def purge_idempotency_records(self, most: int) -> int:
        """Delete at most `most` idempotency records that are older than a day; returns how many."""


class TokenCountStore(Protocol):
    async def token_counts(self, actor: str | None = None, seconds: float = COUNT_SECONDS) -> TokenCounts:
        """Of all tokens, or those of an actor, from one snapshot. Takes half a second for a million tokens."""

    async def unused_tokens(self, after: str, most: int, millis: int) -> UnusedBatch:
        """Of the next `most` tokens by id: how many are live, and were neither created nor used for so long."""

    async def day_counts(self, counter: DayCounter, since: int) -> Mapping[int, int]:
        """What the whole store counted, by day, from this day on."""


class AccountStore(Protocol):
    async def add_account(self, precondition: WritePrecondition, account: ServiceAccount) -> None:
        """ALREADY_EXISTS if an account has or had this urn."""

    async def get_account(self, urn: str) -> ServiceAccount:
        """ACCOUNT_NOT_FOUND if it does not exist or was deleted."""

    async def accounts(self, start: int, count: int, query: str = "") -> AccountPage:
        """Accounts whose name or urn contains the query, by name, then urn."""

    async def accounts_of(self, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        """Accounts that this actor created and that were not deleted, by urn."""

    async def delete_account(self, precondition: WritePrecondition, urn: str) -> int:
        """Revokes its tokens in the same transaction; returns how many. Its urn cannot be used again."""


class SessionStore(Protocol):
    async def add_session(self, precondition: WritePrecondition, session: Session, most: int, an_hour: int) -> None:
        """Add a session. Beyond `most` for one token, or for one actor without a token, the oldest end. More than
        `an_hour` within an hour: TOO_MANY_SIGN_INS.
        """

    async def sign_in(
        self, precondition: WritePrecondition, person: Person, session: Session, most: int, an_hour: int
    ) -> None:
        """Add the session of a person as above, and in the same transaction store what the sign-in says: identity,
        groups, display name and e-mail. SIGN_IN_REFUSED if the actor is suspended, or linked to another person, or the
        person to another actor. Groups whose urn is that of a group made here are left out.
        """

    async def find_session(self, session_id: str) -> FoundSession | None:
        """The session with this digest, if it has not ended, and its token, in one read."""

    async def touch_session(self, session_id: str, at: int) -> None:
        """Note that the session is in use."""

    async def sessions(self, actor: str | None, seen_after: int, start: int, count: int) -> SessionPage:
        """The live sessions of an actor, or of all, that were used after this time, the last used first."""

    async def end_session(self, precondition: WritePrecondition, session_id: str, actor: str | None = None) -> None:
        """SESSION_NOT_FOUND if there is none, or it is not the actor's."""

    async def end_sessions_of(self, precondition: WritePrecondition, actor: str) -> int:
        """End all sessions of an actor; returns how many were live. There is one event for all."""

    async def end_sessions_by_notice(self, precondition: WritePrecondition, notice: LogoutNotice) -> int:
        """End the sessions that the notice names, unless they began after it; returns how many."""

    async def membership(self, actor: str) -> Membership: ...

    async def link_actor(self, precondition: WritePrecondition, actor: str, identity: Identity | None) -> None:
        """Link an actor to a person, or to none; its groups and sessions by sign-in end. IDENTITY_LINKED if the person
        is linked to another actor.
        """

    async def drop_external_groups(self, before: int, most: int) -> int:
        """Drop the groups of at most `most` actors whose last sign-in was before this time; returns of how many."""

    async def purge_sessions(self, most: int) -> int:
        """Delete at most `most` sessions that have ended; returns how many."""


class DeviceStore(Protocol):
    async def add_device(self, device: Device, limits: DeviceLimits) -> bool:
        """Add a terminal that waits. TOO_MANY_CODES if too many of its origin, site or network wait; beyond the number
        in all, the oldest of the network with the most is dropped. False, and nothing added, if the user code is in
        use.
        """

    async def get_device(self, device_id: str) -> Device | None:
        """By the digest of its device code, whatever its state."""

    async def find_device(self, user_code: str) -> Device:
        """The pending terminal with this digest of a user code; DEVICE_NOT_FOUND if there is none, or it has expired or
        was decided.
        """

    async def poll_device(self, device_id: str) -> tuple[Device, int] | None:
        """Note a poll; returns the terminal as it was before, and the time."""

    async def decide_device(
        self,
        precondition: WritePrecondition,
        device: Device,
        status: DeviceStatus,
        session_id: str,
        limits: DeviceLimits,
    ) -> None:
        """Approve or deny a pending terminal in this session; DEVICE_NOT_FOUND as above. Of those that the actor
        decided, the oldest beyond the limit are dropped.
        """

    async def purge_devices(self, most: int) -> int:
        """Delete at most `most` terminals whose codes expired some time ago; returns how many."""


class PolicyStore(Protocol):
    async def policies(self) -> PolicySet: ...

    async def add_policy(self, precondition: WritePrecondition, policy: Policy) -> None: ...

    async def replace_policy(
        self, precondition: WritePrecondition, policy: Policy, *, create: bool = False, revision: str | None = None
    ) -> None:
        """POLICY_NOT_FOUND unless `create` is true; NOT_EDITABLE if the service keeps it itself; POLICY_CHANGED if it
        has another revision than the given one.
        """

    async def delete_policy(self, precondition: WritePrecondition, urn: str) -> None: ...

    async def add_group(self, precondition: WritePrecondition, group: Group) -> None: ...

    async def delete_group(self, precondition: WritePrecondition, urn: str) -> None: ...

    async def change_members(
        self, precondition: WritePrecondition, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> None: ...

    async def leave_groups(self, precondition: WritePrecondition, actor: str) -> tuple[str, ...]:
        """Remove an actor from all groups, those of the identity provider too; returns them."""

    async def apply_policies(
        self, precondition: WritePrecondition, declared: PolicyDeclaration, *, prune: bool, require: Require = deny
    ) -> PolicyPlan:
        """Make the policies, groups, accounts and retention rules of a set equal to the declaration, in one
        transaction; returns what was changed. `require` is for changes of rules, as in `RetentionStore`.
        """

    async def entities(self, declared: PolicyDeclaration) -> tuple[Entity, ...]:
        """The groups and accounts that are declared or belong to the set, as `plan_declaration` takes them."""

    async def get_group(self, urn: str, *, external: bool = False) -> Group:
        """A group made here; with `external`, also one of the identity provider. GROUP_NOT_FOUND otherwise."""

    async def groups(self, start: int, count: int, query: str = "") -> tuple[int, tuple[Group, ...]]:
        """Those made here whose name or urn contains the query, by name."""

    async def members(self, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]: ...

    async def memberships(
        self, actors: Collection[str], groups: Collection[str], most: int
    ) -> dict[str, tuple[str, ...]]:
        """The groups of these actors and of the members of these groups: of the first `most` and one by urn."""

    async def groups_of(self, actor: str, start: int, count: int, *, external: bool) -> tuple[int, tuple[Group, ...]]:
        """The groups of an actor by urn; with `external`, those of the identity provider too."""

    async def actor_state(self, actor: str) -> ActorState: ...

    async def actor_holdings(self, actor: str) -> ActorHoldings: ...

    async def known_actors(self, search: ActorSearch, seconds: float = SEARCH_SECONDS) -> ActorPage:
        """Actors, by urn, that have or had tokens, a status, a name or a group, or that a policy names. Costs what the
        page and the policies cost; DEADLINE if that takes longer.
        """

    async def find_actors(
        self, query: str, start: int, count: int, seconds: float = SEARCH_SECONDS
    ) -> tuple[int, tuple[str, ...]]:
        """The urns of the known actors whose urn, name or e-mail address contains the query, and their number. Costs
        what all known actors cost; DEADLINE if that takes longer.
        """

    async def shown_actors(self, actors: Collection[str]) -> dict[str, ShownActor]:
        """Names, e-mail addresses and status of these actors, service accounts included; without those of whom nothing
        is stored.
        """

    async def set_profile(self, precondition: WritePrecondition, actor: str, profile: Profile) -> None: ...

    async def set_actor_status(self, precondition: WritePrecondition, actor: str, status: ActorStatus) -> None:
        """NOT_EDITABLE if the actor is a deleted service account."""

    async def last_start(self) -> LastStart | None: ...

    async def apply_startup_policies(
        self,
        root: Policy,
        defaults: tuple[Policy, ...],
        declared: PolicyDeclaration | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PolicyPlan:
        """At start, in one transaction: apply the root policy; add the default policies if this store never had them;
        make the set of the policy file equal to its declaration; write an event for each setting that differs from the
        last start. Returns what the file changed.
        """


class KeyStore(Protocol):
    async def sealed_salt(self) -> bytes | None: ...

    async def keys(self) -> tuple[SealedKey, ...]:
        """Newest first."""

    async def next_key(self) -> SealedKey | None:
        """The key that signs after the next rotation; None if there is none yet."""

    async def settle_keys(self, salt: bytes, key: SealedKey, following: SealedKey) -> None:
        """Store the first salt, the first key and the next key, unless another process was first."""

    async def settle_next(self, following: SealedKey) -> None:
        """Store the next key, unless there is one."""

    async def replace_next(self, precondition: WritePrecondition, kid: str, following: SealedKey) -> None:
        """Store another next key in place of the one with this id. `Stale` unless that is still the next key."""

    async def rotate_key(self, precondition: WritePrecondition, kid: str, following: SealedKey) -> None:
        """Sign with the next key from now on, and store another as the next; the old key stays published until its last
        token has expired. `Stale` unless the next key has this id: of two concurrent rotations one succeeds.
        """


class EventStore(Protocol):
    async def events(self, search: EventSearch, seconds: float = SEARCH_SECONDS) -> EventPage:
        """The newest events that match, newest first: at least one if any matches, at most `count`, and at most
        MAX_PAGE_BYTES of details after the first; DEADLINE if that takes longer.
        """

    async def count_events(self, search: EventSearch, most: int, seconds: float = SEARCH_SECONDS) -> int:
        """The number of events on all pages of the search, counted up to `most`; DEADLINE as above."""

    async def count_events_by_time(
        self, search: EventSearch, step: int, seconds: float = SEARCH_SECONDS
    ) -> tuple[TimedCount, ...]:
        """How many events of each action there are in each step of milliseconds from `since` on: of the newest `count`
        and one that match; DEADLINE as above.
        """

    async def add_events(self, events: Sequence[KeptEvent], firsts: Sequence[KeptEvent] = (), within: int = 0) -> None:
        """Add events that belong to no change. `firsts` are failed authentications with known tokens: one is left out
        if there is another with the same token and detail from the time `within` before it.
        """

    async def events_after(self, seq: int, most: int) -> tuple[KeptEvent, ...]:
        """The next events after this number, by number: at most `most`, and at most MAX_PAGE_BYTES of details after the
        first. No event with a lower number than one of these is committed later: it stops before a number that a
        transaction still running may have.
        """

    async def last_event(self) -> int:
        """The highest number of an event; 0 without events."""

    async def newest_event(self) -> tuple[int, int]:
        """The latest time of an event, 0 without events; and the store's time."""

    async def lease_cursor(self, name: str, holder: str, millis: int) -> int | None:
        """Take or renew the lease of a cursor; returns its number, or None if another holder has it. A new cursor
        begins after the last event.
        """

    async def move_cursor(self, name: str, holder: str, seq: int) -> None:
        """`CursorLost` unless this holder has the lease and the cursor has a lower number."""

    async def release_cursor(self, name: str, holder: str) -> None: ...

    async def prune_events(self, before: int, most: int) -> int:
        """Delete at most `most` of the oldest events from before this time; returns how many."""

    async def purge_change_rates(self, most: int) -> int:
        """Forget at most `most` actors that may make a whole burst of changes again; returns how many."""


class OperationStore(Protocol):
    async def node_id(self) -> str:
        """The part before the colon in the id of every operation of this store. Never changes."""

    async def add_operation(self, precondition: WritePrecondition, plan: Plan) -> Operation:
        """Add a PLANNED operation. SERIES_HELD if a hold is on the series; OPERATION_RUNNING if another on the same
        index is active.
        """

    async def operation(self, number: int) -> Operation | None: ...

    async def operations(self, start: int, count: int) -> OperationPage:
        """Newest first."""

    async def request_cancel(self, precondition: WritePrecondition, number: int) -> Operation:
        """Record the request to cancel; a second request changes nothing. OPERATION_NOT_FOUND, TOO_LATE_TO_CANCEL."""

    async def lease_operation(self, millis: int, home: str = "") -> Operation | None:
        """Lease an active operation on this search index that has no lease, for `millis` milliseconds and with a higher
        fence.
        """

    async def save_operation(self, operation: Operation, millis: int, not_before: int = 0) -> Operation:
        """Save its state and work, and renew its lease for `millis` milliseconds; 0: end the lease. It is leased again
        from `not_before` on, or as soon as someone asks to cancel it. Returns it as it is now.

        A change of state has its event. `LeaseLost` if its fence is no longer the current one; `CancelRequested` if it
        would begin SWAPPING after a request to cancel it.
        """


class RetentionStore(Protocol):
    """Rules and holds. `require` is called with each privilege that a change needs. The hold that a rule declares is
    set and released with the rule. To release a hold that someone else set needs RELEASE_RETENTION_HOLDS.
    """

    async def retention(self) -> RetentionState: ...

    async def put_rule(self, precondition: WritePrecondition, rule: RetentionRule, require: Require) -> StoredRule:
        """Create or replace the rule of its series, which stays in its set. The same rule again changes nothing.
        TOO_MANY_RULES.
        """

    async def delete_rule(self, precondition: WritePrecondition, series: str, require: Require) -> None:
        """RULE_NOT_FOUND if there is none."""

    async def set_hold(
        self, precondition: WritePrecondition, series: str, reason: str
    ) -> tuple[Hold, tuple[Operation, ...]]:
        """Hold a series, or all for `*`, and ask the active operations on it to cancel; returns them with the hold. The
        same hold by the same actor again changes nothing; SERIES_HELD if there is another.
        """

    async def release_hold(self, precondition: WritePrecondition, series: str, require: Require) -> None:
        """HOLD_NOT_FOUND if there is none; HOLD_DECLARED if the rule of the series declares it."""


class RetentionRunStore(Protocol):
    async def retention_snapshot(self, home: str) -> RetentionSnapshot:
        """What the scheduler of a search index needs to know. Costs the same for any number of runs."""

    async def lease_retention(self, name: str, holder: str, millis: int) -> bool:
        """Whether this holder has the lease of this name now. It may renew it."""

    async def add_run(self, precondition: WritePrecondition, planned: PlannedRun) -> ShownRun | None:
        """Add a run, and its operation if it is STARTED. Earlier runs of the series that wait are SUPERSEDED.

        None, with no change, if the rule is another one now, or a run of this moment or a later one was added.
        CONTENDED if the plan would remove rows that are younger than `keep`. OPERATION_RUNNING as for `add_operation`.
        On a series with a hold, a due run is added as HELD; one that a person asked for is SERIES_HELD.
        """

    async def approve_run(self, precondition: WritePrecondition, number: int, rows_seen: int) -> ShownRun:
        """Record the approval of a WAITING run, which would remove `rows_seen` rows. RUN_NOT_FOUND; RUN_NOT_WAITING
        also if its rule has changed; RUN_GREW if it would remove another number; SERIES_HELD.
        """

    async def start_approved(
        self, precondition: WritePrecondition, approved: RetentionRun, plan: Plan
    ) -> ShownRun | None:
        """Add the operation of an approved run by its plan of now. If that removes more rows than were approved, the
        run waits again. None, with no change, if the run is not as it was. OPERATION_RUNNING.
        """

    async def supersede_run(self, number: int) -> None:
        """End a run that waits."""

    async def retention_runs(self, series: str | None, start: int, count: int) -> RunPage:
        """Newest first, of one series or all."""

    async def note_overdue(
        self, precondition: WritePrecondition, home: str, details: Mapping[str, dict[str, Detail] | None]
    ) -> None:
        """Write the events that series are overdue, once each until this is called for it without detail."""

    async def note_clock_jump(self, precondition: WritePrecondition, seconds: int) -> None: ...

    async def add_sizes(self, home: str, sizes: Sequence[SeriesSize]) -> None:
        """The first of a day counts."""

    async def series_sizes(self, home: str, series: str | None, after_day: int) -> tuple[SeriesSize, ...]:
        """By series and day."""

    async def purge_runs(self, before: int, most: int) -> int:
        """Delete at most `most` runs that were added before this time; returns how many."""

    async def purge_sizes(self, before: int, most: int) -> int:
        """The same for the sizes of days."""


class ExpiryStore(Protocol):
    async def expiring_page(self, after: tuple[int, str] | None, within: int, most: int) -> ExpiringPage:
        """Return live tokens that expire within `within` milliseconds, soonest first, of `most` tokens read: without
        those derived, replaced, or awaiting their first use, and those of suspended actors. `after` comes from the
        previous page.
        """

    async def note_expiring(self, ids: Sequence[str], thresholds: Sequence[int]) -> int:
        """Write the event of each of these tokens whose notice is due, and note the threshold; returns how many."""


class MailStore(Protocol):
    async def add_mails(self, holder: str, seq: int, drafts: Sequence[MailDraft], rules: MailRules) -> None:
        """Write the mails of the events up to this number, for people with an address who want them, and move the
        cursor of mail there, in one transaction. `CursorLost` as `move_cursor`.
        """

    async def claim_mails(self, most: int, millis: int) -> tuple[Mail, ...]:
        """Return mails that are due. They are due again after `millis` milliseconds, unless they are settled."""

    async def settle_mail(self, mail: Mail, result: SendResult, words: str, jitter: float) -> MailState:
        """Record the outcome of an attempt, unless there was a later one; `jitter` as in `mail.outcome`."""

    async def waiting_mails(self, most: int, *, late: bool = False) -> int:
        """How many mails wait, counted up to `most`; with `late` only those that are due or were tried before."""

    async def prune_mails(self, before: int, most: int) -> int:
        """Delete at most `most` mails that were written before this time; returns how many."""

    async def mail_kinds_off(self, actor: str) -> frozenset[MailKind]:
        """The kinds that this person does not want."""

    async def set_mail_kinds_off(self, precondition: WritePrecondition, kinds: frozenset[MailKind]) -> None:
        """Of the actor of the precondition."""


class ImportStore(Protocol):
    """What an import from DataHub writes. With `dry_run` nothing is written; the result is the same."""

    async def import_people(
        self, precondition: WritePrecondition, people: Sequence[ImportedPerson], *, dry_run: bool
    ) -> list[tuple[ImportedPerson, PersonChange]]:
        """Suspend those who are suspended there; resume those whom an import suspended; fill in a display name or
        e-mail address that is missing here. Returns the changes.
        """

    async def import_tokens(
        self, precondition: WritePrecondition, records: Sequence[TokenRecord], *, dry_run: bool
    ) -> list[TokenMatch]:
        """Add the tokens that are not here and never were, in one transaction; of the others, an earlier expiry counts.
        Returns how each relates to what was here. The limit on the number of tokens does not apply.
        """

    async def external_groups(self, urns: Sequence[str]) -> set[str]:
        """Those of these that are groups of the identity provider."""

    async def imported_tokens(self, after: str, until: str, most: int) -> list[str]:
        """The ids of imported live tokens after the first and up to the second, in order."""

    async def import_status(self) -> ImportStatus: ...

    async def revoke_imported(self, precondition: WritePrecondition, ids: Sequence[str]) -> int:
        """Revoke imported tokens as `revoke_token` does; returns how many were revoked."""


class WebhookStore(EventStore, Protocol):
    """WEBHOOK_NOT_FOUND where an id names none."""

    async def add_webhook(self, precondition: WritePrecondition, webhook: Webhook) -> Webhook:
        """It gets events from now on. ALREADY_EXISTS, TOO_MANY_WEBHOOKS."""

    async def webhook(self, webhook_id: str) -> Webhook: ...

    async def webhooks(self, start: int, count: int) -> WebhookPage:
        """By name."""

    async def last_deliveries(self, webhook_ids: Sequence[str]) -> dict[str, int]:
        """When each of these last delivered a message that is still stored."""

    async def change_webhook(
        self,
        precondition: WritePrecondition,
        webhook_id: str,
        *,
        name: str | None,
        url: str | None,
        filter: Mapping[str, tuple[str, ...]],  # noqa: A002 - the schema's word
        enabled: bool | None,
    ) -> Webhook:
        """With None nothing changes, nor does a field of the filter that is absent. A disabled webhook gets events from
        now on; a stopped one resumes its queue.
        """

    async def rotate_webhook(
        self, precondition: WritePrecondition, webhook_id: str, sealed: bytes, overlap: int
    ) -> Webhook:
        """The old secret signs too for `overlap` milliseconds."""

    async def delete_webhook(self, precondition: WritePrecondition, webhook_id: str) -> None: ...

    async def deliveries(
        self, webhook_id: str, state: DeliveryState | None, before: int | None, count: int
    ) -> DeliveryPage:
        """Newest first, with numbers below `before`."""

    async def replay_delivery(self, precondition: WritePrecondition, webhook_id: str, number: int | None) -> int:
        """Send this delivery again, or with None the waiting ones; return how many wait now. WEBHOOK_DISABLED,
        DELIVERY_NOT_FOUND, QUEUE_FULL.
        """

    async def replay_events(
        self, precondition: WritePrecondition, webhook_id: str, since: int, after: Cursor, most: int
    ) -> tuple[int, Cursor | None]:
        """Queue again matches among the next `most` events by time, except those already waiting. The first call has
        `Cursor(since, -1)`. Returns how many were queued and where to go on: where it was if there is no room; None at
        the end. WEBHOOK_DISABLED.
        """

    async def has_deliveries(self) -> bool | None:
        """Whether events are to be queued, or a delivery may be sent now, and no process has the lease. None: there is
        no webhook.
        """

    async def queue_events(self, holder: str, events: Sequence[KeptEvent]) -> None:
        """Queue the deliveries of these events, and move the cursor after them. A webhook without room stops.
        `CursorLost` unless this holder has the lease.
        """

    async def due_webhooks(self) -> tuple[Webhook, ...]:
        """Those with a delivery that may be sent now, the longest due first."""

    async def waiting_deliveries(self, webhook_id: str, most: int) -> tuple[Delivery, ...]:
        """In their order."""

    async def record_attempt(self, holder: str, delivery: Delivery, attempt: Attempt, jitter: float) -> Webhook | None:
        """The result of sending it. Returns the webhook as it is now; None: it was deleted. `CursorLost` unless this
        holder has the lease.
        """

    async def delivery_counts(self) -> DeliveryCounts: ...

    async def prune_deliveries(self, before: int, most: int) -> int:
        """Delete at most `most` deliveries that were made before this time, or are more than MAX_KEPT delivered ones of
        a webhook; returns how many.
        """


class Store(
    TokenStore,
    TokenCountStore,
    AccountStore,
    SessionStore,
    DeviceStore,
    PolicyStore,
    KeyStore,
    OperationStore,
    RetentionStore,
    RetentionRunStore,
    ImportStore,
    WebhookStore,
    ExpiryStore,
    MailStore,
    Protocol,
):
    @property
    def clock(self) -> Clock:
        """The clock by which tokens are created and expire."""

    @property
    def timeline(self) -> int:
        """Of PostgreSQL's primary: each promotion of a standby begins a new one. 0 on SQLite."""

    async def probe(self) -> None:
        """Check that the store can be written to."""

    async def close(self) -> None: ...

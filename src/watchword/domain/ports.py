"""Ports: what the service asks of a store.

The law for every implementation:

- A read sees everything committed before it began, by whichever process, and nothing else.
- A write is durable when it returns. It proves its warrant inside its own transaction and raises `Stale` when
  the bearer is no longer live, the actor is suspended, or the policies are of another version.
- Each change and its event are one transaction.
- When the store cannot answer in time it raises `Fault(STORE_UNAVAILABLE)`; an unanswered write changed nothing
  that anyone was told of.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from watchword.domain.accounts import AccountPage, ServiceAccount
from watchword.domain.actors import (
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorSnapshot,
    ActorState,
    ActorStatus,
    Bearer,
    WritePrecondition,
)
from watchword.domain.bulk_revocation import Receipt, Revocation, RevocationPreview, Selection, TokenVisibility
from watchword.domain.events import EventPage, EventSearch, KeptEvent
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.idempotency import IdempotencyRecord
from watchword.domain.operations import Operation, OperationPage, Plan
from watchword.domain.policies import Policy, PolicySet
from watchword.domain.policy_sets import PolicyDeclaration, PolicyPlan
from watchword.domain.secret import Secret
from watchword.domain.sessions import FoundSession, Session
from watchword.domain.store_urls import LastStart
from watchword.domain.token_limits import UNLIMITED, Limits
from watchword.domain.tokens import TokenRecord


class Clock(Protocol):
    def __call__(self) -> int:
        """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows and their total, from one snapshot."""

    total: int
    rows: tuple[TokenRecord, ...]
    seconds: float = field(default=0.0, compare=False)
    """Of a processor, that the store took for it."""


@dataclass(frozen=True, slots=True)
class Group:
    urn: str
    name: str
    description: str | None
    members: int = 0


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A signing key as the store keeps it. Published until its last token is dead; None: for as long as it is known."""

    kid: str
    public: bytes
    sealed_private: bytes
    created_at: int
    retired_at: int | None = None
    published_until: int | None = None

    def is_published(self, now: int) -> bool:
        return self.retired_at is None or self.published_until is None or self.published_until > now


@dataclass(frozen=True, slots=True)
class Signed:
    token: Secret[str]
    kid: str


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says of itself. `jti` is random where it is not given."""

    actor: str
    created_at: int
    expires_at: int | None
    limits: Limits = UNLIMITED
    jti: str | None = None


class TokenSigner(Protocol):
    def sign(self, claims: Claims) -> Signed:
        """The token, and the key it was signed with."""

    async def sign_again(self, claims: Claims, kid: str) -> Signed | None:
        """With the key it was signed with before; None where that is gone."""

    async def refresh(self) -> None:
        """Sign with the key the store names now."""


@dataclass(frozen=True, slots=True)
class Use:
    """What was gathered of the uses of one token since they were last written."""

    last: int
    count: int
    network: str


@dataclass(frozen=True, slots=True)
class Issue:
    """What it takes to keep a new token besides its record."""

    kid: str
    max_live: int
    retry: IdempotencyRecord | None = None
    """Kept in the same transaction, where the request came under a key."""


class Repeated(Exception):
    """Another request under the same key was quicker. Never reaches a client."""


class Keys(Protocol):
    """The signing keys, as doors see them."""

    async def all(self) -> tuple[SealedKey, ...]: ...

    async def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The published keys as a JSON Web Key Set."""

    async def rotate(self, precondition: WritePrecondition) -> SealedKey: ...


class TokenStore(Protocol):
    async def find_bearer(self, token_id: str) -> Bearer | None:
        """The token of this id with its actor's standing, in one read. Costs the same at any size."""

    async def snapshot(self, actor: str) -> ActorSnapshot: ...

    async def suspended_among(self, actors: Collection[str]) -> frozenset[str]: ...

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        """Keep a new token. `Stale` when the key is no longer the one to sign with, or the parent (which is the
        warrant's bearer) would end before it or awaits its first use; TOO_MANY_TOKENS beyond `max_live`;
        ACTOR_SUSPENDED when the token's actor is; ACCOUNT_NOT_FOUND for one of a service account that does not exist;
        `Repeated` where the retry is kept already, of less than a day ago.
        """

    async def rotate_token(
        self, precondition: WritePrecondition, seen: TokenRecord, successor: TokenRecord, issue: Issue
    ) -> int:
        """Keep the successor of a token and note in that one who it is; a successor of it that was never used is
        revoked; returns how many were. `Stale` unless the token is as it was seen, or when the key is no longer the one
        to sign with; `Repeated` as above. Is never refused for the number of tokens.
        """

    async def note_first_use(self, precondition: WritePrecondition, token_id: str) -> None:
        """Of a successor: from now on it lives its own life, and the one it replaces, with all derived from it, ends
        after the grace. Does nothing where it was used before, or is dead.
        """

    async def get_token(self, token_id: str) -> TokenRecord | None: ...

    async def get_idempotency_record(self, actor: str, digest: str) -> IdempotencyRecord | None:
        """What is kept of a request under a key, of less than a day ago."""

    async def note_replay(self, precondition: WritePrecondition, record: TokenRecord) -> bool:
        """Leave the event of a token that is given out again under its key. False, and no event, where it is dead."""

    async def revoke_token(
        self,
        precondition: WritePrecondition,
        token_id: str,
        visibility: TokenVisibility | None,
        *,
        cascade: bool = False,
    ) -> Revocation:
        """Revoke, and say when and how many; with it everything derived from it, and the one it replaces or that
        replaces it while the older of the two is alive; with `cascade` also everything minted with any of them. Each
        leaves its event.
        Within a reach, a token beyond it is TOKEN_NOT_FOUND, as one that does not exist. ALREADY_REVOKED otherwise
        where it was. More than MOST by a cascade: TOO_MANY_AT_ONCE. Of those that die with it the dead are left as they
        are.
        """

    async def withdraw_token(self, precondition: WritePrecondition, token_id: str) -> int:
        """End a token that nobody received, and nothing else: the one it would replace goes on. Returns how many were
        ended: none where it was over.
        """

    async def revoke_tokens(
        self, precondition: WritePrecondition, selection: Selection, seconds: float = SEARCH_SECONDS
    ) -> Receipt:
        """Revoke all live ones that are meant, and what dies with them, whole or not at all. Where it is not plain who
        is meant they are looked for before, within so many seconds, else DEADLINE. Each leaves its event, and one tells
        of all.
        TOO_MANY_AT_ONCE, MORE_THAN_ALLOWED_FOR, or INVALID_FIELD where it means everything without saying so.
        """

    async def revocation_preview(self, selection: Selection, seconds: float = SEARCH_SECONDS) -> RevocationPreview:
        """What that would end, however many were allowed for; else the same refusals."""

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        """Rows and total from one snapshot; DEADLINE when that takes longer than so many seconds."""

    async def record_uses(self, uses: Mapping[str, Use]) -> None:
        """Add to what is known of the uses of tokens (by id). Never moves a time back."""

    async def purge_tokens(self, before: int, most: int) -> int:
        """Remove tokens that were dead before then, at most so many; returns how many. What one of them minted counts
        as minted with what that was.
        """

    async def purge_idempotency_records(self, most: int) -> int:
        """Remove what is kept of requests under a key that are over, at most so many; returns how many."""


class AccountStore(Protocol):
    async def add_account(self, precondition: WritePrecondition, account: ServiceAccount) -> None: ...

    async def get_account(self, urn: str) -> ServiceAccount:
        """ACCOUNT_NOT_FOUND where there is none, or it was deleted."""

    async def accounts(self, start: int, count: int, query: str = "") -> AccountPage:
        """By name, then urn; those whose name or urn contains the query."""

    async def accounts_of(self, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        """Those that this actor made and that were not deleted, by urn."""

    async def delete_account(self, precondition: WritePrecondition, urn: str) -> int:
        """With all its tokens, which die in the same commit; returns how many. Its urn stays dead."""


class SessionStore(Protocol):
    async def add_session(self, precondition: WritePrecondition, session: Session, most: int, an_hour: int) -> None:
        """Keep a new session. Beyond so many of one token, or of one actor without a token, the oldest end. More than
        `an_hour` within an hour: TOO_MANY_SIGN_INS.
        """

    async def find_session(self, session_id: str) -> FoundSession | None:
        """The session of this digest that is not over, with its token as it stands, in one read."""

    async def end_session(self, precondition: WritePrecondition, session: Session) -> None:
        """Leaves its event, unless it was ended before."""

    async def end_sessions_of(self, precondition: WritePrecondition, actor: str) -> int:
        """End all sessions of an actor; returns how many were not over. One event tells of all of them."""

    async def purge_sessions(self, most: int) -> int:
        """Remove sessions that are over, at most so many; returns how many."""


class PolicyStore(Protocol):
    async def policies(self) -> PolicySet: ...

    async def add_policy(self, precondition: WritePrecondition, policy: Policy) -> None: ...

    async def replace_policy(self, precondition: WritePrecondition, policy: Policy) -> None:
        """POLICY_NOT_FOUND where there is none, NOT_EDITABLE where it is the service's own."""

    async def delete_policy(self, precondition: WritePrecondition, urn: str) -> None: ...

    async def add_group(self, precondition: WritePrecondition, group: Group) -> None: ...

    async def delete_group(self, precondition: WritePrecondition, urn: str) -> None: ...

    async def change_members(
        self, precondition: WritePrecondition, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> None: ...

    async def apply_policies(
        self, precondition: WritePrecondition, declared: PolicyDeclaration, *, prune: bool
    ) -> PolicyPlan:
        """Bring the policies of a set to what is declared, whole or not at all; returns what was changed."""

    async def get_group(self, urn: str) -> Group:
        """GROUP_NOT_FOUND where there is none."""

    async def groups(self, start: int, count: int) -> tuple[int, tuple[Group, ...]]: ...

    async def members(self, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]: ...

    async def actor_state(self, actor: str) -> ActorState: ...

    async def actor_holdings(self, actor: str) -> ActorHoldings: ...

    async def known_actors(self, search: ActorSearch, seconds: float = SEARCH_SECONDS) -> ActorPage:
        """By urn: who has, or had, tokens, a status or a group, or is named by a policy. Costs what the page costs, and
        the policies; DEADLINE when that takes longer.
        """

    async def set_actor_status(self, precondition: WritePrecondition, actor: str, status: ActorStatus) -> None:
        """NOT_EDITABLE for a service account that was deleted."""

    async def last_start(self) -> LastStart | None: ...

    async def settle(
        self,
        root: Policy,
        defaults: tuple[Policy, ...],
        declared: PolicyDeclaration | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PolicyPlan:
        """At start, whole or not at all: put the root policy in force; make the default policies if this store never
        had them; bring the set of the policy file to what it declares, pruned; note which settings are others
        than at the last start. Returns what the file changed.
        """


class KeyStore(Protocol):
    async def sealed_salt(self) -> bytes | None: ...

    async def keys(self) -> tuple[SealedKey, ...]:
        """Newest first."""

    async def next_key(self) -> SealedKey | None:
        """The one that will sign after the next rotation; None where none is kept yet."""

    async def settle_keys(self, salt: bytes, key: SealedKey, following: SealedKey) -> None:
        """Keep the first salt, the first key and the next one, unless another process was quicker."""

    async def settle_next(self, following: SealedKey) -> None:
        """Keep it as the next key, unless there is one."""

    async def rotate_key(self, precondition: WritePrecondition, kid: str, following: SealedKey) -> None:
        """Sign with the next key from now on, and keep another as the next; the key before stays published until its
        last token is dead. `Stale` unless the next key is of this name: two that saw the same rotate once.
        """


class EventStore(Protocol):
    async def events(self, search: EventSearch, seconds: float = SEARCH_SECONDS) -> EventPage:
        """The newest that match, newest first: at least one if any does, at most `count`, and no more than
        MAX_PAGE_BYTES of details beyond the first; DEADLINE when that takes longer.
        """

    async def keep_events(self, events: Sequence[KeptEvent], firsts: Sequence[KeptEvent] = (), within: int = 0) -> None:
        """Keep events that belong to no change. Of `firsts`, failed authentications by known tokens, one is left out
        where there is another of the same token and detail from the time `within` before it.
        """

    async def prune_events(self, before: int, most: int) -> int:
        """Remove the oldest events from before then, at most so many; returns how many."""


class OperationStore(Protocol):
    async def node_id(self) -> str:
        """What stands before the colon in the id of every operation of this store. Never changes."""

    async def add_operation(self, precondition: WritePrecondition, plan: Plan) -> Operation:
        """Record what shall be done, PLANNED. OPERATION_RUNNING where one on the same index is not over."""

    async def operation(self, number: int) -> Operation | None: ...

    async def operations(self, start: int, count: int) -> OperationPage:
        """Newest first."""

    async def ask_cancel(self, precondition: WritePrecondition, number: int) -> Operation:
        """Note that somebody wants it to end; asked twice is asked once. OPERATION_NOT_FOUND, TOO_LATE_TO_CANCEL."""

    async def lease_operation(self, millis: int, home: str = "") -> Operation | None:
        """One on this search index that is not over and that nobody holds a lease on, held for so long, under a fence
        higher than before.
        """

    async def save_operation(self, operation: Operation, millis: int) -> Operation:
        """Keep its state and work, and hold it for so long from now; 0: let go of it. Returns it as it is now.

        A change of state leaves its event. `LeaseLost` where its fence is no longer in force; `CancelAsked` where it
        would begin SWAPPING and somebody has asked to cancel it.
        """


class Store(TokenStore, AccountStore, SessionStore, PolicyStore, KeyStore, EventStore, OperationStore, Protocol):
    @property
    def clock(self) -> Clock:
        """The time by which this store's tokens begin and end."""

    async def probe(self) -> None:
        """Prove that a write can be made."""

    async def close(self) -> None: ...

"""Issue tokens: create, derive and rotate them.

A caller first gets a grant, which denies before any input is parsed. The methods that take the grant check what depends
on the input, and every write re-checks its precondition in its transaction.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from typing import Any, NamedTuple

from watchword.authority.callers import Caller, Grant
from watchword.authority.limits import UNREADABLE, Limits, inherited, unreadable, wider
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason, Stale, invalid
from watchword.basics.names import is_account
from watchword.basics.secret import Secret
from watchword.basics.times import Clock, Duration
from watchword.basics.times import iso as iso_time
from watchword.journal.preconditions import WritePrecondition
from watchword.tokens.idempotency import HEADER, IdempotencyRecord, IdempotentRequest, Repeated, key_reused
from watchword.tokens.keys import Claims
from watchword.tokens.keys_service import KeyRing
from watchword.tokens.lifetimes import Lifetimes
from watchword.tokens.list_service import ACCOUNTS, MANAGE_ALL, MINIMUM, VisibleTokens
from watchword.tokens.rules import Issue, RotationWindow, TokenRecord, TokenRequest, TokenType, check_rotates
from watchword.tokens.store import TokenStore

AddToken = Callable[[WritePrecondition, TokenRecord, Issue], Awaitable[None]]
"""Adds a new token in the transaction of what it is for."""


@dataclass(frozen=True, slots=True)
class TokenCounters:
    """Called with the number of tokens issued and revoked, for the metrics."""

    issued: Callable[[int], None]
    revoked: Callable[[int], None]


class Lifetime(NamedTuple):
    """A requested lifetime; without either, the longest allowed."""

    duration: Duration | None = None
    iso: str | None = None


@dataclass(frozen=True, slots=True)
class CreatedToken:
    token: Secret[str]
    record: TokenRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """The grants are those of `VisibleTokens.authorize`, but for `derive`."""

    store: TokenStore
    authority: Authority
    visible: VisibleTokens
    signer: KeyRing
    salt: Secret[bytes]
    lifetimes: Lifetimes
    max_live: int
    clock: Clock
    counters: TokenCounters

    async def authorize_derive(self, caller: Caller) -> Grant:
        grant = await self.authority.authorize(caller, MINIMUM)
        if caller.bearer_id is None:
            raise invalid("Authorization", "A token is derived from the bearer token of the request. Send one.")
        return grant

    def idempotent(self, caller: Caller, key: str, content: Mapping[str, Any]) -> IdempotentRequest:
        return IdempotentRequest(self.salt, caller.actor, key, content, caller.credential)

    async def create(
        self,
        grant: Grant,
        new: TokenRequest,
        lifetime: Lifetime,
        request: IdempotentRequest | None = None,
        add: AddToken | None = None,
    ) -> CreatedToken:
        """Create a token; with `add`, which adds it."""
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> CreatedToken:
            _require_create(grant, new)
            maker = grant.caller
            limits = inherited(maker.limits, new.limits)
            if not maker.limits.are_none:
                limits = limits._replace(until=_earlier(maker.limits.until, maker.ends_at))
            parent = maker.bearer_id if maker.is_derived else None
            # A token created with a limited or derived bearer does not outlive it.
            ends_by = maker.ends_at if maker.is_bounded else None

            def expiry(now: int) -> int | None:
                return _earlier(self.lifetimes.expiry(now, *lifetime), ends_by)

            return await self._create(grant, new, limits, parent, expiry, request, ends_by, add)

        return await self.authority.write(grant, write)

    async def create_unchecked(
        self, precondition: WritePrecondition, new: TokenRequest, lifetime: Lifetime
    ) -> CreatedToken:
        """Create a token for a command that works on the store itself: no privileges and no scopes are checked. Scopes
        count only while a policy grants them.
        """
        now = self.clock()
        draft = _draft(new, precondition)._replace(created_at=now, expires_at=self.lifetimes.expiry(now, *lifetime))
        return await self._issue(precondition, draft, None)

    async def derive(
        self,
        grant: Grant,
        name: str,
        description: str | None,
        limits: Limits,
        lifetime: Lifetime,
        request: IdempotentRequest | None = None,
    ) -> CreatedToken:
        """Create a narrower and shorter token from the bearer, which ends with it."""
        grant.expect(MINIMUM)

        async def write(grant: Grant) -> CreatedToken:
            maker = grant.caller
            kind = TokenType.SERVICE_ACCOUNT if is_account(maker.actor) else TokenType.PERSONAL
            new = TokenRequest(kind, maker.actor, name, description, limits)
            narrowed = inherited(maker.limits, limits)
            expiry = partial(self._derived_expiry, lifetime, maker)
            return await self._create(grant, new, narrowed, maker.bearer_id, expiry, request)

        return await self.authority.write(grant, write)

    async def rotate(
        self, grant: Grant, wanted: str, window: RotationWindow, request: IdempotentRequest | None = None
    ) -> CreatedToken:
        """Create a successor. Anyone who may create the token may rotate it."""
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> CreatedToken:
            old = await self.visible.record(grant, wanted)
            _require_rotate(grant, old)
            if old.limits is UNREADABLE:
                raise unreadable(old.id)
            (shown,) = await self.visible.without_hidden_makers(grant, (old,))
            parent = None if old.parent is None else await self.store.get_token(old.parent)
            before = None if old.replaces is None else await self.store.get_token(old.replaces)
            precondition = grant.precondition
            draft = _draft(old, precondition)._replace(
                owner_urn=old.owner_urn, parent=old.parent, root=old.family, replaces=old.id, grace=window.grace
            )
            created = await self._replay(precondition, draft, request)
            if created is None:
                now = self.clock()
                check_rotates(old, before, now)
                end = self._successor_expiry(now, old, parent)
                draft = draft._replace(
                    created_at=now, expires_at=_earlier(window.overlap_of(old, now), end), full_end=end
                )
                created = await self._issue(precondition, draft, request, old)
            return CreatedToken(created.token, created.record._replace(parent=shown.parent))

        return await self.authority.write(grant, write)

    async def withdraw(self, precondition: WritePrecondition, token_id: str) -> None:
        """Revoke a new token that did not reach its client."""
        self.counters.revoked(await self.store.withdraw_token(precondition, token_id))

    async def _create(
        self,
        grant: Grant,
        new: TokenRequest,
        limits: Limits,
        parent: str | None,
        expiry: Callable[[int], int | None],
        request: IdempotentRequest | None,
        ends_by: int | None = None,
        add: AddToken | None = None,
    ) -> CreatedToken:
        await self._require_scopes(grant, new.actor_urn, new.limits)
        draft = _draft(new, grant.precondition)._replace(
            limits=limits, parent=parent, root=await self._family_of(parent)
        )
        replayed = await self._replay(grant.precondition, draft, request, ends_by)
        if replayed is not None:
            return replayed
        now = self.clock()
        draft = draft._replace(created_at=now, expires_at=expiry(now))
        return await self._issue(grant.precondition, draft, request, add=add)

    async def _require_scopes(self, grant: Grant, actor: str, limits: Limits) -> None:
        """Every scope that the request names must be granted, at the policy version that the write checks again."""
        if not limits.scopes:
            return
        snapshot, policies = grant.caller.snapshot, grant.policies
        if actor != grant.caller.actor:
            snapshot, policies = await self.authority.snapshot_and_policies(actor)
            if policies.version != grant.policies.version:
                raise Stale
        policies.require_scopes(actor, snapshot.groups, limits.scopes)

    async def _family_of(self, parent: str | None) -> str | None:
        """The root of the family that a child of this token joins."""
        record = None if parent is None else await self.store.get_token(parent)
        return None if record is None else record.family

    async def _issue(
        self,
        precondition: WritePrecondition,
        draft: TokenRecord,
        request: IdempotentRequest | None,
        old: TokenRecord | None = None,
        add: AddToken | None = None,
    ) -> CreatedToken:
        """Sign the draft and store it; with `old`, as its successor; with `add`, by that."""
        end = draft.expires_at if draft.grace is None else draft.full_end
        jti = None if request is None else request.jti()
        signed = self.signer.sign(Claims(draft.actor_urn, draft.created_at, end, draft.limits, jti))
        record = draft._replace(id=self.authority.token_id(signed.token.reveal().encode()))
        kept = None
        if request is not None:
            kept = IdempotencyRecord(request.actor, request.digest, signed.kid, record.id, record.created_at, end)
        issue = Issue(signed.kid, self.max_live, kept)
        try:
            if old is None:
                await (add or self.store.add_token)(precondition, record, issue)
            else:
                self.counters.revoked(await self.store.rotate_token(precondition, old, record, issue))
        except Stale:
            await self.signer.refresh()
            raise
        except Repeated:
            raise Stale from None  # the retry replays the token of the concurrent request
        self.counters.issued(1)
        return CreatedToken(signed.token, record)

    async def _replay(
        self,
        precondition: WritePrecondition,
        draft: TokenRecord,
        request: IdempotentRequest | None,
        ends_by: int | None = None,
    ) -> CreatedToken | None:
        """The token that was created with this Idempotency-Key and credential, signed again; None: there is none. It
        must equal what the request would create now. An event is written before it is returned.
        """
        kept = None if request is None else await self.store.get_idempotency_record(request.actor, request.digest)
        if request is None or kept is None:
            return None
        claims = Claims(draft.actor_urn, kept.created_at, kept.expires_at, draft.limits, request.jti())
        other_request = key_reused(f"This {HEADER} was used with another request or credential in the last 24 hours.")
        ended = key_reused(f"The token of this {HEADER} has expired or was revoked.")
        signed = await self.signer.sign_again(claims, kept.kid)
        if signed is None:
            raise key_reused(f"The token of this {HEADER} cannot be signed again: its signing key was removed.")
        if not compare_digest(self.authority.token_id(signed.token.reveal().encode()), kept.token_id):
            raise other_request
        record = await self.store.get_token(kept.token_id)
        if record is None or not record.is_live(self.clock()):
            raise ended
        same = (record.limits, record.parent, record.replaces) == (draft.limits, draft.parent, draft.replaces)
        if not same or (ends_by is not None and (kept.expires_at is None or kept.expires_at > ends_by)):
            raise other_request
        if not await self.store.note_replay(precondition, record):
            raise ended
        return CreatedToken(signed.token, record)

    def _derived_expiry(self, lifetime: Lifetime, maker: Caller, now: int) -> int | None:
        if lifetime == Lifetime():
            return maker.ends_at
        end = self.lifetimes.expiry(now, *lifetime)
        if maker.ends_at is not None and (end is None or end > maker.ends_at):
            field = "duration" if lifetime.duration is not None else "durationIso"
            raise wider(field, f"It ends at {iso_time(maker.ends_at)}")
        return end

    def _successor_expiry(self, now: int, old: TokenRecord, parent: TokenRecord | None) -> int | None:
        """The lifetime of the old token again, as far as it is still allowed."""
        lifetimes = self.lifetimes
        if old.expires_at is not None:
            end: int | None = now + min(old.expires_at - old.created_at, lifetimes.longest)
        else:
            end = None if Duration.NO_EXPIRY in lifetimes.allowed else now + lifetimes.longest
        return _earlier(_earlier(end, old.limits.until), None if parent is None else parent.expires_at)


def _draft(new: TokenRequest | TokenRecord, precondition: WritePrecondition) -> TokenRecord:
    """A record without id, times and family."""
    return TokenRecord(
        id="",
        type=new.type,
        name=new.name,
        description=new.description,
        actor_urn=new.actor_urn,
        owner_urn=precondition.actor,
        created_at=0,
        expires_at=None,
        created_with=precondition.bearer_id,
        limits=new.limits,
    )


def _require_create(grant: Grant, new: TokenRequest) -> None:
    """The form of the actor's urn decides, not whether the actor exists."""
    account = is_account(new.actor_urn)
    if new.actor_urn == grant.caller.actor:
        grant.require(MINIMUM)
    elif account or new.type is TokenType.SERVICE_ACCOUNT:
        grant.require(ACCOUNTS)
    else:
        grant.require(MINIMUM)
        grant.require(MANAGE_ALL)
    if account != (new.type is TokenType.SERVICE_ACCOUNT):
        kind = "SERVICE_ACCOUNT for the urn of a service account" if account else "PERSONAL for any other actor"
        raise invalid("type", f"type must be {kind}.")


def _require_rotate(grant: Grant, old: TokenRecord) -> None:
    if old.actor_urn == grant.caller.actor:
        grant.require(MINIMUM)
    else:
        grant.require(ACCOUNTS if old.type is TokenType.SERVICE_ACCOUNT else MANAGE_ALL)
    maker = grant.caller
    if maker.is_bounded and maker.bearer_id != old.id:
        message = "A token that is limited or derived can rotate only itself."
        raise Fault(Reason.WIDER_THAN_MAKER, message, field="tokenId")


def _earlier(first: int | None, second: int | None) -> int | None:
    """The earlier of two expiries; None: never."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)

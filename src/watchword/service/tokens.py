"""Tokens: create, derive, rotate, edit, list, look up, revoke and introspect.

A caller first gets a grant from an `authorize` method, which denies before any input is parsed. The methods that take
the grant check what depends on the input, and every write re-checks its precondition in its transaction.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import Any, NamedTuple

from watchword.domain.actors import Bearer, Caller, Grant, WritePrecondition, possession_precondition
from watchword.domain.bulk_revocation import (
    NO_ACTOR,
    Receipt,
    Revocation,
    RevocationPreview,
    Selection,
    TokenVisibility,
)
from watchword.domain.counts import first_kept
from watchword.domain.errors import Fault, Reason, Stale, invalid
from watchword.domain.events import Action, KeptEvent
from watchword.domain.filters import SEARCH_SECONDS, Condition, Field, Filter, Search
from watchword.domain.idempotency import (
    HEADER,
    IdempotencyRecord,
    IdempotentRequest,
    key_reused,
)
from watchword.domain.lifetimes import Duration, Lifetimes
from watchword.domain.lifetimes import iso as iso_time
from watchword.domain.names import SYSTEM_ACTOR, is_account
from watchword.domain.policies import Privilege
from watchword.domain.ports import Claims, Clock, Issue, Page, Repeated, Store, TokenSigner
from watchword.domain.secret import Secret
from watchword.domain.token_limits import UNREADABLE, Limits, inherited, unreadable, wider
from watchword.domain.tokens import (
    DATAHUB_HEADER,
    RotationWindow,
    TokenRecord,
    TokenRequest,
    TokenStatus,
    TokenType,
    check_rotates,
)
from watchword.service.audit import REJECTED_CREDENTIALS
from watchword.service.authority import Authority, not_accepted

MINIMUM = Privilege.GENERATE_PERSONAL_ACCESS_TOKENS
MANAGE_ALL = Privilege.MANAGE_ACCESS_TOKENS
ACCOUNTS = Privilege.MANAGE_SERVICE_ACCOUNTS
_MAKER_FIELDS = ("created_with", "parent")
_VISIBILITY_FIELDS = frozenset({"actor_urn", "owner_urn", "type"})
JSON_FIELDS = frozenset(
    {
        *(Field.ID, Field.URN, Field.NAME, Field.DESCRIPTION, Field.ACTOR_URN, Field.OWNER_URN, Field.TOKEN_TYPE),
        *(Field.CREATED_AT, Field.EXPIRES_AT, Field.LAST_USED_AT, Field.REVOKED_AT, Field.USE_COUNT),
        Field.LAST_NETWORK,
    }
)
"""The fields of a list that are columns and shown to all who may see the token: the store can return them as JSON."""
_ANY_STATUS = tuple(status.value for status in TokenStatus)


@dataclass(frozen=True, slots=True)
class TokenCounters:
    """Called with the number of tokens issued and revoked, for the metrics."""

    issued: Callable[[int], None]
    revoked: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A requested lifetime; without either, the longest allowed."""

    duration: Duration | None = None
    iso: str | None = None

    @property
    def is_given(self) -> bool:
        return self.duration is not None or self.iso is not None


@dataclass(frozen=True, slots=True)
class DerivedTokenRequest:
    name: str
    description: str | None
    limits: Limits


@dataclass(frozen=True, slots=True)
class CreatedToken:
    token: Secret[str]
    record: TokenRecord


class TokenIntrospection(NamedTuple):
    """A live token: its state in the store, its claims and its effective scopes."""

    bearer: Bearer
    claims: dict[str, Any]
    scope: str


@dataclass(frozen=True, slots=True)
class Tokens:
    _store: Store
    _authority: Authority
    _signer: TokenSigner
    _salt: Secret[bytes]
    _lifetimes: Lifetimes
    _max_live: int
    _clock: Clock
    _counters: TokenCounters

    @property
    def allowed_durations(self) -> tuple[Duration, ...]:
        return tuple(duration for duration in Duration if duration in self._lifetimes.allowed)

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        """Authorize all but `derive` and `introspect`: a caller with neither privilege cannot use the token API."""
        return self._authority.authorize(caller, MINIMUM, ACCOUNTS)

    async def authorize_derive(self, caller: Caller) -> Grant:
        grant = await self._authority.authorize(caller, MINIMUM)
        if caller.bearer_id is None:
            raise invalid("Authorization", "A token is derived from the bearer token of the request. Send one.")
        return grant

    def authorize_introspect(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, Privilege.INTROSPECT_TOKENS)

    def idempotent(self, caller: Caller, key: str, content: Mapping[str, Any]) -> IdempotentRequest:
        return IdempotentRequest(self._salt, caller.actor, key, content, caller.credential)

    async def create(
        self,
        grant: Grant,
        new: TokenRequest,
        lifetime: Lifetime,
        request: IdempotentRequest | None = None,
        device: str | None = None,
    ) -> CreatedToken:
        """Create a token; with `device`, that of an approved terminal."""
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> CreatedToken:
            _require_create(grant, new)
            maker = grant.caller
            limits = inherited(maker.limits, new.limits)
            await self._require_scopes(grant, new.actor_urn, new.limits)
            if not maker.limits.are_none:
                limits = limits._replace(until=_earlier(maker.limits.until, maker.ends_at))
            parent = maker.bearer_id if maker.is_derived else None
            # A token created with a limited or derived bearer does not outlive it.
            ends_by = maker.ends_at if maker.is_bounded else None
            draft = _draft(new, grant.precondition)._replace(
                limits=limits, parent=parent, root=await self._family_of(parent)
            )
            replayed = await self._replay(grant.precondition, draft, request, ends_by)
            if replayed is not None:
                return replayed
            now = self._clock()
            return await self._issue(
                grant.precondition,
                draft._replace(created_at=now, expires_at=_earlier(self._expiry(now, lifetime), ends_by)),
                request,
                device=device,
            )

        return await self._authority.write(grant, write)

    async def create_unchecked(
        self, precondition: WritePrecondition, new: TokenRequest, lifetime: Lifetime
    ) -> CreatedToken:
        """Create a token for a command that works on the store itself: no privileges and no scopes are checked. Scopes
        count only while a policy grants them.
        """
        now = self._clock()
        draft = _draft(new, precondition)._replace(created_at=now, expires_at=self._expiry(now, lifetime))
        return await self._issue(precondition, draft, None)

    async def derive(
        self, grant: Grant, new: DerivedTokenRequest, lifetime: Lifetime, request: IdempotentRequest | None = None
    ) -> CreatedToken:
        """Create a narrower and shorter token from the bearer, which ends with it."""
        grant.expect(MINIMUM)

        async def write(grant: Grant) -> CreatedToken:
            maker = grant.caller
            limits = inherited(maker.limits, new.limits)
            await self._require_scopes(grant, maker.actor, new.limits)
            kind = TokenType.SERVICE_ACCOUNT if is_account(maker.actor) else TokenType.PERSONAL
            draft = _draft(TokenRequest(kind, maker.actor, new.name, new.description), grant.precondition)._replace(
                limits=limits,
                parent=maker.bearer_id,
                root=await self._family_of(maker.bearer_id),
            )
            replayed = await self._replay(grant.precondition, draft, request)
            if replayed is not None:
                return replayed
            now = self._clock()
            expires_at = self._derived_expiry(now, lifetime, maker)
            return await self._issue(grant.precondition, draft._replace(created_at=now, expires_at=expires_at), request)

        return await self._authority.write(grant, write)

    async def rotate(
        self, grant: Grant, wanted: str, window: RotationWindow, request: IdempotentRequest | None = None
    ) -> CreatedToken:
        """Create a successor. Anyone who may create the token may rotate it."""
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> CreatedToken:
            old = await self._visible(grant, wanted)
            _require_rotate(grant, old)
            if old.limits is UNREADABLE:
                raise unreadable(old.id)
            (shown,) = await self._without_hidden_makers(grant, (old,))
            parent = None if old.parent is None else await self._store.get_token(old.parent)
            before = None if old.replaces is None else await self._store.get_token(old.replaces)
            precondition = grant.precondition
            new = TokenRequest(old.type, old.actor_urn, old.name, old.description, old.limits)
            draft = _draft(new, precondition)._replace(
                owner_urn=old.owner_urn, parent=old.parent, root=old.family, replaces=old.id, grace=window.grace
            )
            created = await self._replay(precondition, draft, request)
            if created is None:
                now = self._clock()
                check_rotates(old, before, now)
                end = self._successor_expiry(now, old, parent)
                draft = draft._replace(
                    created_at=now, expires_at=_earlier(window.overlap_of(old, now), end), full_end=end
                )
                created = await self._issue(precondition, draft, request, old)
            return CreatedToken(created.token, created.record._replace(parent=shown.parent))

        return await self._authority.write(grant, write)

    async def update(self, grant: Grant, wanted: str, name: str | None, description: str | None) -> TokenRecord:
        """Change name and description; None stays. Anyone who may revoke the token may do so."""
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> TokenRecord:
            visible = visibility(grant)
            changed = await self._store.update_token(
                grant.precondition, wanted, visible, name=name, description=description
            )
            return await self._shown(grant, changed)

        return await self._authority.write(grant, write)

    async def revoke(self, grant: Grant, wanted: str, *, cascade: bool = False) -> None:
        grant.expect(MINIMUM, ACCOUNTS)

        def write(grant: Grant) -> Awaitable[Revocation]:
            return self._store.revoke_token(grant.precondition, wanted, visibility(grant), cascade=cascade)

        self._counters.revoked((await self._authority.write(grant, write)).number)

    async def revoke_by_possession(self, token: bytes, peer: str, request_id: str, *, by_scan: bool = False) -> None:
        """Revoke a token for its holder; an unknown or ended one is ignored. That of a suspended actor is revoked too,
        or it would be valid again when the actor is reactivated. `by_scan`: a scan found it, which has an event.
        """
        found = await self._store.get_token(self._authority.token_id(token))
        if found is None or found.status(self._clock()) is TokenStatus.EXPIRED:
            return
        if by_scan and found.revoked_at is None:
            await self._note_scan(found, peer, request_id)
        try:
            revocation = await self._store.revoke_token(
                possession_precondition(found.actor_urn, found.id, peer, request_id), found.id, None
            )
        except Fault as fault:
            if fault.reason not in (Reason.ALREADY_REVOKED, Reason.TOKEN_NOT_FOUND):
                raise
        else:
            self._counters.revoked(revocation.number)

    async def _note_scan(self, found: TokenRecord, peer: str, request_id: str) -> None:
        """Write the event before the revocation, so that it is recorded even if that fails."""
        event = KeptEvent(
            *(self._clock(), SYSTEM_ACTOR, None, Action.TOKEN_FOUND_BY_SCAN.value, found.id, peer, request_id),
            {"actorUrn": found.actor_urn, "name": found.name, "ownerUrn": found.owner_urn},
        )
        await self._store.add_events([event])

    async def withdraw(self, precondition: WritePrecondition, token_id: str) -> None:
        """Revoke a new token that did not reach its client."""
        self._counters.revoked(await self._store.withdraw_token(precondition, token_id))

    async def preview_revocation(self, grant: Grant, selection: Selection, seconds: float) -> RevocationPreview:
        grant.expect(MINIMUM, ACCOUNTS)
        selection = await self._constrain_selection(grant, selection, seconds)
        return await self._store.revocation_preview(selection, seconds)

    async def revoke_selected(self, grant: Grant, selection: Selection, seconds: float) -> Receipt:
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> Receipt:
            visible = await self._constrain_selection(grant, selection, seconds)
            return await self._store.revoke_tokens(grant.precondition, visible, seconds)

        receipt = await self._authority.write(grant, write)
        self._counters.revoked(receipt.count)
        return receipt

    async def _constrain_selection(self, grant: Grant, selection: Selection, seconds: float) -> Selection:
        """The selection limited to the tokens that the caller may revoke."""
        await self._constrain(grant, Search(filters=selection.filters), seconds, by_id=selection.ids is not None)
        return replace(selection, visibility=visibility(grant))

    async def list(self, grant: Grant, search: Search, seconds: float) -> Page:
        grant.expect(MINIMUM, ACCOUNTS)
        page = await self._store.search(await self._constrain(grant, search, seconds), seconds)
        if not page.rows:
            return page
        rows = await self._without_hidden_makers(grant, page.rows, seconds)
        return replace(page, rows=await self._with_suspensions(rows, grant.caller))

    async def find(self, grant: Grant, token: bytes) -> TokenRecord:
        return await self.get(grant, self._authority.token_id(token))

    async def get(self, grant: Grant, wanted: str) -> TokenRecord:
        grant.expect(MINIMUM, ACCOUNTS)
        return await self._shown(grant, await self._visible(grant, wanted))

    async def _shown(self, grant: Grant, record: TokenRecord) -> TokenRecord:
        """The record as the caller may see it."""
        rows = await self._without_hidden_makers(grant, (record,))
        (shown,) = await self._with_suspensions(rows, grant.caller)
        return shown

    async def uses_of(self, ids: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        """The uses by day of tokens that the caller sees."""
        return await self._store.uses_of(ids, first_kept(self._clock()))

    async def networks_of(self, ids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """The networks of tokens that the caller sees."""
        return await self._store.networks_of(ids)

    async def introspect_own(self, bearer: Bearer, token: bytes) -> TokenIntrospection | None:
        """The bearer, if the token in question is that of the request."""
        return await self._introspection(bearer, token) if self._authority.token_id(token) == bearer.token_id else None

    async def introspect(self, grant: Grant, token: bytes) -> TokenIntrospection | Fault:
        """The live token with this text; or why it is not live, for the audit log. The client's network is not checked:
        only the caller knows where the token was used.
        """
        grant.expect(Privilege.INTROSPECT_TOKENS)
        try:
            caller = grant.caller
            bearer = await self._authority.verify(token, caller.peer, caller.request_id, introspected_by=caller.actor)
            return await self._introspection(bearer, token)
        except Fault as fault:
            if fault.reason in REJECTED_CREDENTIALS:
                return fault
            raise

    async def _introspection(self, bearer: Bearer, token: bytes) -> TokenIntrospection:
        claims = await self._datahub_claims(bearer) if token.startswith(DATAHUB_HEADER) else _claims(token)
        return TokenIntrospection(bearer, claims, (await self._authority.rights(bearer)).text)

    async def _datahub_claims(self, bearer: Bearer) -> dict[str, Any]:
        """What the token of DataHub would claim if this service had signed it; its id in place of a `jti`."""
        record = await self._store.get_token(bearer.token_id)
        if record is None:  # deleted since it was verified
            raise not_accepted()
        claims = Claims(record.actor_urn, record.created_at, record.expires_at, record.limits, record.id)
        return self._signer.claims(claims)

    async def _require_scopes(self, grant: Grant, actor: str, limits: Limits) -> None:
        """Every scope that the request names must be granted, at the policy version that the write checks again."""
        if not limits.scopes:
            return
        snapshot, policies = grant.caller.snapshot, grant.policies
        if actor != grant.caller.actor:
            snapshot, policies = await self._authority.snapshot_and_policies(actor)
            if policies.version != grant.policies.version:
                raise Stale
        policies.require_scopes(actor, snapshot.groups, limits.scopes)

    async def _constrain(self, grant: Grant, search: Search, seconds: float, *, by_id: bool = False) -> Search:
        """The search constrained to what the caller may see; raises a denial if it asks for more. With `by_id` the
        request also names ids, and those that the caller may not see are not found.

        Without Manage All, filters by `createdWith` and `parentId` may name only visible tokens: the result would
        reveal that others exist.
        """
        search = constrained(search, grant)
        if search.own is None:
            if not by_id:
                grant.require(MANAGE_ALL)
        elif search.own[1] == grant.caller.actor:
            grant.require(MINIMUM)
        makers = [f for f in search.filters if f.field in (Field.CREATED_WITH, Field.PARENT)]
        if makers and not grant.may(MANAGE_ALL):
            ids = {str(value) for f in makers for value in f.values}
            if not all(f.values and not f.negated for f in makers) or ids - await self._visible_among(
                grant, ids, seconds
            ):
                grant.require(MANAGE_ALL)
        return search

    async def _without_hidden_makers(
        self, grant: Grant, rows: tuple[TokenRecord, ...], seconds: float = SEARCH_SECONDS
    ) -> tuple[TokenRecord, ...]:
        """The records without `created_with` and `parent` where the caller may not see that token. The records may be
        projections.
        """
        fields = [name for name in _MAKER_FIELDS if rows and name in rows[0]._fields]
        if not fields or grant.may(MANAGE_ALL):
            return rows
        shown = {row.id for row in rows} | {grant.caller.bearer_id, None}
        unknown = {getattr(row, name) for row in rows for name in fields} - shown
        if unknown:
            shown |= await self._visible_among(grant, unknown, seconds)
        hidden: list[Any] = [{name: None for name in fields if getattr(row, name) not in shown} for row in rows]
        return tuple(row._replace(**nothing) if nothing else row for row, nothing in zip(rows, hidden, strict=True))

    async def _visible_among(self, grant: Grant, ids: Collection[str], seconds: float) -> set[str]:
        """The ids of tokens, of any status, that a caller without Manage All may see."""
        filters = (Filter(Field.ID, Condition.IN, tuple(ids)), Filter(Field.STATUS, Condition.IN, _ANY_STATUS))
        search = Search(count=len(ids), filters=filters, record_fields=_VISIBILITY_FIELDS)
        visible = visibility(grant)
        found = await self._store.search(search, seconds)
        return {token.id for token in found.rows if visible is None or visible.covers(token)}

    async def _with_suspensions(self, records: tuple[TokenRecord, ...], caller: Caller) -> tuple[TokenRecord, ...]:
        """Sets `suspended` with one query; with none if all tokens are the caller's or the field is not read."""
        if not records or "suspended" not in records[0]._fields:
            return records
        others = {record.actor_urn for record in records} - {caller.actor}
        suspended = await self._store.suspended_among(others) if others else frozenset()
        if not suspended:
            return records
        return tuple([r._replace(suspended=True) if r.actor_urn in suspended else r for r in records])

    async def _visible(self, grant: Grant, wanted: str) -> TokenRecord:
        record = await self._store.get_token(wanted)
        visible = visibility(grant)
        if record is None or not (visible is None or visible.covers(record)):
            raise Fault(Reason.TOKEN_NOT_FOUND, "There is no such token among those you may see.")
        return record

    async def _family_of(self, parent: str | None) -> str | None:
        """The root of the family that a child of this token joins."""
        record = None if parent is None else await self._store.get_token(parent)
        return None if record is None else record.family

    async def _issue(
        self,
        precondition: WritePrecondition,
        draft: TokenRecord,
        request: IdempotentRequest | None,
        old: TokenRecord | None = None,
        device: str | None = None,
    ) -> CreatedToken:
        """Sign the draft and store it; with `old`, as its successor; with `device`, for that terminal."""
        end = draft.expires_at if draft.grace is None else draft.full_end
        jti = None if request is None else request.jti()
        signed = self._signer.sign(Claims(draft.actor_urn, draft.created_at, end, draft.limits, jti))
        record = draft._replace(id=self._authority.token_id(signed.token.reveal().encode()))
        kept = None
        if request is not None:
            kept = IdempotencyRecord(request.actor, request.digest, signed.kid, record.id, record.created_at, end)
        issue = Issue(signed.kid, self._max_live, kept)
        try:
            if device is not None:
                await self._store.redeem_device(precondition, device, record, issue)
            elif old is None:
                await self._store.add_token(precondition, record, issue)
            else:
                self._counters.revoked(await self._store.rotate_token(precondition, old, record, issue))
        except Stale:
            await self._signer.refresh()
            raise
        except Repeated:
            raise Stale from None  # the retry replays the token of the concurrent request
        self._counters.issued(1)
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
        kept = None if request is None else await self._store.get_idempotency_record(request.actor, request.digest)
        if request is None or kept is None:
            return None
        claims = Claims(draft.actor_urn, kept.created_at, kept.expires_at, draft.limits, request.jti())
        other_request = key_reused(f"This {HEADER} was used with another request or credential in the last 24 hours.")
        ended = key_reused(f"The token of this {HEADER} has expired or was revoked.")
        signed = await self._signer.sign_again(claims, kept.kid)
        if signed is None:
            raise key_reused(f"The token of this {HEADER} cannot be signed again: its signing key was removed.")
        if not compare_digest(self._authority.token_id(signed.token.reveal().encode()), kept.token_id):
            raise other_request
        record = await self._store.get_token(kept.token_id)
        if record is None or not record.is_live(self._clock()):
            raise ended
        same = (record.limits, record.parent, record.replaces) == (draft.limits, draft.parent, draft.replaces)
        if not same or (ends_by is not None and (kept.expires_at is None or kept.expires_at > ends_by)):
            raise other_request
        if not await self._store.note_replay(precondition, record):
            raise ended
        return CreatedToken(signed.token, record)

    def _expiry(self, now: int, lifetime: Lifetime) -> int | None:
        return self._lifetimes.expiry(now, lifetime.duration, lifetime.iso)

    def _derived_expiry(self, now: int, lifetime: Lifetime, maker: Caller) -> int | None:
        if not lifetime.is_given:
            return maker.ends_at
        end = self._expiry(now, lifetime)
        if maker.ends_at is not None and (end is None or end > maker.ends_at):
            field = "duration" if lifetime.duration is not None else "durationIso"
            raise wider(field, f"It ends at {iso_time(maker.ends_at)}")
        return end

    def _successor_expiry(self, now: int, old: TokenRecord, parent: TokenRecord | None) -> int | None:
        """The lifetime of the old token again, as far as it is still allowed."""
        lifetimes = self._lifetimes
        if old.expires_at is not None:
            end: int | None = now + min(old.expires_at - old.created_at, lifetimes.longest)
        else:
            end = None if Duration.NO_EXPIRY in lifetimes.allowed else now + lifetimes.longest
        return _earlier(_earlier(end, old.limits.until), None if parent is None else parent.expires_at)


def _draft(new: TokenRequest, precondition: WritePrecondition) -> TokenRecord:
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


def _claims(token: bytes) -> dict[str, Any]:
    """The payload of a token. The store has its digest, so this service signed it."""
    payload = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    return claims


def visibility(grant: Grant) -> TokenVisibility | None:
    """The tokens that the caller may see and revoke; None: all."""
    if grant.may(MANAGE_ALL):
        return None
    actor = grant.caller.actor if grant.may(MINIMUM) else NO_ACTOR
    return TokenVisibility(actor, grant.may(ACCOUNTS), created=not grant.caller.is_bounded)


def constrained(search: Search, grant: Grant) -> Search:
    """The search constrained to the caller's tokens if one of its filters selects them; or, with Manage Service
    Accounts, to the tokens of one or all service accounts. A limited or derived bearer does not own the tokens that its
    actor created for others.

    The filter only shows what the caller wants. The constraint added here limits the search: no `negated` or
    `condition` of another filter can widen it.
    """
    actor = grant.caller.actor
    for field in (Field.ACTOR_URN,) if grant.caller.is_bounded else (Field.ACTOR_URN, Field.OWNER_URN):
        if any(f.pins(field, actor) for f in search.filters):
            return search.held_to(field, actor)
    for f in search.filters if grant.may(ACCOUNTS) else ():
        if f.negated or f.condition not in (Condition.EQUAL, Condition.IN) or len(f.values) != 1:
            continue
        value = str(f.values[0])
        if f.field is Field.ACTOR_URN and is_account(value):
            return search.held_to(Field.ACTOR_URN, value)
        if f.field is Field.TOKEN_TYPE and value == TokenType.SERVICE_ACCOUNT.value:
            return search.held_to(Field.TOKEN_TYPE, value)
    return search

"""Tokens: create, derive, rotate, list, find and revoke. The privilege is asked before anything is looked up."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from watchword.domain.accounts import is_account
from watchword.domain.actors import Caller, Grant, WritePrecondition, possession_precondition
from watchword.domain.bulk_revocation import Revocation
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.filters import Search
from watchword.domain.lifetimes import Duration
from watchword.domain.lifetimes import iso as iso_time
from watchword.domain.ports import Clock, Issue, Page, TokenStore
from watchword.domain.rotation import RotationWindow, check_rotates
from watchword.domain.secret import Secret
from watchword.domain.token_limits import Limits, inherited, wider
from watchword.domain.tokens import NewToken, TokenRecord, TokenType, token_id
from watchword.service.authority import Authority
from watchword.service.minting import UNKEYED, CreatedToken, Draft, Minting, Request, Span
from watchword.service.visibility import (
    ACCOUNTS,
    MANAGE_ALL,
    MINIMUM,
    check_makers,
    open_token_api,
    own_search,
    shown_to,
    visibility,
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What is told to whoever counts: how many tokens were made and ended here."""

    issued: Callable[[int], None]
    revoked: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """As it is asked for; neither: for as long as may be."""

    duration: Duration | None = None
    iso: str | None = None

    @property
    def is_given(self) -> bool:
        return self.duration is not None or self.iso is not None


@dataclass(frozen=True, slots=True)
class DerivedTokenRequest:
    """A derived token as it is asked for."""

    name: str
    description: str | None
    limits: Limits


class Tokens:
    def __init__(
        self,
        store: TokenStore,
        authority: Authority,
        minting: Minting,
        salt: Secret[bytes],
        clock: Clock,
        counted: Counted,
    ) -> None:
        self._store = store
        self._authority = authority
        self._minting = minting
        self._salt = salt
        self._clock = clock
        self._counted = counted

    @property
    def allowed_durations(self) -> tuple[Duration, ...]:
        allowed = self._minting.rules.lifetimes.allowed
        return tuple(duration for duration in Duration if duration in allowed)

    async def create(
        self, caller: Caller, new: Callable[[], NewToken], lifetime: Lifetime, request: Request = UNKEYED
    ) -> CreatedToken:
        """`new` is asked for only once the caller may use the token API at all: deny first, then judge the input."""

        async def write(grant: Grant) -> CreatedToken:
            open_token_api(grant)
            asked = new()
            _allow(grant, asked)
            maker = grant.caller
            limits = inherited(maker.limits, asked.limits)
            if not maker.limits.are_none:
                limits = limits._replace(until=_earlier(maker.limits.until, maker.ends_at))
            parent = maker.bearer_id if maker.is_derived else None
            # What is made with a limited or derived bearer does not outlive it.
            ends_by = maker.ends_at if maker.is_bounded else None
            draft = Draft(
                type=asked.type,
                name=asked.name,
                description=asked.description,
                actor_urn=asked.actor_urn,
                owner_urn=maker.actor,
                limits=limits,
                span=lambda now: Span(_earlier(self._end(now, lifetime), ends_by)),
                parent=parent,
                root=await self._root(parent),
                ends_by=ends_by,
            )
            return await self._minting.make(grant.precondition, draft, request, self._store.add_token)

        return await self._authority.authorize_and_write(caller, write)

    async def mint(self, precondition: WritePrecondition, new: NewToken, lifetime: Lifetime) -> CreatedToken:
        """A token under a warrant that needs no further proof."""
        draft = Draft(
            type=new.type,
            name=new.name,
            description=new.description,
            actor_urn=new.actor_urn,
            owner_urn=precondition.actor,
            limits=new.limits,
            span=lambda now: Span(self._end(now, lifetime)),
        )
        return await self._minting.make(precondition, draft, UNKEYED, self._store.add_token)

    async def derive(
        self, caller: Caller, new: Callable[[], DerivedTokenRequest], lifetime: Lifetime, request: Request = UNKEYED
    ) -> CreatedToken:
        """A narrower and shorter one of the bearer, with which it dies."""

        async def write(grant: Grant) -> CreatedToken:
            grant.require(MINIMUM)
            maker = grant.caller
            if maker.bearer_id is None:
                raise invalid(
                    "Authorization", "A token is derived from the one this is asked with; send a bearer token."
                )
            asked = new()
            draft = Draft(
                type=TokenType.SERVICE_ACCOUNT if is_account(maker.actor) else TokenType.PERSONAL,
                name=asked.name,
                description=asked.description,
                actor_urn=maker.actor,
                owner_urn=maker.actor,
                limits=inherited(maker.limits, asked.limits),
                span=lambda now: Span(self._shorter(now, lifetime, maker)),
                parent=maker.bearer_id,
                root=await self._root(maker.bearer_id),
            )
            return await self._minting.make(grant.precondition, draft, request, self._store.add_token)

        return await self._authority.authorize_and_write(caller, write)

    async def rotate(
        self, caller: Caller, wanted: Callable[[], tuple[str, RotationWindow]], request: Request = UNKEYED
    ) -> CreatedToken:
        """A successor of a token, for whoever might have made it."""

        async def write(grant: Grant) -> CreatedToken:
            open_token_api(grant)
            wanted_id, window = wanted()
            old = await self._visible(grant, wanted_id)
            _allow_rotation(grant, old)
            (shown,) = await shown_to(self._store, grant, (old,))
            parent = None if old.parent is None else await self._store.get_token(old.parent)
            before = None if old.replaces is None else await self._store.get_token(old.replaces)
            draft = Draft(
                type=old.type,
                name=old.name,
                description=old.description,
                actor_urn=old.actor_urn,
                owner_urn=old.owner_urn,
                limits=old.limits,
                span=lambda now: self._succession(now, old, before, parent, window),
                parent=old.parent,
                root=old.family,
                replaces=old.id,
                grace=window.grace,
            )

            async def replace(precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
                self._counted.revoked(await self._store.rotate_token(precondition, old, record, issue))

            made = await self._minting.make(grant.precondition, draft, request, replace)
            return CreatedToken(made.token, made.record._replace(parent=shown.parent))

        return await self._authority.authorize_and_write(caller, write)

    async def revoke(self, caller: Caller, wanted: Callable[[], str], *, cascade: bool = False) -> int:
        async def write(grant: Grant) -> Revocation:
            open_token_api(grant)
            return await self._store.revoke_token(grant.precondition, wanted(), visibility(grant), cascade=cascade)

        revocation = await self._authority.authorize_and_write(caller, write)
        self._counted.revoked(revocation.number)
        return revocation.at

    async def revoke_by_possession(self, token: bytes, peer: str, request_id: str) -> None:
        """End a token for whoever holds it; what is unknown or over is left as it is, and nobody is told. A suspended
        actor's is ended too, lest it comes back with its actor.
        """
        bearer = await self._store.find_bearer(token_id(token, self._salt))
        if bearer is None or (bearer.has_ended and bearer.revoked_at is None):
            return
        try:
            revocation = await self._store.revoke_token(
                possession_precondition(bearer, peer, request_id), bearer.token_id, None
            )
        except Fault as fault:
            if fault.reason not in (Reason.ALREADY_REVOKED, Reason.TOKEN_NOT_FOUND):
                raise
        else:
            self._counted.revoked(revocation.number)

    async def withdraw(self, precondition: WritePrecondition, token_id: str) -> None:
        """End a token whose answer reached nobody."""
        self._counted.revoked(await self._store.withdraw_token(precondition, token_id))

    async def list(self, caller: Caller, wanted: Callable[[], Search], seconds: float) -> tuple[Search, Page]:
        grant = await self._authority.grant(caller)
        open_token_api(grant)
        search = own_search(wanted(), grant)
        if search.own is None:
            grant.require(MANAGE_ALL)
        elif search.own[1] == caller.actor:
            grant.require(MINIMUM)
        await check_makers(self._store, grant, search.filters, seconds)
        page = await self._store.search(search, seconds)
        rows = await self._with_suspensions(await shown_to(self._store, grant, page.rows, seconds), caller)
        return search, replace(page, rows=rows)

    async def find(self, caller: Caller, token: Callable[[], bytes]) -> TokenRecord:
        """The record of a token somebody holds in their hands."""
        return await self.get(caller, lambda: token_id(token(), self._salt))

    async def get(self, caller: Caller, wanted: Callable[[], str]) -> TokenRecord:
        """The record of this id, for its actor, its creator, or whoever manages it."""
        grant = await self._authority.grant(caller)
        open_token_api(grant)
        shown = await shown_to(self._store, grant, (await self._visible(grant, wanted()),))
        (record,) = await self._with_suspensions(shown, caller)
        return record

    async def _with_suspensions(self, records: tuple[TokenRecord, ...], caller: Caller) -> tuple[TokenRecord, ...]:
        """The records, which tell whether their actors are suspended: one look-up for all of them, and none for a
        caller's own or where it is not asked for.
        """
        if not records or "suspended" not in records[0]._fields:
            return records
        others = {record.actor_urn for record in records} - {caller.actor}
        suspended = await self._store.suspended_among(others) if others else frozenset()
        if not suspended:
            return records
        return tuple([r._replace(suspended=True) if r.actor_urn in suspended else r for r in records])

    async def _visible(self, grant: Grant, wanted: str) -> TokenRecord:
        record = await self._store.get_token(wanted)
        may = visibility(grant)
        if record is None or not (may is None or may.covers(record)):
            raise Fault(Reason.TOKEN_NOT_FOUND, "There is no such token among those you may see.")
        return record

    async def _root(self, parent: str | None) -> str | None:
        """The oldest of the family that a child of this token is born into."""
        record = None if parent is None else await self._store.get_token(parent)
        return None if record is None else record.family

    def _end(self, now: int, lifetime: Lifetime) -> int | None:
        return self._minting.rules.lifetimes.expiry(now, lifetime.duration, lifetime.iso)

    def _shorter(self, now: int, lifetime: Lifetime, maker: Caller) -> int | None:
        if not lifetime.is_given:
            return maker.ends_at
        end = self._end(now, lifetime)
        if maker.ends_at is not None and (end is None or end > maker.ends_at):
            field = "duration" if lifetime.duration is not None else "durationIso"
            raise wider(field, f"It ends at {iso_time(maker.ends_at)}")
        return end

    def _succession(
        self, now: int, old: TokenRecord, before: TokenRecord | None, parent: TokenRecord | None, window: RotationWindow
    ) -> Span:
        """The successor lives as long as the old one was made for, as far as that is still allowed."""
        check_rotates(old, before, now)
        overlap = window.overlap_of(old, now)
        lifetimes = self._minting.rules.lifetimes
        if old.expires_at is not None:
            end: int | None = now + min(old.expires_at - old.created_at, lifetimes.longest)
        else:
            end = None if Duration.NO_EXPIRY in lifetimes.allowed else now + lifetimes.longest
        end = _earlier(_earlier(end, old.limits.until), None if parent is None else parent.expires_at)
        return Span(_earlier(overlap, end), end)


def _allow(grant: Grant, asked: NewToken) -> None:
    """Whether the caller may make this token: decided by the form of the actor's urn, not by whether it exists."""
    account = is_account(asked.actor_urn)
    if asked.actor_urn == grant.caller.actor:
        grant.require(MINIMUM)
    elif account or asked.type is TokenType.SERVICE_ACCOUNT:
        grant.require(ACCOUNTS)
    else:
        grant.require(MINIMUM)
        grant.require(MANAGE_ALL)
    if account != (asked.type is TokenType.SERVICE_ACCOUNT):
        kind = "SERVICE_ACCOUNT for the urn of a service account" if account else "PERSONAL for anybody else"
        raise invalid("type", f"type must be {kind}.")


def _allow_rotation(grant: Grant, old: TokenRecord) -> None:
    if old.actor_urn == grant.caller.actor:
        grant.require(MINIMUM)
    else:
        grant.require(ACCOUNTS if old.type is TokenType.SERVICE_ACCOUNT else MANAGE_ALL)
    maker = grant.caller
    if maker.is_bounded and maker.bearer_id != old.id:
        message = "A token that is limited or derived can rotate itself alone."
        raise Fault(Reason.WIDER_THAN_MAKER, message, field="tokenId")


def _earlier(one: int | None, other: int | None) -> int | None:
    """Of two ends; None: never."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)

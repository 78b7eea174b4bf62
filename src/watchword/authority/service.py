"""Authentication and authorization on the store's committed state.

No verdict is cached between requests. Policies, and what they grant, are cached with their version, and every read of a
caller returns the current version, so a policy change takes effect at the next request in every process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from watchword.authority.callers import ActorSnapshot, Bearer, Caller, EffectiveRights, Grant, effective_rights
from watchword.authority.limits import Limits
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import Privilege
from watchword.basics.bounded_cache import cached_within
from watchword.basics.errors import Fault, Reason, Stale, Subject
from watchword.basics.names import check_actor, is_reserved
from watchword.basics.times import iso
from watchword.journal.preconditions import WritePrecondition, possession_precondition

P = ParamSpec("P")
T = TypeVar("T")

RecordUse = Callable[[str, int, str], None]
"""Of a token by its id, at this time, by a client of this address."""

ATTEMPTS = 8
REFUSED_SECONDS = 0.2
RIGHTS_BYTES = 16 * 1024 * 1024
"""For what actors may do under the policies in memory, each with the limits of its tokens."""


class AuthorityStore(Protocol):
    """What decisions rest on."""

    @property
    def find_bearer_now(self) -> Callable[[str], Bearer | None] | None: ...

    async def find_bearer(self, token_id: str) -> Bearer | None: ...

    async def actor_snapshot(self, actor: str) -> ActorSnapshot: ...

    async def policies(self) -> PolicySet: ...

    async def note_first_use(self, precondition: WritePrecondition, token_id: str) -> None: ...


class Authority:
    def __init__(
        self, store: AuthorityStore, token_id: Callable[[bytes], str], record_use: RecordUse, daily_changes: int = 0
    ) -> None:
        self._store = store
        self._daily_changes = daily_changes
        self._find_now = store.find_bearer_now
        self.verifies_now = self._find_now is not None
        """Whether `verify_now` can succeed."""
        self.token_id = token_id
        """Computes the id of a token, ours or one of DataHub."""
        self._record_use = record_use
        self._policies = PolicySet(0, ())
        self._rights = rights_under(self._policies)
        self._loading: asyncio.Future[None] | None = None

    def verify_now(self, token: bytes, client: str) -> Bearer | None:
        """`verify` without waiting. None: call `verify`, which also handles what is not a plain live token."""
        bearer = None if self._find_now is None else self._find_now(self.token_id(token))
        if bearer is None or not bearer.is_live or bearer.pending or bearer.limits.networks is not None:
            return None
        self._record_use(bearer.token_id, bearer.at, client)
        return bearer

    async def verify(
        self, token: bytes, client: str, request_id: str = "", *, introspected_by: str | None = None
    ) -> Bearer:
        """The live token with this text, or the error for its holder. Introspection by an actor skips the check of the
        client's network: only the caller knows where the token was used. An actor that introspects a token of its own
        looks it up. Any other had it presented, which is a use.
        """
        bearer = _require_live(await self._store.find_bearer(self.token_id(token)))
        if introspected_by == bearer.actor:
            return bearer
        if bearer.pending or bearer.limits.networks is not None:
            bearer = await self._admit(bearer, client, request_id, anywhere=introspected_by is not None)
        self._record_use(bearer.token_id, bearer.at, client)
        return bearer

    async def accept(self, found: Bearer | None, client: str, request_id: str) -> Bearer:
        """`verify` for a token that was found by a session."""
        bearer = await self._admit(_require_live(found), client, request_id)
        self._record_use(bearer.token_id, bearer.at, client)
        return bearer

    async def approver(self, actor: str, bearer_id: str | None, client: str, request_id: str) -> Caller:
        """The actor that approved a terminal, or the token it did so with, as it is now."""
        if bearer_id is None:
            return Caller(actor, await self.claim(actor, "actor"), None, client, request_id)
        return Caller.with_bearer(_require_live(await self._store.find_bearer(bearer_id)), client, request_id)

    async def claim(self, actor: str, header: str) -> ActorSnapshot:
        """The snapshot of an actor that a header or a session names; a suspended actor is rejected like a token."""
        if is_reserved(actor):
            raise not_accepted()
        snapshot = await self._store.actor_snapshot(check_actor(actor, header))
        if snapshot.suspended:
            raise not_accepted(Subject(actor, None, Reason.ACTOR_SUSPENDED.word))
        return snapshot

    async def authorize(self, caller: Caller, *any_of: Privilege, also: tuple[Privilege, ...] = ()) -> Grant:
        """The privileges of a caller that has one of `any_of`, and each of `also`; see `Grant.check`. Call this before
        parsing input, so that a denied caller learns nothing from it.
        """
        for _ in range(ATTEMPTS):
            policies = await self._policies_at(caller.snapshot.policy_version)
            if policies.version == caller.snapshot.policy_version:
                rights = self._rights(caller.actor, caller.snapshot.groups, caller.limits.scopes)
                grant = Grant(caller, rights.privileges, any_of, also, rights.scopes, policies, self._daily_changes)
                grant.check()
                return grant
            caller = await self._renewed(caller)
        raise contended()

    async def write(self, grant: Grant, action: Callable[[Grant], Awaitable[T]]) -> T:
        """Runs a write. If its precondition has changed since the grant, authorizes again and retries."""
        for _ in range(ATTEMPTS):
            try:
                return await action(grant)
            except Stale:
                grant = await self.authorize(await self._renewed(grant.caller), *grant.required, also=grant.also)
            except Fault as fault:
                if fault.reason is Reason.TOO_MANY_CHANGES:
                    # A client that retries immediately would cost as much as a change.
                    await asyncio.sleep(REFUSED_SECONDS)
                raise
        raise contended()

    async def change(
        self,
        grant: Grant,
        method: Callable[Concatenate[WritePrecondition, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """`write` for a method of the store, with the precondition of the grant."""
        return await self.write(grant, lambda grant: method(grant.precondition, *args, **kwargs))

    def rights_now(self, bearer: Bearer) -> EffectiveRights | None:
        """`rights` without waiting. None: other policies than those in memory count; call `rights`."""
        if self._policies.version != bearer.policy_version:
            return None
        return self._rights(bearer.actor, bearer.groups, bearer.limits.scopes)

    async def rights(self, bearer: Bearer) -> EffectiveRights:
        for _ in range(ATTEMPTS):
            await self._policies_at(bearer.policy_version)
            rights = self.rights_now(bearer)
            if rights is not None:
                return rights
            bearer = _require_live(await self._store.find_bearer(bearer.token_id))
        raise contended()

    def resource(self, name: str) -> str | None:
        """The id of a resource, by the policies in memory; None: none has this name."""
        return self._policies.resource_ids.get(name)

    async def snapshot_and_policies(self, actor: str) -> tuple[ActorSnapshot, PolicySet]:
        """Both of the same version."""
        for _ in range(ATTEMPTS):
            snapshot = await self._store.actor_snapshot(actor)
            policies = await self._policies_at(snapshot.policy_version)
            if policies.version == snapshot.policy_version:
                return snapshot, policies
        raise contended()

    async def _policies_at(self, version: int) -> PolicySet:
        """The current policies, of this version or newer. Concurrent requests share one load."""
        for _ in range(2):
            if self._policies.version == version:
                break
            # A load in progress may have started before the caller read the version. The next one did not.
            if self._loading is None:
                self._loading = asyncio.ensure_future(self._load_policies())
            await asyncio.shield(self._loading)
        return self._policies

    async def _load_policies(self) -> None:
        try:
            policies = await self._store.policies()
            self._policies, self._rights = policies, rights_under(policies)
        finally:
            self._loading = None

    async def _renewed(self, caller: Caller) -> Caller:
        if caller.bearer_id is None:
            return caller._replace(snapshot=await self.claim(caller.actor, "actor"))
        bearer = _require_live(await self._store.find_bearer(caller.bearer_id))
        return caller._replace(snapshot=bearer.snapshot, ends_at=bearer.expires_at)

    async def _admit(self, bearer: Bearer, client: str, request_id: str, *, anywhere: bool = False) -> Bearer:
        """Checks the client's network. The first use of a rotation successor is committed before it is answered."""
        limits = bearer.limits
        if limits.networks is not None and not (anywhere or limits.allow_from(client)):
            raise not_accepted(Subject(bearer.actor, bearer.token_id, "network"))
        if not bearer.pending:
            return bearer
        await self._store.note_first_use(
            possession_precondition(bearer.actor, bearer.token_id, client, request_id), bearer.token_id
        )
        return _require_live(await self._store.find_bearer(bearer.token_id))


def rights_under(
    policies: PolicySet,
) -> Callable[[str, tuple[str, ...], tuple[str, ...] | None], EffectiveRights]:
    """What an actor, its groups and the scopes of a token allow."""

    @cached_within(RIGHTS_BYTES)
    def rights(actor: str, groups: tuple[str, ...], scopes: tuple[str, ...] | None) -> EffectiveRights:
        return effective_rights(policies, actor, groups, Limits(scopes))

    return rights


def contended() -> Fault:
    return Fault(Reason.CONTENDED, "Policies changed concurrently. Retry the request.")


def not_accepted(subject: Subject | None = None) -> Fault:
    """The same sentence in all cases but a revoked or expired token, so that the response reveals nothing."""
    return Fault(Reason.INVALID_TOKEN, "The credential is not one this service accepts.", subject=subject)


def _require_live(bearer: Bearer | None) -> Bearer:
    if bearer is None:
        raise not_accepted()
    if bearer.is_live:
        return bearer
    subject = Subject(bearer.actor, bearer.token_id)
    if (at := bearer.revoked_at) is not None:
        raise Fault(Reason.TOKEN_REVOKED, f"The token was revoked at {iso(at)}.", subject=subject, revokedAt=at)
    if (at := bearer.expires_at) is not None and at <= bearer.at:
        raise Fault(Reason.TOKEN_EXPIRED, f"The token expired at {iso(at)}.", subject=subject, expiredAt=at)
    raise not_accepted(subject._replace(cause=Reason.ACTOR_SUSPENDED.word))

"""Authority: who is calling and what they may do, decided on the store's committed state.

No verdict is kept between requests. The policies are cached with their version, and every read of a caller brings
the version in force, so a change counts from the next request on, in every process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from watchword.domain.actors import ActorSnapshot, Bearer, Caller, Grant, possession_precondition
from watchword.domain.errors import Fault, Reason, Stale, Subject
from watchword.domain.lifetimes import iso
from watchword.domain.policies import PolicySet, Privilege
from watchword.domain.ports import Store
from watchword.domain.secret import Secret
from watchword.domain.tokens import identifier
from watchword.domain.urns import check_actor, is_reserved
from watchword.service.uses import Uses

T = TypeVar("T")

ATTEMPTS = 8


class Authority:
    def __init__(self, store: Store, salt: Secret[bytes], uses: Uses) -> None:
        self._store = store
        self._token_id = identifier(salt)
        self._uses = uses
        self._policies = PolicySet(0, ())
        self._load: asyncio.Future[None] | None = None

    async def verify(self, token: bytes, client: str, request_id: str = "", *, anywhere: bool = False) -> Bearer:
        """The live token with this text, brought by this client, or the refusal its holder is told. With `anywhere` it
        is not judged from where: a third party asks, who alone knows.
        """
        bearer = _live(await self._store.find_bearer(self._token_id(token)))
        if bearer.pending or bearer.limits.networks is not None:
            bearer = await self._let_in(bearer, client, request_id, anywhere=anywhere)
        self._uses.note(bearer.token_id, bearer.at, client)
        return bearer

    async def accept(self, found: Bearer | None, client: str, request_id: str) -> Bearer:
        """`verify`, of a token that was found by other means than its text."""
        bearer = await self._let_in(_live(found), client, request_id)
        self._uses.note(bearer.token_id, bearer.at, client)
        return bearer

    async def claim(self, actor: str, header: str) -> ActorSnapshot:
        """How the actor of a believed header stands; refused like a token when it may not act."""
        if is_reserved(actor):
            raise not_accepted()
        snapshot = await self._store.snapshot(check_actor(actor, header))
        if snapshot.suspended:
            raise not_accepted(Subject(actor, None, Reason.ACTOR_SUSPENDED.word))
        return snapshot

    async def grant(self, caller: Caller) -> Grant:
        """The privileges of the caller. Snapshot and policies must have the same version."""
        for _ in range(ATTEMPTS):
            policies = await self._policies_at(caller.snapshot.policy_version)
            if policies.version == caller.snapshot.policy_version:
                granted = policies.granted(caller.actor, caller.snapshot.groups)
                return Grant(caller, granted if caller.limits.scopes is None else granted & caller.limits.privileges)
            caller = await self._renewed(caller)
        raise contended()

    async def authorize_and_write(self, caller: Caller, write: Callable[[Grant], Awaitable[T]]) -> T:
        """Decide and write; when what the decision rested on changed in between, decide again."""
        for _ in range(ATTEMPTS):
            try:
                return await write(await self.grant(caller))
            except Stale:
                caller = await self._renewed(caller)
        raise contended()

    async def policies(self) -> PolicySet:
        return await self._store.policies()

    async def privileges_of(self, actor: str) -> frozenset[Privilege]:
        snapshot, policies = await self.position_of(actor)
        return policies.granted(actor, snapshot.groups)

    async def position_of(self, actor: str) -> tuple[ActorSnapshot, PolicySet]:
        """How an actor stands, and the policies of that very version."""
        for _ in range(ATTEMPTS):
            snapshot = await self._store.snapshot(actor)
            policies = await self._policies_at(snapshot.policy_version)
            if policies.version == snapshot.policy_version:
                return snapshot, policies
        raise contended()

    async def _policies_at(self, version: int) -> PolicySet:
        """The policies in force, at least as new as this version, which the caller has read. Requests that need them at
        the same time share one load.
        """
        for _ in range(2):
            if self._policies.version == version:
                break
            # One that is under way may have begun before the caller read the version. The next one did not.
            if self._load is None:
                self._load = asyncio.ensure_future(self._load_policies())
            await asyncio.shield(self._load)
        return self._policies

    async def _load_policies(self) -> None:
        try:
            self._policies = await self._store.policies()
        finally:
            self._load = None

    async def _renewed(self, caller: Caller) -> Caller:
        if caller.bearer_id is None:
            return caller._replace(snapshot=await self.claim(caller.actor, "actor"))
        bearer = _live(await self._store.find_bearer(caller.bearer_id))
        return caller._replace(snapshot=bearer.snapshot, ends_at=bearer.expires_at)

    async def _let_in(self, bearer: Bearer, client: str, request_id: str, *, anywhere: bool = False) -> Bearer:
        """Judges from where it came. A successor's first use is committed before anybody hears of it."""
        limits = bearer.limits
        if limits.networks is not None and not (anywhere or limits.allow_from(client)):
            raise not_accepted(_subject(bearer)._replace(because="network"))
        if not bearer.pending:
            return bearer
        await self._store.note_first_use(possession_precondition(bearer, client, request_id), bearer.token_id)
        return _live(await self._store.find_bearer(bearer.token_id))


def contended() -> Fault:
    return Fault(Reason.CONTENDED, "The rules kept changing while this was done; try again.")


def not_accepted(subject: Subject | None = None) -> Fault:
    """One sentence for everything but the true holder's dead token, so that the answer is no oracle."""
    return Fault(Reason.INVALID_TOKEN, "The credential is not one this service accepts.", subject=subject)


def _live(bearer: Bearer | None) -> Bearer:
    """The bearer, which is neither revoked nor expired, and whose actor may act; or the refusal."""
    if bearer is None or bearer.has_ended or bearer.suspended:
        raise _refusal(bearer)
    return bearer


def _refusal(bearer: Bearer | None) -> Fault:
    if bearer is None:
        return not_accepted()
    if (at := bearer.revoked_at) is not None:
        return Fault(
            Reason.TOKEN_REVOKED, f"The token was revoked at {iso(at)}.", subject=_subject(bearer), revokedAt=at
        )
    if (at := bearer.expires_at) is not None and at <= bearer.at:
        return Fault(Reason.TOKEN_EXPIRED, f"The token expired at {iso(at)}.", subject=_subject(bearer), expiredAt=at)
    return not_accepted(_subject(bearer)._replace(because=Reason.ACTOR_SUSPENDED.word))


def _subject(bearer: Bearer) -> Subject:
    return Subject(bearer.actor, bearer.token_id)

"""Tokens: create, list, find and revoke. The privilege is asked before anything is looked up."""

from collections.abc import Callable
from dataclasses import dataclass

from watchword.domain.actors import Caller, Grant, Warrant
from watchword.domain.errors import Fault, Reason, Stale
from watchword.domain.filters import Field, Search
from watchword.domain.lifetimes import Duration, Lifetimes
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, Page, TokenSigner, TokenStore
from watchword.domain.secret import Secret
from watchword.domain.tokens import NewToken, TokenRecord, token_id
from watchword.service.authority import Authority

MINIMUM = Privilege.GENERATE_PERSONAL_ACCESS_TOKENS
MANAGE_ALL = Privilege.MANAGE_ACCESS_TOKENS


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """The one moment at which token and record are together."""

    token: Secret[str]
    record: TokenRecord


@dataclass(frozen=True, slots=True)
class TokenRules:
    lifetimes: Lifetimes
    max_live: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What is told to whoever counts: how many tokens were made and ended here."""

    issued: Callable[[], None]
    revoked: Callable[[], None]


class Tokens:
    def __init__(
        self,
        store: TokenStore,
        authority: Authority,
        signer: TokenSigner,
        salt: Secret[bytes],
        rules: TokenRules,
        clock: Clock,
        counted: Counted,
    ) -> None:
        self._store = store
        self._authority = authority
        self._signer = signer
        self._salt = salt
        self._rules = rules
        self._clock = clock
        self._counted = counted

    async def create(
        self, caller: Caller, new: Callable[[], NewToken], duration: Duration | None, iso: str | None
    ) -> CreatedToken:
        """`new` is asked for only once the caller may use the token API at all: deny first, then judge the input."""

        async def write(grant: Grant) -> CreatedToken:
            grant.require(MINIMUM)
            asked = new()
            if asked.actor_urn != caller.actor:
                grant.require(MANAGE_ALL)
            return await self.mint(grant.warrant, asked, duration, iso)

        return await self._authority.carry_out(caller, write)

    async def mint(self, warrant: Warrant, new: NewToken, duration: Duration | None, iso: str | None) -> CreatedToken:
        """Sign and keep a token under this warrant."""
        now = self._clock()
        expires_at = self._rules.lifetimes.expiry(now, duration, iso)
        signed = self._signer.sign(new.actor_urn, now, expires_at)
        record = TokenRecord(
            id=token_id(signed.token.reveal().encode(), self._salt),
            type=new.type,
            name=new.name,
            description=new.description,
            actor_urn=new.actor_urn,
            owner_urn=warrant.actor,
            created_at=now,
            expires_at=expires_at,
            minted_with=warrant.bearer_id,
        )
        try:
            await self._store.add_token(warrant, record, signed.kid, self._rules.max_live)
        except Stale:
            await self._signer.refresh()
            raise
        self._counted.issued()
        return CreatedToken(signed.token, record)

    async def revoke(self, caller: Caller, wanted: Callable[[], str]) -> int:
        async def write(grant: Grant) -> int:
            grant.require(MINIMUM)
            only_of = None if grant.may(MANAGE_ALL) else caller.actor
            return await self._store.revoke_token(grant.warrant, wanted(), only_of)

        revoked_at = await self._authority.carry_out(caller, write)
        self._counted.revoked()
        return revoked_at

    async def withdraw(self, warrant: Warrant, token_id: str) -> None:
        """End a token whose answer reached nobody."""
        await self._store.revoke_token(warrant, token_id, None)
        self._counted.revoked()

    async def list(self, caller: Caller, wanted: Callable[[], Search], seconds: float) -> tuple[Search, Page]:
        grant = await self._authority.grant(caller)
        grant.require(MINIMUM)
        search = own_search(wanted(), caller.actor)
        if search.own is None:
            grant.require(MANAGE_ALL)
        return search, await self._store.search(search, seconds)

    async def find(self, caller: Caller, token: Callable[[], bytes]) -> TokenRecord:
        """The record of a token somebody holds in their hands."""
        return await self.get(caller, lambda: token_id(token(), self._salt))

    async def get(self, caller: Caller, wanted: Callable[[], str]) -> TokenRecord:
        """The record of this id, for its actor, its creator, or whoever manages all."""
        grant = await self._authority.grant(caller)
        grant.require(MINIMUM)
        record = await self._store.get_token(wanted())
        visible = record is not None and (grant.may(MANAGE_ALL) or caller.actor in (record.actor_urn, record.owner_urn))
        if record is None or not visible:
            raise Fault(Reason.TOKEN_NOT_FOUND, "There is no such token among those you may see.")
        return record


def own_search(search: Search, actor: str) -> Search:
    """The search held to the caller's own tokens, when one of its filters asks for just that.

    The filter only says what the caller means; what holds the search is the constraint laid on it here, which no
    `negated` or `condition` elsewhere can widen.
    """
    for field in (Field.ACTOR_URN, Field.OWNER_URN):
        if any(f.pins(field, actor) for f in search.filters):
            return Search(search.start, search.count, search.filters, search.sort, own=(field, actor))
    return search

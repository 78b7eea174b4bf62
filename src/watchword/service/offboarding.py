"""Offboarding suspends an actor, revokes its tokens, ends its sessions and removes it from its groups.

Each step is a transaction, and the suspension comes first: from then on every credential of the actor is rejected, even
if a later step fails. A repeated step changes nothing, so a failed offboarding can be run again. Policies that name the
actor and service accounts that it created are only listed: others may rely on them.
"""

from dataclasses import dataclass

from watchword.domain.accounts import ServiceAccount
from watchword.domain.actors import ActorHoldings, ActorState, ActorStatus, Caller, Grant
from watchword.domain.bulk_revocation import Receipt, Selection
from watchword.domain.errors import invalid
from watchword.domain.filters import Condition, Field, Filter, Search
from watchword.domain.policies import Policy, Privilege
from watchword.domain.ports import Page, Store
from watchword.domain.tokens import TokenStatus
from watchword.service.authority import Authority
from watchword.service.policies import Policies
from watchword.service.tokens import Tokens

_ACTIVE = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.ACTIVE.value,))
_REVOKED = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.REVOKED.value,))
MAX_SHOWN = 100  # tokens and service accounts listed in a plan
MAX_IDS = 1_000  # revoked token ids listed in a receipt; the digest covers all of them


@dataclass(frozen=True, slots=True)
class OffboardingPlan:
    state: ActorState
    holdings: ActorHoldings
    tokens: Page  # live tokens of the actor
    minted: Page  # live tokens that the actor created for others, and may know
    accounts: tuple[ServiceAccount, ...]  # accounts that the actor created and that still exist
    groups: tuple[str, ...]
    policies: tuple[Policy, ...]  # policies that name the actor


@dataclass(frozen=True, slots=True)
class RevokedTokens:
    receipt: Receipt
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffboardingReceipt:
    at: int
    tokens: RevokedTokens
    minted: RevokedTokens | None  # None: not revoked
    sessions: int
    groups: tuple[str, ...]


class Offboarding:
    def __init__(self, store: Store, authority: Authority, policies: Policies, tokens: Tokens) -> None:
        self._store = store
        self._authority = authority
        self._policies = policies
        self._tokens = tokens

    async def authorize(self, caller: Caller) -> Grant:
        """For status and groups, tokens, and the list of service accounts."""
        grant = await self._authority.authorize(caller, Privilege.MANAGE_POLICIES)
        grant.require(Privilege.MANAGE_ACCESS_TOKENS)
        grant.require(Privilege.MANAGE_SERVICE_ACCOUNTS)
        return grant

    async def plan(self, grant: Grant, urn: str, seconds: float) -> OffboardingPlan:
        grant.expect(Privilege.MANAGE_POLICIES)
        self._policies.check_suspendable(urn)
        if urn == grant.caller.actor:
            raise invalid("urn", "urn must not be the caller's own: later steps would be denied.")
        search = self._store.search
        return OffboardingPlan(
            state=await self._store.actor_state(urn),
            holdings=await self._store.actor_holdings(urn),
            tokens=await search(Search(filters=(*_of_actor(urn), _ACTIVE), count=MAX_SHOWN), seconds),
            minted=await search(Search(filters=(*_created_for_others(urn), _ACTIVE), count=MAX_SHOWN), seconds),
            accounts=await self._store.accounts_of(urn, MAX_SHOWN),
            groups=(await self._store.actor_snapshot(urn)).groups,
            policies=tuple(policy for policy in (await self._store.policies()).policies if urn in policy.users),
        )

    async def offboard(
        self, grant: Grant, plan: OffboardingPlan, *, revoke_minted: bool, seconds: float
    ) -> OffboardingReceipt:
        """Carries out a plan, including what was added since it was made. Each step is authorized again."""
        grant.expect(Privilege.MANAGE_POLICIES)
        urn = plan.state.urn
        # Before the suspension, which ends sessions too, so that the receipt counts them.
        sessions = await self._authority.write(
            grant, lambda grant: self._store.end_sessions_of(grant.precondition, urn)
        )
        await self._policies.set_actor_status(grant, urn, ActorStatus.SUSPENDED)
        tokens = await self._revoke(grant.caller, _of_actor(urn), seconds)
        minted = await self._revoke(grant.caller, _created_for_others(urn), seconds) if revoke_minted else None
        groups = await self._authority.write(grant, lambda grant: self._store.leave_groups(grant.precondition, urn))
        return OffboardingReceipt(tokens.receipt.revoked_at, tokens, minted, sessions, groups)

    async def _revoke(self, caller: Caller, filters: tuple[Filter, ...], seconds: float) -> RevokedTokens:
        grant = await self._tokens.authorize(caller)
        receipt = await self._tokens.revoke_selected(grant, Selection(filters=filters), seconds)
        then = Filter(Field.REVOKED_AT, Condition.EQUAL, (receipt.revoked_at,))
        found = await self._store.search(Search(filters=(*filters, _REVOKED, then), count=MAX_IDS), seconds)
        return RevokedTokens(receipt, tuple(record.id for record in found.rows))


def _of_actor(urn: str) -> tuple[Filter, ...]:
    return (Filter(Field.ACTOR_URN, Condition.EQUAL, (urn,)),)


def _created_for_others(urn: str) -> tuple[Filter, ...]:
    return (
        Filter(Field.OWNER_URN, Condition.EQUAL, (urn,)),
        Filter(Field.ACTOR_URN, Condition.EQUAL, (urn,), negated=True),
    )

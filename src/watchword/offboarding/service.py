"""Offboarding of an actor: what it has, what is taken from it, and what has ended since it was suspended."""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from watchword.access.actor_rules import ActorHoldings, ActorState
from watchword.access.actor_service import Actors
from watchword.access.group_rules import Group
from watchword.accounts.rules import ServiceAccount
from watchword.authority.callers import ActorStatus, Caller, Grant
from watchword.authority.policies import Policy
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import invalid
from watchword.journal.events import Action, Cursor, EventSearch, KeptEvent
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import MOST, Receipt, Selection
from watchword.tokens.bulk_revocation import receipt as receipt_of
from watchword.tokens.filters import Condition, Field, Filter, Page, Search, Sort, SortField
from watchword.tokens.list_service import ACCOUNTS, MANAGE_ALL, MINIMUM, VisibleTokens
from watchword.tokens.revoke_service import TokenRevoker
from watchword.tokens.rules import TokenStatus

_ACTIVE = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.ACTIVE.value,))
_REVOKED = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.REVOKED.value,))
_LAST_USED_FIRST = Sort(SortField.LAST_USED_AT)
MAX_SHOWN = 100  # tokens and service accounts listed in a plan
MAX_GROUPS = 1_000  # looked at for their sets
MAX_IDS = 1_000  # revoked token ids listed in a receipt; the digest covers all of them
MAX_EVENTS = 1_000  # on a page of events that a receipt reads
MAX_PAGES = 10
_LEFT = (Action.GROUP_MEMBERS_REMOVED.value, Action.POLICY_UPDATED.value)
_ENDED = (Action.SESSION_ENDED.value, Action.ACTOR_SUSPENDED.value)
# An offboarding in one call ends the sessions first.
_MOST_BEFORE_SUSPENSION = 60_000


@dataclass(frozen=True, slots=True)
class RevokedTokens:
    receipt: Receipt
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Former:
    """A group or policy that named the actor, and the set that declares it now."""

    urn: str
    name: str | None
    set_name: str | None = None


@dataclass(frozen=True, slots=True)
class SinceSuspension:
    """What ended since the actor was suspended, by whatever calls, so that an offboarding can be resumed. All but the
    tokens is from the audit log.
    """

    tokens: RevokedTokens
    tokens_for_others: RevokedTokens
    sessions: int
    groups: tuple[Former, ...]
    policies: tuple[Former, ...]


@dataclass(frozen=True, slots=True)
class OffboardingPlan:
    state: ActorState
    holdings: ActorHoldings
    tokens: Page  # live tokens of the actor
    tokens_for_others: Page  # live tokens that the actor created for others, and may know
    accounts: tuple[ServiceAccount, ...]  # accounts that the actor created and that still exist
    groups: tuple[str, ...]
    declared_groups: tuple[Group, ...]  # those of them that a policy file declares, which may bring it back
    policies: tuple[Policy, ...]  # policies that name the actor
    since: SinceSuspension | None  # None: it is not suspended


@dataclass(frozen=True, slots=True)
class OffboardingReceipt:
    at: int
    tokens: RevokedTokens
    tokens_for_others: RevokedTokens | None  # None: not revoked
    sessions: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offboarding:
    """Suspends an actor, revokes its tokens, ends its sessions and removes it from its groups.

    Each step is a transaction, and the suspension comes first: from then on every credential of the actor is rejected,
    even if a later step fails. A repeated step changes nothing, so a failed offboarding can be run again. Policies that
    name the actor and service accounts that it created are only listed: others may rely on them.
    """

    _store: Store
    _authority: Authority
    _actors: Actors
    _tokens: VisibleTokens
    _revoker: TokenRevoker

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        """Require the privileges for status, groups, tokens and the list of service accounts."""
        return self._authority.authorize(caller, Privilege.MANAGE_POLICIES, also=(MANAGE_ALL, ACCOUNTS))

    async def plan(self, grant: Grant, urn: str, seconds: float) -> OffboardingPlan:
        grant.expect(Privilege.MANAGE_POLICIES, also=(MANAGE_ALL, ACCOUNTS))
        self._actors.check_suspendable(urn)
        if urn == grant.caller.actor:
            raise invalid("urn", "urn must not be the caller's own: later steps would be denied.")
        state = await self._store.actor_state(urn)
        _, groups = await self._store.groups_of(urn, 0, MAX_GROUPS, external=False)
        memberships = (await self._store.actor_snapshot(urn)).groups
        policies = tuple(policy for policy in (await self._store.policies()).policies if urn in policy.users)
        current = frozenset([*memberships, *(policy.urn for policy in policies)])
        return OffboardingPlan(
            state=state,
            holdings=await self._store.actor_holdings(urn),
            tokens=await self._list(grant, _of_actor(urn), seconds),
            tokens_for_others=await self._list(grant, _created_for_others(urn), seconds),
            accounts=await self._store.accounts_of(urn, MAX_SHOWN),
            groups=memberships,
            declared_groups=tuple(group for group in groups if group.set_name is not None),
            policies=policies,
            since=await self._since_suspension(state, current, seconds),
        )

    async def offboard(
        self, grant: Grant, plan: OffboardingPlan, *, revoke_tokens_for_others: bool, seconds: float
    ) -> OffboardingReceipt:
        """Carries out a plan, including what was added since it was made. Each step is authorized again."""
        grant.expect(Privilege.MANAGE_POLICIES, also=(MANAGE_ALL, ACCOUNTS))
        urn = plan.state.urn
        # Before the suspension, which ends sessions too, so that the receipt counts them.
        sessions = await self._authority.change(grant, self._store.end_sessions_of, urn)
        await self._actors.set_status(grant, urn, ActorStatus.SUSPENDED)
        tokens = await self._revoke(grant, _of_actor(urn), seconds)
        for_others = await self._revoke(grant, _created_for_others(urn), seconds) if revoke_tokens_for_others else None
        groups = await self._authority.change(grant, self._store.leave_groups, urn)
        return OffboardingReceipt(tokens.receipt.revoked_at, tokens, for_others, sessions, groups)

    async def _list(self, grant: Grant, filters: tuple[Filter, ...], seconds: float) -> Page:
        search = Search(filters=(*filters, _ACTIVE), count=MAX_SHOWN, sort=_LAST_USED_FIRST)
        return await self._tokens.list(
            grant.requiring(MINIMUM, ACCOUNTS, also=(Privilege.MANAGE_POLICIES,)), search, seconds
        )

    async def _since_suspension(
        self, state: ActorState, current: Collection[str], seconds: float
    ) -> SinceSuspension | None:
        """`current`: the groups and policies that name the actor, again or still."""
        if not state.is_suspended or state.changed_at is None:
            return None
        urn, at = state.urn, state.changed_at
        left = await self._events(EventSearch(MAX_EVENTS, about=(urn,), actions=_LEFT, since=at), seconds)
        began = at - _MOST_BEFORE_SUSPENSION
        ended = await self._events(EventSearch(MAX_EVENTS, targets=(urn,), actions=_ENDED, since=began), seconds)
        groups = _former(left, Action.GROUP_MEMBERS_REMOVED, "members", urn, current)
        _, known = await self._store.groups(0, MAX_GROUPS) if groups else (0, ())
        sets = {group.urn: group.set_name for group in known}
        return SinceSuspension(
            await self._revoked_since(_of_actor(urn), at, seconds),
            await self._revoked_since(_created_for_others(urn), at, seconds),
            _ended_sessions(ended, at),
            tuple(replace(group, set_name=sets.get(group.urn)) for group in groups),
            _former(left, Action.POLICY_UPDATED, "removedUsers", urn, current),
        )

    async def _events(self, search: EventSearch, seconds: float) -> list[KeptEvent]:
        """The newest on a few pages."""
        found: list[KeptEvent] = []
        for _ in range(MAX_PAGES):
            page = await self._store.events(search, seconds)
            found += page.events
            if not page.more:
                break
            search = replace(search, after=Cursor(found[-1].at, found[-1].seq))
        return found

    async def _revoked_since(self, filters: tuple[Filter, ...], at: int, seconds: float) -> RevokedTokens:
        since = Filter(Field.REVOKED_AT, Condition.GREATER_THAN_OR_EQUAL_TO, (at,))
        fields = frozenset({"id", "revoked_at"})
        search = Search(filters=(*filters, _REVOKED, since), count=MOST, record_fields=fields)
        rows = (await self._store.search(search, seconds)).rows
        ids = sorted(record.id for record in rows)
        last = max((record.revoked_at or at for record in rows), default=at)
        return RevokedTokens(receipt_of(ids, last), tuple(ids[:MAX_IDS]))

    async def _revoke(self, grant: Grant, filters: tuple[Filter, ...], seconds: float) -> RevokedTokens:
        grant = grant.requiring(MINIMUM, ACCOUNTS, also=(Privilege.MANAGE_POLICIES,))
        receipt = await self._revoker.revoke_selected(grant, Selection(filters=filters), seconds)
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


def _ended_sessions(events: Sequence[KeptEvent], suspended_at: int) -> int:
    """Those that ended since the suspension, or in the request that suspended."""
    suspended = Action.ACTOR_SUSPENDED.value
    requests = {event.request_id for event in events if event.action == suspended and event.at == suspended_at}
    ended = (event for event in events if event.at >= suspended_at or event.request_id in requests)
    return sum(event.detail.get("sessions", 0) for event in ended)


def _former(
    events: Iterable[KeptEvent], action: Action, field: str, urn: str, current: Collection[str]
) -> tuple[Former, ...]:
    """From the newest events first, in the order of names."""
    found = {
        event.target: Former(event.target, event.detail.get("name"))
        for event in reversed(list(events))
        if event.action == action.value and urn in event.detail.get(field, ()) and event.target not in current
    }
    return tuple(sorted(found.values(), key=lambda former: (former.name or "", former.urn)))

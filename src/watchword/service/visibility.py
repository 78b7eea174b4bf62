"""Visibility: which tokens a caller may see, list and revoke, and which of their fields."""

from collections.abc import Collection, Sequence
from typing import Any

from watchword.domain.accounts import is_account
from watchword.domain.actors import Grant
from watchword.domain.bulk_revocation import NO_ACTOR, TokenVisibility
from watchword.domain.filters import SEARCH_SECONDS, Condition, Field, Filter, Search
from watchword.domain.policies import Privilege
from watchword.domain.ports import TokenStore
from watchword.domain.tokens import TokenRecord, TokenStatus, TokenType

MINIMUM = Privilege.GENERATE_PERSONAL_ACCESS_TOKENS
MANAGE_ALL = Privilege.MANAGE_ACCESS_TOKENS
ACCOUNTS = Privilege.MANAGE_SERVICE_ACCOUNTS
_MAKER_FIELDS = ("minted_with", "parent")
_VISIBILITY_FIELDS = frozenset({"actor_urn", "owner_urn", "type"})


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


async def constrain(store: TokenStore, grant: Grant, search: Search, seconds: float) -> Search:
    """The search constrained to what the caller may see; raises a denial if it asks for more."""
    search = constrained(search, grant)
    if search.own is None:
        grant.require(MANAGE_ALL)
    elif search.own[1] == grant.caller.actor:
        grant.require(MINIMUM)
    await check_maker_filters(store, grant, search.filters, seconds)
    return search


async def check_maker_filters(store: TokenStore, grant: Grant, filters: Sequence[Filter], seconds: float) -> None:
    """Without Manage All, filters by `mintedWith` and `parentId` may name only visible tokens: the result would reveal
    that others exist.
    """
    visible = visibility(grant)
    makers = [f for f in filters if f.field in (Field.MINTED_WITH, Field.PARENT)]
    if visible is None or not makers:
        return
    if all(f.values and not f.negated for f in makers):
        ids = {str(value) for f in makers for value in f.values}
        found = await store.search(_by_ids(ids), seconds)
        if sum(visible.covers(maker) for maker in found.rows) == len(ids):
            return
    grant.require(MANAGE_ALL)


async def without_hidden_makers(
    store: TokenStore, grant: Grant, rows: Sequence[TokenRecord], seconds: float = SEARCH_SECONDS
) -> tuple[TokenRecord, ...]:
    """The records without `minted_with` and `parent` where the caller may not see that token. The records may be
    projections.
    """
    visible = visibility(grant)
    fields = [name for name in _MAKER_FIELDS if rows and name in rows[0]._fields]
    if visible is None or not fields:
        return tuple(rows)
    shown = {row.id for row in rows} | {grant.caller.bearer_id, None}
    unknown = {getattr(row, name) for row in rows for name in fields} - shown
    if unknown:
        found = await store.search(_by_ids(unknown), seconds)
        shown |= {maker.id for maker in found.rows if visible.covers(maker)}
    return tuple(_without(row, [name for name in fields if getattr(row, name) not in shown]) for row in rows)


def _without(row: TokenRecord, names: Collection[str]) -> TokenRecord:
    nothing: Any = dict.fromkeys(names)
    return row._replace(**nothing) if names else row


def _by_ids(ids: Collection[str]) -> Search:
    """Tokens of any status, with the fields that decide their visibility."""
    statuses = tuple(status.value for status in TokenStatus)
    filters = (Filter(Field.ID, Condition.IN, tuple(ids)), Filter(Field.STATUS, Condition.IN, statuses))
    return Search(count=len(ids), filters=filters, record_fields=_VISIBILITY_FIELDS)

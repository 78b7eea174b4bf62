"""Visibility: which tokens a caller may see, list and end, and what else it is told of them."""

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
_MAKERS = ("minted_with", "parent")
_WHOSE = frozenset({"actor_urn", "owner_urn", "type"})


def open_token_api(grant: Grant) -> None:
    """Whoever has neither privilege cannot use the token API at all."""
    grant.require_any(MINIMUM, ACCOUNTS)


def visibility(grant: Grant) -> TokenVisibility | None:
    """Whose tokens the caller may see and end; None: anybody's."""
    if grant.may(MANAGE_ALL):
        return None
    actor = grant.caller.actor if grant.may(MINIMUM) else NO_ACTOR
    return TokenVisibility(actor, grant.may(ACCOUNTS), created=not grant.caller.is_bounded)


def own_search(search: Search, grant: Grant) -> Search:
    """The search held to the caller's own tokens, when one of its filters asks for just that; or, for who manages
    service accounts, to the tokens of one or of all of them. To a limited or derived bearer those that its actor made
    for others are not its own.

    The filter only says what the caller means; what holds the search is the constraint laid on it here, which no
    `negated` or `condition` elsewhere can widen.
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


async def check_makers(store: TokenStore, grant: Grant, filters: Sequence[Filter], seconds: float) -> None:
    """Without the privilege to see all tokens, a filter by makers only names tokens that the caller may see: others
    would tell by what they find that there are such makers.
    """
    may = visibility(grant)
    asked = [f for f in filters if f.field in (Field.MINTED_WITH, Field.PARENT)]
    if may is None or not asked:
        return
    if all(f.values and not f.negated for f in asked):
        ids = {str(value) for f in asked for value in f.values}
        makers = await store.search(_of_ids(ids), seconds)
        if sum(may.covers(maker) for maker in makers.rows) == len(ids):
            return
    grant.require(MANAGE_ALL)


async def shown_to(
    store: TokenStore, grant: Grant, rows: Sequence[TokenRecord], seconds: float = SEARCH_SECONDS
) -> tuple[TokenRecord, ...]:
    """These, without the ids of the tokens they were made with or derived from where the caller may not see those.
    The rows may be parts of records.
    """
    may = visibility(grant)
    fields = [name for name in _MAKERS if rows and name in rows[0]._fields]
    if may is None or not fields:
        return tuple(rows)
    visible = {row.id for row in rows} | {grant.caller.bearer_id, None}
    asked = {getattr(row, name) for row in rows for name in fields} - visible
    if asked:
        found = await store.search(_of_ids(asked), seconds)
        visible |= {maker.id for maker in found.rows if may.covers(maker)}
    return tuple(_without(row, [name for name in fields if getattr(row, name) not in visible]) for row in rows)


def _without(row: TokenRecord, names: Collection[str]) -> TokenRecord:
    nothing: Any = dict.fromkeys(names)
    return row._replace(**nothing) if names else row


def _of_ids(ids: Collection[str]) -> Search:
    """The tokens of these ids, revoked ones too: as much of each as tells who may see it."""
    statuses = tuple(status.value for status in TokenStatus)
    filters = (Filter(Field.ID, Condition.IN, tuple(ids)), Filter(Field.STATUS, Condition.IN, statuses))
    return Search(count=len(ids), filters=filters, record_fields=_WHOSE)

"""The tokens that a caller may see: list, look up and edit them.

A caller first gets a grant from `authorize`, which denies before any input is parsed. The methods that take the grant
check what depends on the input, and every write re-checks its precondition in its transaction.
"""

from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import is_account
from watchword.basics.paging import SEARCH_SECONDS
from watchword.journal.day_counts import first_kept
from watchword.tokens.bulk_revocation import NO_ACTOR, TokenVisibility
from watchword.tokens.filters import Condition, Field, Filter, Page, Search
from watchword.tokens.rules import TokenRecord, TokenStatus, TokenType
from watchword.tokens.store import TokenStore

MINIMUM = Privilege.GENERATE_PERSONAL_ACCESS_TOKENS
MANAGE_ALL = Privilege.MANAGE_ACCESS_TOKENS
ACCOUNTS = Privilege.MANAGE_SERVICE_ACCOUNTS
_MAKER_FIELDS = ("created_with", "parent")
_VISIBILITY_FIELDS = frozenset({"actor_urn", "owner_urn", "type"})
_ANY_STATUS = tuple(status.value for status in TokenStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleTokens:
    store: TokenStore
    authority: Authority

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        """Of a caller with neither privilege, deny all of the token API but `derive` and `introspect`."""
        return self.authority.authorize(caller, MINIMUM, ACCOUNTS)

    async def list(self, grant: Grant, search: Search, seconds: float) -> Page:
        grant.expect(MINIMUM, ACCOUNTS)
        page = await self.store.search(await self.constrain(grant, search, seconds), seconds)
        if not page.rows:
            return page
        rows = await self.without_hidden_makers(grant, page.rows, seconds)
        return replace(page, rows=await self._with_suspensions(rows, grant.caller))

    async def find(self, grant: Grant, token: bytes) -> TokenRecord:
        return await self.get(grant, self.authority.token_id(token))

    async def get(self, grant: Grant, wanted: str) -> TokenRecord:
        grant.expect(MINIMUM, ACCOUNTS)
        return await self._shown(grant, await self.record(grant, wanted))

    async def update(self, grant: Grant, wanted: str, name: str | None, description: str | None) -> TokenRecord:
        """Change name and description; None stays. Anyone who may revoke the token may do so."""
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> TokenRecord:
            visible = visibility(grant)
            changed = await self.store.update_token(
                grant.precondition, wanted, visible, name=name, description=description
            )
            return await self._shown(grant, changed)

        return await self.authority.write(grant, write)

    async def uses_of(self, ids: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        """The uses by day of tokens that the caller sees."""
        return await self.store.uses_of(ids, first_kept(self.store.clock()))

    async def networks_of(self, ids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """The networks of tokens that the caller sees."""
        return await self.store.networks_of(ids)

    async def record(self, grant: Grant, wanted: str) -> TokenRecord:
        """The record as it is stored, if the caller may see the token."""
        record = await self.store.get_token(wanted)
        visible = visibility(grant)
        if record is None or not (visible is None or visible.covers(record)):
            raise Fault(Reason.TOKEN_NOT_FOUND, "There is no such token among those you may see.")
        return record

    async def constrain(self, grant: Grant, search: Search, seconds: float, *, by_id: bool = False) -> Search:
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

    async def without_hidden_makers(
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

    async def _shown(self, grant: Grant, record: TokenRecord) -> TokenRecord:
        rows = await self.without_hidden_makers(grant, (record,))
        (shown,) = await self._with_suspensions(rows, grant.caller)
        return shown

    async def _visible_among(self, grant: Grant, ids: Collection[str], seconds: float) -> set[str]:
        """The ids of tokens, of any status, that a caller without Manage All may see."""
        filters = (Filter(Field.ID, Condition.IN, tuple(ids)), Filter(Field.STATUS, Condition.IN, _ANY_STATUS))
        search = Search(count=len(ids), filters=filters, record_fields=_VISIBILITY_FIELDS)
        visible = visibility(grant)
        found = await self.store.search(search, seconds)
        return {token.id for token in found.rows if visible is None or visible.covers(token)}

    async def _with_suspensions(self, records: tuple[TokenRecord, ...], caller: Caller) -> tuple[TokenRecord, ...]:
        """Sets `suspended` with one query; with none if all tokens are the caller's or the field is not read."""
        if not records or "suspended" not in records[0]._fields:
            return records
        others = {record.actor_urn for record in records} - {caller.actor}
        suspended = await self.store.suspended_among(others) if others else frozenset()
        if not suspended:
            return records
        return tuple([r._replace(suspended=True) if r.actor_urn in suspended else r for r in records])


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

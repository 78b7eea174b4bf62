"""Endings: many tokens ended in one commit, with a receipt; first it is told how many, and whose."""

from collections.abc import Callable
from dataclasses import replace

from watchword.domain.actors import Caller, Grant
from watchword.domain.endings import Prospect, Receipt, Selection
from watchword.domain.filters import Search
from watchword.domain.ports import TokenStore
from watchword.service.authority import Authority
from watchword.service.visibility import MANAGE_ALL, MINIMUM, check_makers, open_token_api, own_search, reach


class Endings:
    def __init__(self, store: TokenStore, authority: Authority, revoked: Callable[[int], None]) -> None:
        self._store = store
        self._authority = authority
        self._revoked = revoked

    async def prospect(self, caller: Caller, wanted: Callable[[], Selection], seconds: float) -> Prospect:
        grant = await self._authority.grant(caller)
        return await self._store.revocation_prospect(await self._selection(grant, wanted, seconds), seconds)

    async def end(self, caller: Caller, wanted: Callable[[], Selection], seconds: float) -> Receipt:
        async def write(grant: Grant) -> Receipt:
            selection = await self._selection(grant, wanted, seconds)
            return await self._store.revoke_tokens(grant.warrant, selection, seconds)

        receipt = await self._authority.carry_out(caller, write)
        self._revoked(receipt.count)
        return receipt

    async def _selection(self, grant: Grant, wanted: Callable[[], Selection], seconds: float) -> Selection:
        """What is meant, held to what the caller may end: the constraint is laid on the statement itself."""
        open_token_api(grant)
        selection = wanted()
        held = own_search(Search(filters=selection.filters), grant)
        if selection.ids is None and held.own is None:
            grant.require(MANAGE_ALL)
        if held.own is not None and held.own[1] == grant.caller.actor:
            grant.require(MINIMUM)
        await check_makers(self._store, grant, selection.filters, seconds)
        return replace(selection, reach=reach(grant))

"""Endings: many tokens ended in one commit, with a receipt; first it is told how many, and whose."""

from collections.abc import Callable
from dataclasses import replace

from watchword.domain.actors import Caller, Grant
from watchword.domain.bulk_revocation import Receipt, RevocationPreview, Selection
from watchword.domain.filters import Search
from watchword.domain.ports import TokenStore
from watchword.service.authority import Authority
from watchword.service.visibility import MANAGE_ALL, MINIMUM, check_makers, open_token_api, own_search, visibility


class Endings:
    def __init__(self, store: TokenStore, authority: Authority, revoked: Callable[[int], None]) -> None:
        self._store = store
        self._authority = authority
        self._revoked = revoked

    async def preview(self, caller: Caller, wanted: Callable[[], Selection], seconds: float) -> RevocationPreview:
        grant = await self._authority.grant(caller)
        return await self._store.revocation_preview(await self._selection(grant, wanted, seconds), seconds)

    async def end(self, caller: Caller, wanted: Callable[[], Selection], seconds: float) -> Receipt:
        async def write(grant: Grant) -> Receipt:
            selection = await self._selection(grant, wanted, seconds)
            return await self._store.revoke_tokens(grant.precondition, selection, seconds)

        receipt = await self._authority.authorize_and_write(caller, write)
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
        return replace(selection, visibility=visibility(grant))

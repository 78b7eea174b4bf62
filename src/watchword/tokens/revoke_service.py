"""Revoke tokens: one, many at once, or the one that its holder presents."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from watchword.authority.callers import Grant
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import SYSTEM_ACTOR
from watchword.journal.events import Action, KeptEvent
from watchword.journal.preconditions import possession_precondition
from watchword.tokens.bulk_revocation import Receipt, Revocation, RevocationPreview, Selection
from watchword.tokens.filters import Search
from watchword.tokens.list_service import ACCOUNTS, MINIMUM, VisibleTokens, visibility
from watchword.tokens.rules import TokenRecord, TokenStatus
from watchword.tokens.store import TokenStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRevoker:
    """The grants are those of `VisibleTokens.authorize`."""

    store: TokenStore
    authority: Authority
    visible: VisibleTokens
    count: Callable[[int], None]
    """Called with the number of tokens revoked, for the metrics."""

    async def revoke(self, grant: Grant, wanted: str, *, cascade: bool = False) -> None:
        grant.expect(MINIMUM, ACCOUNTS)

        def write(grant: Grant) -> Awaitable[Revocation]:
            return self.store.revoke_token(grant.precondition, wanted, visibility(grant), cascade=cascade)

        self.count((await self.authority.write(grant, write)).number)

    async def revoke_by_possession(self, token: bytes, peer: str, request_id: str, *, by_scan: bool = False) -> None:
        """Revoke a token for its holder; an unknown or ended one is ignored. That of a suspended actor is revoked too,
        or it would be valid again when the actor is reactivated. `by_scan`: a scan found it, which has an event.
        """
        found = await self.store.get_token(self.authority.token_id(token))
        if found is None or found.status(self.store.clock()) is TokenStatus.EXPIRED:
            return
        if by_scan and found.revoked_at is None:
            await self._note_scan(found, peer, request_id)
        try:
            revocation = await self.store.revoke_token(
                possession_precondition(found.actor_urn, found.id, peer, request_id), found.id, None
            )
        except Fault as fault:
            if fault.reason not in (Reason.ALREADY_REVOKED, Reason.TOKEN_NOT_FOUND):
                raise
        else:
            self.count(revocation.number)

    async def preview(self, grant: Grant, selection: Selection, seconds: float) -> RevocationPreview:
        grant.expect(MINIMUM, ACCOUNTS)
        selection = await self._constrain_selection(grant, selection, seconds)
        return await self.store.revocation_preview(selection, seconds)

    async def revoke_selected(self, grant: Grant, selection: Selection, seconds: float) -> Receipt:
        grant.expect(MINIMUM, ACCOUNTS)

        async def write(grant: Grant) -> Receipt:
            visible = await self._constrain_selection(grant, selection, seconds)
            return await self.store.revoke_tokens(grant.precondition, visible, seconds)

        receipt = await self.authority.write(grant, write)
        self.count(receipt.count)
        return receipt

    async def _constrain_selection(self, grant: Grant, selection: Selection, seconds: float) -> Selection:
        await self.visible.constrain(grant, Search(filters=selection.filters), seconds, by_id=selection.ids is not None)
        return replace(selection, visibility=visibility(grant))

    async def _note_scan(self, found: TokenRecord, peer: str, request_id: str) -> None:
        """Write the event before the revocation, so that it is recorded even if that fails."""
        event = KeptEvent(
            *(self.store.clock(), SYSTEM_ACTOR, None, Action.TOKEN_FOUND_BY_SCAN.value, found.id, peer, request_id),
            {"actorUrn": found.actor_urn, "name": found.name, "ownerUrn": found.owner_urn},
        )
        await self.store.add_events([event])

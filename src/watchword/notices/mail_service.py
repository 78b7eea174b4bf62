"""The preferences of people about mails."""

from collections.abc import Awaitable
from dataclasses import dataclass

from watchword.authority.callers import Caller, Grant
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.notices.mail_rules import MailKind
from watchword.notices.mail_store import MailStore


@dataclass(frozen=True, slots=True)
class MailPreferences:
    """Reads and sets the kinds of mail that a caller wants, only for the caller itself."""

    _store: MailStore
    _authority: Authority
    sent: frozenset[MailKind]
    """The kinds that this service sends."""

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller)

    async def authorize_change(self, caller: Caller) -> Grant:
        """A token that is limited or derived must not silence the warnings about itself."""
        grant = await self._authority.authorize(caller)
        if caller.is_bounded:
            raise Fault(Reason.LIMITED_TOKEN, "A limited or derived token must not change mail preferences.")
        return grant

    async def off(self, grant: Grant) -> frozenset[MailKind]:
        grant.expect()
        return await self._store.mail_kinds_off(grant.caller.actor)

    async def set_off(self, grant: Grant, off: frozenset[MailKind]) -> None:
        grant.expect()
        await self._authority.change(grant, self._store.set_mail_kinds_off, off)

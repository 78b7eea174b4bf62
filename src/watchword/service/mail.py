"""Mail: written from events and sent, by whichever process has the lease; and the preferences of people."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import CursorLost
from watchword.domain.mail import (
    GIVEN_UP,
    MAIL_CURSOR,
    MAX_WAITING,
    Mail,
    MailKind,
    MailRules,
    MailServer,
    MailState,
    MailText,
    SendResult,
    compose,
    drafts_of,
)
from watchword.domain.ports import MailStore, Store
from watchword.service.authority import Authority
from watchword.service.background import outages_suppressed

LEASE_MILLIS = 15_000
RENEW_SECONDS = 5.0
POLL_SECONDS = 2.0
EVENTS = 100
CLAIMED = 3
"""So few that all are tried within CLAIM_MILLIS, each step of the protocol as slow as it may be."""
CLAIM_MILLIS = 10 * 60_000
"""A mail whose sender died is sent again after this time."""
COUNT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class MailSource:
    """The service as a mail names it."""

    url: str
    has_console: bool


class MailSender:
    """Reads events and writes mails, then sends those that are due. Each mail is claimed before it is sent, so that a
    process that dies leaves it to be sent again. No request waits for any of it.
    """

    def __init__(self, store: Store, server: MailServer, rules: MailRules, source: MailSource, holder: str) -> None:
        self._store = store
        self._server = server
        self._rules = rules
        self._source = source
        self._holder = holder
        self.count: Callable[[str], None] = lambda _: None
        """Called with the result of each attempt."""
        self._seq: int | None = None
        """The cursor, while this process has its lease."""
        self._renewed_at = float("-inf")
        self.waiting = 0
        """How many mails are due or wait for another attempt, counted once a minute."""

    async def begin(self) -> None:
        """At the first start, place the cursor before the first request is answered: what is done then has its mail."""
        with suppress(Fault):
            await self._lease()

    async def run(self) -> None:
        """Read and send until cancelled. Then another process may go on at once."""
        counted_at = float("-inf")
        try:
            while True:
                with suppress(CursorLost), outages_suppressed():
                    if time.monotonic() - counted_at >= COUNT_SECONDS:
                        self.waiting = await self._store.waiting_mails(MAX_WAITING, late=True)
                        counted_at = time.monotonic()
                    await self.run_once()
                await asyncio.sleep(POLL_SECONDS * (0.75 + random.random() / 2))  # noqa: S311 - no secret
        finally:
            with suppress(Fault):
                await self._store.release_cursor(MAIL_CURSOR, self._holder)

    async def run_once(self) -> None:
        """Read all new events, and send what is due."""
        try:
            while (seq := await self._lease()) is not None:
                has_more = await self._read(seq)
                if not await self._send() and not has_more:
                    break
        except BaseException:
            self._renewed_at = float("-inf")  # read the cursor again
            raise
        finally:
            await self._server.finish()

    async def _lease(self) -> int | None:
        if time.monotonic() - self._renewed_at >= RENEW_SECONDS:
            self._seq = await self._store.lease_cursor(MAIL_CURSOR, self._holder, LEASE_MILLIS)
            self._renewed_at = time.monotonic()
        return self._seq

    async def _read(self, seq: int) -> bool:
        """Returns whether there may be more events to read."""
        events = await self._store.events_after(seq, EVENTS)
        if not events or await self._store.waiting_mails(MAX_WAITING) >= MAX_WAITING:
            return False
        drafts = tuple(drafts_of(events, self._rules.kinds))
        await self._store.add_mails(self._holder, events[-1].seq, drafts, self._rules)
        self._seq = events[-1].seq
        return True

    async def _send(self) -> bool:
        """Returns whether more may be due. A server that cannot be reached is not asked for each mail."""
        mails = await self._store.claim_mails(CLAIMED, CLAIM_MILLIS)
        node = await self._store.node_id() if mails else ""
        result, words = SendResult.SENT, ""
        for mail in mails:
            if result is not SendResult.UNREACHABLE:
                name = f"mail-{mail.number}.{mail.made_at}.{node}"
                result, words = await self._server.send(mail.address, await self._compose(mail), name)
            state = await self._store.settle_mail(mail, result, words, random.random())  # noqa: S311 - no secret
            self.count(GIVEN_UP if state is MailState.GIVEN_UP else result.value)
        return len(mails) == CLAIMED and result is not SendResult.UNREACHABLE

    async def _compose(self, mail: Mail) -> MailText:
        """An error here is one of this program: the mail is not tried again, and the error is logged by the caller."""
        try:
            return compose(mail, self._source.url, has_console=self._source.has_console)
        except Exception as error:
            await self._store.settle_mail(mail, SendResult.REJECTED, f"no text: {type(error).__name__}", 0)
            raise


@dataclass(frozen=True, slots=True)
class MailPreferences:
    """Reads and sets the kinds of mail that a caller wants, only for the caller itself."""

    _store: MailStore
    _authority: Authority
    sent: frozenset[MailKind]
    """The kinds that this service sends."""

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        """To see them."""
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

"""Mail: written from events and sent, by whichever process has the lease."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from watchword.basics.background import outages_suppressed
from watchword.basics.errors import Fault
from watchword.journal.events import CursorLost
from watchword.notices import mail_rules
from watchword.notices.mail_rules import Mail, MailRules, MailState, MailText, SendResult
from watchword.notices.mail_store import MailStore

if TYPE_CHECKING:
    from watchword.notices.smtp import SmtpServer

LEASE_MILLIS = 15_000
RENEW_SECONDS = 5.0
POLL_SECONDS = 2.0
EVENTS = 100
CLAIMED = 3
"""So few that all are tried within CLAIM_MILLIS, each step of the protocol as slow as it may be."""
CLAIM_MILLIS = 10 * 60_000
"""A mail whose sender died is sent again after this time."""
COUNT_SECONDS = 60.0


@dataclass(slots=True)
class MailSender:
    """Reads events and writes mails, then sends those that are due. Each mail is claimed before it is sent, so that a
    process that dies leaves it to be sent again. No request waits for any of it.
    """

    _store: MailStore
    _server: "SmtpServer"
    _rules: MailRules
    _url: str
    """Of this service."""
    _holder: str
    _count: Callable[[str], None]
    """Called with the result of each attempt."""
    _: KW_ONLY
    has_console: bool
    waiting: int = 0
    """How many mails are due or wait for another attempt, counted once a minute."""
    _seq: int | None = None
    """The cursor, while this process has its lease."""
    _renewed_at: float = float("-inf")

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
                        self.waiting = await self._store.waiting_mails(mail_rules.MAX_WAITING, late=True)
                        counted_at = time.monotonic()
                    await self.run_once()
                await asyncio.sleep(POLL_SECONDS * (0.75 + random.random() / 2))  # noqa: S311 - no secret
        finally:
            with suppress(Fault):
                await self._store.release_cursor(mail_rules.MAIL_CURSOR, self._holder)

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
            self._seq = await self._store.lease_cursor(mail_rules.MAIL_CURSOR, self._holder, LEASE_MILLIS)
            self._renewed_at = time.monotonic()
        return self._seq

    async def _read(self, seq: int) -> bool:
        """Returns whether there may be more events to read."""
        events = await self._store.events_after(seq, EVENTS)
        if not events or await self._store.waiting_mails(mail_rules.MAX_WAITING) >= mail_rules.MAX_WAITING:
            return False
        drafts = tuple(mail_rules.drafts_of(events, self._rules.kinds))
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
                result, words = await self._server.send(mail.address, await self._text_of(mail), name)
            state = await self._store.settle_mail(mail, result, words, random.random())  # noqa: S311 - no secret
            self._count(mail_rules.GIVEN_UP if state is MailState.GIVEN_UP else result.value)
        return len(mails) == CLAIMED and result is not SendResult.UNREACHABLE

    async def _text_of(self, mail: Mail) -> MailText:
        """An error here is one of this program: the mail is not tried again, and the error is logged by the caller."""
        try:
            return mail_rules.compose(mail, self._url, has_console=self.has_console)
        except Exception as error:
            await self._store.settle_mail(mail, SendResult.REJECTED, f"no text: {type(error).__name__}", 0)
            raise

"""The mail server, by SMTP. TLS is required and verified unless the URL says `smtp+insecure`."""

import asyncio
import ssl
from contextlib import suppress
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path

import aiosmtplib

from watchword.notices.mail_rules import MailText, SendResult, SmtpUrl

SECONDS = 20.0
"""For each step of the protocol."""
PERMANENT = 500


class SmtpServer:
    """Keeps one connection open between mails."""

    def __init__(self, url: SmtpUrl, sender: str, ca_file: Path | None = None) -> None:
        self._url = url
        self._sender = sender
        self._ca_file = ca_file
        self._connection: aiosmtplib.SMTP | None = None
        self._transport: asyncio.BaseTransport | None = None

    async def send(self, address: str, text: MailText, name: str) -> tuple[SendResult, str]:
        """Send one mail; `name` stays the same when it is sent again. Returns the result and the server's words."""
        try:
            connection = await self._open()
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            self._drop()
            return SendResult.UNREACHABLE, f"{self._url}: {_words(error)}"
        try:
            message = _message(self._sender, address, text, name)
            await connection.send_message(message, sender=self._sender, recipients=[address])
        except aiosmtplib.SMTPRecipientsRefused as error:
            return _answered(error.recipients[0])
        except aiosmtplib.SMTPSenderRefused as error:  # a wrong setting, not a wrong mail
            return SendResult.DEFERRED, f"{error.code} {error.message}"
        except aiosmtplib.SMTPResponseException as error:
            return _answered(error)
        except (aiosmtplib.SMTPNotSupported, MessageError, ValueError) as error:  # such an address cannot be sent to
            return SendResult.REJECTED, _words(error)
        except (aiosmtplib.SMTPException, OSError) as error:
            self._drop()
            return SendResult.UNREACHABLE, f"{self._url}: {_words(error)}"
        return SendResult.SENT, ""

    async def finish(self) -> None:
        """Close the connection, if one is open. The next mail opens another."""
        if self._connection is not None:
            with suppress(aiosmtplib.SMTPException, OSError):
                await self._connection.quit()
            self._drop()
            await asyncio.sleep(0)

    async def _open(self) -> aiosmtplib.SMTP:
        if self._connection is not None and self._connection.is_connected:
            return self._connection
        url = self._url
        secure = url.scheme != "smtp+insecure"
        self._connection = aiosmtplib.SMTP(
            hostname=url.host,
            port=url.port,
            timeout=SECONDS,
            use_tls=url.scheme == "smtps",
            start_tls=url.scheme == "smtp",
            tls_context=await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file) if secure else None,
        )
        await self._connection.connect()
        self._transport = self._connection.transport
        if url.user is not None:  # not by `connect`, which leaves a transport behind when it is refused
            await self._connection.login(url.user, "" if url.password is None else url.password.reveal())
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        # The library forgets a transport that it closes, and that stays open until the other side has ended TLS too.
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
        self._transport = None


def _message(sender: str, address: str, text: MailText, name: str) -> EmailMessage:
    """The library that makes the headers refuses line ends in them."""
    made = EmailMessage()
    made["From"] = Address(addr_spec=sender)
    made["To"] = Address(addr_spec=address)
    made["Subject"] = text.subject
    made["Date"] = formatdate(usegmt=True)
    made["Message-ID"] = f"<{name}.{sender.replace('@', '.')}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(text.text)
    made.add_alternative(text.html, subtype="html")
    return made


def _answered(error: aiosmtplib.SMTPResponseException) -> tuple[SendResult, str]:
    result = SendResult.REJECTED if error.code >= PERMANENT else SendResult.DEFERRED
    return result, f"{error.code} {error.message}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

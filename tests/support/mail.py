"""A mail server for tests: aiosmtpd, in a thread, which takes, defers or refuses mail as told."""

import email
import email.policy
import ssl
import time
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword, Session

from tests.support.ports import free_port
from tests.support.waiting import until

USER, PASSWORD = "watchword", "s3cret pass%word"


class MailServer:
    """`answers` are given to the next recipients, then each is accepted. With a certificate it requires TLS."""

    def __init__(
        self, certificate: tuple[Path, Path] | None = None, *, tls: str = "none", sign_in: bool = False
    ) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[tuple[str, list[str]]] = []
        self.answers: list[str] = []
        self.port = free_port()
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
        more: dict[str, Any] = {"require_starttls": True, "tls_context": context} if tls == "starttls" else {}
        if sign_in:
            more |= {"auth_required": True, "authenticator": _signs_in, "auth_require_tls": tls == "starttls"}
        self._controller = Controller(
            self, hostname="127.0.0.1", port=self.port, ssl_context=context if tls == "tls" else None, **more
        )

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._controller.stop()

    async def handle_RCPT(self, server: Any, session: Session, envelope: Any, address: str, options: list[str]) -> str:  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Any) -> str:  # noqa: N802
        self.envelopes.append((envelope.mail_from, list(envelope.rcpt_tos)))
        made = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(made, EmailMessage)
        self.mails.append(made)
        return "250 OK"

    def url(self, scheme: str = "smtp+insecure", host: str = "127.0.0.1", credentials: str = "") -> str:
        return f"{scheme}://{credentials}{host}:{self.port}"

    def wait_for(self, number: int) -> list[EmailMessage]:
        until(lambda: len(self.mails) >= number, f"{number} mails, not {len(self.mails)}")
        return self.mails

    def has(self, number: int, seconds: float) -> bool:
        """Whether so many mails came within this time."""
        end = time.monotonic() + seconds
        while len(self.mails) < number and time.monotonic() < end:
            time.sleep(0.05)
        return len(self.mails) >= number


def text_of(made: EmailMessage, kind: str = "plain") -> str:
    body = made.get_body((kind,))
    assert body is not None
    text: str = body.get_content()
    return text.replace("\r\n", "\n")


def _signs_in(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    known = LoginPassword(USER.encode(), PASSWORD.encode())
    return AuthResult(success=isinstance(data, LoginPassword) and data == known)

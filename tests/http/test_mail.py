"""A running service tells people by mail, over TLS and with a password; commands test the mail server and choose what
one gets.
"""

import asyncio
import gc
import re
import ssl
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.in_process import watchword
from tests.support.certificates import make_certificate
from tests.support.mail import PASSWORD, USER, MailServer, text_of
from tests.support.postfix import postfix
from tests.support.receivers import Receiver, status
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.waiting import until
from watchword.notices.mail_rules import MailText, SendResult, SmtpUrl
from watchword.notices.smtp import SmtpServer

CREDENTIALS = f"{USER}:{quote(PASSWORD)}@"
MY_PREFERENCES = "{ mailPreferences { kind enabled sent } }"
RENAME_WEBHOOK = 'mutation { updateWebhook(id: "hook", input: {name: "Chat"}) { id } }'
ENABLE_WEBHOOK = 'mutation { updateWebhook(id: "hook", input: {enabled: true}) { id } }'
WEBHOOK_STATE = '{ getWebhook(id: "hook") { state } }'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def mail_server(certificate: tuple[Path, Path]) -> Iterator[MailServer]:
    with MailServer(certificate, tls="starttls", sign_in=True) as running:
        yield running


@pytest.fixture(scope="module")
def mail_env(mail_server: MailServer, certificate: tuple[Path, Path]) -> dict[str, str]:
    return {
        "WATCHWORD_SMTP_URL": mail_server.url("smtp", "localhost", CREDENTIALS),
        "WATCHWORD_SMTP_FROM": "watchword@example.org",
        "WATCHWORD_SMTP_CA_FILE": str(certificate[0]),
    }


def test_people_are_told_what_others_do_with_their_tokens(
    make_server: Callable[..., Server], mail_server: MailServer, mail_env: dict[str, str], tmp_path: Path
) -> None:
    ann, bob = "urn:li:corpuser:ann", "urn:li:corpuser:bob"
    more = {"WATCHWORD_MAIL_TEMPLATE": "{name}@example.org", "WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}
    server = make_server(env=mail_env | more)
    server.grant(ann)
    server.create(ann, name="my own")
    (tmp_path / "leak").write_text(server.create(ADMIN, of=bob, name="for Bob")["accessToken"])
    mail_server.wait_for(1)
    scanned = watchword("token", "scan", str(tmp_path / "leak"), "--revoke", "--yes", "--url", server.url)
    assert scanned.returncode == 0, scanned.stderr
    mail_server.wait_for(3)
    with Receiver(status(410)) as gone:
        hook = {"id": "hook", "name": "Room", "url": gone.url, "actions": ["webhook.updated"]}
        server.ask(
            "mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { secret } }",
            {"input": hook},
            actor=ADMIN,
        )
        server.ask(RENAME_WEBHOOK, actor=ADMIN)
        mail_server.wait_for(4)
        server.ask('mutation { setMailPreferences(off: ["webhook-stopped"]) { kind } }', actor=ADMIN)
        server.ask(ENABLE_WEBHOOK, actor=ADMIN)
        until(
            lambda: server.ask(WEBHOOK_STATE, actor=ADMIN)["getWebhook"]["state"] == "DISABLED",
            "the webhook stops again",
        )
    server.set_status(ann, "SUSPENDED")  # its mail comes after the one that is not wanted
    mail_server.wait_for(5)
    assert sorted((mail["To"], mail["Subject"]) for mail in mail_server.mails) == [
        ("admin@example.org", "Watchword: A scan found a token, which was revoked"),
        ("admin@example.org", "Watchword: A webhook of yours was stopped"),
        ("ann@example.org", "Watchword: Your account was suspended"),
        ("bob@example.org", "Watchword: A scan found a token, which was revoked"),
        ("bob@example.org", "Watchword: Someone else created a token of yours"),
    ]
    (created,) = [mail for mail in mail_server.mails if "Someone" in mail["Subject"]]
    assert f'Token: "for Bob"\nOf: {bob}\nBy: {ADMIN}\n' in text_of(created)
    assert f"{server.url}/console/tokens/" in text_of(created)
    (stopped,) = [mail for mail in mail_server.mails if "webhook" in mail["Subject"]]
    assert 'Webhook: "Chat"\nReason: the receiver answered 410 Gone\n' in text_of(stopped)
    assert f"{server.url}/console/webhooks/hook" in text_of(stopped)
    assert server.samples()['watchword_mails_total{result="sent"}'] == 5


def test_test_mail_reports_what_the_server_says(
    mail_server: MailServer, mail_env: dict[str, str], certificate: tuple[Path, Path]
) -> None:
    before = len(mail_server.mails)
    done = watchword("mail", "test", "ann@example.org", env=mail_env)
    assert (done.returncode, done.stdout) == (0, "Sent a test mail to ann@example.org\n"), done.stderr
    assert len(mail_server.mails) == before + 1
    untrusted = watchword("mail", "test", "ann@example.org", env=mail_env | {"WATCHWORD_SMTP_CA_FILE": ""})
    assert (untrusted.returncode, "unreachable" in untrusted.stderr) == (1, True)
    assert "certificate" in untrusted.stderr.lower()
    wrong = mail_env | {"WATCHWORD_SMTP_URL": mail_server.url("smtp", "localhost", f"{USER}:other@")}
    refused = watchword("mail", "test", "ann@example.org", env=wrong)
    assert (refused.returncode, "unreachable" in refused.stderr, "other" in refused.stderr) == (1, True, False)
    mail_server.answers = ["550 unknown user"]
    rejected = watchword("mail", "test", "ann@example.org", env=mail_env)
    assert (rejected.returncode, "rejected): 550 unknown user" in rejected.stderr) == (1, True)
    plain = mail_server.url("smtp+insecure", "localhost")
    insecure = watchword("mail", "test", "ann@example.org", env=mail_env | {"WATCHWORD_SMTP_URL": plain})
    assert insecure.returncode == 1
    with MailServer(certificate, tls="tls") as other:
        secure = mail_env | {"WATCHWORD_SMTP_URL": other.url("smtps", "localhost")}
        assert watchword("mail", "test", "ann@example.org", env=secure).returncode == 0
    assert watchword("mail", "test", "no address", env=mail_env).returncode == 2
    unset = watchword("mail", "test", "ann@example.org")
    assert (unset.returncode, "WATCHWORD_SMTP_URL" in unset.stderr) == (1, True)


def test_postfix_accepts_defers_and_rejects_mail(
    make_server: Callable[..., Server], certificate: tuple[Path, Path]
) -> None:
    with postfix(certificate) as receiver:
        env = {
            "WATCHWORD_SMTP_URL": receiver.url,
            "WATCHWORD_SMTP_FROM": "watchword@example.org",
            "WATCHWORD_SMTP_CA_FILE": str(certificate[0]),
            "WATCHWORD_MAIL_TEMPLATE": "{name}@example.org",
        }
        server = make_server(env=env)
        for name in ("busy", "nobody", "ann"):
            server.create(ADMIN, of=f"urn:li:corpuser:{name}", name=f"for {name}")
        until(lambda: bool(receiver.mails("ann")), "postfix delivered the mail")
        results = [f'watchword_mails_total{{result="{one}"}}' for one in ("sent", "deferred", "rejected")]
        until(lambda: [server.samples().get(one, 0) for one in results] == [1, 1, 1], "each result is counted")
        (mail,) = receiver.mails("ann")
        assert (mail["To"], mail["Return-Path"]) == ("ann@example.org", "<watchword@example.org>")
        assert "using TLSv1.3" in mail["Received"]
        assert 'Token: "for ann"\n' in text_of(mail)
        assert re.findall(r"reject: RCPT .*?: (\S+ \S+) <(\w+)@", receiver.log) == [
            ("450 4.2.1", "busy"),
            ("550 5.1.1", "nobody"),
        ]
        untrusted = watchword("mail", "test", "ann@example.org", env=env | {"WATCHWORD_SMTP_CA_FILE": ""})
        assert (untrusted.returncode, "certificate" in untrusted.stderr.lower()) == (1, True), untrusted.stderr
        until(lambda: "SSL_accept error" in receiver.log, "postfix logs that TLS was refused")


def test_people_choose_the_kinds_of_mail_they_get(server: Server, actor: str) -> None:
    how = ("--url", server.url, "--as", actor)
    shown = watchword("mail", "update", "--off", "new-network", "--off", "token-created", *how)
    assert shown.returncode == 0, shown.stderr
    watchword("mail", "update", "--on", "token-created", *how)
    found = server.ask(MY_PREFERENCES, actor=actor)["mailPreferences"]
    assert [one["kind"] for one in found if not one["enabled"]] == ["new-network"]
    assert not any(one["sent"] for one in found)
    with pytest.raises(GraphQLRefused) as refused:
        server.ask('mutation { setMailPreferences(off: ["spam"]) { kind } }', actor=actor)
    assert (refused.value.code, refused.value.reason) == (400, "invalid_field")


def test_limited_token_cannot_change_preferences(server: Server, actor: str) -> None:
    server.grant(actor)
    token = server.create(actor, scopes=["GENERATE_PERSONAL_ACCESS_TOKENS"])["accessToken"]
    with pytest.raises(GraphQLRefused) as refused:
        server.ask('mutation { setMailPreferences(off: ["spam"]) { kind } }', token=token)
    assert (refused.value.code, refused.value.reason) == (403, "limited_token")


def test_nothing_stays_open_where_the_mail_server_does_not_end_tls(certificate: tuple[Path, Path]) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            if line == b".\r\n" or line[:4] in {b"EHLO", b"MAIL", b"RCPT"}:
                writer.write(b"250 yes\r\n")
            elif line == b"DATA\r\n":
                writer.write(b"354 go on\r\n")
            elif line == b"QUIT\r\n":
                writer.write(b"221 bye\r\n")
                await writer.drain()
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await ended.wait()
                break
        writer.transport.abort()
        finished.set()

    async def send(port: int) -> SendResult:
        sender = SmtpServer(SmtpUrl("smtps", "localhost", port, None, None), "tokens@example.org", certificate[0])
        result, _ = await sender.send("ann@example.org", MailText("subject", "text", "<p>text</p>"), "name")
        await sender.finish()
        return result

    async def serve() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        async with await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            assert await asyncio.to_thread(asyncio.run, send(port)) is SendResult.SENT
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                gc.collect()
            assert [str(one.message) for one in caught if "transport" in str(one.message)] == []
            ended.set()
            await finished.wait()

    ended, finished = asyncio.Event(), asyncio.Event()
    asyncio.run(serve())

"""A server whose clock moves writes each notice once, across restarts and pauses, and mails a digest."""

from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from tests.support.clock import SetClock
from tests.support.mail import MailServer, text_of
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.waiting import until
from watchword.notices.mail_rules import DIGEST_DELAY

DAY = 86_400
DIGEST_SECONDS = DIGEST_DELAY // 1_000 + 1
EVENTS = '{ listEvents(input: {actions: ["token.expiring"]}) { events { target detail } } }'


def expiring(server: Server) -> list[tuple[str, int]]:
    try:
        found: Any = server.ask(EVENTS, actor=ADMIN)["listEvents"]["events"]
    except GraphQLRefused as refused:
        if refused.reason != "deadline":
            raise
        return expiring(server)  # a list has five seconds, which pass when the machine is overloaded
    return sorted((event["target"], event["detail"]["days"]) for event in found)


def test_each_notice_comes_once_across_restarts_and_in_one_mail(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    clock = SetClock(tmp_path / "clock")
    with MailServer() as mail:
        env = clock.env | {
            "WATCHWORD_SMTP_URL": mail.url(),
            "WATCHWORD_SMTP_FROM": "watchword@example.org",
            "WATCHWORD_MAIL_TEMPLATE": "{name}@example.org",
        }

        def start() -> Server:
            return make_server(folder=tmp_path / "data", env=env)

        def digests(number: int) -> list[EmailMessage]:
            """A digest waits some minutes from the moment when its event is read."""
            clock.advance(DIGEST_SECONDS)
            jumps = iter(range(20))
            while not mail.has(number, seconds=5) and next(jumps, None) is not None:
                clock.advance(DIGEST_SECONDS)
            return mail.wait_for(number)

        server = start()
        short, also, long = (
            server.create(ADMIN, duration=duration, name=duration)["metadata"]["id"]
            for duration in ("ONE_WEEK", "ONE_WEEK", "ONE_MONTH")
        )
        server.stop()
        clock.advance(6 * DAY + 60)
        server = start()
        week = sorted([(short, 1), (also, 1)])
        until(lambda: expiring(server) == week, "the notices of one day")
        (digest,) = digests(1)
        assert (digest["To"], digest["Subject"]) == ("admin@example.org", "Watchword: 2 tokens expire soon")
        assert text_of(digest).count('Token: "ONE_WEEK"\n') == 2
        until(lambda: server.samples()['watchword_mails_total{result="sent"}'] == 1, "the end of the attempt")
        server.kill()
        clock.advance(23 * DAY)
        server = start()
        until(lambda: len(expiring(server)) > 2, "the late notice")
        assert expiring(server) == sorted([*week, (long, 1)])
        assert [str(made["Subject"]) for made in digests(2)[1:]] == ["Watchword: A token expires soon"]

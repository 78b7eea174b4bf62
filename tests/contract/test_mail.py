"""Mail is written from events and sent at least once; people get one digest a day, and only what they want."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.harness import ADMIN, ANN, BOB, EVE, MINUTE, SYSTEM, StoreHarness, account, all_of
from tests.support.backends import NOW, StoreLocation
from tests.support.mail import MailServer, text_of
from watchword.access.actor_rules import ProfileField
from watchword.authority.callers import ActorStatus
from watchword.basics.times import DAY, HOUR
from watchword.journal.events import CursorLost
from watchword.notices.mail_jobs import CLAIM_MILLIS, LEASE_MILLIS, MailSender
from watchword.notices.mail_rules import DIGEST_DELAY, MailKind, MailRules
from watchword.notices.smtp import SmtpServer
from watchword.setting_values import smtp_url
from watchword.stores.joined import Store
from watchword.tokens.counts import Use
from watchword.tokens.expiry_jobs import ExpiryNotices
from watchword.tokens.rules import TokenType

ALL = frozenset(MailKind)
RULES = MailRules(ALL)
URL = "https://tokens.example.org"
SENDER = "watchword@example.org"


class Post:
    """A mail server, and senders of instances that share a store."""

    def __init__(self, harness: StoreHarness, server: MailServer) -> None:
        self.harness = harness
        self.server = server
        self.counted: list[str] = []
        self.sender = self.instance("one")

    def instance(
        self, name: str, store: Store | None = None, rules: MailRules = RULES, url: str | None = None
    ) -> MailSender:
        server = SmtpServer(smtp_url(url or self.server.url()), SENDER)
        return MailSender(store or self.harness.store, server, rules, URL, name, self.counted.append, has_console=True)

    def send(self, *senders: MailSender, later: int = 0) -> list[str]:
        """The addresses that got mail, after so many milliseconds."""
        before = len(self.server.envelopes)
        self.harness.clock.now += later
        done = self.harness.run(all_of(map(run_again, senders or (self.sender,))))
        assert [one for one in done if isinstance(one, Exception)] == []
        return sorted(to for _, recipients in self.server.envelopes[before:] for to in recipients)


async def run_again(sender: MailSender) -> None:
    """As `run` does: where the clock has jumped, its lease is over."""
    try:
        await sender.run_once()
    except CursorLost:
        await sender.run_once()


@pytest.fixture
def post(harness: StoreHarness) -> Iterator[Post]:
    for actor in (ANN, BOB, EVE):
        name = actor.rpartition(":")[2]
        harness.run(harness.store.set_profile(SYSTEM, actor, {ProfileField.EMAIL: f"{name}@example.org"}))
    with MailServer() as server:
        made = Post(harness, server)
        assert made.send() == []  # the cursor begins now
        yield made


def note_expiring(harness: StoreHarness) -> None:
    harness.run(ExpiryNotices(harness.store, (30, 7, 1), "expiry", rests=0).run_once())


def suspend(harness: StoreHarness, actor: str, status: ActorStatus = ActorStatus.SUSPENDED) -> None:
    harness.run(harness.store.set_actor_status(harness.precondition(ADMIN), actor, status))


def test_expiring_tokens_are_one_digest_a_day(harness: StoreHarness, post: Post) -> None:
    robot = account(1, created_by=EVE)
    harness.run(harness.store.add_account(SYSTEM, robot))
    harness.token(1, ANN, expires_at=NOW + 40 * DAY)
    harness.token(2, ANN, owner=BOB, expires_at=NOW + 40 * DAY + MINUTE)
    harness.token(3, robot.urn, owner=BOB, type=TokenType.SERVICE_ACCOUNT, expires_at=NOW + 40 * DAY)
    harness.token(4, ANN, expires_at=NOW + 40 * DAY + HOUR)
    post.send()
    post.server.mails.clear()
    harness.clock.now = NOW + 10 * DAY
    note_expiring(harness)
    assert post.send() == []
    harness.clock.now += MINUTE
    note_expiring(harness)
    assert post.send(later=DIGEST_DELAY) == ["ann@example.org", "bob@example.org", "eve@example.org"]
    (digest,) = [mail for mail in post.server.mails if mail["To"] == "ann@example.org"]
    assert digest["Subject"] == "Watchword: 2 tokens expire soon"
    text = text_of(digest)
    assert 'Token: "token 1"\nOf: urn:li:corpuser:ann\nExpires: 2026-02-10 00:00 UTC\nhttps://' in text
    assert "token 2" in text
    assert "watchword mail update --off token-expiring" in text
    harness.clock.now = NOW + 10 * DAY + HOUR
    note_expiring(harness)
    assert post.send(later=HOUR) == []
    assert [harness.run(harness.store.waiting_mails(10, late=late)) for late in (False, True)] == [1, 0]
    assert post.send(later=DAY) == ["ann@example.org"]
    assert "token 4" in text_of(post.server.mails[-1])


def test_digest_comes_before_the_expiry_and_without_ended_tokens(harness: StoreHarness, post: Post) -> None:
    start = NOW + 7 * DAY
    for number, expires_at in enumerate((30 * DAY + 4 * MINUTE, 30 * DAY + 10 * MINUTE), 1):
        harness.token(number, expires_at=start + expires_at)
    owners = {3: ANN, 4: ANN, 5: ANN, 6: BOB, 7: EVE}
    soon = start + DAY + 5 * MINUTE
    tokens = {number: harness.token(number, owner, expires_at=soon) for number, owner in owners.items()}
    post.send()
    harness.clock.now = start - 2 * MINUTE
    note_expiring(harness)
    assert len(post.send() + post.send(later=DIGEST_DELAY)) == 3
    for later in (4 * MINUTE, 15 * MINUTE):  # the first begins a digest that waits for a day
        harness.clock.now = start + later
        note_expiring(harness)
        assert post.send() == []
    harness.revoke(tokens[4])
    harness.rotate_and_use(8, tokens[5], expires_at=start + 2 * DAY, created_at=start)
    harness.revoke(tokens[7])
    post.send()
    post.server.mails.clear()
    assert post.send(later=12 * HOUR) == ["ann@example.org", "bob@example.org"]
    text = text_of(next(mail for mail in post.server.mails if mail["To"] == "ann@example.org"))
    assert [number for number in range(1, 9) if f"token {number}" in text] == [1, 2, 3]
    assert harness.run(harness.store.waiting_mails(10)) == 0


def test_many_created_tokens_share_a_mail(harness: StoreHarness, post: Post) -> None:
    for number in range(1, 9):
        harness.token(number, expires_at=NOW + DAY)
    assert post.send() == ["ann@example.org"] * 5
    harness.token(9, expires_at=NOW + DAY)
    assert post.send() == []
    assert post.send(later=HOUR) == ["ann@example.org"]
    assert post.server.mails[-1]["Subject"] == "Watchword: Someone else created 4 tokens of yours"


def test_deferred_mail_is_sent_again_and_rejected_mail_is_not(harness: StoreHarness, post: Post) -> None:
    for actor in (ANN, BOB):
        suspend(harness, actor)
    post.server.answers = ["451 later", "550 no such user"]
    assert post.send() == []
    assert harness.run(harness.store.waiting_mails(10, late=True)) == 1
    assert post.send() == []
    assert post.send(later=2 * MINUTE) == ["ann@example.org"]
    assert post.send(later=DAY) == []
    assert post.counted == ["deferred", "rejected", "sent"]


def test_mail_waits_three_days_for_a_server_that_cannot_be_reached(harness: StoreHarness, post: Post) -> None:
    nowhere = post.instance("one", url="smtp+insecure://127.0.0.1:1")
    suspend(harness, ANN)
    assert post.send(nowhere) == []
    assert post.send(later=2 * MINUTE) == ["ann@example.org"]
    suspend(harness, BOB)
    for _ in range(30):
        assert post.send(nowhere, later=4 * HOUR) == []
    assert post.counted[-1] == "given_up"
    assert post.send(later=DAY) == []
    assert harness.run(harness.store.waiting_mails(10)) == 0


def test_mail_of_a_killed_sender_is_sent_by_another(harness: StoreHarness, post: Post, other: Store) -> None:
    def second() -> MailSender:
        return post.instance("two", other)

    suspend(harness, ANN)
    assert post.send(post.sender, second()) == ["ann@example.org"]
    # The first is gone before it reads the next event.
    suspend(harness, BOB)
    assert post.send(second()) == []
    assert post.send(second(), later=LEASE_MILLIS) == ["bob@example.org"]
    # The second is gone between the claim and the end of the attempt: the mail is sent again.
    suspend(harness, EVE)
    dying = second()
    seq = harness.run(dying._lease())
    assert seq is not None
    harness.run(dying._read(seq))
    assert [mail.recipient for mail in harness.run(other.claim_mails(10, CLAIM_MILLIS))] == [EVE]
    assert post.send(second()) == []
    assert post.send(second(), later=CLAIM_MILLIS) == ["eve@example.org"]
    assert post.counted == ["sent", "sent", "sent"]


def test_people_get_only_the_kinds_they_want(harness: StoreHarness, post: Post, location: StoreLocation) -> None:
    off = frozenset({MailKind.TOKEN_CREATED})
    harness.run(harness.store.set_mail_kinds_off(harness.precondition(ANN), off))
    harness.run(harness.store.set_mail_kinds_off(harness.precondition(ANN), off))
    changes = [event for event in location.events() if event.action == "actor.mail_preferences_changed"]
    assert [event.detail for event in changes] == [{"off": ["token-created"]}]
    for number, actor in enumerate((ANN, BOB, "urn:li:corpuser:no.address"), 1):
        harness.token(number, actor, expires_at=NOW + DAY)
    assert post.send() == ["bob@example.org"]
    templated = post.instance("one", rules=MailRules(ALL - {MailKind.ACCOUNT_SUSPENDED}, "{name}@corp.example"))
    harness.token(4, "urn:li:corpuser:no.address", expires_at=NOW + DAY)
    suspend(harness, EVE)
    for number, urn in enumerate(("urn:li:corpuser:bad address", "urn:li:corpuser:x:ann", "urn:okta:ann"), 5):
        harness.token(number, urn, expires_at=NOW + DAY)
    assert post.send(templated) == ["no.address@corp.example"]


def test_first_use_from_another_network_is_told(harness: StoreHarness, post: Post, location: StoreLocation) -> None:
    token = harness.token(1)
    post.send()
    post.server.mails.clear()

    def use(*networks: str) -> None:
        harness.run(harness.store.record_uses({token.id: Use(NOW, 1, networks[0], networks[1:])}))

    use("192.0.2.0/24", "198.51.100.0/24")
    use("198.51.100.0/24")
    use("203.0.113.0/24", "192.0.2.0/24")
    use("203.0.113.0/24")
    found = [event.detail for event in location.events() if event.action == "token.new_network"]
    assert found == [{"name": token.name, "actorUrn": ANN, "network": "203.0.113.0/24"}]
    assert post.send() == ["ann@example.org"]
    assert "Network: 203.0.113.0/24" in text_of(post.server.mails[-1])
    for number in range(40):
        use(f"10.0.{number}.0/24")
    found = [event.detail for event in location.events() if event.action == "token.new_network"]
    assert len(found) == 14


def test_mail_carries_neither_markup_nor_headers_nor_tokens(harness: StoreHarness, post: Post) -> None:
    hostile: Any = '<b>"&\u2028 eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl'
    token = harness.token(1, ANN, name=hostile, expires_at=NOW + DAY)
    assert post.send() == ["ann@example.org"]
    (mail,) = post.server.mails
    assert "&lt;b&gt;" in text_of(mail, "html")
    whole = mail.as_string()
    assert "eyJhbGci" not in whole
    assert token.name not in whole
    assert mail["From"] == SENDER
    assert f".{NOW}.{harness.run(harness.store.node_id())}." in mail["Message-ID"]  # the number comes again elsewhere
    assert mail["Auto-Submitted"] == "auto-generated"

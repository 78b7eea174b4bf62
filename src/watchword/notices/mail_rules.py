"""Mail to people about their tokens and webhooks: its kinds, its text, and when it is sent again.

One row of the store is one mail. A mail never holds a token or a secret.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote

from watchword.basics.errors import Fault, invalid
from watchword.basics.names import SHOWN_TOKEN, SYSTEM_ACTOR, check_email, is_reserved, username_of
from watchword.basics.secret import Secret
from watchword.basics.times import DAY, HOUR, MINUTE
from watchword.journal.events import Action, DescribedWord, KeptEvent
from watchword.notices.webhook_rules import StopReason

MAIL_CURSOR = "mail"
DIGEST_DELAY = 5 * MINUTE
"""The first notice of a digest waits this long for others."""
RETRY_DAYS = 3
"""How long a mail is tried, and how old an event may be that leads to one."""
MAIL_DAYS = 30
MAX_WAITING = 100_000
"""While this many mails wait, no more events are read."""
MAX_ITEMS = 100
"""Tokens that one digest names. It says how many more there are."""
MAX_CREATED = 5
"""Mails an hour to one person about tokens that someone else created. Further tokens share one mail."""
MAX_ERROR = 500
LONGEST_PAUSE = 3 * HOUR
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

Item = Mapping[str, Any]


class MailKind(DescribedWord):
    TOKEN_EXPIRING = "token-expiring", "Your tokens expire soon. Usually one mail a day."
    TOKEN_CREATED = "token-created", "Someone else created or rotated a token of yours."
    NEW_NETWORK = "new-network", "A token of yours was used from a network for the first time."
    FOUND_BY_SCAN = "found-by-scan", "A scan found a token of yours, or one you created, and revoked it."
    ACCOUNT_SUSPENDED = "account-suspended", "Your account was suspended."
    WEBHOOK_STOPPED = "webhook-stopped", "A webhook that you created was stopped, because its receiver fails."


KINDS = {kind.value: kind for kind in MailKind}


def parse_kind(word: str, field: str) -> MailKind:
    if word not in KINDS:
        raise invalid(field, f"{field} must be among: {', '.join(KINDS)}.")
    return KINDS[word]


class MailDraft(NamedTuple):
    """What an event says to people. A service account among them stands for its owner."""

    kind: MailKind
    recipients: tuple[str, ...]
    item: Item
    sender: str  # who caused the event, and needs no mail about it, unless it is a digest
    token_id: str | None = None  # its name is added


_OF_TOKENS = {
    Action.TOKEN_EXPIRING.value: MailKind.TOKEN_EXPIRING,
    Action.TOKEN_CREATED.value: MailKind.TOKEN_CREATED,
    Action.TOKEN_ROTATED.value: MailKind.TOKEN_CREATED,
    Action.TOKEN_NEW_NETWORK.value: MailKind.NEW_NETWORK,
    Action.TOKEN_FOUND_BY_SCAN.value: MailKind.FOUND_BY_SCAN,
}
_ALSO_TO_CREATOR = (MailKind.TOKEN_EXPIRING, MailKind.FOUND_BY_SCAN)
_COPIED = ("actorUrn", "expiresAt", "days", "network")


def drafts_of(events: Iterable[KeptEvent], kinds: frozenset[MailKind]) -> Iterator[MailDraft]:
    for event in events:
        kind = _OF_TOKENS.get(event.action)
        if kind in kinds:
            named = ("actorUrn", "ownerUrn") if kind in _ALSO_TO_CREATOR else ("actorUrn",)
            people = [event.detail[name] for name in named if name in event.detail]
            item = {name: event.detail[name] for name in _COPIED if event.detail.get(name) is not None}
            item |= {"at": event.at, "by": event.actor, "token": event.target}
            yield MailDraft(kind, tuple(dict.fromkeys(people)), item, event.actor, event.target)
        elif event.action == Action.ACTOR_SUSPENDED.value and MailKind.ACCOUNT_SUSPENDED in kinds:
            item = {"actorUrn": event.target, "at": event.at, "by": event.actor}
            yield MailDraft(MailKind.ACCOUNT_SUSPENDED, (event.target,), item, event.actor)
        elif event.action == Action.WEBHOOK_STOPPED.value and MailKind.WEBHOOK_STOPPED in kinds:
            item = {"webhook": event.target, "at": event.at, **event.detail}
            yield MailDraft(MailKind.WEBHOOK_STOPPED, (event.detail["ownerUrn"],), item, event.actor)


@dataclass(frozen=True, slots=True)
class MailRules:
    """Whose mail is sent, and to which address."""

    kinds: frozenset[MailKind]
    template: str | None = None
    """The address of an actor without one in the directory: `{name}` is its username."""

    def address(self, actor: str, email: str | None) -> str | None:
        if email is None and self.template is not None and not is_reserved(actor):
            email = self.template.replace("{name}", username_of(actor))
        try:
            return None if email is None else check_email(email)
        except Fault:
            return None


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail that is to be sent now. `attempts` counts this one."""

    number: int
    kind: MailKind
    recipient: str
    address: str
    items: Sequence[Item]
    more: int
    made_at: int
    attempts: int


class MailState(Enum):
    WAITING = "WAITING"
    SENT = "SENT"
    REJECTED = "REJECTED"
    GIVEN_UP = "GIVEN_UP"


class SendResult(Enum):
    SENT = "sent"
    DEFERRED = "deferred"
    REJECTED = "rejected"
    UNREACHABLE = "unreachable"


GIVEN_UP = "given_up"
MAIL_RESULTS = (*(result.value for result in SendResult), GIVEN_UP)
"""As they are counted."""


class MailText(NamedTuple):
    subject: str
    text: str
    html: str


class MailOutcome(NamedTuple):
    """What became of an attempt."""

    state: MailState
    error: str | None = None
    next_at: int = 0


@dataclass(frozen=True, slots=True)
class SmtpUrl:
    """How the mail server is reached: `smtps` with TLS from the start, `smtp` with STARTTLS, `smtp+insecure` plain."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: Secret[str] | None = None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def outcome(mail: Mail, result: SendResult, words: str, now: int, jitter: float) -> MailOutcome:
    """`jitter` is a random number from 0 to 1."""
    if result is SendResult.SENT:
        return MailOutcome(MailState.SENT)
    error = one_line(words)[:MAX_ERROR]
    if result is SendResult.REJECTED:
        return MailOutcome(MailState.REJECTED, error)
    next_at = now + round(min(LONGEST_PAUSE, MINUTE * 3 ** (min(mail.attempts, 9) - 1)) * (0.75 + jitter / 2))
    if next_at > mail.made_at + RETRY_DAYS * DAY:
        return MailOutcome(MailState.GIVEN_UP, error)
    return MailOutcome(MailState.WAITING, error, next_at)


def one_line(text: str) -> str:
    """Without control characters and without anything that looks like a token."""
    return SHOWN_TOKEN.sub("…", _UNPRINTABLE.sub(" ", text)).strip()


_HEADINGS = {
    MailKind.TOKEN_EXPIRING: "A token expires soon",
    MailKind.TOKEN_CREATED: "Someone else created a token of yours",
    MailKind.NEW_NETWORK: "A token of yours was used from a new network",
    MailKind.FOUND_BY_SCAN: "A scan found a token, which was revoked",
    MailKind.ACCOUNT_SUSPENDED: "Your account was suspended",
    MailKind.WEBHOOK_STOPPED: "A webhook of yours was stopped",
}
_ADVICE = {
    MailKind.TOKEN_EXPIRING: "Rotate those that are still needed before they expire.",
    MailKind.TOKEN_CREATED: "If you did not expect this, revoke the token and ask who created it.",
    MailKind.NEW_NETWORK: "If that was not you or your program, revoke the token.",
    MailKind.FOUND_BY_SCAN: "It no longer works. Create another where it was needed, and find out how it got there.",
    MailKind.ACCOUNT_SUSPENDED: "Your tokens and sessions are not accepted until it is resumed.",
    MailKind.WEBHOOK_STOPPED: "Nothing is sent until it is enabled again. Repair the receiver first.",
}
_OF_MANY = {
    MailKind.TOKEN_EXPIRING: "{:,} tokens expire soon",
    MailKind.TOKEN_CREATED: "Someone else created {:,} tokens of yours",
}
_REASONS = {
    StopReason.FAILED.value: "the receiver failed for three days",
    StopReason.QUEUE_FULL.value: "too many deliveries waited",
    StopReason.GONE.value: "the receiver answered 410 Gone",
}


def compose(mail: Mail, url: str, *, has_console: bool = True) -> MailText:
    """The text of a mail of the service at this URL, with links to its console."""
    total = len(mail.items) + mail.more
    heading, advice = _HEADINGS[mail.kind], _ADVICE[mail.kind]
    if total != 1:
        heading = _OF_MANY.get(mail.kind, heading).format(total)
    blocks = [
        ([one_line(f"{label}: {value}") for label, value in _facts(mail.kind, item)], _link(item, url, has_console))
        for item in mail.items
    ]
    ending = [f"And {mail.more:,} more.", advice] if mail.more else [advice]
    footer = [
        f"This mail is for {one_line(mail.recipient)}, from Watchword at {url}",
        f"To get no more of this kind: watchword mail update --off {mail.kind.value}",
    ]
    shown = ("\n".join(filter(None, [*lines, link])) for lines, link in blocks)
    text = "\n\n".join([f"{heading}.", *shown, *ending, "-- \n" + "\n".join(footer)])
    return MailText(f"Watchword: {heading}", text + "\n", _html(heading, blocks, ending, footer))


def _link(item: Item, url: str, has_console: bool) -> str | None:
    kind = next((kind for kind in ("webhook", "token") if kind in item), None)
    return f"{url}/console/{kind}s/{quote(item[kind], safe='')}" if kind and has_console else None


def test_mail(url: str) -> MailText:
    text = f"Watchword at {url} can send mail."
    return MailText("Watchword: test mail", text + "\n", f"<p>{html.escape(text)}</p>\n")


def _facts(kind: MailKind, item: Item) -> Iterator[tuple[str, str]]:
    if kind is MailKind.WEBHOOK_STOPPED:
        yield "Webhook", f'"{item["name"]}"'
        yield "Reason", _REASONS[item["reason"]]
        yield "At", _time(item["at"])
        return
    if "token" in item:
        yield "Token", f'"{item["name"]}"' if item.get("name") else item["token"]
    yield "Of", item["actorUrn"]
    if kind is MailKind.TOKEN_EXPIRING:
        yield "Expires", _time(item["expiresAt"])
        return
    if "network" in item:
        yield "Network", item["network"]
    elif kind is not MailKind.FOUND_BY_SCAN:
        yield "By", "the service's operators" if item["by"] == SYSTEM_ACTOR else item["by"]
    yield "At", _time(item["at"])


def _time(millis: int) -> str:
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _html(heading: str, blocks: list[tuple[list[str], str | None]], ending: list[str], footer: list[str]) -> str:
    parts = [f"<h1>{html.escape(heading)}</h1>"]
    for lines, link in blocks:
        shown = [*map(html.escape, lines), *([f'<a href="{html.escape(link)}">Open</a>'] if link else [])]
        parts.append(f"<p>{'<br>'.join(shown)}</p>")
    parts += [f"<p>{html.escape(line)}</p>" for line in ending]
    parts.append(f"<p><small>{'<br>'.join(html.escape(line) for line in footer)}</small></p>")
    return "\n".join(["<!DOCTYPE html>", *parts, ""])

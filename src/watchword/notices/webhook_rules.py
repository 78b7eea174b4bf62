"""Webhooks: subscriptions to events, their payloads and signatures, and when a delivery is tried again.

Messages have the form of the Standard Webhooks specification. The sender reads the events in commit order and queues a
delivery for each subscription that matches. A subscription's deliveries are sent in order: the next one waits until the
one before was accepted. A receiver that fails for three days, or whose queue is full, stops its subscription: nothing
is sent until a replay. A receiver that answers 410 disables its subscription.
"""

from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from hmac import digest
from json import dumps
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from watchword.authority.declared_parts import NEEDED, TEXTS, Change, FieldForm, FileField, Json, ListFields, Part
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault, Reason, check_length, invalid
from watchword.basics.names import check_actor, check_group, check_lower_id, check_name
from watchword.basics.secret import Secret
from watchword.basics.times import DAY, iso, parse_iso
from watchword.journal.events import Action, KeptEvent
from watchword.outbound.rules import parse_url

CURSOR = "webhooks"
"""Of the events that were queued, and the lease of the process that sends."""
PAYLOAD_VERSION = 1
MAX_PAYLOAD = 20_000
MAX_FILTER = 100
MAX_WEBHOOKS = 100
MAX_QUEUE = 10_000
MAX_KEPT = 10_000
"""Delivered messages that are kept of one subscription."""
KEPT_DAYS = 30
MAX_ATTEMPTS_KEPT = 20
MAX_ANSWER = 1_024
GIVE_UP = 3 * DAY
FIRST_RETRY, LONGEST_RETRY = 5_000, 3_600_000
DEFAULT_OVERLAP, LONGEST_OVERLAP = DAY, 30 * DAY
SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix
SECRET_BYTES = 32
TEST_TYPE = "webhook.test"
FILTER_FIELDS = ("actions", "actorUrns", "groupUrns")

_WORDS = tuple(action.value for action in Action)
_NOUNS = frozenset(word.partition(".")[0] for word in _WORDS)


class WebhookState(Enum):
    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    """Nothing is queued or sent."""
    STOPPED = "STOPPED"
    """Events are queued, as far as there is room, and nothing is sent until a replay."""


class StopReason(Enum):
    FAILED = "failed"
    QUEUE_FULL = "queue_full"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a subscription gets. Empty means any; the values of one field are ORed, the fields ANDed."""

    actions: tuple[str, ...] = ()
    """Words such as token.revoked, or token.* for all that begin with `token.`."""
    actors: tuple[str, ...] = ()
    """Who acted."""
    groups: tuple[str, ...] = ()
    """Events about tokens of the members of these groups."""

    def fields(self) -> dict[str, tuple[str, ...]]:
        return dict(zip(FILTER_FIELDS, (self.actions, self.actors, self.groups), strict=True))

    def matches(self, event: KeptEvent, token_groups: Collection[str]) -> bool:
        """`token_groups` are the groups of the actor whose token the event is about."""
        noun = event.action.partition(".")[0]
        return (
            (not self.actions or event.action in self.actions or f"{noun}.*" in self.actions)
            and (not self.actors or event.actor in self.actors)
            and (not self.groups or not set(self.groups).isdisjoint(token_groups))
        )


@dataclass(frozen=True, slots=True)
class Webhook:
    id: str
    name: str
    url: str
    filter: EventFilter
    state: WebhookState
    sealed_secret: bytes
    created_at: int
    created_by: str
    sealed_previous: bytes | None = None
    previous_until: int | None = None
    after_seq: int = 0  # it gets events with a higher number
    failing_since: int | None = None
    failures: int = 0  # failed attempts since then
    due_at: int = 0  # when its first waiting delivery may be sent
    dropped: int = 0  # events that had no room or waited too long, since the last replay by time
    stop_reason: StopReason | None = None
    set_name: str | None = None  # the policy set that declares it; None: made by the API
    waiting: int = 0

    @property
    def host(self) -> str:
        """Without the path, which may be secret."""
        return urlsplit(self.url).netloc


class WebhookPage(NamedTuple):
    total: int
    rows: tuple[Webhook, ...]


class DeliveryState(Enum):
    WAITING = "WAITING"
    DELIVERED = "DELIVERED"


@dataclass(frozen=True, slots=True)
class Attempt:
    at: int
    millis: int
    status: int | None  # of the answer; None: there was none
    error: str | None  # why there was no answer
    answer: str | None  # its first kilobyte

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Delivery:
    number: int
    webhook: str
    message: str
    """The `webhook-id`: the same for the same event and subscription."""
    event_seq: int | None
    type: str
    payload: str
    state: DeliveryState
    made_at: int
    delivered_at: int | None = None
    attempts: tuple[Attempt, ...] = ()
    """The latest ones, oldest first."""


class DeliveryPage(NamedTuple):
    deliveries: tuple[Delivery, ...]
    more: bool


class DeliveryCounts(NamedTuple):
    waiting: int
    failing: int
    """Those of them whose receiver does not accept them."""
    stopped: int
    """Webhooks that were stopped, or disabled by their receiver."""


class Replayed(NamedTuple):
    queued: int
    until: int | None
    """Later events were not queued: there was no room or no time. None: all were."""


class TokenName(NamedTuple):
    name: str
    actor: str


class KnownNames(NamedTuple):
    """What the events of a batch are about."""

    names: Mapping[str, str]
    """Of actors, groups, policies and webhooks, by urn or id."""
    tokens: Mapping[str, TokenName]
    groups: Mapping[str, frozenset[str]]
    """Of actors whose tokens the events are about."""

    def token_groups(self, event: KeptEvent) -> Collection[str]:
        actor = token_actor(event, self.tokens)
        return () if actor is None else self.groups.get(actor, ())


def token_actor(event: KeptEvent, tokens: Mapping[str, TokenName]) -> str | None:
    """Whose token the event is about; None: it is about no token."""
    if not event.action.startswith("token."):
        return None
    known = tokens.get(event.target)
    actor = event.detail.get("actorUrn") if known is None else known.actor
    return actor if isinstance(actor, str) else None


def message_id(webhook: str, seq: int) -> str:
    return f"msg_{webhook}_{seq}"


def payload(event: KeptEvent, known: KnownNames) -> str:
    """The body of a message. A detail that is too long is left out."""
    token = known.tokens.get(event.target)
    data = {
        "version": PAYLOAD_VERSION,
        "id": str(event.seq),
        "action": event.action,
        "actor": {"urn": event.actor, "name": known.names.get(event.actor)},
        "target": {
            "id": event.target,
            "name": known.names.get(event.target) if token is None else token.name,
            "actorUrn": None if token is None else token.actor,
        },
        "from": event.peer,
        "requestId": event.request_id,
        "detail": dict(event.detail),
    }
    body = message_body(event.action, event.at, data)
    if len(body.encode()) > MAX_PAYLOAD:
        body = message_body(event.action, event.at, data | {"detail": {}, "isDetailOmitted": True})
    return body


def message_body(type_: str, at: int, data: Mapping[str, Any]) -> str:
    return dumps({"type": type_, "timestamp": iso(at), "data": data}, ensure_ascii=False, separators=(",", ":"))


def secret_text(secret: Secret[bytes]) -> Secret[str]:
    return Secret(SECRET_PREFIX + b64encode(secret.reveal()).decode())


def signed_headers(secrets: Collection[Secret[bytes]], message: str, seconds: int, body: bytes) -> dict[str, str]:
    signed = f"{message}.{seconds}.".encode() + body
    digests = (digest(secret.reveal(), signed, sha256) for secret in secrets)
    return {
        "webhook-id": message,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{b64encode(one).decode()}" for one in digests),
    }


def after_attempt(webhook: Webhook, attempt: Attempt, now: int, jitter: float) -> Webhook:
    """The subscription after its first waiting delivery was tried. `jitter` is from 0 to 1."""
    if attempt.succeeded:
        return replace(webhook, failing_since=None, failures=0, due_at=0)
    since = now if webhook.failing_since is None else webhook.failing_since
    failed = replace(webhook, failing_since=since, failures=webhook.failures + 1)
    if attempt.status == 410:
        return replace(failed, state=WebhookState.DISABLED, stop_reason=StopReason.GONE)
    if now - since >= GIVE_UP:
        return replace(failed, state=WebhookState.STOPPED, stop_reason=StopReason.FAILED)
    pause = min(FIRST_RETRY * 2 ** min(webhook.failures, 20), LONGEST_RETRY)
    return replace(failed, due_at=now + int(pause * (0.75 + jitter / 2)))


def resumed(webhook: Webhook) -> Webhook:
    return replace(webhook, state=WebhookState.ENABLED, failing_since=None, failures=0, due_at=0, stop_reason=None)


# What callers give


def check_filter(fields: Mapping[str, Any]) -> EventFilter:
    """The filter that these fields name; an absent field is empty."""
    given = {name: fields.get(name) or () for name in FILTER_FIELDS}
    for name, values in given.items():
        check_length(values, name, MAX_FILTER)
    checks = zip(given.items(), (_check_action, check_actor, check_group), strict=True)
    return EventFilter(*(tuple(dict.fromkeys(check(word, name) for word in words)) for (name, words), check in checks))


def _check_action(word: str, field: str) -> str:
    noun, _, rest = word.partition(".")
    if word not in _WORDS and not (noun in _NOUNS and rest == "*"):
        raise invalid(field, f"{field} must be among: {', '.join(_WORDS)}; or token.* for all of a kind.")
    return word


def check_overlap(text: str | None) -> int:
    if text is None:
        return DEFAULT_OVERLAP
    overlap = parse_iso(text, "overlap")
    if overlap > LONGEST_OVERLAP:
        raise invalid("overlap", f"overlap must be from PT0S to P{LONGEST_OVERLAP // DAY}D.")
    return overlap


# Policy files. A file declares no secret: one is made with the webhook, and `webhook rotate` shows the next.

DECLARED = ("id", "name", "url", *FILTER_FIELDS, "enabled")


def is_wanted(webhook: Webhook) -> bool:
    """Whether it is meant to send; a receiver may have stopped or disabled it."""
    return webhook.state is not WebhookState.DISABLED or webhook.stop_reason is not None


class WebhookPart(Part[Webhook]):
    """Declared webhooks come without secrets. Their addresses are checked with each attempt."""

    lists: ClassVar[ListFields] = {
        "webhooks": {
            **dict.fromkeys(("id", "name", "url"), NEEDED),
            **dict.fromkeys(FILTER_FIELDS, TEXTS),
            "enabled": FileField(FieldForm.FLAG, nullable=True),
        }
    }
    privileges = (Privilege.MANAGE_WEBHOOKS, Privilege.VIEW_AUDIT_LOG)

    most, title = MAX_WEBHOOKS, "The webhook {}"

    def parse_entry(self, name: str, given: Json, set_name: str) -> Webhook:
        id_, title = check_lower_id(given.get("id") or "", "id"), check_name(given["name"])
        parse_url(given["url"])
        state = WebhookState.DISABLED if given.get("enabled") is False else WebhookState.ENABLED
        return Webhook(id_, title, given["url"], check_filter(given), state, b"", 0, "", set_name=set_name)

    def name(self, one: Webhook) -> str:
        return one.id

    def written(self, one: Webhook) -> dict[str, Any]:
        lists = {name: list(words) for name, words in one.filter.fields().items() if words}
        return {"id": one.id, "name": one.name, "url": one.url, **lists, "enabled": is_wanted(one)}

    def redacted(self, change: Change[Webhook]) -> Change[Webhook]:
        """The path of the URL before the change may be a secret."""
        before, after = change.before, change.after
        if before is None or (after is not None and before.url == after.url):
            return change
        return change._replace(before=replace(before, url=f"https://{before.host}/…"))


WEBHOOK_PART = WebhookPart()


def too_many_webhooks() -> Fault:
    return Fault(Reason.TOO_MANY_WEBHOOKS, f"There are {MAX_WEBHOOKS} webhooks, the maximum. Delete some first.")

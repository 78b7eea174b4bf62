"""Audit events: each change writes one in its transaction; denials and failed authentications write one too.

For a SIEM an event has the fields of the Elastic Common Schema (ECS).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self

from watchword.basics.errors import check_length, invalid
from watchword.basics.names import check_text, policy_urn
from watchword.basics.networks import parse_address
from watchword.basics.paging import DEFAULT_COUNT, check_page_size
from watchword.basics.times import iso

MAX_WORDS = 100
MAX_PAGE_BYTES = 1024 * 1024  # details of one page; a larger page ends early
MAX_WORD = 500
MAX_NAMED = 20  # of a list in the details of an event
MAX_COUNTED = 100_000
MAX_STEPS, MIN_STEP = 1_000, 60_000


class DescribedWord(Enum):
    """A word of the API, and what it means."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        made = object.__new__(cls)
        made._value_ = word
        made.meaning = meaning
        return made


class EventKind(Enum):
    """What an action is about, for charts."""

    TOKENS = "TOKENS"
    ACCESS = "ACCESS"
    SIGN_INS = "SIGN_INS"
    DENIALS = "DENIALS"
    DATA = "DATA"
    SERVICE = "SERVICE"


_KINDS = {
    **dict.fromkeys(("token", "tokens"), EventKind.TOKENS),
    **dict.fromkeys(("account", "actor", "group", "policy", "resource"), EventKind.ACCESS),
    **dict.fromkeys(("session", "device"), EventKind.SIGN_INS),
    **dict.fromkeys(("access", "authentication"), EventKind.DENIALS),
    **dict.fromkeys(("operation", "retention"), EventKind.DATA),
}


def kind_of(action: str) -> EventKind:
    return _KINDS.get(action.partition(".")[0], EventKind.SERVICE)


class Action(DescribedWord):
    TOKEN_CREATED = "token.created", "A token was created: actor and expiry."
    TOKEN_REPLAYED = "token.replayed", "A token was returned again for the same Idempotency-Key and credential."
    TOKEN_UPDATED = (
        "token.updated",
        "The name or description of a token changed: which of them; the name, and the old one.",
    )
    TOKEN_REVOKED = "token.revoked", "A token was revoked; by the service itself if it could not be delivered."
    TOKEN_DERIVED = "token.derived", "A token was derived from another: parent and expiry."
    TOKEN_ROTATED = "token.rotated", "A successor was created for a token: predecessor and expiry."
    TOKEN_REPLACED = "token.replaced", "A successor was first used; the old token expires after the grace period."
    TOKEN_IMPORTED = "token.imported", "A token came from DataHub: actor and expiry."
    TOKEN_EXPIRING = (
        "token.expiring",
        "A token expires within {days} days: actor, creator, owner of the service account, days and expiry.",
    )
    TOKEN_NEW_NETWORK = "token.new_network", "A token was used from a network for the first time: the network."
    TOKEN_FOUND_BY_SCAN = "token.found_by_scan", "`token scan` found a live token and requested its revocation."
    TOKENS_REVOKED = "tokens.revoked", "Many tokens were revoked in one call: number, digest of ids, selection."
    ACCOUNT_CREATED = "account.created", "A service account was created."
    ACCOUNT_UPDATED = "account.updated", "A policy file changed a service account: its name and set."
    ACCOUNT_DELETED = "account.deleted", "A service account was deleted and its tokens revoked: number of tokens."
    POLICY_CREATED = "policy.created", "A policy was created: privileges, actors and source."
    POLICY_UPDATED = (
        "policy.updated",
        "A policy was updated: its new privileges and actors, and the users that were removed.",
    )
    POLICY_DELETED = "policy.deleted", "A policy was deleted."
    GROUP_CREATED = "group.created", "A group was created."
    GROUP_UPDATED = "group.updated", "A policy file changed a group: its name and set."
    GROUP_DELETED = "group.deleted", "A group and its memberships were deleted."
    GROUP_MEMBERS_ADDED = "group.members_added", "Actors were added to a group."
    GROUP_MEMBERS_REMOVED = "group.members_removed", "Actors were removed from a group."
    RESOURCE_CREATED = "resource.created", "A policy file declared a resource: its id and set."
    RESOURCE_UPDATED = "resource.updated", "A policy file changed a resource: its new id and set."
    RESOURCE_DELETED = "resource.deleted", "A policy file no longer declares a resource: its id."
    ACTOR_UPDATED = "actor.updated", "The name or e-mail address of an actor changed: which of them, not their text."
    ACTOR_SUSPENDED = "actor.suspended", "An actor was suspended."
    ACTOR_RESUMED = "actor.resumed", "An actor was resumed."
    ACTOR_LINKED = (
        "actor.linked",
        "An actor was linked to a person of the identity provider, or unlinked: how many sessions and approvals ended.",
    )
    ACTOR_GROUPS_CHANGED = (
        "actor.groups_changed",
        "A sign-in or a new link changed the groups of an actor: added, removed, refused.",
    )
    ACTOR_MAIL_PREFERENCES_CHANGED = (
        "actor.mail_preferences_changed",
        "A person chose the kinds of mail to get: those that are off.",
    )
    KEY_CREATED = "key.created", "The first signing key was created."
    KEY_PREPARED = "key.prepared", "The next signing key was replaced by this one, of another kind."
    KEY_ROTATED = "key.rotated", "New tokens are signed with this key."
    OPERATION_PLANNED = "operation.planned", "A truncation was requested: index, end time, strategy and reason."
    OPERATION_RUNNING = "operation.running", "An operation started or restarted: strategy and index."
    OPERATION_VERIFYING = "operation.verifying", "An operation has processed its rows and verifies the result."
    OPERATION_SWAPPING = "operation.swapping", "The copy is complete and replaces the index."
    OPERATION_DONE = "operation.done", "An operation finished: the numbers of its final check."
    OPERATION_FAILED = "operation.failed", "An operation failed: the error."
    OPERATION_CANCEL_REQUESTED = "operation.cancel_requested", "The cancellation of an operation was requested."
    OPERATION_CANCELLED = "operation.cancelled", "An operation was cancelled and its copy removed."
    RETENTION_RULE_SET = "retention.rule_set", "A retention rule was created or changed: its fields and set."
    RETENTION_RULE_DELETED = "retention.rule_deleted", "A retention rule was deleted."
    RETENTION_HOLD_SET = "retention.hold_set", "A hold was set on a series: the reason, and whether a rule declares it."
    RETENTION_HOLD_RELEASED = "retention.hold_released", "A hold was released: its reason, who had set it and when."
    RETENTION_REPORTED = "retention.reported", "A retention rule in mode report planned a run: what it would remove."
    RETENTION_APPROVAL_NEEDED = (
        "retention.approval_needed",
        "A run of a retention rule waits for approval: the rows that it would remove, and the rule's limit.",
    )
    RETENTION_APPROVED = "retention.approved", "A run of a retention rule was approved: number of the run and rows."
    RETENTION_OVERDUE = "retention.overdue", "A retention rule has not succeeded on a series for three periods."
    RETENTION_CLOCK_JUMPED = (
        "retention.clock_jumped",
        "The clock jumped ahead, so no run of a retention rule is planned for an hour: by how many seconds.",
    )
    SESSION_STARTED = "session.started", "A browser signed in: how (oidc, token, local), and expiry."
    SESSION_ENDED = (
        "session.ended",
        "A session ended by sign-out, its owner, an administrator or the identity provider.",
    )
    DEVICE_APPROVED = "device.approved", "A signed-in person approved a terminal: client, claimed host and address."
    DEVICE_DENIED = "device.denied", "A signed-in person denied a terminal: client, claimed host and address."
    WEBHOOK_CREATED = "webhook.created", "A webhook was created: its name, host and filter."
    WEBHOOK_UPDATED = "webhook.updated", "A webhook was changed: its new name, host, filter and state."
    WEBHOOK_DELETED = "webhook.deleted", "A webhook was deleted: how many deliveries waited."
    WEBHOOK_STOPPED = "webhook.stopped", "A webhook was stopped by failures, a full queue or 410: reason and owner."
    WEBHOOK_SECRET_ROTATED = "webhook.secret_rotated", "A webhook got a new secret: until when the old one signs too."
    WEBHOOK_REPLAYED = "webhook.replayed", "Deliveries of a webhook were sent again: since when, or how many wait."
    SETTING_CHANGED = "setting.changed", "The service started with a changed setting: old and new value."
    ACCESS_DENIED = (
        "access.denied",
        "A caller lacked a privilege or scope: which, the request, and whether its token excludes it. Rate-limited.",
    )
    AUTHENTICATION_FAILED = (
        "authentication.failed",
        "A credential was rejected: reason and address; for a live token, the cause. Rate-limited.",
    )
    DATAHUB_IMPORTED = "datahub.imported", "An import from DataHub changed something: how many of each kind."
    STORE_PRIMARY_CHANGED = "store.primary_changed", "Another database server became the primary: its timeline."
    STORE_RESTORED = (
        "store.restored",
        "The database was restored from a backup: choice, affected tokens, and what was carried over.",
    )


_WORDS = tuple(action.value for action in Action)
# Of these, an actor may cause any number. Tokens have limits of their own (`ProcessorBudget.charge_write`). The others
# take away what a counted change, or a sign-in, has added before.
_UNCOUNTED = frozenset(
    {
        Action.TOKEN_CREATED,
        Action.TOKEN_DERIVED,
        Action.TOKEN_ROTATED,
        Action.TOKEN_REPLAYED,
        Action.TOKEN_REVOKED,
        Action.TOKEN_FOUND_BY_SCAN,
        Action.TOKENS_REVOKED,
        Action.ACCOUNT_DELETED,
        Action.POLICY_DELETED,
        Action.GROUP_DELETED,
        Action.GROUP_MEMBERS_REMOVED,
        Action.ACTOR_SUSPENDED,
        Action.OPERATION_CANCEL_REQUESTED,
        Action.SESSION_ENDED,
        Action.WEBHOOK_DELETED,
    }
)

CLOCK_BEHIND = 60_000
"""By how much the newest event may be later than the clock: instances may differ a little."""


def clock_warning(newest: int, now: int) -> str:
    """For the operator, if the newest event is in the future; empty otherwise."""
    if newest - now <= CLOCK_BEHIND:
        return ""
    return (
        f"the clock says {iso(now)}, but the newest event is of {iso(newest)}. The clock is or was wrong. While it is "
        "behind, expired tokens are valid again. Set it, and keep it set by NTP; watchword doctor checks it."
    )


Detail = str | int | bool | list[str] | None


@dataclass(frozen=True, slots=True)
class Event:
    """An action and its target. The write precondition and the store add actor, time and peer."""

    action: Action
    target: str
    detail: dict[str, Detail] = field(default_factory=dict)


def counts_as_change(events: Iterable[Event]) -> bool:
    """Whether a write with these events counts against the daily changes of its actor: once, however many they are."""
    return any(event.action not in _UNCOUNTED for event in events)


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """A complete event, as stored."""

    at: int
    actor: str
    bearer_id: str | None
    action: str
    target: str
    peer: str
    request_id: str
    detail: Mapping[str, Any]
    seq: int = 0  # its number in the store; a concurrent transaction with a higher number may commit first


def named_in(event: KeptEvent) -> Iterator[str]:
    """The urns in an event that may be those of actors: of the one who acted, of the target and in the details."""
    yield event.actor
    for value in (event.target, *event.detail.values()):
        for word in value[:MAX_NAMED] if isinstance(value, list) else (value,):
            if isinstance(word, str) and word.startswith("urn:"):
                yield word


class CursorLost(Exception):
    """The lease of a cursor has expired, or another reader has it: nothing was moved."""


class EventPage(NamedTuple):
    events: tuple[KeptEvent, ...]
    more: bool  # whether older events match too


class TimedCount(NamedTuple):
    start: int
    action: str
    total: int
    oldest: int  # the time of the first of them


class EventCounts(NamedTuple):
    since: int  # from here on all are counted
    counts: dict[tuple[int, EventKind], int]  # by start and kind


class Cursor(NamedTuple):
    """The position after the last event read."""

    at: int
    seq: int

    def __str__(self) -> str:
        return f"{self.at}-{self.seq}"


@dataclass(frozen=True, slots=True)
class EventSearch:
    """One page of events. Empty means any; the values of one field are ORed, the fields ANDed."""

    count: int = DEFAULT_COUNT
    after: Cursor | None = None
    actors: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    about: tuple[str, ...] = ()
    """Actors that the event targets or names in its detail; a store also finds the events of their tokens."""


_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)


def parse_event_search(fields: Mapping[str, Any]) -> EventSearch:
    cursor = fields.get("cursor")
    return EventSearch(
        count=check_page_size(fields.get("count")),
        after=None if cursor is None else parse_cursor(cursor),
        actors=_words(fields, "actorUrns"),
        actions=tuple(_known_action(word) for word in _words(fields, "actions")),
        targets=tuple(policy_urn(word) for word in _words(fields, "targets")),
        since=fields.get("since"),
        until=fields.get("until"),
        about=_words(fields, "aboutUrns"),
    )


def parse_event_counts(fields: Mapping[str, Any]) -> tuple[EventSearch, int]:
    """The search, and the length of a step."""
    search = replace(parse_event_search(fields), count=MAX_COUNTED)
    since, until, step = fields["since"], fields["until"], fields["step"]
    if since < 0:
        raise invalid("since", "since must not be negative.")
    if step < MIN_STEP:
        raise invalid("step", f"step must be at least {MIN_STEP:,} milliseconds.")
    if not since < until <= since + MAX_STEPS * step:
        raise invalid("until", f"until must be after since, by at most {MAX_STEPS:,} steps.")
    return search, step


def event_counts(search: EventSearch, found: Sequence[TimedCount]) -> EventCounts:
    counts: dict[tuple[int, EventKind], int] = {}
    for one in found:
        key = one.start, kind_of(one.action)
        counts[key] = counts.get(key, 0) + one.total
    is_complete = sum(counts.values()) <= search.count
    since = 0 if search.since is None else search.since
    return EventCounts(since if is_complete else min(one.oldest for one in found), counts)


def parse_cursor(text: str, field_name: str = "cursor") -> Cursor:
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise invalid(field_name, f"{field_name} must come from an earlier page.")
    return Cursor(int(match[1]), int(match[2]))


def _words(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    words: Sequence[str] = fields.get(name) or ()
    check_length(words, name, MAX_WORDS)
    return tuple(dict.fromkeys(check_text(word, name, MAX_WORD) for word in words))


def _known_action(word: str) -> str:
    if word not in _WORDS:
        raise invalid("actions", f"actions must be among: {', '.join(_WORDS)}.")
    return word


ECS_VERSION = "8.17.0"
SCHEMA = 1
"""The version of the fields under `watchword`."""

_REJECTIONS = frozenset({Action.ACCESS_DENIED.value, Action.AUTHENTICATION_FAILED.value})
_FAILURES = _REJECTIONS | {Action.OPERATION_FAILED.value}
# By the noun of an action: its ECS categories, and the type that names what was changed.
_CATEGORIES: dict[str, tuple[list[str], list[str]]] = {
    **dict.fromkeys(("token", "tokens", "account", "actor"), (["iam"], ["user"])),
    "group": (["iam"], ["group"]),
    **dict.fromkeys(("policy", "resource", "datahub"), (["iam"], ["admin"])),
    "access": (["api"], []),
    **dict.fromkeys(("authentication", "device"), (["authentication"], [])),
    "session": (["authentication", "session"], []),
    **dict.fromkeys(("operation", "store"), (["database"], [])),
}
_OTHER_CATEGORY: tuple[list[str], list[str]] = (["configuration"], [])
_TYPES = {
    **dict.fromkeys(("created", "derived", "rotated", "imported"), "creation"),
    **dict.fromkeys(("revoked", "deleted"), "deletion"),
    "denied": "denied",
    **dict.fromkeys(("expiring", "new_network", "found_by_scan"), "info"),
}
_SIGN_IN_TYPES = {"started": "start", "failed": "start", "ended": "end"}
_OPERATION_TYPES = {"failed": "error"}


def ecs_fields(event: KeptEvent) -> dict[str, Any]:
    """The event as nested ECS fields. What ECS has no field for is under `watchword`."""
    noun, _, verb = event.action.partition(".")
    categories, named = _CATEGORIES.get(noun, _OTHER_CATEGORY)
    user: dict[str, Any] = {"id": event.actor}
    fields: dict[str, Any] = {
        "@timestamp": iso(event.at),
        "ecs": {"version": ECS_VERSION},
        "event": {
            "kind": "event",
            "module": "watchword",
            "dataset": "watchword.audit",
            "id": str(event.seq),
            "sequence": event.seq,
            "action": event.action,
            "category": categories,
            "type": [*named, _type(categories, verb)],
            "outcome": "failure" if event.action in _FAILURES else "success",
        },
        "user": user,
        "watchword": {"schema": SCHEMA, "target": event.target, "detail": dict(event.detail)},
    }
    if noun in {"actor", "account"}:
        user["target"] = {"id": event.target}
    elif isinstance(event.detail.get("actorUrn"), str):
        user["target"] = {"id": event.detail["actorUrn"]}
    elif noun == "group":
        fields["group"] = {"id": event.target}
    if event.action in _REJECTIONS and "reason" in event.detail:
        fields["event"]["reason"] = event.detail["reason"]
    if event.bearer_id is not None:
        fields["watchword"]["token"] = {"id": event.bearer_id}
    if parse_address(event.peer) is not None:
        fields["source"] = {"ip": event.peer}
    elif event.peer:
        fields["watchword"]["peer"] = event.peer
    if event.request_id:
        fields["http"] = {"request": {"id": event.request_id}}
    return fields


def _type(categories: list[str], verb: str) -> str:
    if "authentication" in categories:
        return _SIGN_IN_TYPES.get(verb, "info")
    if "database" in categories:
        return _OPERATION_TYPES.get(verb, "change")
    return _TYPES.get(verb, "change")


class Transport(Enum):
    STDOUT = "stdout"
    FILE = "file"
    UDP = "syslog"
    TCP = "syslog+tcp"
    UNIX = "unix"


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """Where events are sent: a path, or a host and a port, or neither for standard output."""

    transport: Transport
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        match self.transport:
            case Transport.STDOUT:
                return "stdout"
            case Transport.FILE:
                return self.path
            case Transport.UNIX:
                return f"syslog:{self.path}"
            case _:
                host = f"[{self.host}]" if ":" in self.host else self.host
                return f"{self.transport.value}:{host}:{self.port}"


class EventSink(Protocol):
    def write(self, events: Sequence[KeptEvent]) -> None:
        """Write a line for each; when this returns they have arrived, as far as the target can tell. Blocks; raises
        OSError if it fails, and some of them may have arrived.
        """

    def close(self) -> None: ...

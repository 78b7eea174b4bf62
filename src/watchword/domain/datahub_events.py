"""Audit events as DataHub's search of them names and filters them.

An action that DataHub has no name for keeps its own, as `eventType`. `entityType` and `aspectName` say what changed, in
DataHub's words.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from watchword.domain.errors import invalid
from watchword.domain.events import MAX_WORDS, Action, EventSearch, KeptEvent, parse_cursor
from watchword.domain.filters import LARGEST, MAX_COUNT
from watchword.domain.lifetimes import DAY
from watchword.domain.names import check_text
from watchword.domain.sessions import SignInMethod

MAX_TOTAL = 10_000
"""Matching events are counted up to this."""
DEFAULT_SIZE = 10
MAX_WORD = 500


class DataHubEvent(NamedTuple):
    type: str
    entity: str | None = None
    aspect: str | None = None


_TOKEN = ("dataHubAccessToken", "dataHubAccessTokenInfo")
_POLICY = ("dataHubPolicy", "dataHubPolicyInfo")
_GROUP = ("corpGroup", "corpGroupInfo")
_EVENTS = {
    Action.TOKEN_CREATED: DataHubEvent("CreateAccessTokenEvent", *_TOKEN),
    Action.TOKEN_DERIVED: DataHubEvent("CreateAccessTokenEvent", *_TOKEN),
    Action.TOKEN_ROTATED: DataHubEvent("CreateAccessTokenEvent", *_TOKEN),
    Action.TOKEN_REVOKED: DataHubEvent("RevokeAccessTokenEvent", *_TOKEN),
    Action.TOKENS_REVOKED: DataHubEvent("RevokeAccessTokenEvent"),  # its target is no single token
    Action.POLICY_CREATED: DataHubEvent("CreatePolicyEvent", *_POLICY),
    Action.POLICY_UPDATED: DataHubEvent("UpdatePolicyEvent", *_POLICY),
    Action.POLICY_DELETED: DataHubEvent("DeletePolicyEvent", *_POLICY),
    Action.ACCOUNT_CREATED: DataHubEvent("CreateUserEvent", "corpuser", "corpUserKey"),
    Action.ACCOUNT_UPDATED: DataHubEvent("UpdateUserEvent", "corpuser", "corpUserInfo"),
    Action.ACCOUNT_DELETED: DataHubEvent("DeleteEntityEvent", "corpuser", "corpUserKey"),
    Action.ACTOR_UPDATED: DataHubEvent("UpdateUserEvent", "corpuser", "corpUserInfo"),
    Action.ACTOR_SUSPENDED: DataHubEvent("UpdateUserEvent", "corpuser", "corpUserStatus"),
    Action.ACTOR_RESUMED: DataHubEvent("UpdateUserEvent", "corpuser", "corpUserStatus"),
    Action.ACTOR_GROUPS_CHANGED: DataHubEvent("UpdateUserEvent", "corpuser", "groupMembership"),
    Action.GROUP_CREATED: DataHubEvent("EntityEvent", *_GROUP),
    Action.GROUP_UPDATED: DataHubEvent("EntityEvent", *_GROUP),
    Action.GROUP_DELETED: DataHubEvent("DeleteEntityEvent", *_GROUP),
    Action.GROUP_MEMBERS_ADDED: DataHubEvent("EntityEvent", *_GROUP),
    Action.GROUP_MEMBERS_REMOVED: DataHubEvent("EntityEvent", *_GROUP),
    Action.SESSION_STARTED: DataHubEvent("LogInEvent"),
    Action.AUTHENTICATION_FAILED: DataHubEvent("FailedLogInEvent"),
}
_OTHER_TYPES = ("CreateIngestionSourceEvent", "UpdateIngestionSourceEvent", "UpdateAspectEvent")
"""Event types of DataHub that never occur here."""
EVENTS = {action.value: _EVENTS.get(action) or DataHubEvent(action.value) for action in Action}
EVENT_TYPES = tuple(dict.fromkeys([*(event.type for event in EVENTS.values()), *_OTHER_TYPES]))


def parse_audit_search(query: Mapping[str, str], body: Mapping[str, Any], now: int) -> EventSearch | None:
    """The search of a request: page and times from the query, filters from the body. None: nothing can match."""
    types, entities, aspects = (_words(body, f"{name}Types") for name in ("event", "entity", "aspect"))
    for word in types:
        if word not in EVENT_TYPES:
            raise invalid("eventTypes", f"eventTypes must be among: {', '.join(EVENT_TYPES)}.")
    actions = [
        action
        for action, event in EVENTS.items()
        if (not types or event.type in types)
        and (not entities or event.entity in entities)
        and (not aspects or event.aspect in aspects)
    ]
    size = _number(query, "size", DEFAULT_SIZE)
    if not 1 <= size <= MAX_COUNT:
        raise invalid("size", f"size must be from 1 to {MAX_COUNT:,}.")
    search = EventSearch(
        count=size,
        after=parse_cursor(query["scrollId"], "scrollId") if query.get("scrollId") else None,
        actors=_words(body, "actorUrns"),
        actions=() if len(actions) == len(EVENTS) else tuple(actions),
        since=_time(query, "startTime", now - DAY),
        until=_time(query, "endTime", now) + 1,
    )
    return search if actions else None


def usage_event(event: KeptEvent, *, raw: bool) -> dict[str, Any]:
    """An event in DataHub's shape. User agents and the kind of API are not recorded."""
    known = EVENTS.get(event.action) or DataHubEvent(event.action)
    shown: dict[str, Any] = {
        "eventType": known.type,
        "timestamp": event.at,
        "actorUrn": event.actor,
        "sourceIP": event.peer,
        "eventSource": None,
        "userAgent": None,
        "telemetryTraceId": event.request_id,
        "entityUrn": None,
        "entityType": known.entity,
        "aspectName": known.aspect,
    }
    if known.entity is not None:
        is_urn = event.target.startswith("urn:")
        shown["entityUrn"] = event.target if is_urn else f"urn:li:{known.entity}:{event.target}"
    if known.type == "LogInEvent":
        shown["loginSource"] = "SSO_LOGIN" if event.detail.get("method") == SignInMethod.OIDC.value else None
    if raw:
        shown["rawUsageEvent"] = {
            "id": str(event.seq),
            "action": event.action,
            "target": event.target,
            "tokenId": event.bearer_id,
            "detail": event.detail,
        }
    return shown


def _time(query: Mapping[str, str], name: str, default: int) -> int:
    """In milliseconds; -1 means the default."""
    time = _number(query, name, -1)
    if not -1 <= time < LARGEST:
        raise invalid(name, f"{name} must be a time in milliseconds since 1970, or -1 for the default.")
    return default if time == -1 else time


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > len(str(LARGEST)):
        raise invalid(name, f"{name} must be a whole number.")
    return int(text)


def _words(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    words = body.get(name)
    words = [] if words is None else words
    if not isinstance(words, list) or len(words) > MAX_WORDS or not all(isinstance(word, str) for word in words):
        raise invalid(name, f"{name} must be a list of at most {MAX_WORDS} strings.")
    return tuple(dict.fromkeys(check_text(word, name, MAX_WORD) for word in words))

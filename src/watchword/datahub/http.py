"""DataHub's REST addresses, for its clients. There is no catalogue here: everything else below them is 404.

`datahub exists` reads the key of an actor. The Terraform provider reads a policy.

The audit log is searched with DataHub's names of events. An action that DataHub has no name for keeps its own, as
`eventType`. `entityType` and `aspectName` say what changed, in DataHub's words.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import orjson
from orjson import Fragment

from watchword.access.actor_service import Actors
from watchword.access.policy_service import Policies
from watchword.audit.service import AuditLog
from watchword.authority.callers import Caller
from watchword.authority.policies import Policy
from watchword.authority.privileges import Privilege
from watchword.authority.rejections_service import RejectionLog
from watchword.basics import names
from watchword.basics.errors import Fault, invalid
from watchword.basics.paging import LARGEST, MAX_COUNT, SEARCH_SECONDS
from watchword.basics.times import DAY, Clock
from watchword.http.errors import json_response
from watchword.http.processor_budget import in_slices
from watchword.http.requests import Request, Response, read_object, read_query
from watchword.index.http import OperationsEndpoint
from watchword.journal.events import MAX_WORDS, Action, EventSearch, KeptEvent, parse_cursor
from watchword.signin.session_rules import SignInMethod

PREFIXES = ("/aspects", "/entities", "/entitiesV2", "/relationships", "/openapi")
_ASPECTS, _ENTITIES = "/aspects/", "/entitiesV2/"
_POLICIES = "/openapi/v3/entity/datahubpolicy/"
_CLASSES = {
    "corpUserKey": "com.linkedin.metadata.key.CorpUserKey",
    "corpUserStatus": "com.linkedin.identity.CorpUserStatus",
}

Json = dict[str, Any]
Find = Callable[[Request, Caller, str], Awaitable[Json | None]]


class DataHubEndpoints:
    def __init__(
        self,
        actors: Actors,
        policies: Policies,
        audit: AuditLog,
        rejections: RejectionLog,
        clock: Clock,
        operations: OperationsEndpoint,
    ) -> None:
        self._actors, self._policies = actors, policies
        self._audit = audit
        self._rejections = rejections
        self._clock = clock
        self.routes: dict[str, tuple[str, Callable[[Request, Caller], Coroutine[Any, Any, Response]]]] = {
            "/openapi/operations/identity/user/urn": ("GET", _own_urn),
            "/openapi/operations/elasticSearch/getTaskStatus": ("GET", operations.get_task_status),
            "/openapi/operations/elasticSearch/getIndexSizes": ("GET", operations.get_index_sizes),
            "/openapi/v1/events/audit/search": ("POST", self._search_events),
        }
        self._entities: dict[str, Find] = {
            _ASPECTS: self._aspect,
            _ENTITIES: self._entity,
            _POLICIES: self._policy,
        }

    def has(self, path: str) -> bool:
        return path.startswith(PREFIXES) and any(path == one or path.startswith(one + "/") for one in PREFIXES)

    async def find(self, request: Request, path: str, caller: Caller) -> Response | None:
        """An entity whose urn ends the path; None if there is none that the caller may see."""
        for prefix, find in self._entities.items():
            if path.startswith(prefix) and request.scope.method in {"GET", "HEAD"}:
                content = await find(request, caller, path.removeprefix(prefix))
                return None if content is None else json_response(content)
        return None

    async def _aspect(self, request: Request, caller: Caller, urn: str) -> Json | None:
        query = read_query(request)
        name = query.get("aspect", "")
        if name not in _CLASSES or query.get("version", "0") != "0":
            return None
        found = await self._aspects(caller, urn)
        return None if found is None else {"version": 0, "aspect": {_CLASSES[name]: found[name]}}

    async def _entity(self, request: Request, caller: Caller, urn: str) -> Json | None:
        """`aspects` is `List(corpUserKey,corpUserStatus)`; without it, all."""
        named = read_query(request).get("aspects", "")
        wanted = set(named.removeprefix("List(").removesuffix(")").split(",")) if named else set(_CLASSES)
        found = await self._aspects(caller, urn)
        if found is None:
            return None
        aspects = {
            name: {"name": name, "type": "VERSIONED", "version": 0, "value": value}
            for name, value in found.items()
            if name in wanted
        }
        return {"urn": urn, "entityName": "corpuser", "aspects": aspects}

    async def _aspects(self, caller: Caller, urn: str) -> dict[str, Json] | None:
        try:
            names.check_actor(urn, "urn")
        except Fault:
            return None
        state = await self._actors.find(await self._actors.authorize_any(caller), urn)
        if state is None:
            return None
        # DataHub's clients require who changed it last, and when.
        changed = {"time": state.changed_at or 0, "actor": state.changed_by or names.SYSTEM_ACTOR}
        status = {"status": state.status.value, "lastModified": changed}
        return {"corpUserKey": {"username": names.username_of(urn)}, "corpUserStatus": status}

    async def _policy(self, request: Request, caller: Caller, urn: str) -> Json:
        with self._rejections.recording_denial(caller, "getPolicy"):
            grant = await self._policies.authorize_view(caller)
        return _policy_json(urn, await self._policies.get(grant, names.policy_urn(urn)))

    async def _search_events(self, request: Request, caller: Caller) -> Response:
        with self._rejections.recording_denial(caller, "searchAuditEvents"):
            grant = await self._audit.authorize(caller)
        query, body = read_query(request), await read_object(request, "the filters of the search")
        search = parse_audit_search(query, body, self._clock())
        if search is None:
            return json_response({"nextScrollId": None, "count": 0, "total": 0, "usageEvents": []})
        events, cursor = await self._audit.list(grant, search, SEARCH_SECONDS)
        raw = query.get("includeRaw", "").lower() != "false"
        return json_response(
            {
                "nextScrollId": None if cursor is None else str(cursor),
                "count": len(events),
                "total": await self._audit.count(grant, search, MAX_TOTAL, SEARCH_SECONDS),
                "usageEvents": await in_slices(
                    events, lambda event: Fragment(orjson.dumps(usage_event(event, raw=raw)))
                ),
            }
        )


async def _own_urn(request: Request, caller: Caller) -> Response:
    return json_response({"urn": caller.actor})


def _policy_json(urn: str, policy: Policy) -> Json:
    """With the urn that was asked for."""
    actors = {"users": sorted(policy.users), "groups": sorted(policy.groups), "allUsers": policy.all_users}
    info = {
        "displayName": policy.name,
        "description": policy.description or "",
        "type": "PLATFORM",
        "state": policy.state.value,
        "privileges": [privilege.name for privilege in Privilege if privilege in policy.privileges],
        "actors": actors | {"allGroups": False, "resourceOwners": False},
        "editable": policy.editable,
    }
    short_id = urn.removeprefix(names.DATAHUB_POLICY_PREFIX).removeprefix(names.POLICY_PREFIX)
    return {"urn": urn, "dataHubPolicyKey": {"value": {"id": short_id}}, "dataHubPolicyInfo": {"value": info}}


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
    return tuple(dict.fromkeys(names.check_text(word, name, MAX_WORD) for word in words))

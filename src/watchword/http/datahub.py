"""DataHub's REST addresses, for its clients. There is no catalogue here: everything else below them is 404.

`datahub exists` reads the key of an actor. The Terraform provider reads a policy.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from watchword.domain.actors import ActorState, Caller
from watchword.domain.datahub_events import MAX_TOTAL, parse_audit_search, usage_event
from watchword.domain.errors import Fault
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.names import DATAHUB_POLICY_PREFIX, POLICY_PREFIX, SYSTEM_ACTOR, check_actor, name_of, policy_urn
from watchword.domain.policies import Policy, Privilege
from watchword.http.errors import json_response
from watchword.http.operations import OperationsEndpoint
from watchword.http.requests import Request, Response, read_object, read_query
from watchword.service import CoreServices

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
    def __init__(self, core: CoreServices, operations: OperationsEndpoint) -> None:
        self._policies = core.policies
        self._audit = core.audit
        self._rejections = core.rejections
        self._clock = core.store.clock
        self.routes: dict[str, tuple[str, Callable[[Request, Caller], Awaitable[Response]]]] = {
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
            check_actor(urn, "urn")
        except Fault:
            return None
        state = await self._policies.find_actor(caller, urn)
        return None if state is None else {"corpUserKey": {"username": name_of(urn)}, "corpUserStatus": _status(state)}

    async def _policy(self, request: Request, caller: Caller, urn: str) -> Json:
        with self._rejections.recording_denial(caller, "getPolicy"):
            grant = await self._policies.authorize(caller)
        return _policy_json(urn, await self._policies.get(grant, policy_urn(urn)))

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
                "usageEvents": [usage_event(event, raw=raw) for event in events],
            }
        )


def is_datahub(path: str) -> bool:
    return path.startswith(PREFIXES) and any(path == one or path.startswith(one + "/") for one in PREFIXES)


async def _own_urn(request: Request, caller: Caller) -> Response:
    return json_response({"urn": caller.actor})


def _status(state: ActorState) -> Json:
    """DataHub's clients require who changed it last, and when."""
    changed = {"time": state.changed_at or 0, "actor": state.changed_by or SYSTEM_ACTOR}
    return {"status": state.status.value, "lastModified": changed}


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
    short_id = urn.removeprefix(DATAHUB_POLICY_PREFIX).removeprefix(POLICY_PREFIX)
    return {"urn": urn, "dataHubPolicyKey": {"value": {"id": short_id}}, "dataHubPolicyInfo": {"value": info}}

"""GraphQL resolvers for people and groups, as DataHub's clients read them: `corpUser`, `corpGroup`, `listUsers`.

A user or group is a dict. Its `relationships` are a function in that dict, which graphql-core calls if a document
selects them. A resolver of the field would take every document that selects a user off the fast path.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from watchword.access.actor_service import Actors
from watchword.access.group_rules import Group
from watchword.access.group_service import Groups
from watchword.authority.callers import ActorStatus
from watchword.basics.names import ShownActor, check_actor, check_group, username_of
from watchword.http.graphql.context import Info, page_of, query_of
from watchword.http.graphql.shapes import Json, Shape

ANY_GROUP, NATIVE_GROUP = "IsMemberOfGroup", "IsMemberOfNativeGroup"
_GROUP = Shape("urn name description memberCount=members set=set_name")
_GROUP_PROPERTIES = Shape("displayName=name description")
Shown = ShownActor | str | None
"""Of an actor: a name alone where the document selects no more."""


async def corp_user(_: Any, info: Info, urn: str) -> Json:
    actors = info.context.of(Actors)
    grant = await actors.authorize_see(info.context.caller, check_actor(urn, "urn"))
    known = await actors.find(grant, urn) is not None
    shown = await info.context.users([urn])
    return user_json(urn, shown.get(urn)) | {"exists": known}


async def corp_group(_: Any, info: Info, urn: str) -> Json:
    groups = info.context.of(Groups)
    grant = await groups.authorize_see(info.context.caller, check_group(urn, "urn"))
    return group_json(await groups.see(grant, urn))


async def list_users(_: Any, info: Info, input: Json | None = None) -> Json:
    context, actors = info.context, info.context.of(Actors)
    async with context.searching:
        grant = await actors.authorize_list(context.caller)
        page, query = page_of(input or {}), query_of(input or {})
        total, urns = await actors.search(grant, query, **page, seconds=context.time_left())
        context.show(len(urns))
    return page | {"total": total, "users": users_json(urns, await context.users(urns))}


async def list_roles(_: Any, __: Info, input: Json | None = None) -> Json:
    return page_of(input or {}) | {"total": 0, "roles": []}


def users_json(urns: tuple[str, ...] | list[str], shown: Mapping[str, Shown]) -> list[Json]:
    return [user_json(urn, shown.get(urn)) for urn in urns]


def user_json(urn: str, shown: Shown) -> Json:
    if not isinstance(shown, ShownActor):
        return {"urn": urn, "type": "CORP_USER", "username": username_of(urn), "exists": True, "displayName": shown}
    properties = {
        "active": None if shown.suspended is None else not shown.suspended,
        "displayName": shown.name,
        "fullName": shown.name,
        "email": shown.email,
    }
    return user_json(urn, shown.name) | {
        "isNativeUser": False,
        "status": None if shown.suspended is None else status_word(suspended=shown.suspended),
        "info": properties,
        "properties": properties,
        "editableProperties": {},
        "relationships": partial(_groups_of, urn),
    }


def status_word(*, suspended: bool) -> str:
    return ActorStatus.SUSPENDED.value if suspended else ActorStatus.ACTIVE.value


def group_json(group: Group) -> Json:
    properties = _GROUP_PROPERTIES(group)
    return _GROUP(group) | {
        "type": "CORP_GROUP",
        "info": properties,
        "properties": properties,
        "editableProperties": {},
        "origin": {"type": "EXTERNAL" if group.external else "NATIVE"},
        "relationships": partial(_members_of, group),
    }


async def _groups_of(urn: str, info: Info, input: Json) -> Json:
    """The groups of a user. A group made here is native; any group is a group."""
    types, page = input["types"], page_of(input)
    if input["direction"] != "OUTGOING" or {ANY_GROUP, NATIVE_GROUP}.isdisjoint(types):
        return _nothing(page)
    context = info.context
    async with context.searching:
        grant = await context.of(Actors).authorize_see(context.caller, urn)
        context.follow()
        total, groups = await context.of(Groups).of(grant, urn, **page, external=ANY_GROUP in types)
        context.show(len(groups))
    edges = [_edge(_type(group, types), "OUTGOING", group_json(group)) for group in groups]
    return page | {"total": total, "relationships": edges}


async def _members_of(group: Group, info: Info, input: Json) -> Json:
    """The members of a group. They are read only if the document selects them, or if their number is not known."""
    types, page = input["types"], page_of(input)
    if input["direction"] != "INCOMING" or _type(group, types) is None:
        return _nothing(page)
    context = info.context
    service, grant = await context.viewing(Groups)

    async def read(count: int) -> tuple[int, tuple[str, ...]]:
        async with context.searching:
            context.follow()
            found = await service.members(grant, group.urn, page["start"], count)
            context.show(len(found[1]))
            return found

    async def edges(_: Info) -> list[Json]:
        _total, urns = await read(page["count"])
        users = users_json(urns, await context.users(urns))
        return [_edge(_type(group, types), "INCOMING", user) for user in users]

    total = (await read(0))[0] if group.members is None else group.members
    return page | {"total": total, "relationships": edges}


def _type(group: Group, types: list[str]) -> str | None:
    """The type of the edge between the group and its members, if it is one of these."""
    if NATIVE_GROUP in types and not group.external:
        return NATIVE_GROUP
    return ANY_GROUP if ANY_GROUP in types else None


def _nothing(page: dict[str, int]) -> Json:
    return page | {"total": 0, "relationships": []}


def _edge(kind: str | None, direction: str, entity: Json) -> Json:
    """From a user to a group, or back."""
    entity["__typename"] = "CorpGroup" if direction == "OUTGOING" else "CorpUser"
    return {"type": kind, "direction": direction, "entity": entity}

"""GraphQL resolvers for groups and their members."""

from typing import Any

from watchword.access.directory_graphql import group_json, users_json
from watchword.access.group_service import Groups
from watchword.authority.policies import MAX_ENTRIES
from watchword.basics.errors import invalid
from watchword.basics.names import check_actor, check_description, check_group, check_name, check_short_id
from watchword.http.graphql.context import Info, page_of, query_of
from watchword.http.graphql.shapes import Json


async def get_group(_: Any, info: Info, urn: str) -> Json:
    service, grant = await info.context.viewing(Groups)
    return group_json(await service.get(grant, check_group(urn, "urn")))


async def list_groups(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.viewing(Groups)
    page = page_of(input)
    total, groups = await service.list(grant, **page, query=query_of(input))
    return page | {"total": total, "groups": [group_json(group) for group in groups]}


async def list_group_members(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.viewing(Groups)
    page = page_of(input)
    total, members = await service.members(grant, _group_urn(input), **page)
    return page | {"total": total, "members": users_json(members, await info.context.users(members))}


async def create_group(_: Any, info: Info, input: Json) -> str:
    service, grant = await info.context.authorized(Groups)
    short_id = input.get("id")
    if short_id is not None:
        check_short_id(short_id, "id")
    return await service.create(grant, short_id, check_name(input["name"]), check_description(input.get("description")))


async def remove_group(_: Any, info: Info, urn: str) -> bool:
    service, grant = await info.context.authorized(Groups)
    await service.delete(grant, check_group(urn, "urn"))
    return True


async def add_group_members(_: Any, info: Info, input: Json) -> bool:
    service, grant = await info.context.authorized(Groups)
    await service.change_members(grant, _group_urn(input), add=_users(input))
    return True


async def remove_group_members(_: Any, info: Info, input: Json) -> bool:
    service, grant = await info.context.authorized(Groups)
    await service.change_members(grant, _group_urn(input), remove=_users(input))
    return True


def _group_urn(input: Json) -> str:
    return check_group(input["groupUrn"], "groupUrn")


def _users(input: Json) -> list[str]:
    users: list[str] = input["userUrns"]
    if not 1 <= len(users) <= MAX_ENTRIES:
        raise invalid("userUrns", f"userUrns must have 1 to {MAX_ENTRIES:,} entries.")
    return [check_actor(user, "userUrns") for user in users]

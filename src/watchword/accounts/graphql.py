"""GraphQL resolvers for service accounts."""

from typing import Any

from watchword.access.directory_graphql import status_word
from watchword.accounts.service import Accounts
from watchword.basics.names import check_account, check_description, check_lower_id, check_name, name_of
from watchword.http.graphql.context import Info, page_of, query_of
from watchword.http.graphql.shapes import Json, Shape

ACCOUNT = Shape(
    "urn name=urn description created_by created_at displayName=name createdByName@created_by set=set_name"
    " updatedAt=created_at status=suspended",
    type=lambda _: "CORP_USER",
    name=name_of,
    status=lambda suspended: status_word(suspended=suspended),
)


async def create_service_account(_: Any, info: Info, input: Json) -> Json:
    accounts, grant = await info.context.authorized(Accounts)
    short_id, name = input.get("id"), input.get("displayName")
    if short_id is not None:
        check_lower_id(short_id, "id")
    if name is not None:
        check_name(name, "displayName")
    made = await accounts.create(grant, short_id, name, check_description(input.get("description")))
    return (await info.context.shown(ACCOUNT, made))[0]


async def get_service_account(_: Any, info: Info, urn: str) -> Json:
    accounts, grant = await info.context.authorized(Accounts)
    return (await info.context.shown(ACCOUNT, await accounts.get(grant, check_account(urn, "urn"))))[0]


async def list_service_accounts(_: Any, info: Info, input: Json | None = None) -> Json:
    context, accounts = info.context, info.context.of(Accounts)
    async with context.searching:
        grant = await accounts.authorize(context.caller)
        page = page_of(input or {})
        found = await accounts.list(grant, query=query_of(input or {}), **page)
    return page | {"total": found.total, "serviceAccounts": await context.shown(ACCOUNT, *found.rows)}


async def delete_service_account(_: Any, info: Info, urn: str) -> bool:
    accounts, grant = await info.context.authorized(Accounts)
    await accounts.delete(grant, check_account(urn, "urn"))
    return True

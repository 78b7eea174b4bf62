"""Service accounts in GraphQL: its words turned into the service's, and the answers back. No rule lives here."""

from collections.abc import Callable
from typing import Any

from watchword.domain.accounts import ServiceAccount, check_account
from watchword.domain.actors import ActorStatus
from watchword.domain.texts import check_description, check_name, check_text
from watchword.domain.urns import MAX_LENGTH, name_of
from watchword.http.graphql.context import Info, Json, page_of


async def _create(_: Any, info: Info, input: Json) -> Json:  # noqa: A002 - the schema's word
    def named() -> tuple[str, str | None]:
        return check_name(input["displayName"], "displayName"), check_description(input.get("description"))

    return shown_account(await info.context.services.accounts.create(info.context.caller, named))


async def _get(_: Any, info: Info, urn: str) -> Json:
    return shown_account(
        await info.context.services.accounts.get(info.context.caller, lambda: check_account(urn, "urn"))
    )


async def _list(_: Any, info: Info, input: Json | None = None) -> Json:  # noqa: A002
    def wanted() -> tuple[int, int, str]:
        return *page_of(input or {}), check_text((input or {}).get("query") or "", "query", MAX_LENGTH)

    async with info.context.searching:
        start, count, page = await info.context.services.accounts.list(info.context.caller, wanted)
    return {
        "start": start,
        "count": count,
        "total": page.total,
        "serviceAccounts": [shown_account(account) for account in page.rows],
    }


async def _delete(_: Any, info: Info, urn: str) -> bool:
    await info.context.services.accounts.delete(info.context.caller, lambda: check_account(urn, "urn"))
    return True


def shown_account(account: ServiceAccount) -> Json:
    return {
        "urn": account.urn,
        "type": "CORP_USER",
        "name": name_of(account.urn),
        "displayName": account.name,
        "description": account.description,
        "createdBy": account.created_by,
        "createdAt": account.created_at,
        "updatedAt": account.created_at,
        "status": (ActorStatus.SUSPENDED if account.suspended else ActorStatus.ACTIVE).value,
    }


QUERIES: dict[str, Callable[..., Any]] = {"getServiceAccount": _get, "listServiceAccounts": _list}
MUTATIONS: dict[str, Callable[..., Any]] = {"createServiceAccount": _create, "deleteServiceAccount": _delete}

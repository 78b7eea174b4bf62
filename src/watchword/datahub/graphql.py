"""GraphQL resolver for what imports from DataHub brought."""

from typing import Any

from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.datahub.store import ImportStore
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape
from watchword.settings import Settings
from watchword.stores.joined import Store

_STATUS = Shape("tokens live never_expiring last_expires_at last_changed_at usedIn30Days=used_lately")


async def import_status(_: Any, info: Info) -> Json:
    context = info.context
    await context.of(Authority).authorize(context.caller, Privilege.MANAGE_ACCESS_TOKENS)
    async with context.searching:
        store = context.of(Store)  # type: ignore[type-abstract]  # the open one
        found = await ImportStore(store).import_status()
    return _STATUS(found) | {"hasSalt": context.of(Settings).datahub_salt is not None}

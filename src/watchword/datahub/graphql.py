"""GraphQL resolver for what imports from DataHub brought."""

from typing import Any

from watchword.datahub.service import Imports
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape
from watchword.settings import Settings

_STATUS = Shape("tokens live never_expiring last_expires_at last_changed_at usedIn30Days=used_lately")


async def import_status(_: Any, info: Info) -> Json:
    context = info.context
    imports = Imports.using(context.of)
    grant = await imports.authorize(context.caller)
    async with context.searching:
        found = await imports.status(grant)
    return _STATUS(found) | {"hasSalt": context.of(Settings).datahub_salt is not None}

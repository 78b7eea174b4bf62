"""GraphQL resolver of imports from DataHub."""

from typing import Any

from watchword.http.graphql.context import Info, Json, record_json


async def import_status(_: Any, info: Info) -> Json:
    imports = info.context.services.core.imports
    grant = await imports.authorize(info.context.caller)
    async with info.context.searching:
        found = await imports.status(grant)
    told = record_json(found, "tokens live unlimited last_expires_at last_changed_at")
    return told | {"usedIn30Days": found.used_lately, "hasSalt": imports.has_salt}

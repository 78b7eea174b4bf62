"""The GraphQL resolver of the overview."""

from typing import Any

from watchword.domain.counts import EXPIRING_DAYS
from watchword.http.graphql.context import Info, Json, days_json, record_json

_WEEK = EXPIRING_DAYS.index(7)


async def overview(_: Any, info: Info, input: Json | None = None) -> Json:
    context, service = info.context, info.context.services.core.overview
    async with context.searching:
        grant = await service.authorize(context.caller)
        if (input or {}).get("all"):
            found = await service.of_all(grant, context.time_left())
        else:
            context.meter.check()
            found = await service.of_caller(grant, context.time_left())
            context.meter.charge(found.counts.seconds)
    counts = found.counts
    names = await context.names(urn for urn, _ in counts.owners)
    return record_json(
        counts,
        "live unlimited suspended",
        expiring7Days=counts.expiring[_WEEK],
        unused90Days=found.unused,
        usesByDay=days_json(found.uses),
        expiriesByDay=days_json(found.expiries),
        denialsByDay=None if found.denials is None else days_json(found.denials),
        failedSignInsByDay=None if found.failed_sign_ins is None else days_json(found.failed_sign_ins),
        owners=[{"actorUrn": urn, "actorName": names.get(urn), "count": count} for urn, count in counts.owners],
    )

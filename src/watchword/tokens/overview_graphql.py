"""GraphQL resolvers for the overview of tokens."""

from operator import itemgetter
from typing import Any

from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape
from watchword.tokens.counts import EXPIRING_DAYS
from watchword.tokens.graphql import days_json
from watchword.tokens.list_service import VisibleTokens
from watchword.tokens.overview_service import TokenOverview

_WEEK = EXPIRING_DAYS.index(7)
_OVERVIEW = Shape(
    "live=counts.live neverExpiring=counts.never_expiring suspended=counts.suspended expiring7Days=counts.expiring"
    " unused90Days=counts.unused usesByDay=uses expiriesByDay=expiries denialsByDay=denials"
    " failedSignInsByDay=failed_sign_ins",
    expiring7Days=itemgetter(_WEEK),
    usesByDay=days_json,
    expiriesByDay=days_json,
    denialsByDay=days_json,
    failedSignInsByDay=days_json,
)


async def overview(_: Any, info: Info, input: Json | None = None) -> Json:
    context, service = info.context, info.context.of(TokenOverview)
    async with context.searching:
        grant = await context.of(VisibleTokens).authorize(context.caller)
        if (input or {}).get("all"):
            found = await service.of_all(grant, context.time_left())
        else:
            context.meter.check()
            found = await service.of_caller(grant, context.time_left())
            context.meter.charge(found.counts.seconds)
    counts = found.counts
    names = await context.names(urn for urn, _ in counts.owners)
    owners = [{"actorUrn": urn, "actorName": names.get(urn), "count": count} for urn, count in counts.owners]
    return _OVERVIEW(found) | {"owners": owners}

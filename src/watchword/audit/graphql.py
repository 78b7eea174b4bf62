"""GraphQL resolvers for the audit log."""

from typing import Any

from watchword.audit.service import AuditLog
from watchword.http import processor_budget
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape
from watchword.journal.events import Action, KeptEvent, kind_of, named_in, parse_event_counts, parse_event_search

_EVENT = Shape(
    "at action target peer request_id detail id=seq actorUrn=actor actorName@actor tokenId=bearer_id", id=str
)
_ACTION = Shape("name=value description=meaning kind=value", kind=lambda word: kind_of(word).value)


async def list_events(_: Any, info: Info, input: Json | None = None) -> Json:
    context, audit = info.context, info.context.of(AuditLog)
    async with context.searching:
        grant = await audit.authorize(context.caller)
        search = parse_event_search(input or {})
        events, cursor = await audit.list(grant, search, context.time_left())
        context.show(len(events))
    names = await context.names(urn for event in events for urn in named_in(event))

    def shown(event: KeptEvent) -> Json:
        named = {urn: names[urn] for urn in named_in(event) if urn in names}
        return _EVENT(event, names) | {
            "targetName": event.detail.get("name") or names.get(event.target),
            "names": named,
        }

    return {
        "count": search.count,
        "events": await processor_budget.in_slices(events, shown),
        "cursor": None if cursor is None else str(cursor),
    }


async def event_counts(_: Any, info: Info, input: Json) -> Json:
    context, audit = info.context, info.context.of(AuditLog)
    async with context.searching:
        grant = await audit.authorize(context.caller)
        search, step = parse_event_counts(input)
        found = await audit.count_by_time(grant, search, step, context.time_left())
    counts = sorted((start, kind.value, count) for (start, kind), count in found.counts.items())
    return {
        "countedSince": found.since,
        "counts": [{"start": start, "kind": kind, "count": count} for start, kind, count in counts],
    }


async def list_event_actions(_: Any, __: Info) -> list[Json]:
    return [_ACTION(action) for action in Action]

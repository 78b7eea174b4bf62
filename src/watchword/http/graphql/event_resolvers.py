"""Events in GraphQL. No rule lives here."""

from typing import Any

from watchword.domain.events import Action, KeptEvent, parse_event_search
from watchword.http.graphql.context import Info, Json, Resolvers


async def _list(_: Any, info: Info, input: Json | None = None) -> Json:  # noqa: A002 - the schema's word
    context = info.context
    asked = input or {}
    names = ("count", "cursor", "actorUrns", "actions", "targets", "since", "until")
    async with context.searching:
        search, events, cursor = await context.services.audit.list(
            context.caller, lambda: parse_event_search(*(asked.get(name) for name in names)), context.time_left()
        )
        context.show(len(events))
    return {
        "count": search.count,
        "events": [_shown(event) for event in events],
        "cursor": None if cursor is None else str(cursor),
    }


def _shown(event: KeptEvent) -> Json:
    return {
        "id": str(event.seq),
        "at": event.at,
        "action": event.action,
        "actorUrn": event.actor,
        "tokenId": event.bearer_id,
        "target": event.target,
        "peer": event.peer,
        "requestId": event.request_id,
        "detail": event.detail,
    }


async def _actions(_: Any, __: Info) -> list[Json]:
    return [{"name": action.value, "means": action.meaning} for action in Action]


QUERIES: Resolvers = {"listEvents": _list, "listEventActions": _actions}

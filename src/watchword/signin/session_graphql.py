"""GraphQL resolvers for sessions, and for an actor with the person that it is linked to."""

from typing import Any

from watchword.access.actor_graphql import ACTOR_STATE
from watchword.access.actor_service import Actors
from watchword.basics.errors import invalid
from watchword.basics.names import check_actor, check_text
from watchword.http.graphql.context import Info, page_of
from watchword.http.graphql.shapes import Json, Shape
from watchword.signin.session_rules import MAX_SUBJECT, Identity
from watchword.signin.session_service import Sessions

MAX_ISSUER = 1_000
MAX_ID = 100
_SESSION = Shape("id token_id created_at seen_at ends_at peer actorUrn=actor actorName@actor method=method.name")
_HOLDINGS = Shape("known liveTokenCount=live_tokens suspendedTokenCount=suspended_tokens sessionCount=sessions")
_MEMBERSHIP = Shape(
    "groups external_groups identity=linked",
    identity=Shape("issuer=identity.issuer subject=identity.subject linked_at signed_in_at"),
)


async def get_actor(_: Any, info: Info, urn: str) -> Json:
    actors, grant = await info.context.authorized(Actors)
    state, holdings = await actors.state(grant, check_actor(urn, "urn"))
    membership = await info.context.of(Sessions).membership(grant, urn)
    return (await info.context.shown(ACTOR_STATE, state))[0] | _HOLDINGS(holdings) | _MEMBERSHIP(membership)


async def list_sessions(_: Any, info: Info, input: Json | None = None) -> Json:
    context, sessions, arguments = info.context, info.context.of(Sessions), input or {}
    async with context.searching:
        actor = None if arguments.get("all") else arguments.get("actorUrn") or context.caller.actor
        grant = await sessions.authorize(context.caller, actor)
        if actor is None and arguments.get("actorUrn"):
            raise invalid("all", "all must not be given together with actorUrn.")
        page = page_of(arguments)
        found = await sessions.list(grant, actor and check_actor(actor, "actorUrn"), **page)
        context.show(len(found.sessions))
    own = context.caller.session_id
    rows = [one | {"current": one["id"] == own} for one in await context.shown(_SESSION, *found.sessions)]
    return page | {"total": found.total, "sessions": rows}


async def end_session(_: Any, info: Info, id: str) -> bool:
    sessions, caller = info.context.of(Sessions), info.context.caller
    grant = await sessions.authorize(caller, caller.actor)
    await sessions.end(grant, check_text(id, "id", MAX_ID))
    return True


async def link_actor(_: Any, info: Info, input: Json) -> bool:
    sessions = info.context.of(Sessions)
    grant = await sessions.authorize_link(info.context.caller)
    issuer, subject = input.get("issuer"), input.get("subject")
    issuer = sessions.issuer if issuer is None else issuer
    identity = None if subject is None else _identity(issuer or "", subject)
    await sessions.link(grant, check_actor(input["actorUrn"], "actorUrn"), identity)
    return True


def _identity(issuer: str, subject: str) -> Identity:
    if not check_text(issuer, "issuer", MAX_ISSUER):
        raise invalid("issuer", "issuer must be given: WATCHWORD_OIDC_ISSUER is not set.")
    if not check_text(subject, "subject", MAX_SUBJECT):
        raise invalid("subject", f"subject must have 1 to {MAX_SUBJECT} characters.")
    return Identity(issuer, subject)

"""GraphQL resolvers for console sessions, and for the persons that actors are linked to."""

from typing import Any

from watchword.domain.errors import invalid
from watchword.domain.names import check_actor, check_text
from watchword.domain.sessions import MAX_SUBJECT, Identity
from watchword.http.graphql.context import Info, Json, page_of, record_json

MAX_ISSUER = 1_000
MAX_ID = 100


async def list_sessions(_: Any, info: Info, input: Json | None = None) -> Json:
    context, sessions, asked = info.context, info.context.services.core.sessions, input or {}
    async with context.searching:
        actor = None if asked.get("all") else asked.get("actorUrn") or context.caller.actor
        grant = await sessions.authorize(context.caller, actor)
        if actor is None and asked.get("actorUrn"):
            raise invalid("all", "all must not be given together with actorUrn.")
        page = page_of(asked)
        found = await sessions.list(grant, actor and check_actor(actor, "actorUrn"), **page)
        context.show(len(found.sessions))
    names = await context.names(session.actor for session in found.sessions)
    own = context.caller.session_id
    rows = [
        record_json(
            session,
            "id token_id created_at seen_at ends_at peer",
            actorUrn=session.actor,
            actorName=names.get(session.actor),
            method=session.method.name,
            current=session.id == own,
        )
        for session in found.sessions
    ]
    return page | {"total": found.total, "sessions": rows}


async def end_session(_: Any, info: Info, id: str) -> bool:
    await info.context.services.core.sessions.end(info.context.caller, check_text(id, "id", MAX_ID))
    return True


async def link_actor(_: Any, info: Info, input: Json) -> bool:
    services = info.context.services
    grant = await services.core.sessions.authorize_link(info.context.caller)
    issuer, subject = input.get("issuer"), input.get("subject")
    if issuer is None and services.provider is not None:
        issuer = services.provider.issuer
    identity = None if subject is None else _identity(issuer or "", subject)
    await services.core.sessions.link(grant, check_actor(input["actorUrn"], "actorUrn"), identity)
    return True


def _identity(issuer: str, subject: str) -> Identity:
    if not check_text(issuer, "issuer", MAX_ISSUER):
        raise invalid("issuer", "issuer must be given: WATCHWORD_OIDC_ISSUER is not set.")
    if not check_text(subject, "subject", MAX_SUBJECT):
        raise invalid("subject", f"subject must have 1 to {MAX_SUBJECT} characters.")
    return Identity(issuer, subject)

"""GraphQL resolvers for actors: `me`, the list, their status and profile."""

from typing import Any

from watchword.access.actor_rules import ProfileField, check_profile, parse_actor_search
from watchword.access.actor_service import Actors
from watchword.access.directory_graphql import user_json
from watchword.access.policy_service import Policies
from watchword.authority.callers import ActorStatus
from watchword.authority.privileges import PRIVILEGE_FIELDS
from watchword.basics.errors import invalid
from watchword.basics.names import check_actor, username_of
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape

ACTOR_STATE = Shape("urn displayName@urn email status=status.value changed_at changed_by changedByName@changed_by")

# DataHub's clients ask for these. Nothing here corresponds to them.
NO_PRIVILEGES = dict.fromkeys(
    [
        "viewAnalytics", "viewMetadataProposals", "manageIngestion", "canViewIngestionPage", "manageSecrets",
        "createDomains", "manageDomains", "viewTests", "manageTests", "manageGlossaries", "proposeCreateGlossaryTerm",
        "proposeCreateGlossaryNode", "manageUserCredentials", "createTags", "manageTags", "viewManageTags",
        "manageGlobalSettings", "manageGlobalViews", "manageOwnershipTypes", "manageGlobalAnnouncements",
        "createBusinessAttributes", "manageBusinessAttributes", "manageStructuredProperties",
        "viewStructuredPropertiesPage", "manageApplications", "manageFeatures", "manageHomePageTemplates",
        "manageDocumentationForms", "viewDocumentationFormsPage", "manageDocuments",
        "manageOrganizationDisplayPreferences", "createSupportTickets",
    ],
    False,
)  # fmt: skip


async def me(_: Any, info: Info) -> Json:
    caller, policies = info.context.caller, info.context.of(Policies)
    granted, _scopes = await policies.granted(await policies.authorize_for(caller, caller.actor), caller.actor)
    shown = await info.context.users([caller.actor])
    return {
        "corpUser": user_json(caller.actor, shown.get(caller.actor)),
        "platformPrivileges": NO_PRIVILEGES | {field: one in granted for field, one in PRIVILEGE_FIELDS.items()},
    }


async def list_actors(_: Any, info: Info, input: Json | None = None) -> Json:
    context, actors = info.context, info.context.of(Actors)
    async with context.searching:
        grant = await actors.authorize_list(context.caller)
        search = parse_actor_search(input or {})
        page = await actors.list(grant, search, context.time_left())
        context.show(len(page.actors))
    states = await context.shown(ACTOR_STATE, *(actor.state for actor in page.actors))
    rows = [
        state | {"username": username_of(actor.state.urn), "liveTokenCount": actor.live_tokens, "groups": actor.groups}
        for state, actor in zip(states, page.actors, strict=True)
    ]
    return {
        "count": search.count,
        "actors": rows,
        "cursor": page.actors[-1].state.urn if page.more else None,
    }


async def update_user_status(_: Any, info: Info, urn: str, status: str) -> str:
    actors, grant = await info.context.authorized(Actors)
    await actors.set_status(grant, check_actor(urn, "urn"), ActorStatus(status))
    return urn


async def set_actor(_: Any, info: Info, input: Json) -> str:
    actors, grant = await info.context.authorized(Actors)
    urn: str = check_actor(input["urn"], "urn")
    profile = {field: input[field.value] for field in ProfileField if field.value in input}
    if not profile:
        raise invalid("input", "input must have displayName, email or both; null removes one.")
    await actors.set_profile(grant, urn, check_profile(profile))
    return urn

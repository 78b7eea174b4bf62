"""Who may do what and why, and the actors that are known, in GraphQL. No rule lives here."""

from typing import Any

from watchword.domain.actors import KnownActor, parse_actor_search
from watchword.domain.policies import PolicyMatch, Privilege, included, privilege_of
from watchword.domain.urns import check_actor, name_of
from watchword.http.graphql.context import Info, Json, Resolvers


async def _explain(_: Any, info: Info, input: Json) -> Json:  # noqa: A002 - the schema's word
    context = info.context
    actor = check_actor(input["actorUrn"], "actorUrn")
    found = await context.services.policies.explain(
        context.caller, actor, lambda: privilege_of(input["privilege"], "privilege")
    )
    return {
        "actorUrn": found.actor,
        "privilege": found.privilege.name,
        "allowed": found.refusal is None,
        "suspended": found.suspended,
        "grounds": [_policy_match_json(match) for match in found.grounds],
        "sentence": found.sentence,
    }


async def _privileges(_: Any, __: Info) -> list[Json]:
    return [
        {
            "name": privilege.name,
            "displayName": privilege.display_name,
            "allows": privilege.allows,
            "includes": [one.name for one in Privilege if one in included([privilege]) - {privilege}],
        }
        for privilege in Privilege
    ]


async def _list_actors(_: Any, info: Info, input: Json | None = None) -> Json:  # noqa: A002
    context = info.context
    asked = input or {}
    async with context.searching:
        search, page = await context.services.policies.actors(
            context.caller,
            lambda: parse_actor_search(
                asked.get("count"), asked.get("cursor"), asked.get("prefix"), only_suspended=asked.get("onlySuspended")
            ),
            context.time_left(),
        )
        context.show(len(page.actors))
    return {
        "count": search.count,
        "actors": [_shown_actor(actor) for actor in page.actors],
        "cursor": page.actors[-1].state.urn if page.more else None,
    }


def _policy_match_json(match: PolicyMatch) -> Json:
    return {
        "policyUrn": match.policy.urn,
        "policyName": match.policy.name,
        "via": match.via.value,
        "groupUrn": match.group,
        "privilege": match.privilege.name,
    }


def _shown_actor(actor: KnownActor) -> Json:
    state = actor.state
    return {
        "urn": state.urn,
        "username": name_of(state.urn),
        "status": state.status.value,
        "changedAt": state.changed_at,
        "changedBy": state.changed_by,
        "tokenCount": actor.tokens,
        "groups": list(actor.groups),
    }


QUERIES: Resolvers = {"explainPrivilege": _explain, "listPrivileges": _privileges, "listActors": _list_actors}

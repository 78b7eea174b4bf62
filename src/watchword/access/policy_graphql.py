"""GraphQL resolvers for policies and privileges."""

from collections.abc import Iterable, Mapping
from typing import Any

from watchword.access.actor_service import Actors
from watchword.access.directory_graphql import Shown, status_word, users_json
from watchword.access.explanations import MAX_NAMED, Holder
from watchword.access.policy_filter import parse_policy_filter
from watchword.access.policy_service import Policies
from watchword.authority.declared_parts import Declarable, Part
from watchword.authority.policies import Policy, parse_policy
from watchword.authority.privileges import ESCALATING, Privilege, included, right_name, right_of
from watchword.authority.resources import RESOURCE_PART
from watchword.basics.errors import invalid
from watchword.basics.names import DATAHUB_POLICY_PREFIX, ShownActor, check_actor, check_urn, policy_urn
from watchword.http.graphql.context import Info, page_of
from watchword.http.graphql.shapes import Json, Shape

_MATCH = Shape(
    "policyUrn=policy.urn policyName=policy.name via=via.value groupUrn=group privilege=right", privilege=right_name
)
_EXPLANATION = Shape(
    "suspended explanation actorUrn=actor privilege=right grants",
    privilege=right_name,
    grants=[_MATCH],
    allowed=lambda found: found.refusal is None,
)
_PRIVILEGE = Shape(
    "name display_name allows",
    includes=lambda one: [other.name for other in Privilege if other in included([one]) - {one}],
    escalates=ESCALATING.__contains__,
)
_POLICY = Shape(
    "urn name description editable revision state=state.value privileges scopes source=source.value set=set_name",
    privileges=lambda privileges: [privilege.name for privilege in Privilege if privilege in privileges],
    scopes=sorted,
)


async def get_granted_privileges(_: Any, info: Info, input: Json) -> Json:
    policies = info.context.of(Policies)
    actor = check_actor(input["actorUrn"], "actorUrn")
    grant = await policies.authorize_for(info.context.caller, actor)
    if (input.get("resourceSpec") or {}).get("resourceUrn"):
        raise invalid(
            "resourceSpec.resourceUrn", "resourceSpec.resourceUrn must be empty: privileges here are not on resources."
        )
    granted, scopes = await policies.granted(grant, actor)
    return {
        "privileges": [privilege.name for privilege in Privilege if privilege in granted],
        "scopes": sorted(scopes),
    }


async def explain_privilege(_: Any, info: Info, input: Json) -> Json:
    policies = info.context.of(Policies)
    actor = check_actor(input["actorUrn"], "actorUrn")
    grant = await policies.authorize_for(info.context.caller, actor)
    found = await policies.explain(grant, actor, right_of(input["privilege"], "privilege"))
    return _EXPLANATION(found)


async def list_privileges(_: Any, __: Info) -> list[Json]:
    return [_PRIVILEGE(privilege) for privilege in Privilege]


async def list_privilege_holders(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await info.context.viewing(Policies)
    page = page_of(input)
    total, rows, complete = await policies.holders(grant, right_of(input["privilege"], "privilege"), **page)
    actors = [holder.actor for holder in rows if holder.actor is not None]
    shown = await info.context.of(Actors).shown_actors(grant, dict.fromkeys(actors))
    return page | {
        "total": total,
        "complete": complete,
        "holders": [_holder_json(holder, shown) for holder in rows],
    }


async def policy_effect(_: Any, info: Info, urn: str | None = None, input: Json | None = None) -> Json:
    policies, grant = await info.context.viewing(Policies)
    if urn is None and input is None:
        raise invalid("input", "input must be given for a new policy, or urn for one to delete.")
    wanted = None if urn is None else policy_urn(check_urn(urn, "urn"))
    found = await policies.effect(grant, wanted, None if input is None else _policy(wanted or "", input))
    caller = info.context.caller.actor
    # The first of those who gain or lose; the caller before others.
    named = {
        change: sorted(change.actors or (), key=lambda actor: actor != caller)[:MAX_NAMED] for change in found.changes
    }
    shown = await info.context.users([actor for actors in named.values() for actor in actors])
    return {
        "appliesTo": found.applies_to,
        "complete": found.complete,
        "changes": [
            {
                "privilege": right_name(change.right),
                "change": "GAIN" if change.gained else "LOSE",
                "count": None if change.actors is None else len(change.actors),
                "users": users_json(actors, shown),
            }
            for change, actors in named.items()
        ],
    }


def _holder_json(holder: Holder, shown: Mapping[str, ShownActor]) -> Json:
    actor = holder.actor
    about = None if actor is None else shown[actor]
    return _MATCH(holder.match) | {
        "actorUrn": actor,
        "actorName": None if about is None else about.name,
        "status": None if about is None else status_word(suspended=bool(about.suspended)),
    }


async def create_policy(_: Any, info: Info, input: Json) -> str:
    policies, grant = await info.context.authorized(Policies)
    return await policies.create(grant, _policy("", input))


async def update_policy(_: Any, info: Info, urn: str, input: Json, revision: str | None = None) -> str:
    policies, grant = await info.context.authorized(Policies)
    create = urn.startswith(DATAHUB_POLICY_PREFIX)
    await policies.update(grant, _policy(policy_urn(urn), input), create=create, revision=revision)
    return urn


async def delete_policy(_: Any, info: Info, urn: str) -> str:
    policies, grant = await info.context.authorized(Policies)
    await policies.delete(grant, policy_urn(check_urn(urn, "urn")))
    return urn


async def get_policy(_: Any, info: Info, urn: str) -> Json:
    policies, grant = await info.context.viewing(Policies)
    policy = await policies.get(grant, policy_urn(check_urn(urn, "urn")))
    return policy_json(policy, await info.context.users(policy.users))


async def list_policies(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await info.context.viewing(Policies)
    page = page_of(input)
    found = await policies.list(grant, input.get("query"), parse_policy_filter(input.get("orFilters")))
    rows = found[page["start"] :][: page["count"]]
    shown = await info.context.users(users_of(rows))
    return page | {"total": len(found), "policies": [policy_json(policy, shown) for policy in rows]}


def part_json(part: Part[Any], one: Declarable) -> Json:
    return part.written(one) | {"set": one.set_name}


async def list_resources(_: Any, info: Info) -> list[Json]:
    policies, grant = await info.context.viewing(Policies)
    return [part_json(RESOURCE_PART, resource) for resource in await policies.resources(grant)]


def _policy(urn: str, input: Json) -> Policy:
    check_supported(input)
    return parse_policy(urn, input)


def check_supported(input: Json, where: str = "") -> None:
    """Reject what has a meaning only in DataHub's catalogue. Its clients send these fields, empty, with any policy."""
    named = ("roles", "allGroups", "resourceOwners", "resourceOwnersTypes")
    given = {f"actors.{name}": input["actors"].get(name) for name in named}
    given |= {f"resources.{name}": value for name, value in (input.get("resources") or {}).items()}
    for name, value in given.items():
        if value.get("criteria") if isinstance(value, dict) else value:
            raise invalid(where + name, f"{where}{name} must be empty or false: it has no meaning here.")


def users_of(policies: Iterable[Policy]) -> list[str]:
    return [user for policy in policies for user in policy.users]


def policy_json(policy: Policy, shown: Mapping[str, Shown]) -> Json:
    unsupported = {"roles": [], "allGroups": False, "resourceOwners": False, "resourceOwnersTypes": []}
    users = sorted(policy.users)
    actors = {"users": users, "groups": sorted(policy.groups), "allUsers": policy.all_users}
    actors["resolvedUsers"] = users_json(users, shown)
    return _POLICY(policy) | {"type": "PLATFORM", "actors": actors | unsupported, "resources": None}

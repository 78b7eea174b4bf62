"""GraphQL resolvers for policies, groups and privileges."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from watchword.domain.declared_entities import (
    NO_ENTITIES,
    DeclaredAccount,
    DeclaredGroup,
    Entity,
    EntityPlan,
    check_entities,
)
from watchword.domain.errors import invalid
from watchword.domain.filters import parse_policy_filter
from watchword.domain.names import (
    DATAHUB_POLICY_PREFIX,
    POLICY_PREFIX,
    ShownActor,
    check_actor,
    check_description,
    check_group,
    check_name,
    check_short_id,
    check_urn,
    policy_urn,
)
from watchword.domain.policies import (
    DEFAULT_SET,
    ESCALATING,
    MAX_ENTRIES,
    MAX_NAMED,
    Holder,
    Policy,
    PolicyDeclaration,
    PolicyMatch,
    PolicyPlan,
    PolicyState,
    Privilege,
    check_declared,
    included,
    privilege_of,
    right_name,
    right_of,
)
from watchword.domain.resources import Resource, check_resources
from watchword.domain.retention import check_rules
from watchword.domain.webhooks import check_webhooks
from watchword.http.graphql.context import Info, Json, change_json, page_of, query_of, record_json
from watchword.http.graphql.directory_resolvers import Shown, group_json, status_word, users_json
from watchword.http.graphql.retention_resolvers import rule_change_json
from watchword.http.graphql.webhook_resolvers import webhook_change_json


async def get_granted_privileges(_: Any, info: Info, input: Json) -> Json:
    policies = info.context.services.core.policies
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
    policies = info.context.services.core.policies
    actor = check_actor(input["actorUrn"], "actorUrn")
    grant = await policies.authorize_for(info.context.caller, actor)
    found = await policies.explain(grant, actor, right_of(input["privilege"], "privilege"))
    return record_json(
        found,
        "suspended explanation",
        actorUrn=found.actor,
        privilege=right_name(found.right),
        allowed=found.refusal is None,
        grants=[_policy_match_json(match) for match in found.grants],
    )


async def list_privileges(_: Any, __: Info) -> list[Json]:
    return [
        record_json(
            privilege,
            "name display_name allows",
            includes=[other.name for other in Privilege if other in included([privilege]) - {privilege}],
            escalates=privilege in ESCALATING,
        )
        for privilege in Privilege
    ]


async def list_privilege_holders(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await info.context.view_policies()
    page = page_of(input)
    total, rows, complete = await policies.holders(grant, right_of(input["privilege"], "privilege"), **page)
    actors = [holder.actor for holder in rows if holder.actor is not None]
    shown = await policies.shown_actors(grant, dict.fromkeys(actors))
    return page | {
        "total": total,
        "complete": complete,
        "holders": [_holder_json(holder, shown) for holder in rows],
    }


async def policy_effect(_: Any, info: Info, urn: str | None = None, input: Json | None = None) -> Json:
    policies, grant = await info.context.view_policies()
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
    return _policy_match_json(holder.match) | {
        "actorUrn": actor,
        "actorName": None if about is None else about.name,
        "status": None if about is None else status_word(suspended=bool(about.suspended)),
    }


async def create_policy(_: Any, info: Info, input: Json) -> str:
    policies, grant = await info.context.authorize_policies()
    return await policies.create(grant, _policy("", input))


async def update_policy(_: Any, info: Info, urn: str, input: Json, revision: str | None = None) -> str:
    policies, grant = await info.context.authorize_policies()
    create = urn.startswith(DATAHUB_POLICY_PREFIX)
    await policies.update(grant, _policy(policy_urn(urn), input), create=create, revision=revision)
    return urn


async def delete_policy(_: Any, info: Info, urn: str) -> str:
    policies, grant = await info.context.authorize_policies()
    await policies.delete(grant, policy_urn(check_urn(urn, "urn")))
    return urn


async def apply_policies(_: Any, info: Info, input: Json) -> Json:
    dry_run = bool(input.get("dryRun"))
    policies, grant = await (info.context.view_policies if dry_run else info.context.authorize_policies)()
    declared = _declared(input)
    plan = await policies.apply(grant, declared, prune=bool(input.get("prune")), dry_run=dry_run)
    policies_shown = [one for change in plan.changes for one in (change.before, change.after) if one is not None]
    shown = await info.context.users(users_of([*policies_shown, *plan.undeclared]))
    entities = plan.entities or EntityPlan((), ())
    return {
        "set": declared.set_name,
        "dryRun": dry_run,
        "changes": [change_json(change, "urn", partial(policy_json, shown=shown)) for change in plan.changes],
        "entities": [change_json(change, "urn", _entity_json) for change in entities.changes],
        "retention": [rule_change_json(change) for change in plan.rule_changes],
        "webhooks": [webhook_change_json(change) for change in plan.webhook_changes],
        "resources": [change_json(change, "name", _resource_json) for change in plan.resource_changes],
        "unchanged": _unchanged(declared, plan),
        "undeclared": [policy_json(policy, shown) for policy in plan.undeclared],
        "undeclaredEntities": [entity.urn for entity in entities.undeclared],
        "undeclaredRetention": [] if plan.rules is None else [one.rule.series for one in plan.rules.undeclared],
        "undeclaredWebhooks": [] if plan.webhooks is None else [one.id for one in plan.webhooks.undeclared],
        "undeclaredResources": [] if plan.resources is None else [one.name for one in plan.resources.undeclared],
    }


async def get_policy(_: Any, info: Info, urn: str) -> Json:
    policies, grant = await info.context.view_policies()
    policy = await policies.get(grant, policy_urn(check_urn(urn, "urn")))
    return policy_json(policy, await info.context.users(policy.users))


async def list_policies(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await info.context.view_policies()
    page = page_of(input)
    found = await policies.list(grant, input.get("query"), parse_policy_filter(input.get("orFilters")))
    rows = found[page["start"] :][: page["count"]]
    shown = await info.context.users(users_of(rows))
    return page | {"total": len(found), "policies": [policy_json(policy, shown) for policy in rows]}


async def list_resources(_: Any, info: Info) -> list[Json]:
    policies, grant = await info.context.view_policies()
    return [_resource_json(resource) for resource in await policies.resources(grant)]


async def get_group(_: Any, info: Info, urn: str) -> Json:
    policies, grant = await info.context.view_policies()
    return group_json(await policies.get_group(grant, check_group(urn, "urn")))


async def list_groups(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await info.context.view_policies()
    page = page_of(input)
    total, groups = await policies.groups(grant, **page, query=query_of(input))
    return page | {"total": total, "groups": [group_json(group) for group in groups]}


async def list_group_members(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await info.context.view_policies()
    page = page_of(input)
    total, members = await policies.members(grant, _group_urn(input), **page)
    return page | {"total": total, "members": users_json(members, await info.context.users(members))}


async def create_group(_: Any, info: Info, input: Json) -> str:
    policies, grant = await info.context.authorize_policies()
    short_id = input.get("id")
    if short_id is not None:
        check_short_id(short_id, "id")
    return await policies.create_group(
        grant, short_id, check_name(input["name"]), check_description(input.get("description"))
    )


async def remove_group(_: Any, info: Info, urn: str) -> bool:
    policies, grant = await info.context.authorize_policies()
    await policies.delete_group(grant, check_group(urn, "urn"))
    return True


async def add_group_members(_: Any, info: Info, input: Json) -> bool:
    policies, grant = await info.context.authorize_policies()
    await policies.change_members(grant, _group_urn(input), add=_users(input))
    return True


async def remove_group_members(_: Any, info: Info, input: Json) -> bool:
    policies, grant = await info.context.authorize_policies()
    await policies.change_members(grant, _group_urn(input), remove=_users(input))
    return True


def _group_urn(input: Json) -> str:
    return check_group(input["groupUrn"], "groupUrn")


def _users(input: Json) -> list[str]:
    users: list[str] = input["userUrns"]
    if not 1 <= len(users) <= MAX_ENTRIES:
        raise invalid("userUrns", f"userUrns must have 1 to {MAX_ENTRIES:,} entries.")
    return [check_actor(user, "userUrns") for user in users]


def _declared(input: Json) -> PolicyDeclaration:
    given = enumerate(input.get("policies") or ())
    policies = [_policy(POLICY_PREFIX + one["id"], one, f"policies[{index}].") for index, one in given]
    declared = check_declared(policies, DEFAULT_SET if input.get("set") is None else input["set"])
    groups = [
        DeclaredGroup(one["id"], one["name"], one.get("description"), _optional_set(one.get("members")))
        for one in input.get("groups") or ()
    ]
    accounts = [
        DeclaredAccount(one["id"], one["name"], one.get("description"), frozenset(one.get("groups") or ()))
        for one in input.get("accounts") or ()
    ]
    entities, rules = check_entities(groups, accounts, declared.set_name), check_rules(input.get("retention") or ())
    webhooks = check_webhooks(input.get("webhooks") or (), declared.set_name)
    resources = check_resources(input.get("resources") or (), declared.set_name)
    return replace(declared, entities=entities, rules=rules, webhooks=webhooks, resources=resources)


def _optional_set(words: list[str] | None) -> frozenset[str] | None:
    return None if words is None else frozenset(words)


def _unchanged(declared: PolicyDeclaration, plan: PolicyPlan) -> int:
    entities = declared.entities or NO_ENTITIES
    wanted = {policy.urn for policy in declared.policies}
    wanted |= {entity.urn for entity in (*entities.groups, *entities.accounts)}
    rules = {rule.key for rule in declared.rules} - {change.key for change in plan.rule_changes}
    webhooks = {webhook.id for webhook in declared.webhooks} - {change.id for change in plan.webhook_changes}
    resources = {resource.name for resource in declared.resources} - {change.name for change in plan.resource_changes}
    changed = {change.urn for change in plan.all_changes}
    return len(wanted - changed) + len(rules) + len(webhooks) + len(resources)


def _policy(urn: str, input: Json, where: str = "") -> Policy:
    actors = input["actors"]
    _check_supported(input, actors, where)
    return Policy(
        urn=urn,
        name=input["name"],
        description=input.get("description"),
        state=PolicyState(input.get("state") or "ACTIVE"),
        privileges=frozenset(privilege_of(word, f"{where}privileges") for word in input.get("privileges") or ()),
        scopes=frozenset(input.get("scopes") or ()),
        users=frozenset(actors.get("users") or ()),
        groups=frozenset(actors.get("groups") or ()),
        all_users=bool(actors.get("allUsers")),
    )


def _check_supported(input: Json, actors: Json, where: str) -> None:
    """Reject what has a meaning only in DataHub's catalogue. Its clients send these fields, empty, with any policy."""
    named = ("roles", "allGroups", "resourceOwners", "resourceOwnersTypes")
    given = {f"actors.{name}": actors.get(name) for name in named}
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
    return record_json(
        policy,
        "urn name description editable revision",
        type="PLATFORM",
        state=policy.state.value,
        privileges=[privilege.name for privilege in Privilege if privilege in policy.privileges],
        scopes=sorted(policy.scopes),
        actors=actors | unsupported,
        resources=None,
        source=policy.source.value,
        set=policy.set_name,
    )


def _entity_json(entity: Entity) -> Json:
    members = {"members": sorted(entity.members)} if entity.is_group else {}
    return record_json(entity, "name description", **members, set=entity.set_name)


def _resource_json(resource: Resource) -> Json:
    return resource.written() | {"set": resource.set_name}


def _policy_match_json(match: PolicyMatch) -> Json:
    return {
        "policyUrn": match.policy.urn,
        "policyName": match.policy.name,
        "via": match.via.value,
        "groupUrn": match.group,
        "privilege": right_name(match.right),
    }

"""GraphQL resolvers for policies, groups and privileges."""

from collections.abc import Callable
from typing import Any

from watchword.domain.actors import Grant
from watchword.domain.errors import invalid
from watchword.domain.policies import (
    MAX_ENTRIES,
    Policy,
    PolicyMatch,
    PolicyState,
    Privilege,
    included,
    privilege_of,
)
from watchword.domain.policy_sets import DEFAULT_SET, PolicyChange, PolicyDeclaration, check_declared
from watchword.domain.ports import Group
from watchword.domain.texts import check_description, check_name
from watchword.domain.urns import GROUP_PREFIX, POLICY_PREFIX, check_actor, check_group, check_short_id, check_urn
from watchword.http.graphql.context import Info, Json, Resolvers, page_of
from watchword.http.graphql.token_resolvers import user_json
from watchword.service.policies import Policies


class PolicyResolvers:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.queries: Resolvers = {
            "getGrantedPrivileges": _granted,
            "getPolicy": _get_policy,
            "listPolicies": _list_policies,
            "getGroup": _get_group,
            "listGroups": _list_groups,
            "listGroupMembers": _list_members,
            "explainPrivilege": _explain,
            "listPrivileges": _list_privileges,
        }
        self.mutations: Resolvers = {
            "createPolicy": _create_policy,
            "updatePolicy": _update_policy,
            "deletePolicy": _delete_policy,
            "applyPolicies": _apply_policies,
            "createGroup": self._create_group,
            "removeGroup": _remove_group,
            "addGroupMembers": _add_members,
            "removeGroupMembers": _remove_members,
        }

    async def _create_group(self, _: Any, info: Info, input: Json) -> str:
        policies, grant = await authorize_policies(info)
        short_id = input.get("id")
        if short_id is not None:
            check_short_id(short_id, "id")
        group = Group(
            urn=GROUP_PREFIX + (short_id or self._new_id()),
            name=check_name(input["name"]),
            description=check_description(input.get("description")),
        )
        await policies.create_group(grant, group)
        return group.urn


async def authorize_policies(info: Info) -> tuple[Policies, Grant]:
    policies = info.context.services.core.policies
    return policies, await policies.authorize(info.context.caller)


async def _granted(_: Any, info: Info, input: Json) -> Json:
    policies = info.context.services.core.policies
    actor = check_actor(input["actorUrn"], "actorUrn")
    granted = await policies.granted(await policies.authorize_for(info.context.caller, actor), actor)
    return {"privileges": [privilege.name for privilege in Privilege if privilege in granted]}


async def _explain(_: Any, info: Info, input: Json) -> Json:
    policies = info.context.services.core.policies
    actor = check_actor(input["actorUrn"], "actorUrn")
    grant = await policies.authorize_for(info.context.caller, actor)
    found = await policies.explain(grant, actor, privilege_of(input["privilege"], "privilege"))
    return {
        "actorUrn": found.actor,
        "privilege": found.privilege.name,
        "allowed": found.refusal is None,
        "suspended": found.suspended,
        "grounds": [_policy_match_json(match) for match in found.grounds],
        "sentence": found.sentence,
    }


async def _list_privileges(_: Any, __: Info) -> list[Json]:
    return [
        {
            "name": privilege.name,
            "displayName": privilege.display_name,
            "allows": privilege.allows,
            "includes": [one.name for one in Privilege if one in included([privilege]) - {privilege}],
        }
        for privilege in Privilege
    ]


async def _create_policy(_: Any, info: Info, input: Json) -> str:
    policies, grant = await authorize_policies(info)
    return await policies.create(grant, _policy("", input))


async def _update_policy(_: Any, info: Info, urn: str, input: Json) -> str:
    policies, grant = await authorize_policies(info)
    return await policies.update(grant, _policy(urn, input))


async def _delete_policy(_: Any, info: Info, urn: str) -> str:
    policies, grant = await authorize_policies(info)
    await policies.delete(grant, check_urn(urn, "urn"))
    return urn


async def _apply_policies(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await authorize_policies(info)
    declared, dry_run = _declared(input), bool(input.get("dryRun"))
    plan = await policies.apply(grant, declared, prune=bool(input.get("prune")), dry_run=dry_run)
    return {
        "set": declared.set_name,
        "dryRun": dry_run,
        "changes": [_change_json(change) for change in plan.changes],
        "unchanged": len(declared.policies) - sum(change.after is not None for change in plan.changes),
        "undeclared": [policy_json(policy) for policy in plan.undeclared],
    }


async def _get_policy(_: Any, info: Info, urn: str) -> Json:
    policies, grant = await authorize_policies(info)
    return policy_json(await policies.get(grant, check_urn(urn, "urn")))


async def _list_policies(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await authorize_policies(info)
    start, count = page_of(input)
    found = await policies.list(grant, input.get("query"))
    page = [policy_json(policy) for policy in found[start : start + count]]
    return {"start": start, "count": count, "total": len(found), "policies": page}


async def _get_group(_: Any, info: Info, urn: str) -> Json:
    policies, grant = await authorize_policies(info)
    return _group_json(await policies.get_group(grant, check_group(urn, "urn")))


async def _list_groups(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await authorize_policies(info)
    start, count = page_of(input)
    total, groups = await policies.groups(grant, start, count)
    return {"start": start, "count": count, "total": total, "groups": [_group_json(group) for group in groups]}


async def _list_members(_: Any, info: Info, input: Json) -> Json:
    policies, grant = await authorize_policies(info)
    start, count = page_of(input)
    total, members = await policies.members(grant, _group_urn(input), start, count)
    return {"start": start, "count": count, "total": total, "members": [user_json(urn) for urn in members]}


async def _remove_group(_: Any, info: Info, urn: str) -> bool:
    policies, grant = await authorize_policies(info)
    await policies.delete_group(grant, check_group(urn, "urn"))
    return True


async def _add_members(_: Any, info: Info, input: Json) -> bool:
    policies, grant = await authorize_policies(info)
    await policies.change_members(grant, _group_urn(input), add=_users(input))
    return True


async def _remove_members(_: Any, info: Info, input: Json) -> bool:
    policies, grant = await authorize_policies(info)
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
    given = enumerate(input["policies"])
    policies = [_policy(POLICY_PREFIX + one["id"], one, f"policies[{index}].") for index, one in given]
    return check_declared(policies, DEFAULT_SET if input.get("set") is None else input["set"])


def _policy(urn: str, input: Json, where: str = "") -> Policy:
    actors = input["actors"]
    if actors.get("roles"):
        raise invalid(f"{where}actors.roles", f"{where}actors.roles must be empty: there are no roles here.")
    for flag in ("allGroups", "resourceOwners"):
        if actors.get(flag):
            raise invalid(f"{where}actors.{flag}", f"{where}actors.{flag} must be false: it has no meaning here.")
    return Policy(
        urn=urn,
        name=input["name"],
        description=input.get("description"),
        state=PolicyState(input.get("state") or "ACTIVE"),
        privileges=frozenset(privilege_of(word, f"{where}privileges") for word in input["privileges"]),
        users=frozenset(actors.get("users") or ()),
        groups=frozenset(actors.get("groups") or ()),
        all_users=bool(actors.get("allUsers")),
    )


def policy_json(policy: Policy) -> Json:
    return {
        "urn": policy.urn,
        "type": "PLATFORM",
        "name": policy.name,
        "state": policy.state.value,
        "description": policy.description,
        "privileges": [privilege.name for privilege in Privilege if privilege in policy.privileges],
        "actors": {
            "users": sorted(policy.users),
            "groups": sorted(policy.groups),
            "roles": [],
            "allUsers": policy.all_users,
            "allGroups": False,
            "resourceOwners": False,
        },
        "editable": policy.editable,
        "source": policy.source.value,
        "set": policy.set_name,
    }


def _change_json(change: PolicyChange) -> Json:
    return {
        "change": change.kind.value,
        "urn": change.urn,
        "before": None if change.before is None else policy_json(change.before),
        "after": None if change.after is None else policy_json(change.after),
    }


def _group_json(group: Group) -> Json:
    return {
        "urn": group.urn,
        "type": "CORP_GROUP",
        "name": group.name,
        "description": group.description,
        "memberCount": group.members,
    }


def _policy_match_json(match: PolicyMatch) -> Json:
    return {
        "policyUrn": match.policy.urn,
        "policyName": match.policy.name,
        "via": match.via.value,
        "groupUrn": match.group,
        "privilege": match.privilege.name,
    }

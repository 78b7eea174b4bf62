"""Policies, groups, actors and `me` in GraphQL. No rule lives here."""

from collections.abc import Callable
from typing import Any

from watchword.domain.actors import ActorStatus
from watchword.domain.errors import invalid
from watchword.domain.policies import MAX_ENTRIES, Policy, PolicyState, Privilege, privilege_of
from watchword.domain.policy_sets import DEFAULT_SET, PolicyChange, PolicyDeclaration, check_declared
from watchword.domain.ports import Group
from watchword.domain.texts import check_description, check_name
from watchword.domain.urns import GROUP_PREFIX, POLICY_PREFIX, check_actor, check_group, check_short_id, check_urn
from watchword.http.graphql.context import Info, Json, Resolvers, page_of
from watchword.http.graphql.token_resolvers import shown_user

_PRIVILEGE_FIELDS = {
    "generatePersonalAccessTokens": Privilege.GENERATE_PERSONAL_ACCESS_TOKENS,
    "manageTokens": Privilege.MANAGE_ACCESS_TOKENS,
    "manageServiceAccounts": Privilege.MANAGE_SERVICE_ACCOUNTS,
    "introspectTokens": Privilege.INTROSPECT_TOKENS,
    "managePolicies": Privilege.MANAGE_POLICIES,
    "getTaskStatus": Privilege.GET_ES_TASK_STATUS_PRIVILEGE,
    "getIndexSizes": Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE,
    "truncateTimeseries": Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE,
    "manageSystemOperations": Privilege.MANAGE_SYSTEM_OPERATIONS,
    "viewAuditLog": Privilege.VIEW_AUDIT_LOG,
}


class PolicyResolvers:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.queries: Resolvers = {
            "me": _me,
            "getGrantedPrivileges": _granted,
            "getPolicy": _get_policy,
            "listPolicies": _list_policies,
            "getGroup": _get_group,
            "listGroups": _list_groups,
            "listGroupMembers": _list_members,
            "getActor": _get_actor,
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
            "updateUserStatus": _update_status,
        }

    async def _create_group(self, _: Any, info: Info, input: Json) -> str:  # noqa: A002 - the schema's word
        context = info.context
        return await context.services.policies.create_group(context.caller, lambda: self._group(input))

    def _group(self, input: Json) -> Group:  # noqa: A002
        name = input.get("id")
        if name is not None:
            check_short_id(name, "id")
        return Group(
            urn=GROUP_PREFIX + (name or self._new_id()),
            name=check_name(input["name"]),
            description=check_description(input.get("description")),
        )


async def _me(_: Any, info: Info) -> Json:
    context = info.context
    held = await context.services.policies.granted(context.caller, context.caller.actor)
    return {
        "corpUser": shown_user(context.caller.actor),
        "platformPrivileges": {field: privilege in held for field, privilege in _PRIVILEGE_FIELDS.items()},
    }


async def _granted(_: Any, info: Info, input: Json) -> Json:  # noqa: A002
    context = info.context
    actor = check_actor(input["actorUrn"], "actorUrn")
    held = await context.services.policies.granted(context.caller, actor)
    return {"privileges": [privilege.name for privilege in Privilege if privilege in held]}


async def _create_policy(_: Any, info: Info, input: Json) -> str:  # noqa: A002
    context = info.context
    return await context.services.policies.create(context.caller, lambda: _policy("", input))


async def _update_policy(_: Any, info: Info, urn: str, input: Json) -> str:  # noqa: A002
    context = info.context
    return await context.services.policies.update(context.caller, lambda: _policy(urn, input))


async def _delete_policy(_: Any, info: Info, urn: str) -> str:
    context = info.context
    return await context.services.policies.delete(context.caller, lambda: check_urn(urn, "urn"))


async def _apply_policies(_: Any, info: Info, input: Json) -> Json:  # noqa: A002
    context = info.context
    dry_run = bool(input.get("dryRun"))
    declared, plan = await context.services.policies.apply(
        context.caller, lambda: _declared(input), prune=bool(input.get("prune")), dry_run=dry_run
    )
    return {
        "set": declared.set_name,
        "dryRun": dry_run,
        "changes": [_shown_change(change) for change in plan.changes],
        "unchanged": len(declared.policies) - sum(change.after is not None for change in plan.changes),
        "undeclared": [shown_policy(policy) for policy in plan.undeclared],
    }


async def _get_policy(_: Any, info: Info, urn: str) -> Json:
    context = info.context
    return shown_policy(await context.services.policies.get(context.caller, lambda: check_urn(urn, "urn")))


async def _list_policies(_: Any, info: Info, input: Json) -> Json:  # noqa: A002
    context = info.context
    policies = await context.services.policies.list(context.caller, input.get("query"))
    start, count = page_of(input)
    return {
        "start": start,
        "count": count,
        "total": len(policies),
        "policies": [shown_policy(policy) for policy in policies[start : start + count]],
    }


async def _get_group(_: Any, info: Info, urn: str) -> Json:
    context = info.context
    return _shown_group(await context.services.policies.get_group(context.caller, lambda: check_group(urn, "urn")))


async def _list_groups(_: Any, info: Info, input: Json) -> Json:  # noqa: A002
    context = info.context
    start, count, total, groups = await context.services.policies.groups(context.caller, lambda: page_of(input))
    return {
        "start": start,
        "count": count,
        "total": total,
        "groups": [_shown_group(group) for group in groups],
    }


async def _list_members(_: Any, info: Info, input: Json) -> Json:  # noqa: A002
    context = info.context
    start, count, total, members = await context.services.policies.members(
        context.caller, lambda: check_group(input["groupUrn"], "groupUrn"), lambda: page_of(input)
    )
    return {"start": start, "count": count, "total": total, "members": [shown_user(urn) for urn in members]}


async def _remove_group(_: Any, info: Info, urn: str) -> bool:
    context = info.context
    await context.services.policies.delete_group(context.caller, lambda: check_group(urn, "urn"))
    return True


async def _add_members(_: Any, info: Info, input: Json) -> bool:  # noqa: A002
    context = info.context
    await context.services.policies.change_members(context.caller, lambda: _group_urn(input), add=lambda: _users(input))
    return True


async def _remove_members(_: Any, info: Info, input: Json) -> bool:  # noqa: A002
    context = info.context
    await context.services.policies.change_members(
        context.caller, lambda: _group_urn(input), remove=lambda: _users(input)
    )
    return True


async def _get_actor(_: Any, info: Info, urn: str) -> Json:
    context = info.context
    state, holdings = await context.services.policies.actor_state(context.caller, lambda: check_actor(urn, "urn"))
    return {
        "urn": state.urn,
        "status": state.status.value,
        "changedAt": state.changed_at,
        "changedBy": state.changed_by,
        "known": holdings.known,
        "liveTokenCount": holdings.live_tokens,
        "sessionCount": holdings.sessions,
    }


async def _update_status(_: Any, info: Info, urn: str, status: str) -> str:
    context = info.context
    await context.services.policies.set_actor_status(
        context.caller, lambda: check_actor(urn, "urn"), ActorStatus(status)
    )
    return urn


def _group_urn(input: Json) -> str:  # noqa: A002
    return check_group(input["groupUrn"], "groupUrn")


def _users(input: Json) -> list[str]:  # noqa: A002
    users: list[str] = input["userUrns"]
    if not 1 <= len(users) <= MAX_ENTRIES:
        raise invalid("userUrns", f"userUrns must have 1 to {MAX_ENTRIES:,} entries.")
    return [check_actor(user, "userUrns") for user in users]


def _declared(input: Json) -> PolicyDeclaration:  # noqa: A002
    given = enumerate(input["policies"])
    policies = [_policy(POLICY_PREFIX + one["id"], one, f"policies[{index}].") for index, one in given]
    return check_declared(policies, DEFAULT_SET if input.get("set") is None else input["set"])


def _policy(urn: str, input: Json, where: str = "") -> Policy:  # noqa: A002
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


def shown_policy(policy: Policy) -> Json:
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


def _shown_change(change: PolicyChange) -> Json:
    return {
        "change": change.kind.value,
        "urn": change.urn,
        "before": None if change.before is None else shown_policy(change.before),
        "after": None if change.after is None else shown_policy(change.after),
    }


def _shown_group(group: Group) -> Json:
    return {
        "urn": group.urn,
        "type": "CORP_GROUP",
        "name": group.name,
        "description": group.description,
        "memberCount": group.members,
    }

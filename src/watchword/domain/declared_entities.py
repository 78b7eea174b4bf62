"""Groups and service accounts that a policy file declares beside its policies.

Applying a set creates and updates them; one that was made by the API joins the set. With pruning, groups that the set
no longer declares are deleted. Accounts are never deleted, because that would revoke their tokens: they leave the set.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from watchword.domain.errors import Fault, Reason, check_length, invalid
from watchword.domain.names import (
    ACCOUNT_PREFIX,
    GROUP_PREFIX,
    check_actor,
    check_description,
    check_lower_id,
    check_name,
    check_short_id,
)
from watchword.domain.policies import (
    MAX_DECLARED,
    MAX_ENTRIES,
    Change,
    ChangeKind,
    PartPlan,
    Policy,
    PolicyDeclaration,
    PolicyPlan,
    declared_elsewhere,
    reconcile,
)
from watchword.domain.resources import Resource, plan_resources
from watchword.domain.retention import StoredRule, plan_rules
from watchword.domain.webhooks import Webhook, plan_webhooks


class DeclaredGroup(NamedTuple):
    """A group as it is declared. `members` is None if the file does not declare them: they stay as they are."""

    id: str
    name: str
    description: str | None = None
    members: frozenset[str] | None = None


class DeclaredAccount(NamedTuple):
    """A service account as it is declared. `groups` are urns of groups that the same file declares."""

    id: str
    name: str
    description: str | None = None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Entity:
    """A group or a service account, as far as a file can declare it."""

    urn: str
    name: str
    description: str | None = None
    set_name: str | None = None
    members: frozenset[str] = frozenset()  # Of a group. Of an open group, only those that are declared accounts.
    deleted: bool = False  # of an account

    @property
    def is_group(self) -> bool:
        return self.urn.startswith(GROUP_PREFIX)


@dataclass(frozen=True, slots=True)
class DeclaredEntities:
    groups: tuple[Entity, ...] = ()
    accounts: tuple[Entity, ...] = ()
    open_groups: frozenset[str] = frozenset()  # those without declared members


EntityChange = Change[Entity]
EntityPlan = PartPlan[Entity, EntityChange]
NO_ENTITIES = DeclaredEntities()


def check_entities(
    groups: Sequence[DeclaredGroup], accounts: Sequence[DeclaredAccount], set_name: str
) -> DeclaredEntities | None:
    """Validate what a set declares; the fault names the group or account and the field. None: nothing."""
    check_length(groups, "groups", MAX_DECLARED)
    members: dict[str, frozenset[str]] = {}
    for index, group in enumerate(groups):
        where = f"groups[{index}]"
        urn = GROUP_PREFIX + check_short_id(group.id, f"{where}.id")
        _check_texts(group, where, twice=urn in members)
        declared = group.members or frozenset()
        check_length(declared, f"{where}.members", MAX_ENTRIES)
        members[urn] = frozenset(check_actor(member, f"{where}.members") for member in declared)
    check_length(accounts, "accounts", MAX_DECLARED)
    made: dict[str, Entity] = {}
    for index, account in enumerate(accounts):
        where = f"accounts[{index}]"
        urn = ACCOUNT_PREFIX + check_lower_id(account.id, f"{where}.id")
        _check_texts(account, where, twice=urn in made)
        if account.groups - members.keys():
            raise invalid(f"{where}.groups", f"{where}.groups must be urns of groups that the same file declares.")
        members |= {group: members[group] | {urn} for group in account.groups}
        made[urn] = Entity(urn, account.name, account.description, set_name)
    entities = tuple(
        Entity(urn, group.name, group.description, set_name, joined)
        for group, (urn, joined) in zip(groups, members.items(), strict=True)
    )
    open_groups = frozenset(GROUP_PREFIX + group.id for group in groups if group.members is None)
    return DeclaredEntities(entities, tuple(made.values()), open_groups) if entities or made else None


def _check_texts(declared: DeclaredGroup | DeclaredAccount, where: str, *, twice: bool) -> None:
    if twice:
        raise invalid(f"{where}.id", f"{where}.id is declared twice; ids must be unique.")
    check_name(declared.name, f"{where}.name")
    check_description(declared.description, f"{where}.description")


def plan_declaration(
    policies: Iterable[Policy],
    entities: Iterable[Entity],
    rules: Iterable[StoredRule],
    webhooks: Iterable[Webhook],
    resources: Iterable[Resource],
    declared: PolicyDeclaration,
    *,
    prune: bool,
) -> PolicyPlan:
    """The plan that turns the current policies, groups, accounts, retention rules, webhooks and resources into the
    declared ones. `entities` are those that are declared and those of the set.
    """
    plan = reconcile(policies, declared, prune=prune)
    entity_plan = _reconcile_entities(entities, declared, prune=prune)
    ruled = plan_rules(rules, declared.rules, declared.set_name, prune=prune)
    hooked = plan_webhooks(webhooks, declared.webhooks, declared.set_name, prune=prune)
    served = plan_resources(resources, declared.resources, declared.set_name, prune=prune)
    return replace(
        plan,
        entities=entity_plan if entity_plan.changes or entity_plan.undeclared else None,
        rules=ruled if ruled.changes or ruled.undeclared else None,
        webhooks=hooked if hooked.changes or hooked.undeclared else None,
        resources=served if served.changes or served.undeclared else None,
    )


def _reconcile_entities(current: Iterable[Entity], declared: PolicyDeclaration, *, prune: bool) -> EntityPlan:
    wanted, set_name = declared.entities or NO_ENTITIES, declared.set_name
    kept = {entity.urn: entity for entity in current}
    changes: list[EntityChange] = []
    for entity in (*wanted.groups, *wanted.accounts):
        before = kept.pop(entity.urn, None)
        if before is None:
            changes.append(EntityChange(ChangeKind.CREATE, entity.urn, None, entity))
        elif before.deleted:
            raise Fault(
                Reason.ALREADY_EXISTS,
                f"{entity.urn} was deleted, and its id is never used again. Nothing was changed. Choose another id.",
                field="accounts",
            )
        elif before.set_name not in (None, set_name):
            raise declared_elsewhere(entity.urn, before.set_name, set_name)
        elif before != entity:
            changes.append(EntityChange(ChangeKind.UPDATE, entity.urn, before, entity))
    left = tuple(entity for entity in kept.values() if entity.set_name == set_name and not entity.deleted)
    if not prune:
        return EntityPlan(tuple(changes), left)
    for gone in left:
        after = None if gone.is_group else replace(gone, set_name=None)
        kind = ChangeKind.DELETE if after is None else ChangeKind.UPDATE
        changes.append(EntityChange(kind, gone.urn, gone, after))
    return EntityPlan(tuple(changes))

"""Groups and service accounts that a policy set declares."""

from collections.abc import Sequence
from dataclasses import replace

from watchword.access.group_store import change_members_of, delete_group_rows
from watchword.accounts.declared_rules import ENTITY_PART, Entity
from watchword.authority.declared_parts import Change
from watchword.authority.declared_parts_store import StoredPart
from watchword.database import rows
from watchword.database.transaction import Transaction, actor_lock
from watchword.journal.events import Action, Event

_MEMBERS = "SELECT group_urn, actor_urn FROM group_members WHERE group_urn"
_DECLARED = "name, description, set_name"
_PUT_GROUP = rows.put("groups", f"urn, {_DECLARED}", "urn")
_PUT_ACCOUNT = rows.put("service_accounts", f"urn, {_DECLARED}, created_at, created_by", "urn", _DECLARED)


async def find_entities(tx: Transaction, set_name: str, declared: Sequence[Entity]) -> Sequence[Entity]:
    """The groups and accounts that are declared or belong to the set, with the members that the file can change."""
    any_of = tx.dialect.any_of
    groups, accounts = ([one.urn for one in declared if one.is_group is wanted] for wanted in (True, False))
    members: dict[str, set[str]] = {}
    open_groups = [one.urn for one in declared if one.is_group and one.is_open]
    closed = [urn for urn in groups if urn not in set(open_groups)]
    for group, actor in [
        *await tx.fetch(f"{_MEMBERS} {any_of('$1')}", closed),
        *await tx.fetch(f"{_MEMBERS} {any_of('$1')} AND actor_urn {any_of('$2')}", open_groups, accounts),
    ]:
        members.setdefault(group, set()).add(actor)
    of_set = f"WHERE set_name = $1::text OR urn {any_of('$2')} ORDER BY urn"
    made = await tx.fetch(f"SELECT urn, {_DECLARED} FROM groups {of_set}", set_name, groups)
    found = [
        Entity(urn, name, description, in_set, frozenset(members.get(urn, ())))
        for urn, name, description, in_set in made
    ]
    known = await tx.fetch(f"SELECT urn, {_DECLARED}, deleted_at FROM service_accounts {of_set}", set_name, accounts)
    for urn, name, description, in_set, deleted_at in known:
        deleted = deleted_at is not None
        found.append(Entity(urn, name, description, None if deleted else in_set, deleted=deleted))
    return found


async def apply_entities(tx: Transaction, actor: str, changes: Sequence[Change[Entity]]) -> list[Event]:
    events: list[Event] = []
    for change in changes:
        if change.newest.is_group:
            events += await _apply_group(tx, change)
        else:
            events.append(await _apply_account(tx, actor, change))
    return events


STORED_ENTITIES = StoredPart(
    ENTITY_PART,
    find=find_entities,
    apply=lambda tx, by, changes, *_: apply_entities(tx, by.actor, changes),
    locks=lambda declared: [actor_lock(one.urn) for one in declared if not one.is_group],
)


async def _apply_account(tx: Transaction, actor: str, change: Change[Entity]) -> Event:
    account = change.newest  # an account is never deleted here
    values = (account.urn, account.name, account.description, account.set_name)
    await tx.execute(_PUT_ACCOUNT, *values, await tx.now(), actor)
    action = Action.ACCOUNT_CREATED if change.before is None else Action.ACCOUNT_UPDATED
    return Event(action, account.urn, {"name": account.name, "set": account.set_name})


async def _apply_group(tx: Transaction, change: Change[Entity]) -> list[Event]:
    before, group = change.before, change.after
    if group is None:
        return [await delete_group_rows(tx, change.name, change.newest.name)]
    events: list[Event] = []
    if before is None:
        # A group of the identity provider with this urn ends: one made here has the members that are chosen here.
        await tx.execute("DELETE FROM group_members WHERE group_urn = $1", group.urn)
    if before is None or replace(before, members=group.members) != group:
        await tx.execute(_PUT_GROUP, group.urn, group.name, group.description, group.set_name)
        action = Action.GROUP_CREATED if before is None else Action.GROUP_UPDATED
        events.append(Event(action, group.urn, {"name": group.name, "set": group.set_name}))
    removed = frozenset[str]() if before is None else before.members - group.members
    return events + await change_members_of(tx, group.urn, group.name, group.members, removed)

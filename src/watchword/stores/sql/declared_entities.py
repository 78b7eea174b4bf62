"""Groups and service accounts that a policy file declares."""

from collections.abc import Iterable
from dataclasses import replace

from watchword.domain.declared_entities import NO_ENTITIES, Entity, EntityChange
from watchword.domain.events import Action, Event
from watchword.domain.names import GROUP_PREFIX
from watchword.domain.policies import PolicyDeclaration
from watchword.stores.sql.transaction import Transaction

_MEMBERS = "SELECT group_urn, actor_urn FROM group_members WHERE group_urn"
ADD_MEMBER = "INSERT INTO group_members (actor_urn, group_urn) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_PUT_GROUP = """
INSERT INTO groups (urn, name, description, set_name) VALUES ($1, $2, $3, $4)
ON CONFLICT (urn) DO UPDATE SET
    name = excluded.name, description = excluded.description, set_name = excluded.set_name"""
_PUT_ACCOUNT = """
INSERT INTO service_accounts (urn, name, description, set_name, created_at, created_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (urn) DO UPDATE SET
    name = excluded.name, description = excluded.description, set_name = excluded.set_name"""


async def find_entities(tx: Transaction, declared: PolicyDeclaration) -> tuple[Entity, ...]:
    """The groups and accounts that are declared or belong to the set, with the members that the file can change."""
    wanted, any_of = declared.entities or NO_ENTITIES, tx.dialect.any_of
    urns, accounts = [group.urn for group in wanted.groups], [account.urn for account in wanted.accounts]
    of_set = f"WHERE set_name = $1::text OR urn {any_of('$2')} ORDER BY urn"
    groups = await tx.fetch(f"SELECT urn, name, description, set_name FROM groups {of_set}", declared.set_name, urns)
    closed = [urn for urn in urns if urn not in wanted.open_groups]
    joined = [
        *await tx.fetch(f"{_MEMBERS} {any_of('$1')}", closed),
        *await tx.fetch(f"{_MEMBERS} {any_of('$1')} AND actor_urn {any_of('$2')}", list(wanted.open_groups), accounts),
    ]
    members: dict[str, set[str]] = {}
    for group, actor in joined:
        members.setdefault(group, set()).add(actor)
    columns = "urn, name, description, set_name, deleted_at"
    known = await tx.fetch(f"SELECT {columns} FROM service_accounts {of_set}", declared.set_name, accounts)
    found = [
        Entity(urn, name, description, set_name, frozenset(members.get(urn, ())))
        for urn, name, description, set_name in groups
    ]
    for urn, name, description, set_name, deleted_at in known:
        found.append(Entity(urn, name, description, set_name, deleted=deleted_at is not None))
    return tuple(found)


async def apply_entities(tx: Transaction, actor: str, changes: Iterable[EntityChange]) -> list[Event]:
    events: list[Event] = []
    for change in changes:
        events += await (_apply_group if change.urn.startswith(GROUP_PREFIX) else _apply_account)(tx, actor, change)
    return events


async def _apply_account(tx: Transaction, actor: str, change: EntityChange) -> list[Event]:
    account = change.after
    assert account is not None  # an account is never deleted here
    values = (account.urn, account.name, account.description, account.set_name)
    await tx.execute(_PUT_ACCOUNT, *values, await tx.now(), actor)
    action = Action.ACCOUNT_CREATED if change.before is None else Action.ACCOUNT_UPDATED
    return [Event(action, account.urn, {"name": account.name, "set": account.set_name})]


async def _apply_group(tx: Transaction, _actor: str, change: EntityChange) -> list[Event]:
    before, group = change.before, change.after
    if group is None:
        await tx.execute("DELETE FROM group_members WHERE group_urn = $1", change.urn)
        await tx.execute("DELETE FROM groups WHERE urn = $1", change.urn)
        return [Event(Action.GROUP_DELETED, change.urn, {"name": None if before is None else before.name})]
    events: list[Event] = []
    if before is None:
        # A group of the identity provider with this urn ends: one made here has the members that are chosen here.
        await tx.execute("DELETE FROM group_members WHERE group_urn = $1", group.urn)
    if before is None or replace(before, members=group.members) != group:
        await tx.execute(_PUT_GROUP, group.urn, group.name, group.description, group.set_name)
        action = Action.GROUP_CREATED if before is None else Action.GROUP_UPDATED
        events.append(Event(action, group.urn, {"name": group.name, "set": group.set_name}))
    was = frozenset[str]() if before is None else before.members
    added, removed = sorted(group.members - was), sorted(was - group.members)
    await tx.executemany(ADD_MEMBER, [(member, group.urn) for member in added])
    gone = f"DELETE FROM group_members WHERE group_urn = $1 AND actor_urn {tx.dialect.any_of('$2')}"
    await tx.execute(gone, group.urn, removed)
    for action, members in ((Action.GROUP_MEMBERS_ADDED, added), (Action.GROUP_MEMBERS_REMOVED, removed)):
        if members:
            events.append(Event(action, group.urn, {"name": group.name, "members": members}))
    return events

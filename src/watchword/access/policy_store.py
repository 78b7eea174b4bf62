"""Policies, and the resources that policy files declare. Every change that can alter a decision advances the policy
version.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson

from watchword.authority.declared_parts import Change, ChangeKind
from watchword.authority.declared_parts_store import StoredPart
from watchword.authority.policies import POLICY_PART, Policy, PolicySource, PolicyState, editable
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import Privilege
from watchword.authority.resources import RESOURCE_PART, Resource
from watchword.authority.store import check_precondition, groups_by_actor
from watchword.basics.errors import Fault, Reason
from watchword.database import rows
from watchword.database.transaction import POLICIES, SqlPart, Transaction, snapshot, transaction
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events

POLICY = "urn, name, description, state, privileges, users, groups, all_users, scopes, source, set_name"
_ALL = f"SELECT {POLICY} FROM policies ORDER BY name, urn"
# The version comes with every row, and on a row of its own if there is no policy; the resources come with the first
# row: one statement, one snapshot.
_ALL_WITH_VERSION = """
SELECT s.policy_version, CASE WHEN row_number() OVER (ORDER BY p.name, p.urn) = 1 THEN (SELECT {resources}) END,
    {policy} FROM state AS s LEFT JOIN policies AS p ON true ORDER BY p.name, p.urn"""
_GET = f"SELECT {POLICY} FROM policies WHERE urn = $1"
_PUT = rows.put("policies", POLICY, "urn")
_ADD_RESOURCE = rows.insert("resources", rows.RESOURCE)
_ACTIONS = {
    ChangeKind.CREATE: Action.POLICY_CREATED,
    ChangeKind.UPDATE: Action.POLICY_UPDATED,
    ChangeKind.DELETE: Action.POLICY_DELETED,
}
_RESOURCE_ACTIONS = {
    ChangeKind.CREATE: Action.RESOURCE_CREATED,
    ChangeKind.UPDATE: Action.RESOURCE_UPDATED,
    ChangeKind.DELETE: Action.RESOURCE_DELETED,
}


@asynccontextmanager
async def policy_change(
    tx: Transaction, precondition: WritePrecondition, locks: Sequence[str] = ()
) -> AsyncIterator[list[Event]]:
    """Changes by one transaction at a time. If the block adds events, the policy version advances with them."""
    now = await check_precondition(tx, precondition, exclusive=[POLICIES, *locks])
    events: list[Event] = []
    yield events
    if events:
        await tx.execute(tx.dialect.next_policy_version)
        await write_events(tx, precondition, events, now)


class PolicyStore(SqlPart):
    async def policies(self) -> PolicySet:
        as_json = f"{self._db.dialect.json_rows(rows.RESOURCE)} FROM resources"
        sql = _ALL_WITH_VERSION.format(resources=as_json, policy=rows.columns("p", POLICY))
        found = await self._db.fetch(sql)
        version, resources_text, *_ = found[0]
        policies = tuple(policy_of(row[2:]) for row in found if row[2] is not None)
        resources = tuple(sorted(Resource(*row) for row in orjson.loads(resources_text)))
        return PolicySet(version, policies, resources)

    @snapshot
    async def memberships(
        self, tx: Transaction, actors: Collection[str], groups: Collection[str], most: int
    ) -> dict[str, tuple[str, ...]]:
        """The groups of these actors and of the members of these groups: of the first `most` and one by urn."""
        any_of = tx.dialect.any_of("$1")
        sql = f"SELECT DISTINCT actor_urn FROM group_members WHERE group_urn {any_of} ORDER BY actor_urn LIMIT $2"
        members = {actor for (actor,) in await tx.fetch(sql, list(groups), most + 1)}
        shown = sorted(members.union(actors))[: most + 1]
        found = await groups_by_actor(tx, shown)
        return {actor: tuple(found.get(actor, ())) for actor in shown}

    @transaction
    async def add_policy(self, tx: Transaction, precondition: WritePrecondition, policy: Policy) -> None:
        async with policy_change(tx, precondition) as events:
            if await tx.fetchrow(_GET, policy.urn) is not None:
                raise Fault(Reason.ALREADY_EXISTS, "A policy with this urn already exists.")
            events.extend(await change_policies(tx, [Change(policy.urn, None, policy)]))

    @transaction
    async def replace_policy(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        policy: Policy,
        *,
        create: bool = False,
        revision: str | None = None,
    ) -> None:
        """POLICY_NOT_FOUND unless `create` is true; NOT_EDITABLE if the service keeps it itself; POLICY_CHANGED if it
        has another revision than the given one.
        """
        async with policy_change(tx, precondition) as events:
            before = _policy(await tx.fetchrow(_GET, policy.urn))
            if before is not None or not create:
                before = editable(before)
                if revision not in (None, before.revision):
                    raise Fault(
                        Reason.POLICY_CHANGED, "The policy was changed meanwhile. Read it again. Nothing was changed."
                    )
                policy = replace(policy, source=before.source, set_name=before.set_name)
            events.extend(await change_policies(tx, [Change(policy.urn, before, policy)]))

    @transaction
    async def delete_policy(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> None:
        async with policy_change(tx, precondition) as events:
            before = editable(_policy(await tx.fetchrow(_GET, urn)))
            events.extend(await change_policies(tx, [Change(urn, before, None)]))


async def find_policies(tx: Transaction) -> tuple[Policy, ...]:
    return tuple(policy_of(row) for row in await tx.fetch(_ALL))


async def change_policies(tx: Transaction, changes: Sequence[Change[Policy]]) -> list[Event]:
    await tx.executemany(_PUT, [_values(change.after) for change in changes if change.after is not None])
    deleted = [change.name for change in changes if change.after is None]
    if deleted:
        await tx.execute(f"DELETE FROM policies WHERE urn {tx.dialect.any_of('$1')}", deleted)
    return [_event(change) for change in changes]


async def put_first_policies(tx: Transaction, root: Policy, defaults: Sequence[Policy]) -> list[Event]:
    """At start: the root policy, and the default policies if this store never had them."""
    added = () if await tx.fetchval("SELECT defaults_made FROM state") else defaults
    await tx.execute("UPDATE state SET defaults_made = 1 WHERE defaults_made <> 1")
    made, events = list(added), [_event(Change(policy.urn, None, policy)) for policy in added]
    before = _policy(await tx.fetchrow(_GET, root.urn))
    if before != root:
        made.append(root)
        events.append(_event(Change(root.urn, before, root)))
    await tx.executemany(_PUT, [_values(policy) for policy in made])
    return events


STORED_POLICIES = StoredPart(
    POLICY_PART,
    find=lambda tx, *_: find_policies(tx),
    apply=lambda tx, _by, changes, *_: change_policies(tx, changes),
)


async def _find_resources(tx: Transaction) -> list[Resource]:
    return [Resource(*row) for row in await tx.fetch(f"SELECT {rows.RESOURCE} FROM resources ORDER BY name")]


async def _apply_resources(tx: Transaction, changes: Sequence[Change[Resource]]) -> list[Event]:
    # All old ones first: two resources may swap their ids.
    old = [change.name for change in changes if change.before is not None]
    await tx.execute(f"DELETE FROM resources WHERE name {tx.dialect.any_of('$1')}", old)
    await tx.executemany(_ADD_RESOURCE, [change.after for change in changes if change.after is not None])
    return [
        Event(_RESOURCE_ACTIONS[change.kind], change.name, {"id": change.newest.id, "set": change.newest.set_name})
        for change in changes
    ]


STORED_RESOURCES = StoredPart(
    RESOURCE_PART,
    find=lambda tx, *_: _find_resources(tx),
    apply=lambda tx, _by, changes, *_: _apply_resources(tx, changes),
)


def _values(policy: Policy) -> tuple[Any, ...]:
    detail = _detail(policy)
    privileges, users, groups, scopes = [
        rows.json_text(detail[name]) for name in ("privileges", "users", "groups", "scopes")
    ]
    plain = (policy.urn, policy.name, policy.description, policy.state.value)
    source = (policy.source.value, policy.set_name)
    return (*plain, privileges, users, groups, int(policy.all_users), scopes, *source)


def _detail(policy: Policy) -> dict[str, Detail]:
    detail: dict[str, Detail] = {
        "name": policy.name,
        "state": policy.state.value,
        "privileges": sorted(privilege.name for privilege in policy.privileges),
        "scopes": sorted(policy.scopes),
        "users": sorted(policy.users),
        "groups": sorted(policy.groups),
        "allUsers": policy.all_users,
        "source": policy.source.value,
    }
    return detail if policy.set_name is None else {**detail, "set": policy.set_name}


def _event(change: Change[Policy]) -> Event:
    before, after = change.before, change.after
    detail: dict[str, Detail] = {"name": None if before is None else before.name}
    if after is not None:
        detail = _detail(after)
        if before is not None and (removed := before.users - after.users):
            detail["removedUsers"] = sorted(removed)
    return Event(_ACTIONS[change.kind], change.name, detail)


def policy_of(row: rows.Row) -> Policy:
    urn, name, description, state, privileges, users, groups, all_users, scopes, source, set_name = row
    named = frozenset(Privilege[word] for word in orjson.loads(privileges))
    users, groups, scopes = (frozenset(orjson.loads(text)) for text in (users, groups, scopes))
    plain = (urn, name, description, PolicyState(state))
    return Policy(*plain, named, users, groups, bool(all_users), scopes, PolicySource(source), set_name)


def _policy(row: rows.Row | None) -> Policy | None:
    return None if row is None else policy_of(row)

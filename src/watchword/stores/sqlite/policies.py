"""Policies, groups and actors in SQLite. Whatever can change a decision moves the policy version on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apsw

from watchword.domain.actors import ActorState, ActorStatus, WritePrecondition, system_precondition
from watchword.domain.events import Action, Event
from watchword.domain.policies import Policy, PolicySet
from watchword.domain.policy_sets import ChangeKind, PolicyChange, PolicyDeclaration, PolicyPlan, reconcile
from watchword.domain.ports import Clock, Group
from watchword.domain.store_urls import LastStart
from watchword.stores import rows
from watchword.stores.sqlite.database import Database, in_snapshot
from watchword.stores.sqlite.warrants import leave_event, prove

_ALL = f"SELECT {rows.POLICY} FROM policies ORDER BY name, urn"  # noqa: S608 - literal pieces
_GET = f"SELECT {rows.POLICY} FROM policies WHERE urn = ?"  # noqa: S608
_PUT = f"INSERT OR REPLACE INTO policies ({rows.POLICY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_VERSION = "SELECT policy_version FROM state"

Change = Callable[[apsw.Connection], list[Event]]


class SqlitePolicies:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def policies(self) -> PolicySet:
        def work(c: apsw.Connection) -> PolicySet:
            return PolicySet(c.execute(_VERSION).get, _all(c))

        return await self._db.read(lambda c: in_snapshot(c, work))

    async def add_policy(self, precondition: WritePrecondition, policy: Policy) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            if c.execute(_GET, (policy.urn,)).fetchone() is not None:
                raise rows.policy_exists()
            c.execute(_PUT, rows.policy_values(policy))
            return [rows.policy_event(Action.POLICY_CREATED, policy)]

        await self._change(precondition, change)

    async def replace_policy(self, precondition: WritePrecondition, policy: Policy) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            before = rows.editable(_row(c, policy.urn))
            kept = replace(policy, source=before.source, set_name=before.set_name)
            c.execute(_PUT, rows.policy_values(kept))
            return [rows.policy_event(Action.POLICY_UPDATED, kept)]

        await self._change(precondition, change)

    async def delete_policy(self, precondition: WritePrecondition, urn: str) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            rows.editable(_row(c, urn))
            c.execute("DELETE FROM policies WHERE urn = ?", (urn,))
            return [Event(Action.POLICY_DELETED, urn)]

        await self._change(precondition, change)

    async def apply_policies(
        self, precondition: WritePrecondition, declared: PolicyDeclaration, *, prune: bool
    ) -> PolicyPlan:
        plan = PolicyPlan()

        def change(c: apsw.Connection) -> list[Event]:
            nonlocal plan
            plan = reconcile(_all(c), declared, prune=prune)
            return _apply(c, plan.changes)

        await self._change(precondition, change)
        return plan

    async def last_start(self) -> LastStart | None:
        return rows.last_start(await self._db.read(lambda c: c.execute("SELECT settings FROM state").get))

    async def settle(
        self,
        root: Policy,
        defaults: tuple[Policy, ...],
        declared: PolicyDeclaration | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PolicyPlan:
        plan = PolicyPlan()

        def change(c: apsw.Connection) -> list[Event]:
            nonlocal plan
            made = () if c.execute("SELECT defaults_made FROM state").get else defaults
            c.execute("UPDATE state SET defaults_made = 1")
            row = c.execute(_GET, (root.urn,)).fetchone()
            events = [rows.policy_event(Action.POLICY_CREATED, policy) for policy in made]
            if row is None or rows.policy_of(row) != root:
                made = (*made, root)
                action = Action.POLICY_CREATED if row is None else Action.POLICY_UPDATED
                events.append(rows.policy_event(action, root))
            c.executemany(_PUT, [rows.policy_values(policy) for policy in made])
            if declared is not None:
                plan = reconcile(_all(c), declared, prune=True)
            return [*events, *_apply(c, plan.changes), *_changed_settings(c, settings)]

        await self._change(system_precondition("start"), change)
        return plan

    async def add_group(self, precondition: WritePrecondition, group: Group) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            if c.execute("SELECT 1 FROM groups WHERE urn = ?", (group.urn,)).get:
                raise rows.group_exists()
            c.execute(
                "INSERT INTO groups (urn, name, description) VALUES (?, ?, ?)",
                (group.urn, group.name, group.description),
            )
            return [Event(Action.GROUP_CREATED, group.urn)]

        await self._change(precondition, change)

    async def delete_group(self, precondition: WritePrecondition, urn: str) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            _known_group(c, urn)
            c.execute("DELETE FROM groups WHERE urn = ?", (urn,))
            return [Event(Action.GROUP_DELETED, urn)]

        await self._change(precondition, change)

    async def change_members(
        self, precondition: WritePrecondition, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            _known_group(c, group)
            c.executemany(
                "INSERT OR IGNORE INTO group_members (actor_urn, group_urn) VALUES (?, ?)",
                [(m, group) for m in add],
            )
            c.executemany(
                "DELETE FROM group_members WHERE actor_urn = ? AND group_urn = ?",
                [(m, group) for m in remove],
            )
            told = ((Action.GROUP_MEMBERS_ADDED, add), (Action.GROUP_MEMBERS_REMOVED, remove))
            return [Event(action, group, {"members": sorted(set(members))}) for action, members in told if members]

        await self._change(precondition, change)

    async def get_group(self, urn: str) -> Group:
        statement = f"SELECT {rows.GROUP} FROM groups WHERE urn = ?"  # noqa: S608 - literal pieces
        row: Any = await self._db.read(lambda c: c.execute(statement, (urn,)).fetchone())
        if row is None:
            raise rows.no_group()
        return Group(*row)

    async def groups(self, start: int, count: int) -> tuple[int, tuple[Group, ...]]:
        def work(c: apsw.Connection) -> tuple[int, tuple[Group, ...]]:
            total = c.execute("SELECT count(*) FROM groups").get
            found = c.execute(
                f"SELECT {rows.GROUP} FROM groups ORDER BY name, urn LIMIT ? OFFSET ?",  # noqa: S608 - literal pieces
                (count, start),
            )
            return total, tuple(Group(*row) for row in found)

        return await self._db.scan(work)

    async def members(self, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        def work(c: apsw.Connection) -> tuple[int, tuple[str, ...]]:
            _known_group(c, group)
            total = c.execute("SELECT members FROM groups WHERE urn = ?", (group,)).get
            found = c.execute(
                "SELECT actor_urn FROM group_members WHERE group_urn = ? ORDER BY actor_urn LIMIT ? OFFSET ?",
                (group, count, start),
            )
            return total, tuple(urn for (urn,) in found)

        return await self._db.scan(work)

    async def actor_state(self, actor: str) -> ActorState:
        row = await self._db.read(
            lambda c: c.execute("SELECT status, changed_at, changed_by FROM actors WHERE urn = ?", (actor,)).fetchone()
        )
        if row is None:
            return ActorState(actor, ActorStatus.ACTIVE)
        return ActorState(actor, ActorStatus(row[0]), row[1], row[2])

    async def set_actor_status(self, precondition: WritePrecondition, actor: str, status: ActorStatus) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, precondition, now)
            if c.execute("SELECT 1 FROM service_accounts WHERE urn = ? AND deleted_at IS NOT NULL", (actor,)).get:
                raise rows.deleted_account()
            before = c.execute("SELECT status FROM actors WHERE urn = ?", (actor,)).get or ActorStatus.ACTIVE.value
            if before == status.value:
                return
            c.execute(
                "INSERT OR REPLACE INTO actors (urn, status, changed_at, changed_by) VALUES (?, ?, ?, ?)",
                (actor, status.value, now, precondition.actor),
            )
            action = Action.ACTOR_SUSPENDED if status is ActorStatus.SUSPENDED else Action.ACTOR_RESUMED
            leave_event(c, precondition, Event(action, actor), now)

        await self._db.write(work)

    async def _change(self, precondition: WritePrecondition, change: Change) -> None:
        """Prove, change, move the version on, leave the events: one transaction."""

        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, precondition, now)
            events = change(c)
            if events:
                c.execute("UPDATE state SET policy_version = policy_version + 1")
            for event in events:
                leave_event(c, precondition, event, now)

        await self._db.write(work)


def _all(c: apsw.Connection) -> tuple[Policy, ...]:
    return tuple(rows.policy_of(row) for row in c.execute(_ALL))


def _apply(c: apsw.Connection, changes: Sequence[PolicyChange]) -> list[Event]:
    c.executemany(_PUT, [rows.policy_values(change.after) for change in changes if change.after is not None])
    gone = [(change.urn,) for change in changes if change.kind is ChangeKind.DELETE]
    c.executemany("DELETE FROM policies WHERE urn = ?", gone)
    return rows.change_events(changes)


def _changed_settings(c: apsw.Connection, settings: Mapping[str, str] | None) -> list[Event]:
    if settings is None:
        return []
    kept = c.execute("SELECT settings FROM state").get
    c.execute("UPDATE state SET settings = ?", (rows.json_text(dict(settings)),))
    return rows.setting_events(kept, settings)


def _row(c: apsw.Connection, urn: str) -> rows.Row | None:
    found: rows.Row | None = c.execute(_GET, (urn,)).fetchone()
    return found


def _known_group(c: apsw.Connection, urn: str) -> None:
    if not c.execute("SELECT 1 FROM groups WHERE urn = ?", (urn,)).get:
        raise rows.no_group()

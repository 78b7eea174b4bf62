"""Policies, groups and actors in SQLite. Whatever can change a decision moves the policy version on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apsw
import orjson

from watchword.domain.actors import ActorState, ActorStatus, Warrant, system_warrant
from watchword.domain.declared import ChangeKind, PolicyChange, reconcile
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.policies import Policy, PolicySet, PolicySource, PolicyState, Privilege
from watchword.domain.ports import Clock, Group
from watchword.stores.sqlite.database import Database, in_snapshot
from watchword.stores.sqlite.warrants import leave_event, prove

_COLUMNS = "urn, name, description, state, privileges, users, groups, all_users, source"
_ALL = f"SELECT {_COLUMNS} FROM policies ORDER BY name, urn"  # noqa: S608 - literal pieces
_GET = f"SELECT {_COLUMNS} FROM policies WHERE urn = ?"  # noqa: S608
_PUT = f"INSERT OR REPLACE INTO policies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_GROUP = "urn, name, description, members"
_VERSION = "SELECT policy_version FROM state"

_ACTIONS = {
    ChangeKind.CREATE: Action.POLICY_CREATED,
    ChangeKind.UPDATE: Action.POLICY_UPDATED,
    ChangeKind.DELETE: Action.POLICY_DELETED,
}

Change = Callable[[apsw.Connection], list[Event]]


class SqlitePolicies:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def policies(self) -> PolicySet:
        def work(c: apsw.Connection) -> PolicySet:
            return PolicySet(c.execute(_VERSION).get, _all(c))

        return await self._db.read(lambda c: in_snapshot(c, work))

    async def add_policy(self, warrant: Warrant, policy: Policy) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            if c.execute(_GET, (policy.urn,)).fetchone() is not None:
                raise Fault(Reason.ALREADY_EXISTS, "There is a policy with this urn.")
            c.execute(_PUT, _values(policy))
            return [Event(Action.POLICY_CREATED, policy.urn, _detail(policy))]

        await self._change(warrant, change)

    async def replace_policy(self, warrant: Warrant, policy: Policy) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            kept = replace(policy, source=_editable(c, policy.urn).source)
            c.execute(_PUT, _values(kept))
            return [Event(Action.POLICY_UPDATED, policy.urn, _detail(kept))]

        await self._change(warrant, change)

    async def delete_policy(self, warrant: Warrant, urn: str) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            _editable(c, urn)
            c.execute("DELETE FROM policies WHERE urn = ?", (urn,))
            return [Event(Action.POLICY_DELETED, urn)]

        await self._change(warrant, change)

    async def apply_policies(self, warrant: Warrant, declared: Sequence[Policy]) -> tuple[PolicyChange, ...]:
        applied: list[PolicyChange] = []

        def change(c: apsw.Connection) -> list[Event]:
            applied[:] = reconcile(_all(c), declared)
            return _apply(c, applied)

        await self._change(warrant, change)
        return tuple(applied)

    async def settle(
        self,
        root: Policy,
        defaults: tuple[Policy, ...],
        declared: Sequence[Policy] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> tuple[PolicyChange, ...]:
        applied: list[PolicyChange] = []

        def change(c: apsw.Connection) -> list[Event]:
            made = () if c.execute("SELECT defaults_made FROM state").get else defaults
            c.execute("UPDATE state SET defaults_made = 1")
            row = c.execute(_GET, (root.urn,)).fetchone()
            events = [Event(Action.POLICY_CREATED, policy.urn, _detail(policy)) for policy in made]
            if row is None or _policy(row) != root:
                made = (*made, root)
                action = Action.POLICY_CREATED if row is None else Action.POLICY_UPDATED
                events.append(Event(action, root.urn, _detail(root)))
            c.executemany(_PUT, [_values(policy) for policy in made])
            applied[:] = () if declared is None else reconcile(_all(c), declared)
            return [*events, *_apply(c, applied), *_changed_settings(c, settings)]

        await self._change(system_warrant("start"), change)
        return tuple(applied)

    async def add_group(self, warrant: Warrant, group: Group) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            if c.execute("SELECT 1 FROM groups WHERE urn = ?", (group.urn,)).get:
                raise Fault(Reason.ALREADY_EXISTS, "There is a group of this id.")
            c.execute(
                "INSERT INTO groups (urn, name, description) VALUES (?, ?, ?)",
                (group.urn, group.name, group.description),
            )
            return [Event(Action.GROUP_CREATED, group.urn)]

        await self._change(warrant, change)

    async def delete_group(self, warrant: Warrant, urn: str) -> None:
        def change(c: apsw.Connection) -> list[Event]:
            _known_group(c, urn)
            c.execute("DELETE FROM groups WHERE urn = ?", (urn,))
            return [Event(Action.GROUP_DELETED, urn)]

        await self._change(warrant, change)

    async def change_members(
        self, warrant: Warrant, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
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

        await self._change(warrant, change)

    async def get_group(self, urn: str) -> Group:
        statement = f"SELECT {_GROUP} FROM groups WHERE urn = ?"  # noqa: S608 - literal pieces
        row: Any = await self._db.read(lambda c: c.execute(statement, (urn,)).fetchone())
        if row is None:
            raise _no_group()
        return Group(*row)

    async def groups(self, start: int, count: int) -> tuple[int, tuple[Group, ...]]:
        def work(c: apsw.Connection) -> tuple[int, tuple[Group, ...]]:
            total = c.execute("SELECT count(*) FROM groups").get
            rows = c.execute(
                f"SELECT {_GROUP} FROM groups ORDER BY name, urn LIMIT ? OFFSET ?",  # noqa: S608 - literal pieces
                (count, start),
            )
            return total, tuple(Group(*row) for row in rows)

        return await self._db.scan(work)

    async def members(self, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        def work(c: apsw.Connection) -> tuple[int, tuple[str, ...]]:
            _known_group(c, group)
            total = c.execute("SELECT members FROM groups WHERE urn = ?", (group,)).get
            rows = c.execute(
                "SELECT actor_urn FROM group_members WHERE group_urn = ? ORDER BY actor_urn LIMIT ? OFFSET ?",
                (group, count, start),
            )
            return total, tuple(urn for (urn,) in rows)

        return await self._db.scan(work)

    async def actor_state(self, actor: str) -> ActorState:
        row = await self._db.read(
            lambda c: c.execute("SELECT status, changed_at, changed_by FROM actors WHERE urn = ?", (actor,)).fetchone()
        )
        if row is None:
            return ActorState(actor, ActorStatus.ACTIVE)
        return ActorState(actor, ActorStatus(row[0]), row[1], row[2])

    async def set_actor_status(self, warrant: Warrant, actor: str, status: ActorStatus) -> None:
        def work(c: apsw.Connection) -> None:
            now = self._clock()
            prove(c, warrant, now)
            before = c.execute("SELECT status FROM actors WHERE urn = ?", (actor,)).get or ActorStatus.ACTIVE.value
            if before == status.value:
                return
            c.execute(
                "INSERT OR REPLACE INTO actors (urn, status, changed_at, changed_by) VALUES (?, ?, ?, ?)",
                (actor, status.value, now, warrant.actor),
            )
            action = Action.ACTOR_SUSPENDED if status is ActorStatus.SUSPENDED else Action.ACTOR_RESUMED
            leave_event(c, warrant, Event(action, actor), now)

        await self._db.write(work)

    async def _change(self, warrant: Warrant, change: Change) -> None:
        """Prove, change, move the version on, leave the events: one transaction."""

        def work(c: apsw.Connection) -> None:
            now = self._clock()
            prove(c, warrant, now)
            events = change(c)
            if events:
                c.execute("UPDATE state SET policy_version = policy_version + 1")
            for event in events:
                leave_event(c, warrant, event, now)

        await self._db.write(work)


def _all(c: apsw.Connection) -> tuple[Policy, ...]:
    return tuple(_policy(row) for row in c.execute(_ALL))


def _apply(c: apsw.Connection, changes: Sequence[PolicyChange]) -> list[Event]:
    c.executemany(_PUT, [_values(change.after) for change in changes if change.after is not None])
    gone = [(change.urn,) for change in changes if change.kind is ChangeKind.DELETE]
    c.executemany("DELETE FROM policies WHERE urn = ?", gone)
    return [
        Event(_ACTIONS[change.kind], change.urn, {} if change.after is None else _detail(change.after))
        for change in changes
    ]


def _changed_settings(c: apsw.Connection, settings: Mapping[str, str] | None) -> list[Event]:
    """An event for each setting that is another than at the last start; the first start has nothing to compare."""
    if settings is None:
        return []
    kept = c.execute("SELECT settings FROM state").get
    c.execute("UPDATE state SET settings = ?", (orjson.dumps(dict(settings)).decode(),))
    before: dict[str, str] = orjson.loads(kept) if kept else dict(settings)
    return [
        Event(Action.SETTING_CHANGED, name, {"before": before.get(name), "after": settings.get(name)})
        for name in sorted(before.keys() | settings.keys())
        if before.get(name) != settings.get(name)
    ]


def _editable(c: apsw.Connection, urn: str) -> Policy:
    row = c.execute(_GET, (urn,)).fetchone()
    if row is None:
        raise Fault(Reason.POLICY_NOT_FOUND, "There is no policy with this urn.")
    policy = _policy(row)
    if not policy.editable:
        raise Fault(Reason.NOT_EDITABLE, "This policy is kept by the service and cannot be changed or deleted.")
    return policy


def _known_group(c: apsw.Connection, urn: str) -> None:
    if not c.execute("SELECT 1 FROM groups WHERE urn = ?", (urn,)).get:
        raise _no_group()


def _no_group() -> Fault:
    return Fault(Reason.GROUP_NOT_FOUND, "There is no group with this urn.")


def _policy(row: tuple[Any, ...]) -> Policy:
    urn, name, description, state, privileges, users, groups, all_users, source = row
    return Policy(
        urn=urn,
        name=name,
        description=description,
        state=PolicyState(state),
        privileges=frozenset(Privilege[word] for word in orjson.loads(privileges)),
        users=frozenset(orjson.loads(users)),
        groups=frozenset(orjson.loads(groups)),
        all_users=bool(all_users),
        source=PolicySource(source),
    )


def _values(policy: Policy) -> tuple[Any, ...]:
    return (
        policy.urn,
        policy.name,
        policy.description,
        policy.state.value,
        _json(privilege.name for privilege in policy.privileges),
        _json(policy.users),
        _json(policy.groups),
        int(policy.all_users),
        policy.source.value,
    )


def _json(words: Any) -> str:
    return orjson.dumps(sorted(words)).decode()


def _detail(policy: Policy) -> dict[str, Detail]:
    return {
        "name": policy.name,
        "state": policy.state.value,
        "privileges": sorted(privilege.name for privilege in policy.privileges),
        "users": sorted(policy.users),
        "groups": sorted(policy.groups),
        "allUsers": policy.all_users,
        "source": policy.source.value,
    }

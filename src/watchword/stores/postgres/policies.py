"""Policies, groups and actors in PostgreSQL. Whatever can change a decision moves the policy version on."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from watchword.domain.actors import ActorState, ActorStatus, WritePrecondition, system_precondition
from watchword.domain.events import Action, Event
from watchword.domain.policies import Policy, PolicySet
from watchword.domain.policy_sets import ChangeKind, PolicyChange, PolicyDeclaration, PolicyPlan, reconcile
from watchword.domain.ports import Group
from watchword.domain.store_urls import LastStart
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.warrants import POLICIES, actor, leave_events, prove

_ALL = f"SELECT {rows.POLICY} FROM policies ORDER BY name, urn"  # noqa: S608 - literal pieces
# The version comes with every row, and on a row of its own where there is no policy: one statement, one state.
_ALL_WITH_VERSION = f"""
SELECT s.policy_version, {rows.POLICY.replace("state", "p.state")} FROM state AS s LEFT JOIN policies AS p ON true
ORDER BY p.name, p.urn"""  # noqa: S608
_GET = f"SELECT {rows.POLICY} FROM policies WHERE urn = $1"  # noqa: S608
_PUT = f"""
INSERT INTO policies ({rows.POLICY}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (urn) DO UPDATE SET ({rows.POLICY}) = ROW (excluded.*)"""  # noqa: S608
_GROUP = f"SELECT {rows.GROUP} FROM groups WHERE urn = $1"  # noqa: S608
_MEMBER = "INSERT INTO group_members (actor_urn, group_urn) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_DELETED = "SELECT deleted_at FROM service_accounts WHERE urn = $1"
SUSPEND = """
INSERT INTO actors (urn, status, changed_at, changed_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (urn) DO UPDATE SET status = excluded.status, changed_at = excluded.changed_at,
    changed_by = excluded.changed_by"""

# A number that never comes again, also not on a standby that took over and had not heard of the last ones: whoever has
# seen a version has seen its policies.
_NEXT_VERSION = """
UPDATE state SET policy_version = greatest(policy_version + 1, now_ms() * 1000 + floor(random() * 1000)::bigint)"""

Change = Callable[[Connection], Awaitable[list[Event]]]


class PostgresPolicies:
    _db: Database

    async def policies(self) -> PolicySet:
        found = await self._db.rows(_ALL_WITH_VERSION)
        return PolicySet(found[0][0], tuple(rows.policy_of(row[1:]) for row in found if row[1] is not None))

    async def add_policy(self, precondition: WritePrecondition, policy: Policy) -> None:
        async def change(c: Connection) -> list[Event]:
            if await c.fetchrow(_GET, policy.urn) is not None:
                raise rows.policy_exists()
            await c.execute(_PUT, *rows.policy_values(policy))
            return [rows.policy_event(Action.POLICY_CREATED, policy)]

        await self._change(precondition, change)

    async def replace_policy(self, precondition: WritePrecondition, policy: Policy) -> None:
        async def change(c: Connection) -> list[Event]:
            before = rows.editable(await c.fetchrow(_GET, policy.urn))
            kept = replace(policy, source=before.source, set_name=before.set_name)
            await c.execute(_PUT, *rows.policy_values(kept))
            return [rows.policy_event(Action.POLICY_UPDATED, kept)]

        await self._change(precondition, change)

    async def delete_policy(self, precondition: WritePrecondition, urn: str) -> None:
        async def change(c: Connection) -> list[Event]:
            rows.editable(await c.fetchrow(_GET, urn))
            await c.execute("DELETE FROM policies WHERE urn = $1", urn)
            return [Event(Action.POLICY_DELETED, urn)]

        await self._change(precondition, change)

    async def apply_policies(
        self, precondition: WritePrecondition, declared: PolicyDeclaration, *, prune: bool
    ) -> PolicyPlan:
        plan = PolicyPlan()

        async def change(c: Connection) -> list[Event]:
            nonlocal plan
            plan = reconcile(await _all(c), declared, prune=prune)
            return await _apply(c, plan.changes)

        await self._change(precondition, change)
        return plan

    async def last_start(self) -> LastStart | None:
        (kept,) = await self._db.row("SELECT settings FROM state")
        return rows.last_start(kept)

    async def settle(
        self,
        root: Policy,
        defaults: tuple[Policy, ...],
        declared: PolicyDeclaration | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PolicyPlan:
        plan = PolicyPlan()

        async def change(c: Connection) -> list[Event]:
            nonlocal plan
            made = () if await c.fetchval("SELECT defaults_made FROM state") else defaults
            await c.execute("UPDATE state SET defaults_made = 1 WHERE defaults_made <> 1")
            row = await c.fetchrow(_GET, root.urn)
            events = [rows.policy_event(Action.POLICY_CREATED, policy) for policy in made]
            if row is None or rows.policy_of(row) != root:
                made = (*made, root)
                events.append(rows.policy_event(Action.POLICY_CREATED if row is None else Action.POLICY_UPDATED, root))
            await c.executemany(_PUT, [rows.policy_values(policy) for policy in made])
            if declared is not None:
                plan = reconcile(await _all(c), declared, prune=True)
            return [*events, *await _apply(c, plan.changes), *await _changed_settings(c, settings)]

        await self._change(system_precondition("start"), change)
        return plan

    async def add_group(self, precondition: WritePrecondition, group: Group) -> None:
        async def change(c: Connection) -> list[Event]:
            if await c.fetchrow(_GROUP, group.urn) is not None:
                raise rows.group_exists()
            await c.execute(
                "INSERT INTO groups (urn, name, description) VALUES ($1, $2, $3)",
                group.urn,
                group.name,
                group.description,
            )
            return [Event(Action.GROUP_CREATED, group.urn)]

        await self._change(precondition, change)

    async def delete_group(self, precondition: WritePrecondition, urn: str) -> None:
        async def change(c: Connection) -> list[Event]:
            await _known_group(c, urn)
            await c.execute("DELETE FROM groups WHERE urn = $1", urn)
            return [Event(Action.GROUP_DELETED, urn)]

        await self._change(precondition, change)

    async def change_members(
        self, precondition: WritePrecondition, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> None:
        async def change(c: Connection) -> list[Event]:
            await _known_group(c, group)
            await c.executemany(_MEMBER, [(member, group) for member in add])
            await c.execute(
                "DELETE FROM group_members WHERE group_urn = $1 AND actor_urn = ANY ($2::text[])", group, list(remove)
            )
            told = ((Action.GROUP_MEMBERS_ADDED, add), (Action.GROUP_MEMBERS_REMOVED, remove))
            return [Event(action, group, {"members": sorted(set(members))}) for action, members in told if members]

        await self._change(precondition, change)

    async def get_group(self, urn: str) -> Group:
        row = await self._db.row(_GROUP, urn)
        if row is None:
            raise rows.no_group()
        return Group(*row)

    async def groups(self, start: int, count: int) -> tuple[int, tuple[Group, ...]]:
        async def work(c: Connection) -> tuple[int, tuple[Group, ...]]:
            total = await c.fetchval("SELECT count(*) FROM groups")
            statement = f"SELECT {rows.GROUP} FROM groups ORDER BY name, urn LIMIT $1 OFFSET $2"  # noqa: S608
            return total, tuple(Group(*row) for row in await c.fetch(statement, count, start))

        return await self._db.scan(work)

    async def members(self, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        async def work(c: Connection) -> tuple[int, tuple[str, ...]]:
            await _known_group(c, group)
            total = await c.fetchval("SELECT members FROM groups WHERE urn = $1", group)
            found = await c.fetch(
                "SELECT actor_urn FROM group_members WHERE group_urn = $1 ORDER BY actor_urn LIMIT $2 OFFSET $3",
                group,
                count,
                start,
            )
            return total, tuple(urn for (urn,) in found)

        return await self._db.scan(work)

    async def actor_state(self, actor: str) -> ActorState:
        row = await self._db.row("SELECT status, changed_at, changed_by FROM actors WHERE urn = $1", actor)
        if row is None:
            return ActorState(actor, ActorStatus.ACTIVE)
        return ActorState(actor, ActorStatus(row[0]), row[1], row[2])

    async def set_actor_status(self, precondition: WritePrecondition, urn: str, status: ActorStatus) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, precondition, changes=[actor(urn)])
            if await c.fetchval(_DELETED, urn) is not None:
                raise rows.deleted_account()
            before = await c.fetchval("SELECT status FROM actors WHERE urn = $1", urn)
            if (before or ActorStatus.ACTIVE.value) == status.value:
                return
            await c.execute(SUSPEND, urn, status.value, now, precondition.actor)
            action = Action.ACTOR_SUSPENDED if status is ActorStatus.SUSPENDED else Action.ACTOR_RESUMED
            await leave_events(c, precondition, [Event(action, urn)], now)

        await self._db.write(work)

    async def _change(self, precondition: WritePrecondition, change: Change) -> None:
        """Prove, change, move the version on, leave the events: one transaction, one at a time."""

        async def work(c: Connection) -> None:
            now = await prove(c, precondition, changes=[POLICIES])
            events = await change(c)
            if events:
                await c.execute(_NEXT_VERSION)
                await leave_events(c, precondition, events, now)

        await self._db.write(work)


async def _all(c: Connection) -> tuple[Policy, ...]:
    return tuple(rows.policy_of(row) for row in await c.fetch(_ALL))


async def _apply(c: Connection, changes: Sequence[PolicyChange]) -> list[Event]:
    await c.executemany(_PUT, [rows.policy_values(change.after) for change in changes if change.after is not None])
    gone = [change.urn for change in changes if change.kind is ChangeKind.DELETE]
    await c.execute("DELETE FROM policies WHERE urn = ANY ($1::text[])", gone)
    return rows.change_events(changes)


async def _changed_settings(c: Connection, settings: Mapping[str, str] | None) -> list[Event]:
    if settings is None:
        return []
    kept = await c.fetchval("SELECT settings FROM state")
    text = rows.json_text(dict(settings))
    if kept != text:
        await c.execute("UPDATE state SET settings = $1", text)
    return rows.setting_events(kept, settings)


async def _known_group(c: Connection, urn: str) -> None:
    if await c.fetchrow(_GROUP, urn) is None:
        raise rows.no_group()

"""Groups and their members, those of the identity provider too."""

from collections.abc import Collection

from watchword.access.group_rules import Group
from watchword.access.policy_store import policy_change
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import name_of
from watchword.database import rows
from watchword.database.transaction import Dialect, SqlPart, Transaction, page, snapshot, transaction
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition

_GROUP = f"SELECT {rows.GROUP} FROM groups WHERE urn = $1"
_ADD_MEMBER = "INSERT INTO group_members (actor_urn, group_urn) VALUES ($1, $2) ON CONFLICT DO NOTHING"


class GroupStore(SqlPart):
    @transaction
    async def add_group(self, tx: Transaction, precondition: WritePrecondition, group: Group) -> None:
        async with policy_change(tx, precondition) as events:
            if await tx.fetchrow(_GROUP, group.urn) is not None:
                raise Fault(Reason.ALREADY_EXISTS, "A group with this id already exists.")
            if await tx.fetchval("SELECT 1 FROM group_members WHERE group_urn = $1 LIMIT 1", group.urn) is not None:
                raise Fault(Reason.ALREADY_EXISTS, "The identity provider has a group with this id. Choose another.")
            values = (group.urn, group.name, group.description)
            await tx.execute(rows.insert("groups", "urn, name, description"), *values)
            events.append(Event(Action.GROUP_CREATED, group.urn, {"name": group.name}))

    @transaction
    async def delete_group(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> None:
        async with policy_change(tx, precondition) as events:
            group = _group(await tx.fetchrow(_GROUP, urn))
            events.append(await delete_group_rows(tx, urn, group.name))

    @transaction
    async def change_members(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        group: str,
        *,
        add: Collection[str] = (),
        remove: Collection[str] = (),
    ) -> None:
        async with policy_change(tx, precondition) as events:
            name = _group(await tx.fetchrow(_GROUP, group)).name
            events.extend(await change_members_of(tx, group, name, add, remove))

    @transaction
    async def leave_groups(self, tx: Transaction, precondition: WritePrecondition, actor: str) -> tuple[str, ...]:
        """Remove an actor from all groups, those of the identity provider too; returns them."""
        async with policy_change(tx, precondition) as events:
            sql = "DELETE FROM group_members WHERE actor_urn = $1 RETURNING group_urn, external"
            left = sorted((str(urn), bool(external)) for urn, external in await tx.fetch(sql, actor))
            made_here = [urn for urn, external in left if not external]
            sql = f"SELECT urn, name FROM groups WHERE urn {tx.dialect.any_of('$1')}"
            names: dict[str, str] = {row[0]: row[1] for row in await tx.fetch(sql, made_here)}
            events += [
                Event(Action.GROUP_MEMBERS_REMOVED, urn, {"name": names.get(urn), "members": [actor]})
                for urn in made_here
            ]
            if by_sign_in := [urn for urn, external in left if external]:
                events.append(Event(Action.ACTOR_GROUPS_CHANGED, actor, {"removed": by_sign_in}))
        return tuple(urn for urn, _ in left)

    @snapshot
    async def get_group(self, tx: Transaction, urn: str, *, external: bool = False) -> Group:
        """A group made here; with `external`, also one of the identity provider. GROUP_NOT_FOUND otherwise."""
        return await _find_group(tx, urn) if external else _group(await tx.fetchrow(_GROUP, urn))

    @snapshot
    async def groups(self, tx: Transaction, start: int, count: int, query: str = "") -> tuple[int, tuple[Group, ...]]:
        """Those made here whose name or urn contains the query, by name."""
        source = f"groups WHERE {found_by_name(tx.dialect)}"
        total, found = await page(tx, rows.GROUP, source, "name, urn", start, count, [query])
        return total, tuple(Group(*row) for row in found)

    @snapshot
    async def members(self, tx: Transaction, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        total = (await _find_group(tx, group)).members
        if total is None:
            total = await tx.fetchval("SELECT count(*) FROM group_members WHERE group_urn = $1", group)
        sql = "SELECT actor_urn FROM group_members WHERE group_urn = $1 ORDER BY actor_urn LIMIT $2 OFFSET $3"
        return total, tuple(urn for (urn,) in await tx.fetch(sql, group, count, start))

    @snapshot
    async def groups_of(
        self, tx: Transaction, actor: str, start: int, count: int, *, external: bool
    ) -> tuple[int, tuple[Group, ...]]:
        """The groups of an actor by urn; with `external`, those of the identity provider too."""
        own = "m.actor_urn = $1" if external else "m.actor_urn = $1 AND m.external = 0"
        total = await tx.fetchval(f"SELECT count(*) FROM group_members AS m WHERE {own}", actor)
        sql = f"""
        SELECT m.group_urn, m.external, {rows.columns("g", rows.GROUP)} FROM group_members AS m
        LEFT JOIN groups AS g ON g.urn = m.group_urn WHERE {own} ORDER BY m.group_urn LIMIT $2 OFFSET $3"""
        found = await tx.fetch(sql, actor, count, start)
        return total, tuple(_external_group(urn) if external else Group(*row) for urn, external, *row in found)


def found_by_name(d: Dialect) -> str:
    """Those whose name or urn contains the query, $1."""
    by_name = f"{d.position(d.folded('name'), d.folded('$1::text'))} > 0"
    return f"($1::text = '' OR {by_name} OR {d.position('urn', '$1::text')} > 0)"


def _group(row: rows.Row | None) -> Group:
    if row is None:
        raise Fault(Reason.GROUP_NOT_FOUND, "There is no group with this urn.")
    return Group(*row)


async def delete_group_rows(tx: Transaction, urn: str, name: str | None) -> Event:
    await tx.execute("DELETE FROM group_members WHERE group_urn = $1", urn)
    await tx.execute("DELETE FROM groups WHERE urn = $1", urn)
    return Event(Action.GROUP_DELETED, urn, {"name": name})


async def change_members_of(
    tx: Transaction, urn: str, name: str, add: Collection[str], remove: Collection[str]
) -> list[Event]:
    """Of what is as wanted already, nothing is written."""
    these = f"FROM group_members WHERE group_urn = $1 AND actor_urn {tx.dialect.any_of('$2')}"
    before = {actor for (actor,) in await tx.fetch(f"SELECT actor_urn {these}", urn, [*add, *remove])}
    added, removed = sorted({*add} - {*remove} - before), sorted({*remove} & before)
    await tx.executemany(_ADD_MEMBER, [(member, urn) for member in added])
    await tx.execute(f"DELETE {these}", urn, removed)
    changes = ((Action.GROUP_MEMBERS_ADDED, added), (Action.GROUP_MEMBERS_REMOVED, removed))
    return [Event(action, urn, {"name": name, "members": members}) for action, members in changes if members]


async def _find_group(tx: Transaction, urn: str) -> Group:
    """A group made here, or of the identity provider, which is known by its members."""
    row = await tx.fetchrow(_GROUP, urn)
    if row is None and await tx.fetchval("SELECT 1 FROM group_members WHERE group_urn = $1 LIMIT 1", urn) is not None:
        return _external_group(urn)
    return _group(row)


def _external_group(urn: str) -> Group:
    return Group(urn, name_of(urn), None, None, external=True)

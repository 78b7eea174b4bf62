"""Resources, which policy files declare."""

from collections.abc import Sequence

import orjson

from watchword.authority.declared_parts import Change, ChangeKind
from watchword.authority.declared_parts_store import StoredPart
from watchword.authority.resources import RESOURCE_PART, Resource
from watchword.database import rows
from watchword.database.transaction import Transaction
from watchword.journal.events import Action, Event

_ACTIONS = {
    ChangeKind.CREATE: Action.RESOURCE_CREATED,
    ChangeKind.UPDATE: Action.RESOURCE_UPDATED,
    ChangeKind.DELETE: Action.RESOURCE_DELETED,
}
_ADD = rows.insert("resources", rows.RESOURCE)


async def find_resources(tx: Transaction) -> tuple[Resource, ...]:
    return tuple(Resource(*row) for row in await tx.fetch(f"SELECT {rows.RESOURCE} FROM resources ORDER BY name"))


def resources_of(text: str) -> tuple[Resource, ...]:
    """From the JSON of their rows."""
    return tuple(sorted(Resource(*row) for row in orjson.loads(text)))


async def apply_resources(tx: Transaction, changes: Sequence[Change[Resource]]) -> list[Event]:
    # All old ones first: two resources may swap their ids.
    old = [change.name for change in changes if change.before is not None]
    await tx.execute(f"DELETE FROM resources WHERE name {tx.dialect.any_of('$1')}", old)
    await tx.executemany(_ADD, [change.after for change in changes if change.after is not None])
    return [
        Event(_ACTIONS[change.kind], change.name, {"id": change.newest.id, "set": change.newest.set_name})
        for change in changes
    ]


STORED_RESOURCES = StoredPart(
    RESOURCE_PART,
    find=lambda tx, *_: find_resources(tx),
    apply=lambda tx, _by, changes, *_: apply_resources(tx, changes),
)

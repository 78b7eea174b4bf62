"""Resources, which policy files declare."""

from collections.abc import Iterable

import orjson

from watchword.domain.events import Action, Event
from watchword.domain.policies import ChangeKind
from watchword.domain.resources import Resource, ResourceChange
from watchword.stores import rows
from watchword.stores.sql.transaction import Transaction

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


async def apply_resources(tx: Transaction, changes: Iterable[ResourceChange]) -> list[Event]:
    made = list(changes)
    # All old ones first: two resources may swap their ids.
    old = [change.name for change in made if change.before is not None]
    await tx.execute(f"DELETE FROM resources WHERE name {tx.dialect.any_of('$1')}", old)
    await tx.executemany(_ADD, [change.after for change in made if change.after is not None])
    return [_event(change) for change in made]


def _event(change: ResourceChange) -> Event:
    resource = change.after or change.before
    assert resource is not None
    detail = {"id": resource.id, "set": resource.set_name}
    return Event(_ACTIONS[change.kind], change.name, {**detail})

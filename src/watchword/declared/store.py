"""Applying declared sets, and what each start applies: the first policies, the policy file and the settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from watchword.access.policy_store import STORED_POLICIES, STORED_RESOURCES, policy_change, put_first_policies
from watchword.accounts.declared_rules import Entity
from watchword.accounts.declared_store import STORED_ENTITIES, find_entities
from watchword.authority.declared_parts_store import StoredPart
from watchword.authority.policies import Policy
from watchword.authority.privileges import Require, deny
from watchword.database import rows
from watchword.database.transaction import SqlPart, Transaction, snapshot, transaction
from watchword.database.urls import LastStart, last_start_of
from watchword.declared.rules import DeclaredSet, SetPlan, plan_set
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.notices.webhook_store import STORED_WEBHOOKS
from watchword.retention.store import STORED_RULES

STORED_PARTS: tuple[StoredPart[Any], ...] = (
    STORED_ENTITIES,
    STORED_RULES,
    STORED_WEBHOOKS,
    STORED_RESOURCES,
    STORED_POLICIES,
)
"""In the order in which they are applied."""


class DeclaredSetStore(SqlPart):
    @snapshot
    async def plan_set(self, tx: Transaction, declared: DeclaredSet, *, prune: bool) -> SetPlan:
        return await _plan(tx, declared, prune=prune)

    @transaction
    async def apply_set(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        declared: DeclaredSet,
        *,
        prune: bool,
        require: Require = deny,
    ) -> SetPlan:
        """Make what a set has equal to what is declared, in one transaction; returns what was changed. `require` is for
        the privileges that each change needs.
        """
        async with policy_change(tx, precondition, _locks(declared)) as events:
            plan = await _plan(tx, declared, prune=prune)
            events.extend(await _apply(tx, plan, precondition, require))
        return plan

    @snapshot
    async def entities(self, tx: Transaction, set_name: str, declared: Sequence[Entity]) -> Sequence[Entity]:
        return await find_entities(tx, set_name, declared)

    async def last_start(self) -> LastStart | None:
        row = await self._db.row("SELECT settings FROM state")
        return last_start_of(None if row is None else row[0])

    @transaction
    async def apply_start(
        self,
        tx: Transaction,
        root: Policy,
        defaults: Sequence[Policy],
        declared: DeclaredSet | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> SetPlan:
        """At start, in one transaction: apply the root policy; add the default policies if this store never had them;
        make the set of the policy file equal to what it declares; write an event for each setting that differs from
        the last start.
        """
        plan, precondition = SetPlan(), system_precondition("start")
        async with policy_change(tx, precondition, () if declared is None else _locks(declared)) as events:
            events.extend(await put_first_policies(tx, root, defaults))
            if declared is not None:
                plan = await _plan(tx, declared, prune=True)
            # The operator, who wrote the file, may do everything.
            events.extend(await _apply(tx, plan, precondition, lambda _: None))
            events.extend(await _changed_settings(tx, settings))
        return plan


def _locks(declared: DeclaredSet) -> list[str]:
    return [lock for stored in STORED_PARTS for lock in stored.locks(declared[stored.part])]


async def _plan(tx: Transaction, declared: DeclaredSet, *, prune: bool) -> SetPlan:
    found = {one.part: await one.find(tx, declared.set_name, declared[one.part]) for one in STORED_PARTS}
    return plan_set(found, declared, prune=prune)


async def _apply(tx: Transaction, plan: SetPlan, precondition: WritePrecondition, require: Require) -> list[Event]:
    events: list[Event] = []
    for one in STORED_PARTS:
        if changes := plan[one.part].changes:
            events.extend(await one.apply(tx, precondition, changes, require, await tx.now()))
    return events


async def _changed_settings(tx: Transaction, settings: Mapping[str, str] | None) -> list[Event]:
    """An event for each setting that differs from the last start. Only settings known at both starts are compared:
    instances on one store have some settings of their own. Derived values, such as the issuer, are no settings.
    """
    if settings is None:
        return []
    stored = await tx.fetchval("SELECT settings FROM state")
    text = rows.json_text(dict(settings))
    if stored != text:
        await tx.execute("UPDATE state SET settings = $1", text)
    before: dict[str, str] = orjson.loads(stored) if stored else dict(settings)
    return [
        Event(Action.SETTING_CHANGED, name, {"before": before[name], "after": settings[name]})
        for name in sorted(before.keys() & settings.keys())
        if before[name] != settings[name] and name.isupper()
    ]

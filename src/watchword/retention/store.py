"""Retention rules and holds, which are set by hand or declared by a rule."""

from collections.abc import Sequence

import orjson

from watchword.authority.declared_parts import Change
from watchword.authority.declared_parts_store import StoredPart
from watchword.authority.privileges import Privilege, Require
from watchword.authority.store import check_precondition
from watchword.basics.errors import Fault, Reason
from watchword.database import rows
from watchword.database.transaction import RETENTION, SqlPart, Transaction, snapshot, transaction
from watchword.index.holds import Hold
from watchword.index.indices import Aspect, series_key
from watchword.index.rules import Operation
from watchword.index.store import HOLD, cancel_active, find_hold, hold_of
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events
from watchword.retention.rules import MAX_RULES, RULE_PART, RetentionRule, RetentionState, StoredRule

_RULE = "rule, set_name, changed_at, changed_by"
_GET_RULE = f"SELECT {_RULE} FROM retention_rules WHERE series = $1"
_PUT_RULE = rows.put("retention_rules", f"series, {_RULE}", "series")
_GET_HOLD = f"SELECT {HOLD} FROM retention_holds WHERE series = $1 AND by_rule = $2"
_PUT_HOLD = rows.put("retention_holds", HOLD, "series, by_rule", "reason")


class RetentionStore(SqlPart):
    """Rules and holds. `require` is called with each privilege that a change needs. The hold that a rule declares is
    set and released with the rule. To release a hold that someone else set needs RELEASE_RETENTION_HOLDS.
    """

    @snapshot
    async def retention(self, tx: Transaction) -> RetentionState:
        return await read_state(tx)

    @transaction
    async def put_rule(
        self, tx: Transaction, precondition: WritePrecondition, rule: RetentionRule, require: Require
    ) -> StoredRule:
        """Create or replace the rule of its series, which stays in its set. The same rule again changes nothing.
        TOO_MANY_RULES.
        """
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        before = await _find_rule(tx, rule.key)
        if before is not None and before.rule == rule:
            return before
        after = StoredRule(rule, None if before is None else before.set_name, now, precondition.actor)
        change = Change(rule.series, before, after)
        await write_events(tx, precondition, await apply_rules(tx, precondition, [change], require, now), now)
        return after

    @transaction
    async def delete_rule(
        self, tx: Transaction, precondition: WritePrecondition, series: str, require: Require
    ) -> None:
        """RULE_NOT_FOUND if there is none."""
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        before = await _find_rule(tx, series_key(series))
        if before is None:
            raise Fault(Reason.RULE_NOT_FOUND, f"There is no retention rule for {series}.")
        change = Change(series, before, None)
        await write_events(tx, precondition, await apply_rules(tx, precondition, [change], require, now), now)

    @transaction
    async def set_hold(
        self, tx: Transaction, precondition: WritePrecondition, series: str, reason: str
    ) -> tuple[Hold, tuple[Operation, ...]]:
        """Hold a series, or all for `*`, and ask the active operations on it to cancel; returns them with the hold. The
        same hold by the same actor again changes nothing; SERIES_HELD if there is another.
        """
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        hold = Hold(series_key(series), reason, precondition.actor, now)
        found = await _find_hold(tx, hold.series)
        if found is None:
            await write_events(tx, precondition, [await _put_hold(tx, hold)], now)
        elif (found.set_by, found.reason) != (hold.set_by, hold.reason):
            # Keep the original setter: only the setter may release without the privilege.
            raise found.refusal("Nothing was changed. It can be set again once it is released.")
        return found or hold, await cancel_active(tx, precondition, hold.series, now)

    @transaction
    async def release_hold(
        self, tx: Transaction, precondition: WritePrecondition, series: str, require: Require
    ) -> None:
        """HOLD_NOT_FOUND if there is none; HOLD_DECLARED if the rule of the series declares it."""
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        found = await _find_hold(tx, series_key(series))
        if found is None and await _find_hold(tx, series_key(series), by_rule=True) is not None:
            raise Fault(
                Reason.HOLD_DECLARED,
                f"The retention rule of {series} declares the hold. To release it, apply the rule without hold.",
                series=series_key(series),
            )
        if found is None:
            raise Fault(Reason.HOLD_NOT_FOUND, f"There is no hold on {series}.")
        await write_events(tx, precondition, [await _delete_hold(tx, precondition, found, require)], now)


async def read_state(tx: Transaction) -> RetentionState:
    holds = await tx.fetch(f"SELECT {HOLD} FROM retention_holds ORDER BY series, by_rule DESC")
    return RetentionState(await find_rules(tx), tuple(map(hold_of, holds)))


async def read_state_of(tx: Transaction, series: Aspect | str) -> RetentionState:
    """The part that decides about one series."""
    found = await tx.fetch(f"SELECT {_RULE} FROM retention_rules WHERE series IN ($1::text, '*')", series_key(series))
    hold = await find_hold(tx, series)
    return RetentionState(tuple(map(_stored_rule, found)), () if hold is None else (hold,))


async def find_rules(tx: Transaction) -> tuple[StoredRule, ...]:
    return tuple(map(_stored_rule, await tx.fetch(f"SELECT {_RULE} FROM retention_rules ORDER BY series")))


async def apply_rules(
    tx: Transaction, precondition: WritePrecondition, changes: Sequence[Change[StoredRule]], require: Require, now: int
) -> list[Event]:
    """Make the changes, and those of the holds that the rules declare."""
    events: list[Event] = []
    puts: list[tuple[str | int | None, ...]] = []
    for change in changes:
        require(Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE)
        rule, key = change.after, change.newest.rule.key
        if rule is None:
            await tx.execute("DELETE FROM retention_rules WHERE series = $1", key)
            events.append(Event(Action.RETENTION_RULE_DELETED, key))
        else:
            puts.append((key, rows.json_text(rule.rule.packed()), rule.set_name, now, precondition.actor))
            events.append(Event(Action.RETENTION_RULE_SET, key, rule.rule.written() | {"set": rule.set_name}))
        events += await _declare_hold(tx, precondition, change, require, now)
    await tx.executemany(_PUT_RULE, puts)
    if events and await tx.fetchval("SELECT count(*) FROM retention_rules") > MAX_RULES:
        raise Fault(Reason.TOO_MANY_RULES, f"There may be at most {MAX_RULES:,} retention rules. Nothing was changed.")
    return events


STORED_RULES = StoredPart(RULE_PART, find=lambda tx, *_: find_rules(tx), apply=apply_rules, locks=lambda _: [RETENTION])


async def _declare_hold(
    tx: Transaction, precondition: WritePrecondition, change: Change[StoredRule], require: Require, now: int
) -> list[Event]:
    """The hold that the rule of a series declares, after a change of the rule. To end it or to change its reason needs
    the right to release it.
    """
    before, after = (None if rule is None else rule.rule.hold for rule in (change.before, change.after))
    if before == after:
        return []
    key = change.newest.rule.key
    found = await _find_hold(tx, key, by_rule=True)
    if after is None:
        return [] if found is None else [await _delete_hold(tx, precondition, found, require)]
    if found is not None and found.set_by != precondition.actor:
        require(Privilege.RELEASE_RETENTION_HOLDS)
    event = await _put_hold(tx, Hold(key, after, precondition.actor, now, by_rule=True))
    await cancel_active(tx, precondition, key, now)
    return [event]


async def _put_hold(tx: Transaction, hold: Hold) -> Event:
    await tx.execute(_PUT_HOLD, hold.series, hold.reason, hold.set_by, hold.set_at, int(hold.by_rule))
    return Event(Action.RETENTION_HOLD_SET, hold.series, {"reason": hold.reason, "byRule": hold.by_rule})


async def _delete_hold(tx: Transaction, precondition: WritePrecondition, hold: Hold, require: Require) -> Event:
    if hold.set_by != precondition.actor:
        require(Privilege.RELEASE_RETENTION_HOLDS)
    await tx.execute("DELETE FROM retention_holds WHERE series = $1 AND by_rule = $2", hold.series, int(hold.by_rule))
    detail: dict[str, Detail] = {
        "reason": hold.reason,
        "setBy": hold.set_by,
        "setAt": hold.set_at,
        "byRule": hold.by_rule,
    }
    return Event(Action.RETENTION_HOLD_RELEASED, hold.series, detail)


async def _find_rule(tx: Transaction, key: str) -> StoredRule | None:
    row = await tx.fetchrow(_GET_RULE, key)
    return None if row is None else _stored_rule(row)


async def _find_hold(tx: Transaction, key: str, *, by_rule: bool = False) -> Hold | None:
    row = await tx.fetchrow(_GET_HOLD, key, int(by_rule))
    return None if row is None else hold_of(row)


def _stored_rule(row: rows.Row) -> StoredRule:
    rule, set_name, changed_at, changed_by = row
    return StoredRule(RetentionRule.unpacked(orjson.loads(rule)), set_name, changed_at, changed_by)

"""Retention rules, and the holds that are set by hand or declared by a rule."""

from collections.abc import Iterable

import orjson

from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.indices import Aspect
from watchword.domain.operations import Operation
from watchword.domain.policies import ChangeKind, Privilege, Require
from watchword.domain.retention import (
    MAX_RULES,
    Hold,
    RetentionRule,
    RetentionState,
    RuleChange,
    StoredRule,
    series_key,
)
from watchword.stores import rows
from watchword.stores.sql.holds import HOLD, find_hold, hold_of
from watchword.stores.sql.operations import cancel_active
from watchword.stores.sql.transaction import (
    RETENTION,
    SqlPart,
    Transaction,
    check_precondition,
    snapshot,
    transaction,
    write_events,
)

_RULE = "rule, set_name, changed_at, changed_by"
_GET_RULE = f"SELECT {_RULE} FROM retention_rules WHERE series = $1"
_PUT_RULE = f"""
INSERT INTO retention_rules (series, {_RULE}) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (series) DO UPDATE SET rule = excluded.rule, set_name = excluded.set_name,
    changed_at = excluded.changed_at, changed_by = excluded.changed_by"""
_GET_HOLD = f"SELECT {HOLD} FROM retention_holds WHERE series = $1 AND by_rule = $2"
_PUT_HOLD = f"""
INSERT INTO retention_holds ({HOLD}) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (series, by_rule) DO UPDATE SET reason = excluded.reason"""


class SqlRetention(SqlPart):
    @snapshot
    async def retention(self, tx: Transaction) -> RetentionState:
        return await read_state(tx)

    @transaction
    async def put_rule(
        self, tx: Transaction, precondition: WritePrecondition, rule: RetentionRule, require: Require
    ) -> StoredRule:
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        before = await _find_rule(tx, rule.key)
        if before is not None and before.rule == rule:
            return before
        set_name = None if before is None else before.set_name
        kind = ChangeKind.CREATE if before is None else ChangeKind.UPDATE
        change = RuleChange(kind, rule.series, before, rule, set_name)
        await write_events(tx, precondition, await apply_rules(tx, precondition, [change], require, now), now)
        return StoredRule(rule, set_name, now, precondition.actor)

    @transaction
    async def delete_rule(
        self, tx: Transaction, precondition: WritePrecondition, series: str, require: Require
    ) -> None:
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        before = await _find_rule(tx, series_key(series))
        if before is None:
            raise Fault(Reason.RULE_NOT_FOUND, f"There is no retention rule for {series}.")
        change = RuleChange(ChangeKind.DELETE, series, before, None, None)
        await write_events(tx, precondition, await apply_rules(tx, precondition, [change], require, now), now)

    @transaction
    async def set_hold(
        self, tx: Transaction, precondition: WritePrecondition, series: str, reason: str
    ) -> tuple[Hold, tuple[Operation, ...]]:
        now = await check_precondition(tx, precondition, exclusive=[RETENTION])
        hold = Hold(series_key(series), reason, precondition.actor, now)
        found = await _find_hold(tx, hold.series)
        if found is None:
            await write_events(tx, precondition, [await _put_hold(tx, hold)], now)
        elif (found.set_by, found.reason) != (hold.set_by, hold.reason):
            # Another's hold must not become one's own, which one may release.
            raise found.refusal("Nothing was changed. It can be set again once it is released.")
        return found or hold, await cancel_active(tx, precondition, hold.series, now)

    @transaction
    async def release_hold(
        self, tx: Transaction, precondition: WritePrecondition, series: str, require: Require
    ) -> None:
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
    tx: Transaction, precondition: WritePrecondition, changes: Iterable[RuleChange], require: Require, now: int
) -> list[Event]:
    """Make the changes, and those of the holds that the rules declare. The caller has the lock RETENTION and writes the
    events.
    """
    events: list[Event] = []
    puts: list[tuple[str | int | None, ...]] = []
    for change in changes:
        require(Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE)
        if (rule := change.after) is None:
            await tx.execute("DELETE FROM retention_rules WHERE series = $1", change.key)
            events.append(Event(Action.RETENTION_RULE_DELETED, change.key))
        else:
            puts.append((change.key, rows.json_text(rule.packed()), change.set_name, now, precondition.actor))
            detail = rule.written() | {"set": change.set_name}
            events.append(Event(Action.RETENTION_RULE_SET, change.key, detail))
        events += await _declare_hold(tx, precondition, change, require, now)
    await tx.executemany(_PUT_RULE, puts)
    if events and await tx.fetchval("SELECT count(*) FROM retention_rules") > MAX_RULES:
        raise Fault(Reason.TOO_MANY_RULES, f"There may be at most {MAX_RULES:,} retention rules. Nothing was changed.")
    return events


async def _declare_hold(
    tx: Transaction, precondition: WritePrecondition, change: RuleChange, require: Require, now: int
) -> list[Event]:
    """The hold that the rule of a series declares, after a change of the rule. To end it or to change its reason needs
    the right to release it.
    """
    before = None if change.before is None else change.before.rule.hold
    after = None if change.after is None else change.after.hold
    if before == after:
        return []
    found = await _find_hold(tx, change.key, by_rule=True)
    if after is None:
        return [] if found is None else [await _delete_hold(tx, precondition, found, require)]
    if found is not None and found.set_by != precondition.actor:
        require(Privilege.RELEASE_RETENTION_HOLDS)
    event = await _put_hold(tx, Hold(change.key, after, precondition.actor, now, by_rule=True))
    await cancel_active(tx, precondition, change.key, now)
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

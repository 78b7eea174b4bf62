"""Retention: rules, holds, which are set by hand or declared by a rule, and runs.

A run is added once for each moment of a schedule, and a series has at most one operation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import orjson

from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.indices import Aspect
from watchword.domain.lifetimes import DAY
from watchword.domain.operations import Operation, Plan
from watchword.domain.policies import ChangeKind, Privilege, Require
from watchword.domain.retention import (
    MAX_RULES,
    Hold,
    PlannedRun,
    RetentionRule,
    RetentionRun,
    RetentionSnapshot,
    RetentionState,
    RuleChange,
    RunPage,
    RunState,
    SeriesRuns,
    SeriesSize,
    ShownRun,
    StoredRule,
    series_key,
)
from watchword.stores import rows
from watchword.stores.sql.operations import (
    HOLD,
    cancel_active,
    find_hold,
    hold_of,
    index_lock,
    insert_operation,
    read_operations,
)
from watchword.stores.sql.transaction import (
    RETENTION,
    SqlPart,
    Transaction,
    check_precondition,
    delete_oldest,
    page,
    snapshot,
    transaction,
    write_events,
)

_RULE = "rule, set_name, changed_at, changed_by"
_GET_RULE = f"SELECT {_RULE} FROM retention_rules WHERE series = $1"
_PUT_RULE = rows.put("retention_rules", f"series, {_RULE}", "series")
_GET_HOLD = f"SELECT {HOLD} FROM retention_holds WHERE series = $1 AND by_rule = $2"
_PUT_HOLD = rows.put("retention_holds", HOLD, "series, by_rule", "reason")


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
            # Keep the original setter: only the setter may release without the privilege.
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


_RUN = """number, home, series, due_at, state, rule, plan, asked_by, made_at, operation, approved_by, approved_at,
    error"""
_OVERDUE = "overdue/"
# Each series by a seek: there may be a million runs.
_SERIES = """
WITH RECURSIVE found (series) AS (
    SELECT min(series) FROM retention_runs WHERE home = $1
    UNION ALL
    SELECT (SELECT min(series) FROM retention_runs WHERE home = $1 AND series > found.series)
    FROM found WHERE found.series IS NOT NULL
)
SELECT series,
    (SELECT max(due_at) FROM retention_runs AS run WHERE run.home = $1 AND run.series = found.series),
    (SELECT coalesce(operations.finished_at, run.made_at) FROM retention_runs AS run
        LEFT JOIN operations ON operations.number = run.operation
        WHERE run.home = $1 AND run.series = found.series
            AND (run.state = 'NOTHING_TO_REMOVE' OR operations.state = 'DONE')
        ORDER BY run.due_at DESC LIMIT 1)
FROM found WHERE series IS NOT NULL"""
_WAITING = f"SELECT {_RUN} FROM retention_runs WHERE home = $1 AND state = 'WAITING' ORDER BY number"
_GET = f"SELECT {_RUN} FROM retention_runs WHERE number = $1"
_NEW = "home, series, due_at, state, rule, plan, asked_by, made_at, operation, error"
_ADD = f"{rows.insert('retention_runs', _NEW)} RETURNING {_RUN}"
_CHANGE = f"""
UPDATE retention_runs SET state = $2, plan = $3, operation = $4, approved_by = $5, approved_at = $6
WHERE number = $1 RETURNING {_RUN}"""
_SUPERSEDE = """
UPDATE retention_runs SET state = 'SUPERSEDED' WHERE home = $1 AND series = $2 AND state = 'WAITING'"""
# A later end than now and the wanted time comes from a clock that was set back.
_LEASE = """
INSERT INTO retention_leases (home, holder, held_until) VALUES ($1, $2, (SELECT now_ms()) + $3)
ON CONFLICT (home) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE retention_leases.holder = excluded.holder OR retention_leases.held_until <= (SELECT now_ms())
    OR retention_leases.held_until > excluded.held_until"""
_SIZES = """
SELECT series, day, rows, bytes FROM series_sizes
WHERE home = $1 AND day > $2 AND ($3::text IS NULL OR series = $3::text) ORDER BY series, day"""


class SqlRetentionRuns(SqlPart):
    @snapshot
    async def retention_snapshot(self, tx: Transaction, home: str) -> RetentionSnapshot:
        head = f"{_OVERDUE}{home}/"
        reported = await tx.fetch("SELECT home FROM retention_leases WHERE holder = $1", head)
        return RetentionSnapshot(
            state=await read_state(tx),
            runs={row[0]: SeriesRuns(*row[1:]) for row in await tx.fetch(_SERIES, home)},
            waiting=tuple(_run(row) for row in await tx.fetch(_WAITING, home)),
            measured=await tx.fetchval("SELECT max(day) FROM series_sizes WHERE home = $1", home),
            reported=frozenset(str(row[0]).removeprefix(head) for row in reported),
        )

    @transaction
    async def lease_retention(self, tx: Transaction, name: str, holder: str, millis: int) -> bool:
        return bool(await tx.execute(_LEASE, name, holder, millis))

    @transaction
    async def add_run(self, tx: Transaction, precondition: WritePrecondition, planned: PlannedRun) -> ShownRun | None:
        now = await _prepare(tx, precondition, planned.home, planned.series, planned.plan)
        state = await read_state_of(tx, planned.aspect)
        if state.rule_of(planned.aspect) != planned.rule:
            return None
        last = await tx.fetchval(
            "SELECT max(due_at) FROM retention_runs WHERE home = $1 AND series = $2", planned.home, planned.series
        )
        if planned.plan is not None and planned.plan.until > now - planned.rule.rule.keep:
            raise Fault(Reason.CONTENDED, "The database's clock was set back while the run was planned. Try again.")
        due = planned.due_at
        if planned.by_hand and last is not None:
            due = max(due, last + 1)
        if last is not None and due <= last:
            return None
        made, operation = planned.state, None
        if (hold := state.hold_of(planned.aspect)) is not None:
            if planned.by_hand:
                raise hold.refusal("Nothing was planned.")
            made = RunState.HELD
        elif made is RunState.STARTED:
            assert planned.plan is not None
            operation = await insert_operation(tx, precondition, planned.plan, now)
        await tx.execute(_SUPERSEDE, planned.home, planned.series)
        values = (
            *(planned.home, planned.series, due, made.value),
            *(rows.json_text(planned.rule.rule.packed()), _packed(planned.plan), precondition.actor, now),
            *(None if operation is None else operation.number, planned.error),
        )
        run = _run(await tx.fetchrow(_ADD, *values))
        actions = {RunState.REPORTED: Action.RETENTION_REPORTED, RunState.WAITING: Action.RETENTION_APPROVAL_NEEDED}
        if made in actions:
            await write_events(tx, precondition, [_event(actions[made], run)], now)
        return ShownRun(run, operation)

    @transaction
    async def approve_run(
        self, tx: Transaction, precondition: WritePrecondition, number: int, rows_seen: int
    ) -> ShownRun:
        now = await check_precondition(tx, precondition, shared=[RETENTION])
        run = await _locked(tx, number)
        if run is None:
            raise Fault(Reason.RUN_NOT_FOUND, f"There is no retention run {number}.")
        if run.state is not RunState.WAITING or run.plan is None:
            raise Fault(
                Reason.RUN_NOT_WAITING,
                f"Run {number} does not wait for approval: {run.state.value}.",
                state=run.state.value,
            )
        state = await read_state_of(tx, run.plan.aspect)
        current = state.rule_of(run.plan.aspect)
        if current is None or current.rule != run.rule:
            raise Fault(
                Reason.RUN_NOT_WAITING,
                f"The rule has changed since run {number} was planned. Run it again: retention run {run.series}",
                state=run.state.value,
            )
        if (hold := state.hold_of(run.plan.aspect)) is not None:
            raise hold.refusal("Nothing was approved.")
        if rows_seen != run.plan.rows_to_delete:
            found = run.plan.rows_to_delete
            raise Fault(Reason.RUN_GREW, f"Run {number} would remove {found:,} rows, not {rows_seen:,}.", rows=found)
        if run.approved_at is not None:
            return ShownRun(run, None)
        run = await _change(tx, replace(run, approved_by=precondition.actor, approved_at=now))
        await write_events(tx, precondition, [_event(Action.RETENTION_APPROVED, run)], now)
        return ShownRun(run, None)

    @transaction
    async def start_approved(
        self, tx: Transaction, precondition: WritePrecondition, approved: RetentionRun, plan: Plan
    ) -> ShownRun | None:
        now = await _prepare(tx, precondition, approved.home, approved.series, plan)
        run = await _locked(tx, approved.number)
        if run is None or run != approved or run.state is not RunState.WAITING or run.approved_at is None:
            return None
        state = await read_state_of(tx, plan.aspect)
        current = state.rule_of(plan.aspect)
        if current is None or current.rule != run.rule:
            return ShownRun(await _change(tx, replace(run, state=RunState.SUPERSEDED)), None)
        if state.hold_of(plan.aspect) is not None:
            return ShownRun(await _change(tx, replace(run, state=RunState.HELD)), None)
        if run.plan is None or plan.rows_to_delete > run.plan.rows_to_delete:
            run = await _change(tx, replace(run, plan=plan, approved_by=None, approved_at=None))
            await write_events(tx, precondition, [_event(Action.RETENTION_APPROVAL_NEEDED, run)], now)
            return ShownRun(run, None)
        if not plan.rows_to_delete:
            return ShownRun(await _change(tx, replace(run, state=RunState.NOTHING_TO_REMOVE, plan=plan)), None)
        operation = await insert_operation(tx, precondition, plan, now)
        changed = replace(run, state=RunState.STARTED, plan=plan, operation=operation.number)
        return ShownRun(await _change(tx, changed), operation)

    @transaction
    async def supersede_run(self, tx: Transaction, number: int) -> None:
        await tx.execute(
            "UPDATE retention_runs SET state = 'SUPERSEDED' WHERE number = $1 AND state = 'WAITING'", number
        )

    @snapshot
    async def retention_runs(self, tx: Transaction, series: str | None, start: int, count: int) -> RunPage:
        source = "retention_runs WHERE $1::text IS NULL OR series = $1::text"
        total, found = await page(tx, _RUN, source, "number DESC", start, count, [series])
        runs = [_run(row) for row in found]
        operations = await read_operations(tx, [run.operation for run in runs if run.operation is not None])
        return RunPage(total, tuple(ShownRun(run, operations.get(run.operation or 0)) for run in runs))

    @transaction
    async def note_overdue(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        home: str,
        details: Mapping[str, dict[str, Detail] | None],
    ) -> None:
        """Without detail: it is overdue no longer."""
        head = f"{_OVERDUE}{home}/"
        add = "INSERT INTO retention_leases (home, holder, held_until) VALUES ($1, $2, 0) ON CONFLICT (home) DO NOTHING"
        events = []
        for series, detail in sorted(details.items()):
            if detail is None:
                await tx.execute("DELETE FROM retention_leases WHERE home = $1", head + series)
            elif await tx.execute(add, head + series, head):
                events.append(Event(Action.RETENTION_OVERDUE, series, detail))
        await write_events(tx, precondition, events, await tx.now())

    @transaction
    async def note_clock_jump(self, tx: Transaction, precondition: WritePrecondition, seconds: int) -> None:
        event = Event(Action.RETENTION_CLOCK_JUMPED, "", {"seconds": seconds})
        await write_events(tx, precondition, [event], await tx.now())

    @transaction
    async def add_sizes(self, tx: Transaction, home: str, sizes: Sequence[SeriesSize]) -> None:
        add = (
            rows.insert("series_sizes", "home, series, day, rows, bytes")
            + " ON CONFLICT (home, series, day) DO NOTHING"
        )
        await tx.executemany(add, [(home, one.series, one.day, one.rows, one.size_bytes) for one in sizes])

    async def series_sizes(self, home: str, series: str | None, after_day: int) -> tuple[SeriesSize, ...]:
        return tuple(SeriesSize(*row) for row in await self._db.fetch(_SIZES, home, after_day, series))

    @transaction
    async def purge_runs(self, tx: Transaction, before: int, most: int) -> int:
        return await delete_oldest(tx, "retention_runs", "number", "made_at", before, most)

    @transaction
    async def purge_sizes(self, tx: Transaction, before: int, most: int) -> int:
        return await delete_oldest(tx, "series_sizes", "home, series, day", "day", before // DAY, most)


async def _prepare(tx: Transaction, precondition: WritePrecondition, home: str, series: str, plan: Plan | None) -> int:
    """The lock of the series orders its runs, that of the index its operations. Returns the time."""
    locks = [f"series:{home}/{series}"]
    if plan is not None:
        locks.append(index_lock(home, plan.index))
    return await check_precondition(tx, precondition, shared=[RETENTION], exclusive=locks)


async def _locked(tx: Transaction, number: int) -> RetentionRun | None:
    row = await tx.fetchrow(f"{_GET} {tx.dialect.for_update}", number)
    return None if row is None else _run(row)


async def _change(tx: Transaction, run: RetentionRun) -> RetentionRun:
    values = (run.state.value, _packed(run.plan), run.operation, run.approved_by, run.approved_at)
    return _run(await tx.fetchrow(_CHANGE, run.number, *values))


def _event(action: Action, run: RetentionRun) -> Event:
    detail: dict[str, Detail] = {"run": run.number, "rule": run.rule.series}
    if run.plan is not None:
        detail |= {"until": run.plan.until, "rows": run.plan.rows, "rowsToDelete": run.plan.rows_to_delete}
    if action is Action.RETENTION_APPROVAL_NEEDED:
        detail["atMost"] = f"{run.rule.at_most:g}%"
    return Event(action, run.series, detail)


def _packed(plan: Plan | None) -> str | None:
    return None if plan is None else rows.json_text(plan.packed())


def _run(row: rows.Row | None) -> RetentionRun:
    assert row is not None
    number, home, series, due_at, state, rule, plan, *rest = row
    return RetentionRun(
        *(number, home, series, due_at, RunState(state), RetentionRule.unpacked(orjson.loads(rule))),
        *(None if plan is None else Plan.unpacked(orjson.loads(plan)), *rest),
    )

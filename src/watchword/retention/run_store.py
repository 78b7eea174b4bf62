"""Runs of retention rules, and the sizes of series by day.

A run is added once for each moment of a schedule, and a series has at most one operation.
"""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from watchword.authority.store import check_precondition
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY
from watchword.database import rows
from watchword.database.transaction import RETENTION, Transaction, delete_oldest, page, snapshot, transaction
from watchword.index.rules import Plan
from watchword.index.store import index_lock, insert_operation, read_operations
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import EventStore, write_events
from watchword.retention import run_rules as runs
from watchword.retention.rules import RetentionRule
from watchword.retention.store import RetentionStore, read_state, read_state_of

_RUN = """number, home, series, due_at, state, rule, plan, asked_by, made_at, operation, approved_by, approved_at,
    error"""
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
_NOTED = "SELECT 1 FROM events WHERE target = $1 AND action = $2 AND at > $3 LIMIT 1"
_SIZES = """
SELECT series, day, rows, bytes FROM series_sizes
WHERE home = $1 AND day > $2 AND ($3::text IS NULL OR series = $3::text) ORDER BY series, day"""


class RetentionRunStore(RetentionStore, EventStore):
    @snapshot
    async def retention_snapshot(self, tx: Transaction, home: str) -> runs.RetentionSnapshot:
        """What the scheduler of a search index needs to know. Costs the same for any number of runs."""
        return runs.RetentionSnapshot(
            state=await read_state(tx),
            runs={row[0]: runs.SeriesRuns(*row[1:]) for row in await tx.fetch(_SERIES, home)},
            waiting=tuple(_run(row) for row in await tx.fetch(_WAITING, home)),
            measured=await tx.fetchval("SELECT max(day) FROM series_sizes WHERE home = $1", home),
        )

    @transaction
    async def add_run(
        self, tx: Transaction, precondition: WritePrecondition, planned: runs.PlannedRun
    ) -> runs.ShownRun | None:
        """Add a run, and its operation if it is STARTED. Earlier runs of the series that wait are SUPERSEDED.

        None, with no change, if the rule is another one now, or a run of this moment or a later one was added.
        CONTENDED if the plan would remove rows that are younger than `keep`. OPERATION_RUNNING as for `add_operation`.
        On a series with a hold, a due run is added as HELD; one that a person asked for is SERIES_HELD.
        """
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
            made = runs.RunState.HELD
        elif made is runs.RunState.STARTED:
            assert planned.plan is not None
            operation = await insert_operation(tx, precondition, planned.plan, now)
        await tx.execute(_SUPERSEDE, planned.home, planned.series)
        values = (
            *(planned.home, planned.series, due, made.value),
            *(rows.json_text(planned.rule.rule.packed()), _packed(planned.plan), precondition.actor, now),
            *(None if operation is None else operation.number, planned.error),
        )
        run = _run(await tx.fetchrow(_ADD, *values))
        actions = {
            runs.RunState.REPORTED: Action.RETENTION_REPORTED,
            runs.RunState.WAITING: Action.RETENTION_APPROVAL_NEEDED,
        }
        if made in actions:
            await write_events(tx, precondition, [_event(actions[made], run)], now)
        return runs.ShownRun(run, operation)

    @transaction
    async def approve_run(
        self, tx: Transaction, precondition: WritePrecondition, number: int, rows_seen: int
    ) -> runs.ShownRun:
        """Record the approval of a WAITING run, which would remove `rows_seen` rows. RUN_NOT_FOUND; RUN_NOT_WAITING
        also if its rule has changed; RUN_GREW if it would remove another number; SERIES_HELD.
        """
        now = await check_precondition(tx, precondition, shared=[RETENTION])
        run = await _locked(tx, number)
        if run is None:
            raise Fault(Reason.RUN_NOT_FOUND, f"There is no retention run {number}.")
        if run.state is not runs.RunState.WAITING or run.plan is None:
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
            return runs.ShownRun(run, None)
        run = await _change(tx, replace(run, approved_by=precondition.actor, approved_at=now))
        await write_events(tx, precondition, [_event(Action.RETENTION_APPROVED, run)], now)
        return runs.ShownRun(run, None)

    @transaction
    async def start_approved(
        self, tx: Transaction, precondition: WritePrecondition, approved: runs.RetentionRun, plan: Plan
    ) -> runs.ShownRun | None:
        """Add the operation of an approved run by its plan of now. If that removes more rows than were approved, the
        run waits again. None, with no change, if the run is not as it was. OPERATION_RUNNING.
        """
        now = await _prepare(tx, precondition, approved.home, approved.series, plan)
        run = await _locked(tx, approved.number)
        if run is None or run != approved or run.state is not runs.RunState.WAITING or run.approved_at is None:
            return None
        state = await read_state_of(tx, plan.aspect)
        current = state.rule_of(plan.aspect)
        operation = None
        if current is None or current.rule != run.rule:
            run = replace(run, state=runs.RunState.SUPERSEDED)
        elif state.hold_of(plan.aspect) is not None:
            run = replace(run, state=runs.RunState.HELD)
        elif run.plan is None or plan.rows_to_delete > run.plan.rows_to_delete:
            run = replace(run, plan=plan, approved_by=None, approved_at=None)
            await write_events(tx, precondition, [_event(Action.RETENTION_APPROVAL_NEEDED, run)], now)
        elif not plan.rows_to_delete:
            run = replace(run, state=runs.RunState.NOTHING_TO_REMOVE, plan=plan)
        else:
            operation = await insert_operation(tx, precondition, plan, now)
            run = replace(run, state=runs.RunState.STARTED, plan=plan, operation=operation.number)
        return runs.ShownRun(await _change(tx, run), operation)

    @transaction
    async def supersede_run(self, tx: Transaction, number: int) -> None:
        """End a run that waits."""
        await tx.execute(
            "UPDATE retention_runs SET state = 'SUPERSEDED' WHERE number = $1 AND state = 'WAITING'", number
        )

    @snapshot
    async def retention_runs(self, tx: Transaction, series: str | None, start: int, count: int) -> runs.RunPage:
        """Newest first, of one series or all."""
        source = "retention_runs WHERE $1::text IS NULL OR series = $1::text"
        total, found = await page(tx, _RUN, source, "number DESC", start, count, [series])
        listed = [_run(row) for row in found]
        operations = await read_operations(tx, [run.operation for run in listed if run.operation is not None])
        return runs.RunPage(total, tuple(runs.ShownRun(run, operations.get(run.operation or 0)) for run in listed))

    @transaction
    async def note_once(
        self, tx: Transaction, precondition: WritePrecondition, events: Sequence[tuple[Event, int]]
    ) -> None:
        """Write each event, unless one of its kind and target was written after the time that is given with it."""
        await tx.lock(exclusive=["retention/notes"])
        fresh = []
        for event, since in events:
            if await tx.fetchval(_NOTED, event.target, event.action.value, since) is None:
                fresh.append(event)
        await write_events(tx, precondition, fresh, await tx.now())

    @transaction
    async def add_sizes(self, tx: Transaction, home: str, sizes: Sequence[runs.SeriesSize]) -> None:
        """The first of a day counts."""
        add = (
            rows.insert("series_sizes", "home, series, day, rows, bytes")
            + " ON CONFLICT (home, series, day) DO NOTHING"
        )
        await tx.executemany(add, [(home, one.series, one.day, one.rows, one.size_bytes) for one in sizes])

    async def series_sizes(self, home: str, series: str | None, after_day: int) -> tuple[runs.SeriesSize, ...]:
        """By series and day."""
        return tuple(runs.SeriesSize(*row) for row in await self._db.fetch(_SIZES, home, after_day, series))

    @transaction
    async def purge_runs(self, tx: Transaction, before: int, most: int) -> int:
        """Delete at most `most` runs that were added before this time; returns how many."""
        return await delete_oldest(tx, "retention_runs", "number", "made_at", before, most)

    @transaction
    async def purge_sizes(self, tx: Transaction, before: int, most: int) -> int:
        """The same for the sizes of days."""
        return await delete_oldest(tx, "series_sizes", "home, series, day", "day", before // DAY, most)


async def _prepare(tx: Transaction, precondition: WritePrecondition, home: str, series: str, plan: Plan | None) -> int:
    """The lock of the series orders its runs, that of the index its operations. Returns the time."""
    locks = [f"series:{home}/{series}"]
    if plan is not None:
        locks.append(index_lock(home, plan.index))
    return await check_precondition(tx, precondition, shared=[RETENTION], exclusive=locks)


async def _locked(tx: Transaction, number: int) -> runs.RetentionRun | None:
    row = await tx.fetchrow(f"{_GET} {tx.dialect.for_update}", number)
    return None if row is None else _run(row)


async def _change(tx: Transaction, run: runs.RetentionRun) -> runs.RetentionRun:
    values = (run.state.value, _packed(run.plan), run.operation, run.approved_by, run.approved_at)
    return _run(await tx.fetchrow(_CHANGE, run.number, *values))


def _event(action: Action, run: runs.RetentionRun) -> Event:
    detail: dict[str, Detail] = {"run": run.number, "rule": run.rule.series}
    if run.plan is not None:
        detail |= {"until": run.plan.until, "rows": run.plan.rows, "rowsToDelete": run.plan.rows_to_delete}
    if action is Action.RETENTION_APPROVAL_NEEDED:
        detail["atMost"] = f"{run.rule.at_most:g}%"
    return Event(action, run.series, detail)


def _packed(plan: Plan | None) -> str | None:
    return None if plan is None else rows.json_text(plan.packed())


def _run(row: rows.Row | None) -> runs.RetentionRun:
    assert row is not None
    number, home, series, due_at, state, rule, plan, *rest = row
    return runs.RetentionRun(
        *(number, home, series, due_at, runs.RunState(state), RetentionRule.unpacked(orjson.loads(rule))),
        *(None if plan is None else Plan.unpacked(orjson.loads(plan)), *rest),
    )

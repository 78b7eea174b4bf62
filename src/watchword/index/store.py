"""Operations: at most one active operation per index, none on a series with a hold, no write under an old fence."""

import orjson

from watchword.authority.store import check_precondition
from watchword.basics.errors import Fault, Reason
from watchword.database import rows
from watchword.database.transaction import RETENTION, SqlPart, Transaction, page, snapshot, transaction
from watchword.index import rules
from watchword.index.holds import Hold
from watchword.index.indices import EVERY_SERIES, Aspect, series_key
from watchword.index.rules import LeaseLost, Operation, OperationProgress, Plan, State
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.journal.store import write_events

HOLD = "series, reason, set_by, set_at, by_rule"
# `*` sorts before every name: the hold on the series itself comes first, and of two that set by hand.
_IN_EFFECT = f"SELECT {HOLD} FROM retention_holds WHERE series IN ($1::text, '*') ORDER BY series DESC, by_rule LIMIT 1"


async def find_hold(tx: Transaction, series: Aspect | str) -> Hold | None:
    """The hold on the series, or else that on every series. Callers share or have the lock RETENTION."""
    row = await tx.fetchrow(_IN_EFFECT, series_key(series))
    return None if row is None else hold_of(row)


def hold_of(row: rows.Row) -> Hold:
    series, reason, set_by, set_at, by_rule = row
    return Hold(series, reason, set_by, set_at, bool(by_rule))


_COLUMNS = """number, plan, asked_by, asked_at, state, work, started_at, changed_at, finished_at, cancel_asked_at,
    cancel_asked_by, fence, (SELECT node_id FROM state)"""
# Word for word the condition of the partial index.
_ACTIVE = "state IN ('" + "', '".join(state.value for state in rules.ACTIVE) + "')"
# No lease is longer: a later end comes from a clock that was set back.
_LONGEST_LEASE = 60_000
# No window is closed for longer.
_LONGEST_PAUSE = 26 * 3_600_000

_GET = f"SELECT {_COLUMNS} FROM operations WHERE number = $1"
_RUNNING = f"SELECT {_COLUMNS} FROM operations WHERE {_ACTIVE} AND home = $1 AND index_name = $2"
_ADD = f"""
INSERT INTO operations (home, index_name, state, plan, work, asked_by, asked_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7) RETURNING {_COLUMNS}"""
_FREE = f"""
SELECT number FROM operations
WHERE {_ACTIVE} AND home = $1
    AND (held_until <= (SELECT now_ms()) OR held_until > (SELECT now_ms()) + {_LONGEST_LEASE})
    AND (not_before <= (SELECT now_ms()) OR not_before > (SELECT now_ms()) + {_LONGEST_PAUSE})
ORDER BY number LIMIT 1"""
_SAVE = f"""
UPDATE operations SET state = $2, work = $3, started_at = $4, changed_at = $5, finished_at = $6, held_until = $7,
    not_before = CASE WHEN cancel_asked_at IS NULL THEN $8::bigint ELSE 0 END
WHERE number = $1 RETURNING {_COLUMNS}"""
_REQUEST_CANCEL = f"""
UPDATE operations SET cancel_asked_at = $2, cancel_asked_by = $3, not_before = 0 WHERE number = $1
RETURNING {_COLUMNS}"""


class OperationStore(SqlPart):
    @transaction
    async def add_operation(self, tx: Transaction, precondition: WritePrecondition, plan: Plan) -> Operation:
        """Add a PLANNED operation. SERIES_HELD if a hold is on the series; OPERATION_RUNNING if another on the same
        index is active.
        """
        lock = index_lock(plan.home, plan.index)
        now = await check_precondition(tx, precondition, shared=[RETENTION], exclusive=[lock])
        return await insert_operation(tx, precondition, plan, now)

    async def operation(self, number: int) -> Operation | None:
        row = await self._db.row(_GET, number)
        return None if row is None else _operation(row)

    @snapshot
    async def operations(self, tx: Transaction, start: int, count: int) -> rules.OperationPage:
        """Newest first."""
        total, found = await page(tx, _COLUMNS, "operations", "number DESC", start, count)
        return rules.OperationPage(total, tuple(map(_operation, found)))

    @transaction
    async def request_cancel(self, tx: Transaction, precondition: WritePrecondition, number: int) -> Operation:
        """Record the request to cancel; a second request changes nothing. OPERATION_NOT_FOUND, TOO_LATE_TO_CANCEL."""
        now = await check_precondition(tx, precondition)
        operation = await _locked(tx, number)
        if operation is None:
            raise Fault(Reason.OPERATION_NOT_FOUND, "There is no operation with this id.")
        if operation.cancel_requested_at is not None and not operation.state.is_over:
            return operation
        if not operation.state.may_be_cancelled:
            state, message = operation.state, "The copy is replacing the index. It is too late."
            if state.is_over:
                message = f"The operation is over: {state.value}."
            raise Fault(Reason.TOO_LATE_TO_CANCEL, message, state=state.value)
        return await _request_cancel(tx, precondition, number, now)

    async def lease_operation(self, millis: int, home: str = "") -> Operation | None:
        """Lease an active operation on this search index that has no lease, for `millis` milliseconds and with a higher
        fence.
        """

        async def work(tx: Transaction) -> Operation | None:
            row = await tx.fetchrow(
                f"""UPDATE operations SET fence = fence + 1, held_until = (SELECT now_ms()) + $2
                WHERE number = ({_FREE} {tx.dialect.skip_locked}) RETURNING {_COLUMNS}""",
                home,
                millis,
            )
            return None if row is None else _operation(row)

        # Looked for by a read first, so that idle instances write nothing.
        if await self._db.row(_FREE, home) is None:
            return None
        return await self._db.write(work)

    @transaction
    async def save_operation(
        self, tx: Transaction, operation: Operation, millis: int, not_before: int = 0
    ) -> Operation:
        """Save its state and work, and renew its lease for `millis` milliseconds; 0: end the lease. It is leased again
        from `not_before` on, or as soon as someone asks to cancel it. Returns it as it is now.

        A change of state has its event. `LeaseLost` if its fence is no longer the current one; `CancelRequested` if it
        would begin SWAPPING after a request to cancel it.
        """
        before = await _locked(tx, operation.number)
        if before is None or before.fence != operation.fence or before.state.is_over:
            raise LeaseLost
        moved = before.state is not operation.state
        if moved and operation.state is State.SWAPPING and before.cancel_requested_at is not None:
            raise rules.CancelRequested
        now = await tx.now()
        started = before.started_at or (now if operation.state is State.RUNNING else None)
        finished = now if operation.state.is_over else None
        packed = rows.json_text(operation.work.packed())
        values = (operation.state.value, packed, started, now, finished, now + millis if millis else 0, not_before)
        saved = _operation(await tx.fetchrow(_SAVE, operation.number, *values))
        if moved:
            await write_events(tx, system_precondition("supervisor"), [rules.event_of(saved)], now)
        return saved


async def cancel_active(
    tx: Transaction, precondition: WritePrecondition, series: str, now: int
) -> tuple[Operation, ...]:
    """Cancel the active operations on a series, or on all for `*`; return all of them. One that is SWAPPING
    continues.
    """
    found = map(_operation, await tx.fetch(f"SELECT {_COLUMNS} FROM operations WHERE {_ACTIVE} ORDER BY number"))
    active: list[Operation] = []
    for number in [one.number for one in found if series in (EVERY_SERIES, series_key(one.plan.aspect))]:
        operation = await _locked(tx, number)
        if operation is None or operation.state.is_over:
            continue
        if operation.state.may_be_cancelled and operation.cancel_requested_at is None:
            operation = await _request_cancel(tx, precondition, number, now)
        active.append(operation)
    return tuple(active)


async def _request_cancel(tx: Transaction, precondition: WritePrecondition, number: int, now: int) -> Operation:
    operation = _operation(await tx.fetchrow(_REQUEST_CANCEL, number, now, precondition.actor))
    await write_events(tx, precondition, [Event(Action.OPERATION_CANCEL_REQUESTED, str(operation.id))], now)
    return operation


def index_lock(home: str, index: str) -> str:
    return f"index:{home}/{index}"


async def insert_operation(tx: Transaction, precondition: WritePrecondition, plan: Plan, now: int) -> Operation:
    """The caller has the lock of the index, and shares that of rules and holds."""
    if (hold := await find_hold(tx, plan.aspect)) is not None:
        raise hold.refusal("Nothing was removed.")
    if (running := await tx.fetchrow(_RUNNING, plan.home, plan.index)) is not None:
        task = str(_operation(running).id)
        raise Fault(
            Reason.OPERATION_RUNNING,
            f"Operation {task} on the same index is still active. Wait for it or cancel it, then retry.",
            operationId=task,
        )
    packed, begun = rows.json_text(plan.packed()), rows.json_text(OperationProgress().packed())
    values = (plan.home, plan.index, State.PLANNED.value, packed, begun, precondition.actor, now)
    operation = _operation(await tx.fetchrow(_ADD, *values))
    await write_events(tx, precondition, [rules.event_of(operation)], now)
    return operation


async def read_operations(tx: Transaction, numbers: list[int]) -> dict[int, Operation]:
    sql = f"SELECT {_COLUMNS} FROM operations WHERE number {tx.dialect.any_number('$1')}"
    return {found.number: found for found in map(_operation, await tx.fetch(sql, numbers))}


async def _locked(tx: Transaction, number: int) -> Operation | None:
    """Locked until the commit."""
    row = await tx.fetchrow(f"{_GET} {tx.dialect.for_update}", number)
    return None if row is None else _operation(row)


def _operation(row: rows.Row | None) -> Operation:
    assert row is not None
    number, plan, requested_by, requested_at, state, work, *rest = row
    plan, work = Plan.unpacked(orjson.loads(plan)), OperationProgress.unpacked(orjson.loads(work))
    return Operation(number, plan, requested_by, requested_at, State(state), work, *rest)

"""Operations in PostgreSQL: of each index at most one that is not over, and nothing is written under an old fence."""

from dataclasses import replace

from watchword.domain.actors import WritePrecondition, system_precondition
from watchword.domain.events import Action, Event
from watchword.domain.operations import CancelAsked, LeaseLost, Operation, OperationPage, Plan, State, Work, event_of
from watchword.domain.tasks import TaskId
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.warrants import leave_events, prove

_GET = f"SELECT {rows.OPERATION} FROM operations WHERE number = $1"  # noqa: S608 - literal pieces
_RUNNING = f"SELECT number FROM operations WHERE {rows.OPERATION_ACTIVE} AND home = $1 AND index_name = $2"  # noqa: S608
_ADD = """
INSERT INTO operations (home, index_name, state, plan, work, asked_by, asked_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7) RETURNING number"""
_FREE = f"""
SELECT number FROM operations
WHERE {rows.OPERATION_ACTIVE} AND home = $1
    AND (held_until <= now_ms() OR held_until > now_ms() + {rows.LONGEST_HOLD})
ORDER BY number LIMIT 1"""  # noqa: S608
_LEASE = f"""
UPDATE operations SET fence = fence + 1, held_until = now_ms() + $2
WHERE number = ({_FREE} FOR UPDATE SKIP LOCKED) RETURNING {rows.OPERATION}"""  # noqa: S608
_SAVE = """
UPDATE operations SET state = $2, work = $3, started_at = $4, changed_at = $5, finished_at = $6, held_until = $7
WHERE number = $1"""


class PostgresOperations:
    _db: Database

    async def node_id(self) -> str:
        (node,) = await self._db.row("SELECT node_id FROM state")
        return str(node)

    async def add_operation(self, precondition: WritePrecondition, plan: Plan) -> Operation:
        async def work(c: Connection) -> Operation:
            now = await prove(c, precondition, changes=[f"index:{plan.home}/{plan.index}"])
            running = await c.fetchval(_RUNNING, plan.home, plan.index)
            if running is not None:
                raise rows.operation_running(TaskId(await _node_id(c), running))
            packed, begun = rows.json_text(plan.packed()), rows.json_text(Work().packed())
            values = (plan.home, plan.index, State.PLANNED.value, packed, begun, precondition.actor, now)
            operation = await _get(c, await c.fetchval(_ADD, *values))
            await _leave(c, precondition, operation, now)
            return operation

        return await self._db.write(work)

    async def operation(self, number: int) -> Operation | None:
        row = await self._db.row(_GET, number)
        return None if row is None else rows.operation_of(row)

    async def operations(self, start: int, count: int) -> OperationPage:
        async def work(c: Connection) -> OperationPage:
            total = await c.fetchval("SELECT count(*) FROM operations")
            statement = f"SELECT {rows.OPERATION} FROM operations ORDER BY number DESC LIMIT $1 OFFSET $2"  # noqa: S608
            return OperationPage(total, tuple(rows.operation_of(row) for row in await c.fetch(statement, count, start)))

        return await self._db.scan(work)

    async def ask_cancel(self, precondition: WritePrecondition, number: int) -> Operation:
        async def work(c: Connection) -> Operation:
            now = await prove(c, precondition)
            operation = await _find(c, number)
            if operation is None:
                raise rows.no_operation()
            if operation.cancel_asked_at is not None and not operation.state.is_over:
                return operation
            if not operation.state.may_be_cancelled:
                raise rows.too_late_to_cancel(operation)
            await c.execute(
                "UPDATE operations SET cancel_asked_at = $2, cancel_asked_by = $3 WHERE number = $1",
                number,
                now,
                precondition.actor,
            )
            event = Event(Action.OPERATION_CANCEL_ASKED, str(TaskId(await _node_id(c), number)))
            await leave_events(c, precondition, [event], now)
            return await _get(c, number)

        return await self._db.write(work)

    async def lease_operation(self, millis: int, home: str = "") -> Operation | None:
        async def work(c: Connection) -> Operation | None:
            row = await c.fetchrow(_LEASE, home, millis)
            return None if row is None else rows.operation_of(row)

        # Looked for by a read, so that idle instances write nothing.
        if await self._db.row(_FREE, home) is None:
            return None
        return await self._db.write(work)

    async def save_operation(self, operation: Operation, millis: int) -> Operation:
        async def work(c: Connection) -> Operation:
            before = await _find(c, operation.number)
            if before is None or before.fence != operation.fence or before.state.is_over:
                raise LeaseLost
            moved = before.state is not operation.state
            if moved and operation.state is State.SWAPPING and before.cancel_asked_at is not None:
                raise CancelAsked
            now: int = await c.fetchval("SELECT now_ms()")
            started = before.started_at or (now if operation.state is State.RUNNING else None)
            finished = now if operation.state.is_over else None
            packed = rows.json_text(operation.work.packed())
            values = (operation.state.value, packed, started, now, finished, now + millis if millis else 0)
            await c.execute(_SAVE, operation.number, *values)
            kept = await _get(c, operation.number)
            if moved:
                await _leave(c, system_precondition("supervisor"), kept, now)
            return kept

        return await self._db.write(work)


async def _leave(c: Connection, precondition: WritePrecondition, operation: Operation, now: int) -> None:
    event = replace(event_of(operation), target=str(TaskId(await _node_id(c), operation.number)))
    await leave_events(c, precondition, [event], now)


async def _node_id(c: Connection) -> str:
    return str(await c.fetchval("SELECT node_id FROM state"))


async def _find(c: Connection, number: int) -> Operation | None:
    """Held until the commit: whoever else would change it waits."""
    row = await c.fetchrow(f"{_GET} FOR UPDATE", number)
    return None if row is None else rows.operation_of(row)


async def _get(c: Connection, number: int) -> Operation:
    found = await _find(c, number)
    assert found is not None
    return found

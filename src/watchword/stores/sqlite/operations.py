"""Operations in SQLite: of each index at most one that is not over, and nothing is written under an old fence."""

from dataclasses import replace

import apsw

from watchword.domain.actors import WritePrecondition, system_precondition
from watchword.domain.events import Action, Event
from watchword.domain.operations import (
    CancelAsked,
    LeaseLost,
    Operation,
    OperationPage,
    Plan,
    State,
    Work,
    event_of,
)
from watchword.domain.ports import Clock
from watchword.domain.tasks import TaskId
from watchword.stores import rows
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.warrants import leave_event, prove

_ADD = """
INSERT INTO operations (home, index_name, state, plan, work, asked_by, asked_at, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
_FREE = f"""
SELECT number FROM operations
WHERE {rows.OPERATION_ACTIVE} AND home = ?2 AND (held_until <= ?1 OR held_until > ?1 + {rows.LONGEST_HOLD})
ORDER BY number LIMIT 1"""  # noqa: S608
_SAVE = """
UPDATE operations SET state = ?, work = ?, started_at = ?, changed_at = ?, finished_at = ?, held_until = ?
WHERE number = ?"""


class SqliteOperations:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def node_id(self) -> str:
        return await self._db.read(_node_id)

    async def add_operation(self, precondition: WritePrecondition, plan: Plan) -> Operation:
        def work(c: apsw.Connection) -> Operation:
            now = self.clock()
            prove(c, precondition, now)
            running = c.execute(
                f"SELECT number FROM operations WHERE {rows.OPERATION_ACTIVE} AND home = ? AND index_name = ?",  # noqa: S608 - words of our own
                (plan.home, plan.index),
            ).get
            if running is not None:
                raise rows.operation_running(TaskId(_node_id(c), running))
            packed = rows.json_text(plan.packed())
            begun = rows.json_text(Work().packed())
            values = (plan.home, plan.index, State.PLANNED.value, packed, begun, precondition.actor, now, now)
            number: int = c.execute(_ADD, values).get
            operation = _get(c, number)
            _leave(c, precondition, operation, now)
            return operation

        return await self._db.write(work)

    async def operation(self, number: int) -> Operation | None:
        return await self._db.read(lambda c: _find(c, number))

    async def operations(self, start: int, count: int) -> OperationPage:
        def work(c: apsw.Connection) -> OperationPage:
            total: int = c.execute("SELECT count(*) FROM operations").get
            found = c.execute(
                f"SELECT {rows.OPERATION} FROM operations ORDER BY number DESC LIMIT ? OFFSET ?",  # noqa: S608
                (count, start),
            )
            return OperationPage(total, tuple(rows.operation_of(row) for row in found))

        return await self._db.scan(work)

    async def ask_cancel(self, precondition: WritePrecondition, number: int) -> Operation:
        def work(c: apsw.Connection) -> Operation:
            now = self.clock()
            prove(c, precondition, now)
            operation = _find(c, number)
            if operation is None:
                raise rows.no_operation()
            if operation.cancel_asked_at is not None and not operation.state.is_over:
                return operation
            if not operation.state.may_be_cancelled:
                raise rows.too_late_to_cancel(operation)
            c.execute(
                "UPDATE operations SET cancel_asked_at = ?, cancel_asked_by = ? WHERE number = ?",
                (now, precondition.actor, number),
            )
            event = Event(Action.OPERATION_CANCEL_ASKED, str(TaskId(_node_id(c), number)))
            leave_event(c, precondition, event, now)
            return _get(c, number)

        return await self._db.write(work)

    async def lease_operation(self, millis: int, home: str = "") -> Operation | None:
        def work(c: apsw.Connection) -> Operation | None:
            now = self.clock()
            number = c.execute(_FREE, (now, home)).get
            if number is None:
                return None
            c.execute(
                "UPDATE operations SET fence = fence + 1, held_until = ? WHERE number = ?", (now + millis, number)
            )
            return _get(c, number)

        # Looked for by a read, so that idle instances write nothing.
        if await self._db.read(lambda c: c.execute(_FREE, (self.clock(), home)).get) is None:
            return None
        return await self._db.write(work)

    async def save_operation(self, operation: Operation, millis: int) -> Operation:
        def work(c: apsw.Connection) -> Operation:
            now = self.clock()
            before = _find(c, operation.number)
            if before is None or before.fence != operation.fence or before.state.is_over:
                raise LeaseLost
            moved = before.state is not operation.state
            if moved and operation.state is State.SWAPPING and before.cancel_asked_at is not None:
                raise CancelAsked
            started = before.started_at or (now if operation.state is State.RUNNING else None)
            finished = now if operation.state.is_over else None
            packed = rows.json_text(operation.work.packed())
            values = (operation.state.value, packed, started, now, finished, now + millis if millis else 0)
            c.execute(_SAVE, (*values, operation.number))
            kept = _get(c, operation.number)
            if moved:
                _leave(c, system_precondition("supervisor"), kept, now)
            return kept

        return await self._db.write(work)


def _leave(c: apsw.Connection, precondition: WritePrecondition, operation: Operation, now: int) -> None:
    event = replace(event_of(operation), target=str(TaskId(_node_id(c), operation.number)))
    leave_event(c, precondition, event, now)


def _node_id(c: apsw.Connection) -> str:
    node: str = c.execute("SELECT node_id FROM state").get
    return node


def _find(c: apsw.Connection, number: int) -> Operation | None:
    row = c.execute(f"SELECT {rows.OPERATION} FROM operations WHERE number = ?", (number,)).fetchone()  # noqa: S608
    return None if row is None else rows.operation_of(row)


def _get(c: apsw.Connection, number: int) -> Operation:
    found = _find(c, number)
    assert found is not None
    return found

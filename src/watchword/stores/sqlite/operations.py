"""Operations in SQLite: of each index at most one that is not over, and nothing is written under an old fence."""

from dataclasses import replace
from typing import Any

import apsw
import orjson

from watchword.domain.actors import Warrant, system_warrant
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Event
from watchword.domain.operations import (
    ACTIVE,
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
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.warrants import leave_event, prove

_COLUMNS = """number, plan, asked_by, asked_at, state, work, started_at, changed_at, finished_at, cancel_asked_at,
    cancel_asked_by, fence"""
# Word for word the condition of the partial index, which is used only where it is seen to hold.
_ACTIVE = "state IN ('" + "', '".join(state.value for state in ACTIVE) + "')"
_ADD = """
INSERT INTO operations (index_name, state, plan, work, asked_by, asked_at, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING number"""
# Nobody holds one for as long as a minute: a later end is of a clock that was set back.
_FREE = f"""
SELECT number FROM operations WHERE {_ACTIVE} AND (held_until <= ?1 OR held_until > ?1 + 60000)
ORDER BY number LIMIT 1"""  # noqa: S608
_SAVE = """
UPDATE operations SET state = ?, work = ?, started_at = ?, changed_at = ?, finished_at = ?, held_until = ?
WHERE number = ?"""


class SqliteOperations:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def node_id(self) -> str:
        return await self._db.read(_node_id)

    async def add_operation(self, warrant: Warrant, plan: Plan) -> Operation:
        def work(c: apsw.Connection) -> Operation:
            now = self._clock()
            prove(c, warrant, now)
            running = c.execute(
                f"SELECT number FROM operations WHERE {_ACTIVE} AND index_name = ?",  # noqa: S608 - words of our own
                (plan.index,),
            ).get
            if running is not None:
                raise _running(TaskId(_node_id(c), running))
            packed = orjson.dumps(plan.packed()).decode()
            begun = orjson.dumps(Work().packed()).decode()
            values = (plan.index, State.PLANNED.value, packed, begun, warrant.actor, now, now)
            number: int = c.execute(_ADD, values).get
            operation = _get(c, number)
            _leave(c, warrant, operation, now)
            return operation

        return await self._db.write(work)

    async def operation(self, number: int) -> Operation | None:
        return await self._db.read(lambda c: _find(c, number))

    async def operations(self, start: int, count: int) -> OperationPage:
        def work(c: apsw.Connection) -> OperationPage:
            total: int = c.execute("SELECT count(*) FROM operations").get
            rows = c.execute(
                f"SELECT {_COLUMNS} FROM operations ORDER BY number DESC LIMIT ? OFFSET ?",  # noqa: S608
                (count, start),
            )
            return OperationPage(total, tuple(_operation(row) for row in rows))

        return await self._db.scan(work)

    async def ask_cancel(self, warrant: Warrant, number: int) -> Operation:
        def work(c: apsw.Connection) -> Operation:
            now = self._clock()
            prove(c, warrant, now)
            operation = _find(c, number)
            if operation is None:
                raise Fault(Reason.OPERATION_NOT_FOUND, "There is no operation with this id.")
            if operation.cancel_asked_at is not None and not operation.state.is_over:
                return operation
            if not operation.state.may_be_cancelled:
                raise Fault(
                    Reason.TOO_LATE_TO_CANCEL,
                    f"The operation is over: {operation.state.value}."
                    if operation.state.is_over
                    else "The copy is taking the place of the index: it is too late to cancel.",
                    state=operation.state.value,
                )
            c.execute(
                "UPDATE operations SET cancel_asked_at = ?, cancel_asked_by = ? WHERE number = ?",
                (now, warrant.actor, number),
            )
            event = Event(Action.OPERATION_CANCEL_ASKED, str(TaskId(_node_id(c), number)))
            leave_event(c, warrant, event, now)
            return _get(c, number)

        return await self._db.write(work)

    async def lease_operation(self, millis: int) -> Operation | None:
        def work(c: apsw.Connection) -> Operation | None:
            now = self._clock()
            number = c.execute(_FREE, (now,)).get
            if number is None:
                return None
            c.execute(
                "UPDATE operations SET fence = fence + 1, held_until = ? WHERE number = ?", (now + millis, number)
            )
            return _get(c, number)

        # Looked for by a read, so that idle instances write nothing.
        if await self._db.read(lambda c: c.execute(_FREE, (self._clock(),)).get) is None:
            return None
        return await self._db.write(work)

    async def save_operation(self, operation: Operation, millis: int) -> Operation:
        def work(c: apsw.Connection) -> Operation:
            now = self._clock()
            before = _find(c, operation.number)
            if before is None or before.fence != operation.fence or before.state.is_over:
                raise LeaseLost
            moved = before.state is not operation.state
            if moved and operation.state is State.SWAPPING and before.cancel_asked_at is not None:
                raise CancelAsked
            started = before.started_at or (now if operation.state is State.RUNNING else None)
            finished = now if operation.state.is_over else None
            packed = orjson.dumps(operation.work.packed()).decode()
            values = (operation.state.value, packed, started, now, finished, now + millis if millis else 0)
            c.execute(_SAVE, (*values, operation.number))
            kept = _get(c, operation.number)
            if moved:
                _leave(c, system_warrant("supervisor"), kept, now)
            return kept

        return await self._db.write(work)


def _running(task: TaskId) -> Fault:
    return Fault(
        Reason.OPERATION_RUNNING,
        f"The operation {task} on the same index is not over yet. Watch it or cancel it, then try again.",
        operationId=str(task),
    )


def _leave(c: apsw.Connection, warrant: Warrant, operation: Operation, now: int) -> None:
    event = replace(event_of(operation), target=str(TaskId(_node_id(c), operation.number)))
    leave_event(c, warrant, event, now)


def _node_id(c: apsw.Connection) -> str:
    node: str = c.execute("SELECT node_id FROM state").get
    return node


def _find(c: apsw.Connection, number: int) -> Operation | None:
    row = c.execute(f"SELECT {_COLUMNS} FROM operations WHERE number = ?", (number,)).fetchone()  # noqa: S608
    return None if row is None else _operation(row)


def _get(c: apsw.Connection, number: int) -> Operation:
    found = _find(c, number)
    assert found is not None
    return found


def _operation(row: tuple[Any, ...]) -> Operation:
    number, plan, asked_by, asked_at, state, work, *rest = row
    plan, work = Plan.unpacked(orjson.loads(plan)), Work.unpacked(orjson.loads(work))
    return Operation(number, plan, asked_by, asked_at, State(state), work, *rest)

"""Operations in the search index: task status, sizes, histograms, truncation.

`authorize` checks the privilege, before the arguments are parsed. Every other method takes the grant that it returns.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import Clock
from watchword.index.engine import ClusterEngine, Engine, TaskId, TaskStatus
from watchword.index.indices import ENDING, Aspect, Histogram, IndexNames, IndexSize, RowCount, is_index_or_copy
from watchword.index.rules import Operation, OperationPage, Plan, Truncation
from watchword.index.store import OperationStore

STATUS = Privilege.GET_ES_TASK_STATUS_PRIVILEGE
SIZES = Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE
TRUNCATE = Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE
MAX_CONCURRENT = 8
MAX_WAITING = 24


@dataclass(slots=True)
class Operations:
    _store: OperationStore
    _authority: Authority
    _engine: Engine
    _names: IndexNames
    _clock: Clock
    _wake: Callable[[], None]  # tells the supervisor of this process about new work
    _home: str  # that of `Plan`
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))
    _waiting: int = 0

    def authorize(self, caller: Caller, privilege: Privilege) -> Awaitable[Grant]:
        return self._authority.authorize(caller, privilege)

    async def task_status(self, grant: Grant, task: TaskId) -> TaskStatus | None:
        """Return the status of an operation or of an engine task; None if it is unknown or unreadable now."""
        grant.expect(STATUS)
        status = await self._status(task)
        return status if status is None or grant.may(TRUNCATE) else status.without_contents()

    async def _status(self, task: TaskId) -> TaskStatus | None:
        if (operation := await self._operation(task)) is not None:
            return operation.status(self._clock())
        try:
            async with self.slot():
                return await self._engine.task(task)
        except Fault as fault:
            if fault.reason in (Reason.INDEX_UNAVAILABLE, Reason.INDEX_REFUSED):
                return None
            raise

    async def sizes(self, grant: Grant) -> list[tuple[IndexSize, Aspect]]:
        grant.expect(SIZES)
        async with self.slot():
            found = await self._engine.sizes(self._names.head, ENDING)
        return [(size, aspect) for size in found if (aspect := self._names.aspect_of(size.name)) is not None]

    async def histogram(self, grant: Grant, aspect: Aspect, spans: int) -> tuple[str, Histogram]:
        """The name of the index, and its rows by time."""
        grant.expect(TRUNCATE)
        async with self.slot():
            index, source = await self.resolve(self._names.written(aspect))
            return index, Histogram(0) if source is None else await self._engine.histogram(source, spans)

    async def truncate(self, grant: Grant, truncation: Truncation) -> tuple[Plan, Operation | None]:
        """The plan, and the operation that carries it out unless this is a dry run."""
        grant.expect(TRUNCATE)
        async with self.slot():
            plan = await self._plan(truncation)
        if truncation.dry_run:
            return plan, None
        added = await self._authority.change(grant, self._store.add_operation, plan)
        self._wake()
        return plan, added

    async def get(self, grant: Grant, task: TaskId) -> Operation:
        grant.expect(TRUNCATE)
        return await self._find(task)

    async def list(self, grant: Grant, start: int, count: int) -> OperationPage:
        """Return operations, newest first."""
        grant.expect(TRUNCATE)
        return await self._store.operations(start, count)

    async def cancel(self, grant: Grant, task: TaskId) -> Operation:
        grant.expect(TRUNCATE)
        number = (await self._find(task)).number
        operation = await self._authority.change(grant, self._store.request_cancel, number)
        self._wake()
        return operation

    async def _plan(self, truncation: Truncation) -> Plan:
        aspect = self._names.written(truncation.aspect)
        index, source = await self.resolve(aspect)
        count = RowCount(0, 0, 0)
        if source is not None:
            count = await self._engine.count(source, truncation.until, truncation.keep_last)
        return truncation.plan(aspect, index, count, can_copy=isinstance(self._engine, ClusterEngine), home=self._home)

    async def resolve(self, aspect: Aspect, *, needed: bool = True) -> tuple[str, str | None]:
        """The name of its index, and the concrete index; None where a known aspect has none, or it is not needed."""
        index = self._names.index_of(aspect)
        resolved = await self._engine.resolve(index)
        if resolved is None:
            if needed and not self._names.is_known(aspect):
                raise self._unknown(aspect)
            return index, None
        if not is_index_or_copy(index, resolved.concrete):
            raise Fault(
                Reason.INDEX_AMBIGUOUS,
                f"{index} is an alias of {resolved.concrete}, which is not a copy of it. Nothing was changed.",
            )
        return index, resolved.concrete

    def _unknown(self, aspect: Aspect) -> Fault:
        known = ", ".join(str(one) for one in self._names.known)
        return Fault(
            Reason.ASPECT_NOT_FOUND,
            f"There is no index of entityType {aspect.entity} and aspect {aspect.name}. Known are those that have an "
            f"index, and {known or 'no others'}. See getIndexSizes.",
        )

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Limits requests to the index: token verification shares this process."""
        if self._waiting >= MAX_WAITING:
            raise Fault(Reason.INDEX_UNAVAILABLE, "Too many concurrent requests to the search index. Retry later.")
        self._waiting += 1
        try:
            async with self._slots:
                yield
        finally:
            self._waiting -= 1

    async def _operation(self, task: TaskId) -> Operation | None:
        found = await self._store.operation(task.number)
        return found if found is not None and found.id == task else None

    async def _find(self, task: TaskId) -> Operation:
        found = await self._operation(task)
        if found is None:
            raise Fault(Reason.OPERATION_NOT_FOUND, "There is no operation with this id.")
        return found

"""Operations in the search index: task status, sizes, truncation. The privilege is asked before all else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from watchword.domain.actors import Caller, Grant
from watchword.domain.engine import Engine
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import ENDING, Aspect, Histogram, IndexNames, IndexSize, is_own
from watchword.domain.operations import Operation, OperationPage, Plan
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, OperationStore
from watchword.domain.tasks import TaskId, TaskStatus
from watchword.domain.truncations import Truncation
from watchword.service.authority import Authority

STATUS = Privilege.GET_ES_TASK_STATUS_PRIVILEGE
SIZES = Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE
TRUNCATE = Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE
MOST_AT_ONCE = 8
MOST_WAITING = 24


@dataclass(frozen=True, slots=True)
class Recorded:
    """An operation with the id it is known by."""

    id: TaskId
    operation: Operation


class Operations:
    def __init__(
        self,
        store: OperationStore,
        authority: Authority,
        engine: Engine,
        names: IndexNames,
        clock: Clock,
        planned: Callable[[], None],
        home: str = "",
    ) -> None:
        """`planned` is called when there is something new to do; `home` says which search index the engine is."""
        self._store = store
        self._authority = authority
        self._engine = engine
        self._names = names
        self._clock = clock
        self._planned = planned
        self._home = home
        self._node: str | None = None
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting = 0

    async def require(self, caller: Caller, privilege: Privilege) -> None:
        (await self._authority.grant(caller)).require(privilege)

    async def task_status(self, caller: Caller, wanted: Callable[[], TaskId]) -> tuple[TaskId, TaskStatus | None]:
        """An operation of ours, or a task of the engine; None where it is not found or cannot be read now."""
        grant = await self._authority.grant(caller)
        grant.require(STATUS)
        task = wanted()
        status = await self._status(task)
        return task, status if status is None or grant.may(TRUNCATE) else status.without_contents()

    async def _status(self, task: TaskId) -> TaskStatus | None:
        if task.node == await self._node_id():
            operation = await self._store.operation(task.number)
            return None if operation is None else operation.status(task.node, self._clock())
        try:
            async with self._turn():
                return await self._engine.task(task)
        except Fault as fault:
            if fault.reason in (Reason.INDEX_UNAVAILABLE, Reason.INDEX_REFUSED):
                return None
            raise

    async def sizes(self, caller: Caller) -> list[tuple[IndexSize, Aspect]]:
        await self.require(caller, SIZES)
        async with self._turn():
            found = await self._engine.sizes(self._names.head, ENDING)
        return [(size, aspect) for size in found if (aspect := self._names.aspect_of(size.name)) is not None]

    async def histogram(self, caller: Caller, wanted: Callable[[], tuple[Aspect, int]]) -> tuple[str, Histogram]:
        """The name of the index, and how its rows lie in time: what a plan would cut."""
        await self.require(caller, TRUNCATE)
        aspect, spans = wanted()
        async with self._turn():
            index, source = await self._source(self._names.written(aspect))
            return index, Histogram(0) if source is None else await self._engine.histogram(source, spans)

    async def truncate(self, caller: Caller, wanted: Callable[[], Truncation]) -> tuple[Plan, Recorded | None]:
        """The plan; and, unless that was all that was asked for, the operation that will carry it out."""
        await self.require(caller, TRUNCATE)
        truncation = wanted()
        async with self._turn():
            plan = replace(await self._plan(truncation), home=self._home)
        if truncation.dry_run:
            return plan, None

        async def write(grant: Grant) -> Operation:
            grant.require(TRUNCATE)
            return await self._store.add_operation(grant.precondition, plan)

        operation = await self._authority.authorize_and_write(caller, write)
        self._planned()
        return plan, await self._recorded(operation)

    async def get(self, caller: Caller, wanted: Callable[[], TaskId]) -> Recorded:
        await self.require(caller, TRUNCATE)
        return await self._recorded(await self._find(wanted()))

    async def list(self, caller: Caller, page: Callable[[], tuple[int, int]]) -> tuple[OperationPage, str]:
        """Newest first, and what stands before the colon in their ids."""
        await self.require(caller, TRUNCATE)
        return await self._store.operations(*page()), await self._node_id()

    async def cancel(self, caller: Caller, wanted: Callable[[], TaskId]) -> Recorded:
        async def write(grant: Grant) -> Operation:
            grant.require(TRUNCATE)
            return await self._store.ask_cancel(grant.precondition, (await self._find(wanted())).number)

        operation = await self._authority.authorize_and_write(caller, write)
        self._planned()
        return await self._recorded(operation)

    async def _plan(self, truncation: Truncation) -> Plan:
        aspect = self._names.written(truncation.aspect)
        index, source = await self._source(aspect)
        if source is None:
            return truncation.plan(aspect, index, 0, 0, 0)
        count = await self._engine.count(source, truncation.until)
        return truncation.plan(aspect, index, count.total, count.old, count.size_bytes)

    async def _source(self, aspect: Aspect) -> tuple[str, str | None]:
        """The name of its index and the concrete one that it leads to; None where the aspect is known and has none."""
        index = self._names.index_of(aspect)
        resolved = await self._engine.resolve(index)
        if resolved is None:
            if not self._names.is_known(aspect):
                raise self._unknown(aspect)
            return index, None
        if not is_own(index, resolved.concrete):
            raise Fault(
                Reason.INDEX_AMBIGUOUS,
                f"{index} leads to {resolved.concrete}, which is no copy of it, so it is not touched.",
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
    async def _turn(self) -> AsyncIterator[None]:
        """Few at a time ask the index, and few wait: those who verify tokens share the process with them."""
        if self._waiting >= MOST_WAITING:
            raise Fault(Reason.INDEX_UNAVAILABLE, "Too many ask the search index at once; try again.")
        self._waiting += 1
        try:
            async with self._turns:
                yield
        finally:
            self._waiting -= 1

    async def _find(self, task: TaskId) -> Operation:
        found = await self._store.operation(task.number) if task.node == await self._node_id() else None
        if found is None:
            raise Fault(Reason.OPERATION_NOT_FOUND, "There is no operation with this id.")
        return found

    async def _recorded(self, operation: Operation) -> Recorded:
        return Recorded(TaskId(await self._node_id(), operation.number), operation)

    async def _node_id(self) -> str:
        if self._node is None:
            self._node = await self._store.node_id()
        return self._node

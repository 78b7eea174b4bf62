"""A lease on an operation: who holds it may work on it, and keeps proving that it does.

Every change of the record goes through here, under the fence of the lease. While the work waits for something long, a
heartbeat keeps the lease. Before anything is done to the index, the lease is proven anew unless that was a moment
ago: whoever was stopped for a while learns here that another one has taken over, and touches nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from watchword.domain.errors import Fault
from watchword.domain.operations import CancelAsked, LeaseLost, Operation, State, Work
from watchword.domain.ports import OperationStore

T = TypeVar("T")

LEASE_MILLIS = 10_000
HEARTBEAT_SECONDS = 3.0
PROVEN_SECONDS = 1.0
DOUBT_SECONDS = 4.0


class Lease:
    def __init__(self, store: OperationStore, operation: Operation) -> None:
        self._store = store
        self._operation = operation
        self._saving = asyncio.Lock()
        self._proven = time.monotonic()
        self._lost = False

    @property
    def operation(self) -> Operation:
        return self._operation

    @property
    def work(self) -> Work:
        return self._operation.work

    async def save(self, state: State | None = None, **changes: Any) -> Work:
        """Keep these changes of the work, and the new state if there is one."""
        async with self._saving:
            work = replace(self._operation.work, **changes)
            await self._keep(replace(self._operation, state=state or self._operation.state, work=work))
        return self.work

    async def act(self, deed: Awaitable[T]) -> T:
        """Do something to the index, having proven the lease just before."""
        try:
            await self._prove()
        except BaseException:
            _forget(deed)
            raise
        return await deed

    def heed_cancel(self) -> None:
        if self._operation.cancel_asked_at is not None and self.work.ending is None:
            raise CancelAsked

    @property
    def surely_holds(self) -> bool:
        """By our own clock, without asking the store."""
        return not self._lost and time.monotonic() - self._proven < LEASE_MILLIS / 1_000 - 1

    async def release(self) -> None:
        """Let another one take it up at once."""
        self._lost = True  # no heartbeat takes it again
        with suppress(LeaseLost, CancelAsked, Fault):
            await self._store.save_operation(self._operation, 0)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While the block runs the lease is renewed."""
        heart = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            heart.cancel()
            with suppress(asyncio.CancelledError):
                await heart

    async def _prove(self) -> None:
        if time.monotonic() - self._proven > PROVEN_SECONDS:
            await self.save()
        if self._lost or time.monotonic() - self._proven > DOUBT_SECONDS:
            raise LeaseLost

    async def _beat(self) -> None:
        while not self._lost:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            with suppress(Fault, LeaseLost):
                await self.save()

    async def _keep(self, operation: Operation) -> None:
        if self._lost:
            raise LeaseLost
        began = time.monotonic()
        try:
            self._operation = await self._store.save_operation(operation, LEASE_MILLIS)
        except LeaseLost:
            self._lost = True
            raise
        self._proven = began


def _forget(deed: Awaitable[Any]) -> None:
    if asyncio.iscoroutine(deed):
        deed.close()

"""Background work of a worker: the tasks that run it, how it rests between its batches, and the purge of old rows."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from watchword.basics.errors import Fault

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
REPORTED_SECONDS = 1_800.0  # how long a failure is reported: the slowest task runs again within this time
BATCH = 500
RESTS = 50
SHORTEST_REST, LONGEST_REST = 0.05, 5.0
PURGE_SECONDS = 600.0
PURGE_AGAIN_SECONDS = 30.0
PurgeRows = Callable[[int], Awaitable[int]]
"""Deletes at most so many rows; returns how many."""


@contextmanager
def outages_suppressed() -> Iterator[None]:
    """For a loop that tries again later."""
    try:
        yield
    except Fault as fault:
        if not fault.is_outage:
            raise


class BackgroundTasks:
    """Restarts a task that fails after a pause, logs the failure, and reports it in `/health/ready`.

    A task runs until it is cancelled and handles outages of the store itself. Any other end is a bug.
    """

    def __init__(self, log_failure: Callable[[str, str], None], count_failure: Callable[[str], None]) -> None:
        """`log_failure` takes the name of the task and the reason, `count_failure` the name."""
        self._log_failure = log_failure
        self._count_failure = count_failure
        self._failed_at: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    @property
    def failing(self) -> list[str]:
        since = time.monotonic() - REPORTED_SECONDS
        return sorted(name for name, at in self._failed_at.items() if at > since)

    async def keep_running(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            failure: Exception | None = None
            try:
                await task()
            except Exception as error:  # noqa: BLE001 - logged, and the task runs again
                failure = error
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
                self._logged.pop(name, None)
            self.failed(name, failure)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def failed(self, name: str, failure: Exception | None) -> None:
        """Report a task, or a part of one that goes on without it. None: it returned."""
        cause = "it returned"
        if failure is not None:
            cause = f"{type(failure).__name__}: {getattr(failure, 'cause', None) or failure}"
        if cause != self._logged.get(name):  # a disk that stays full is logged once
            self._log_failure(name, cause)
            self._logged[name] = cause
        self._count_failure(name)
        self._failed_at[name] = time.monotonic()

    def succeeded(self, name: str) -> None:
        """The part works again."""
        self._failed_at.pop(name, None)
        self._logged.pop(name, None)


async def in_batches(work: Callable[[int], Awaitable[int]], rests: int = RESTS) -> None:
    """Work on batches of this size until one is not full. Verifications must not notice: batches are small, and after
    each it rests many times as long as it took. Any number of processes may work concurrently.
    """
    while True:
        began = time.monotonic()
        if await work(BATCH) < BATCH:
            return
        await asyncio.sleep(min(max(SHORTEST_REST, rests * (time.monotonic() - began)), LONGEST_REST))


class Purge:
    """Deletes old rows of each kind by its own function."""

    def __init__(self, purges: Mapping[str, PurgeRows], *, busy: Collection[str] = ()) -> None:
        """`busy`: kinds of which there may be more new rows than long rests allow to delete."""
        self._rests = {kind: 1 if kind in busy else RESTS for kind in purges}
        self._purges = purges
        self._failures: dict[str, int] = {}
        """How often each part failed in a row."""

    async def run(self, tasks: BackgroundTasks) -> None:
        """Purge until cancelled. Jitter keeps processes out of step."""
        while True:
            # A failure may last for a moment only: the next pass, which comes soon, tells.
            seconds = PURGE_SECONDS if await self.purge(tasks) else PURGE_AGAIN_SECONDS
            await asyncio.sleep(seconds * (0.5 + random.random()))  # noqa: S311 - no secret

    async def purge(self, tasks: BackgroundTasks) -> bool:
        """Purge each kind of data; one that fails does not stop the others. Returns whether none failed for the first
        time. An outage is reported if it lasts until the next pass.
        """
        fresh = False
        for kind, purge in self._purges.items():
            name = f"purge of {kind}"
            try:
                await in_batches(purge, self._rests[kind])
            except Exception as error:  # noqa: BLE001 - reported, and tried again
                self._failures[kind] = number = self._failures.get(kind, 0) + 1
                fresh = fresh or number == 1
                if number > 1 or not (isinstance(error, Fault) and error.is_outage):
                    tasks.failed(name, error)
            else:
                if self._failures.pop(kind, 0):
                    tasks.succeeded(name)
        return not fresh

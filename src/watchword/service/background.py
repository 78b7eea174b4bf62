"""Background work of a worker: recording token usage, purging old data, notices before tokens expire, and the tasks
that run them.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice

from watchword.domain.counts import first_kept
from watchword.domain.errors import Fault, Reason
from watchword.domain.lifetimes import DAY
from watchword.domain.mail import MAIL_DAYS
from watchword.domain.networks import MAX_NETWORKS, network_of
from watchword.domain.ports import Clock, Store, TokenStore, Use
from watchword.domain.retention import KEEP_DAYS
from watchword.domain.webhooks import KEPT_DAYS

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
REPORTED_SECONDS = 1_800.0  # how long a failure is reported: the slowest task runs again within this time
BATCH = 500
USAGE_SECONDS = 30.0
MANY_TOKENS = 50_000
"""Usage of this many tokens is written before the interval ends. Twice as many are kept while the store fails."""
PURGE_SECONDS = 600.0
PURGE_AGAIN_SECONDS = 30.0
PURGE_RESTS = 50
SHORTEST_REST, LONGEST_REST = 0.05, 5.0


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


@dataclass(slots=True)
class _Usage:
    last: int
    count: int
    client: str
    others: tuple[str, ...] = ()
    """Earlier clients, at most MAX_NETWORKS."""

    def change(self, client: str) -> None:
        self.add_others(self.client)
        self.client = client

    def add_others(self, *clients: str) -> None:
        if not set(clients) <= set(self.others):
            self.others = tuple(dict.fromkeys([*self.others, *clients]))[:MAX_NETWORKS]

    @property
    def use(self) -> Use:
        return Use(self.last, self.count, network_of(self.client), tuple(map(network_of, self.others)))


class UsageRecorder:
    """When, how often and from where each token was used: collected in memory and written in the background.

    A crash loses at most the last interval. What could not be written is written later, as far as there is room.
    Nothing is counted twice: after a write with an unknown outcome the time is written again, the count is not.
    """

    def __init__(self, store: TokenStore, interval: float = USAGE_SECONDS, many: int = MANY_TOKENS) -> None:
        self._store = store
        self._interval = interval
        self._many = many
        self._collected: dict[str, _Usage] = {}
        self._are_many = asyncio.Event()
        self._flushing = asyncio.Lock()

    def record(self, token_id: str, at: int, client: str) -> None:
        """Runs in every verification, so it does very little: the network is computed when it is written."""
        try:
            usage = self._collected[token_id]
        except KeyError:
            self._add(token_id, _Usage(at, 1, client))
        else:
            usage.last = at
            usage.count += 1
            if usage.client != client:
                usage.change(client)

    async def run(self) -> None:
        """Flush until cancelled; a flush in progress completes. Jitter keeps processes out of step."""
        while True:
            pause = self._interval * (1 - random.random() / 4)  # noqa: S311 - no secret
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._are_many.wait()
            if not await asyncio.shield(asyncio.ensure_future(self.flush())):
                await asyncio.sleep(pause)

    async def flush(self) -> bool:
        """Write what was collected, including by a concurrent call, in small batches, so that other writes do not wait
        long. Returns whether all of it was written.
        """
        async with self._flushing:
            collected, self._collected = self._collected, {}
            self._are_many.clear()
            left = iter(collected.items())
            while batch := dict(islice(left, BATCH)):
                try:
                    await self._store.record_uses({one: usage.use for one, usage in batch.items()})
                except Exception as error:
                    if isinstance(error, Fault) and error.reason is Reason.OUTCOME_UNKNOWN:
                        for unknown in batch.values():
                            unknown.count = 0
                    self._put_back(chain(batch.items(), left))
                    if isinstance(error, Fault) and error.is_outage:
                        return False
                    raise
            return True

    def _add(self, token_id: str, usage: _Usage) -> None:
        if len(self._collected) < 2 * self._many:
            self._collected[token_id] = usage
        if len(self._collected) >= self._many:
            self._are_many.set()

    def _put_back(self, unwritten: Iterable[tuple[str, _Usage]]) -> None:
        """Merge with what was collected meanwhile."""
        for token_id, old in unwritten:
            new = self._collected.get(token_id)
            if new is None:
                self._add(token_id, old)
                continue
            new.count += old.count
            new.add_others(*old.others, old.client)
            if new.last < old.last:
                new.last = old.last
                new.change(old.client)


class Purge:
    """Deletes tokens that ended long ago, old events, deliveries and mails, idempotency records, sessions and device
    codes, the groups of people who have not signed in for long, counts of old days, and old runs of retention rules and
    sizes of series.
    """

    def __init__(self, store: Store, clock: Clock, token_days: int, event_days: int, group_days: int) -> None:
        self._store = store
        self._clock = clock
        self._token_days = token_days
        self._event_days = event_days
        self._group_days = group_days
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
        for kind, (work, rests) in self._parts().items():
            name = f"purge of {kind}"
            try:
                await in_batches(work, rests)
            except Exception as error:  # noqa: BLE001 - reported, and tried again
                self._failures[kind] = number = self._failures.get(kind, 0) + 1
                fresh = fresh or number == 1
                if number > 1 or not (isinstance(error, Fault) and error.is_outage):
                    tasks.failed(name, error)
            else:
                if self._failures.pop(kind, 0):
                    tasks.succeeded(name)
        return not fresh

    def _parts(self) -> dict[str, tuple[Callable[[int], Awaitable[int]], int]]:
        """Each kind of data, how to purge it, and how long to rest between batches."""
        store, now = self._store, self._clock()
        parts: dict[str, Callable[[int], Awaitable[int]]] = {
            "idempotency records": store.purge_idempotency_records,
            "sessions": store.purge_sessions,
            "devices": store.purge_devices,
            "change rates": store.purge_change_rates,
            "mails": lambda most: store.prune_mails(now - MAIL_DAYS * DAY, most),
            "groups": lambda most: store.drop_external_groups(now - self._group_days * DAY, most),
            "deliveries": lambda most: store.prune_deliveries(now - KEPT_DAYS * DAY, most),
            "events": lambda most: store.prune_events(now - self._event_days * DAY, most),
            "tokens": lambda most: store.purge_tokens(now - self._token_days * DAY, most),
            "uses": lambda most: store.purge_uses(first_kept(now), most),
            "retention runs": lambda most: store.purge_runs(now - KEEP_DAYS * DAY, most),
            "series sizes": lambda most: store.purge_sizes(now - KEEP_DAYS * DAY, most),
        }
        if not self._group_days:
            del parts["groups"]
        # There may be more new events and deliveries than long rests allow to delete.
        return {kind: (work, 1 if kind in {"deliveries", "events"} else PURGE_RESTS) for kind, work in parts.items()}


async def in_batches(work: Callable[[int], Awaitable[int]], rests: int = PURGE_RESTS) -> None:
    """Work on batches of this size until one is not full. Verifications must not notice: batches are small, and after
    each it rests many times as long as it took. Any number of processes may work concurrently.
    """
    while True:
        began = time.monotonic()
        if await work(BATCH) < BATCH:
            return
        await asyncio.sleep(min(max(SHORTEST_REST, rests * (time.monotonic() - began)), LONGEST_REST))


EXPIRY_LEASE = "expiry"
EXPIRY_PASS_SECONDS = 300.0
EXPIRY_LEASE_MILLIS = 300_000
"""Between two passes the lease stays, so that other processes do not look too."""
EXPIRY_PAGE = 1_000
EXPIRY_BATCH = 200
EXPIRY_RESTS = 30
"""After each step it rests this many times the duration of the step, so that verifications are not delayed."""
EXPIRY_LONGEST_REST = 2.0
EXPIRY_FIRST_SECONDS = 3.0
"""So that a start reads little, however many tokens expire soon."""


class ExpiryNotices:
    """Writes the notices as events, in whichever process has the lease."""

    def __init__(self, store: Store, thresholds: Sequence[int], holder: str, rests: int = EXPIRY_RESTS) -> None:
        self._store = store
        self._thresholds = thresholds
        self._holder = holder
        self._rests = rests

    async def run(self) -> None:
        """Look through the tokens that expire soon, again and again, until cancelled."""
        await asyncio.sleep(EXPIRY_FIRST_SECONDS)
        try:
            while True:
                with outages_suppressed():
                    await self.run_once()
                await asyncio.sleep(EXPIRY_PASS_SECONDS * (0.5 + random.random() / 3))  # noqa: S311 - no secret
        finally:
            with suppress(Fault):
                await self._store.release_cursor(EXPIRY_LEASE, self._holder)

    async def run_once(self) -> int:
        """One pass; returns how many notices were written. It ends where another process has the lease."""
        written = 0
        after = None
        while (
            self._thresholds
            and await self._store.lease_cursor(EXPIRY_LEASE, self._holder, EXPIRY_LEASE_MILLIS) is not None
        ):
            began = time.monotonic()
            page = await self._store.expiring_page(after, max(self._thresholds) * DAY, EXPIRY_PAGE)
            due = [token.id for token in page.tokens if token.due(self._thresholds, page.now) is not None]
            await self.rest(began)
            for start in range(0, len(due), EXPIRY_BATCH):
                began = time.monotonic()
                written += await self._store.note_expiring(due[start : start + EXPIRY_BATCH], self._thresholds)
                await self.rest(began)
            after = page.after
            if after is None:
                break
        return written

    async def rest(self, began: float) -> None:
        await asyncio.sleep(min(self._rests * (time.monotonic() - began), EXPIRY_LONGEST_REST))

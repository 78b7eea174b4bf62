"""The processor budget: what one actor may cost a worker beyond ordinary requests, on every address but `/auth`.

`Meter.measure` runs the answer to a request and adds up its processor time (`basics/processor_time.py`). What exceeds
FREE_SECONDS is charged to the actor.
"""

import asyncio
import gc
import math
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from watchword.basics.errors import Fault, Reason
from watchword.basics.processor_time import Steps

ACTOR_SHARE = 0.05
"""The default share of a processor. All actors together have four times as much, at most MAX_SHARED."""
SHARED_FACTOR, MAX_SHARED = 4, 0.8
ACTOR_BURST, WORKER_BURST = 1.0, 2.5
"""The capacity of the buckets, in seconds."""
WRITE_SECONDS = 0.0005
"""What a write of a token is charged, about what it costs: 2,000 at once, and 100 a second after that."""
MAX_WRITE_WAIT = 2.0
DAILY_WRITES = 50_000
"""Writes of tokens that a worker allows an actor in a day, half of them at once."""
MAX_PACED = 2.0
"""Seconds that a request waits for the budget before it is rejected."""
LEAST_WAIT = 0.001
THROTTLED_SECONDS = 0.2
"""Delay of the response when the processor budget is used up."""
MAX_ACTORS = 4_096
"""Actors remembered. A forgotten actor starts with a full bucket; the shared bucket is not affected."""
MAX_WAIT, DAY_SECONDS = 60, 86_400
FREE_SECONDS = 0.001
"""Of each request: an ordinary one costs less."""
FORGOTTEN = 0.5
"""What remains of the largest cost of a kind of requests after one that cost less."""
LEAST_COST = 0.0002
SLICE = 32
"""Rows that are rendered before other requests are answered."""

T = TypeVar("T")


class _Bucket:
    __slots__ = ("_at", "_burst", "_level", "_share")

    def __init__(self, share: float, burst: float, now: float) -> None:
        self._share, self._burst = share, burst
        self._level, self._at = burst, now

    def spend(self, seconds: float, now: float) -> None:
        self._level = min(self._burst, self._level + (now - self._at) * self._share) - seconds
        self._at = now

    def fill(self, now: float) -> float:
        """1 at most, below 0 in debt."""
        self.spend(0.0, now)
        return self._level / self._burst


class ProcessorBudget:
    """Limits what one actor may cost a worker beyond ordinary requests. A share of 0 disables it.

    Charged in seconds of processor time: parsing, validating and compiling documents that the worker has not cached;
    what the answer to a request takes on the event loop that verifies tokens, beyond FREE_SECONDS; and searches of the
    caller's own tokens, which take a thread.

    Each actor has a token bucket that fills at a share of a processor, and all actors of a worker share another one.
    Work starts while a bucket is not empty and is charged in full, so a bucket can go into debt. As the shared bucket
    runs out, it stops the actors first that used most of their own.

    Writes of tokens have buckets of their own, and none for all actors: writes of many actors share a commit.
    """

    def __init__(self, share: float = ACTOR_SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._share, self._shared = share, min(MAX_SHARED, SHARED_FACTOR * share)
        self._everyone = _Bucket(self._shared, WORKER_BURST, clock())
        remembered, day_share = lru_cache(MAX_ACTORS), DAILY_WRITES / 2 / DAY_SECONDS
        self._actors = remembered(lambda _actor: _Bucket(share, ACTOR_BURST, clock()))
        self._writers = remembered(lambda _actor: _Bucket(share, ACTOR_BURST, clock()))
        self._days = remembered(lambda _actor: _Bucket(day_share, DAILY_WRITES / 2, clock()))

    def __len__(self) -> int:
        return self._actors.cache_info().currsize

    def wait(self, actor: str) -> float:
        """Seconds until work of this actor may start."""
        bucket, now = self._actors(actor), self._clock()
        own = bucket.fill(now)
        # The shared bucket limits nothing until half of it is used.
        needed = max(0.0, 1.0 - 2.0 * self._everyone.fill(now))
        if own > needed or not self._share:
            return 0.0
        own_rate, shared_rate = self._share / ACTOR_BURST, 2.0 * self._shared / WORKER_BURST
        return max(-own / own_rate, (needed - own) / (own_rate + shared_rate), LEAST_WAIT)

    def check(self, actor: str) -> None:
        wait = self.wait(actor)
        if wait:
            raise _used(wait)

    def charge(self, actor: str, seconds: float) -> None:
        bucket, now = self._actors(actor), self._clock()
        bucket.spend(seconds, now)
        self._everyone.spend(seconds, now)

    def charge_write(self, actor: str) -> float:
        """Returns how many seconds the write must wait. Waiting, and not rejection, so that a job that creates many
        tokens is slower but does not fail.
        """
        if not self._share:
            return 0.0
        bucket, day, now = self._writers(actor), self._days(actor), self._clock()
        if day.fill(now) * DAILY_WRITES / 2 < 1:
            seconds = math.ceil(DAY_SECONDS * 2 / DAILY_WRITES)
            raise Fault(
                Reason.TOO_MANY_CHANGES,
                f"An actor may create, derive, rotate and change {DAILY_WRITES:,} tokens a day, half of them at once. "
                f"Try again in {seconds} s.",
                retryAfter=seconds,
            )
        wait = max(0.0, -bucket.fill(now) * ACTOR_BURST / self._share)
        if wait > MAX_WRITE_WAIT:
            raise Fault(
                Reason.PROCESSOR_BUDGET_USED,
                "You create or change more tokens at the same time than one caller may. "
                f"Try again in {math.ceil(wait)} s, and wait for an answer before you send more.",
                retryAfter=math.ceil(wait),
            )
        bucket.spend(WRITE_SECONDS, now)
        day.spend(1, now)
        return wait


def _used(wait: float) -> Fault:
    seconds = min(MAX_WAIT, math.floor(wait) + 1)
    return Fault(
        Reason.PROCESSOR_BUDGET_USED,
        "Your processor time for new GraphQL documents, introspection, searches of your own tokens and long answers is "
        f"used up. Try again in {seconds} s. "
        "Keep documents the same and send values as variables: a known document costs nothing to parse.",
        retryAfter=seconds,
    )


class Cost:
    """What requests of one kind cost beyond FREE_SECONDS, by those before: their largest, half forgotten each time."""

    __slots__ = ("first", "seconds")

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        """None until the first was answered."""
        self.first: asyncio.Event | None = None

    def learn(self, seconds: float) -> None:
        remembered = max(seconds, (self.seconds or 0.0) * FORGOTTEN)
        self.seconds = remembered if remembered >= LEAST_COST else 0.0
        if self.first is not None:
            self.first.set()


class Meter:
    """Charges the actor of one request: at once for the code within it, and at the end for what is measured beyond
    that. It checks the budget once per request.
    """

    __slots__ = ("_actor", "_began", "_budget", "_charged", "_checked", "_collects", "_cost", "_reserved", "_used",
                 "has_rejected")  # fmt: skip

    def __init__(self, budget: ProcessorBudget, actor: str) -> None:
        self._budget, self._actor = budget, actor
        self._checked = False
        self._cost: Cost | None = None
        self._used = self._charged = self._reserved = 0.0
        self.has_rejected = False

    def __enter__(self) -> None:
        if not self._checked:
            self.check()
            self._checked = True
        # The garbage collector would traverse all cached documents several times: two thirds of the time.
        self._collects = gc.isenabled()
        gc.disable()
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        seconds = time.thread_time() - self._began
        self._charged += seconds
        self.charge(seconds)
        if self._collects:
            gc.enable()

    async def measure(self, answer: Coroutine[Any, Any, T]) -> T:
        """Runs the answer to the request, and charges it."""
        try:
            return await Steps(answer, self)
        finally:
            seconds = max(0.0, self._used - self._charged - FREE_SECONDS)
            if self._cost is not None:
                self._cost.learn(seconds)
            if seconds or self._reserved:
                self.charge(seconds - self._reserved)
                self._reserved = 0.0
            # A client that retries immediately would cost as much as any other request.
            if self.has_rejected:
                await asyncio.sleep(THROTTLED_SECONDS)

    async def admit(self, cost: Cost, *, always: bool = False) -> None:
        """Before requests of a kind that costs something: wait for the budget, at most MAX_PACED seconds. Beyond that
        the request is rejected, or `always` admitted. The cost is charged before the wait, so that the next of many
        requests at the same time waits longer. The first request of a kind shows the others what it costs.
        """
        if cost.seconds is None and cost.first is None:
            cost.first = asyncio.Event()
        elif cost.seconds is None and cost.first is not None and not always:
            with suppress(TimeoutError):
                await asyncio.wait_for(cost.first.wait(), MAX_PACED)
        self._cost = cost
        if not cost.seconds:
            return
        wait = 0.0 if self._checked else self._budget.wait(self._actor)
        if wait > MAX_PACED and not always:
            self.has_rejected = True
            self._cost = None
            raise _used(wait)
        self._reserved = cost.seconds
        self.charge(self._reserved)
        if wait:
            await asyncio.sleep(min(wait, MAX_PACED))

    async def pace(self) -> None:
        """In place of the check: wait for the budget, at most MAX_PACED seconds, and do the work in any case."""
        self._checked = True
        await asyncio.sleep(min(self._budget.wait(self._actor), MAX_PACED))

    def check(self) -> None:
        try:
            self._budget.check(self._actor)
        except Fault:
            self.has_rejected = True
            raise

    def charge(self, seconds: float) -> None:
        self._budget.charge(self._actor, seconds)

    def exempt_write(self) -> None:
        """Writes have a budget of their own."""
        self._charged += WRITE_SECONDS

    def charge_write(self) -> float:
        try:
            return self._budget.charge_write(self._actor)
        except Fault:
            self.has_rejected = True
            raise

    def add(self, seconds: float) -> None:
        self._used += seconds


class MeteredAddress:
    """Charges the answers of one address."""

    __slots__ = ("_budget", "_cost")

    def __init__(self, budget: ProcessorBudget) -> None:
        self._budget, self._cost = budget, Cost(0.0)

    async def answer(self, actor: str, answer: Callable[[], Coroutine[Any, Any, T]]) -> T:
        meter = Meter(self._budget, actor)

        async def admitted() -> T:
            await meter.admit(self._cost)
            return await answer()

        return await meter.measure(admitted())


async def in_slices(items: Iterable[T], make: Callable[[T], Any]) -> list[Any]:
    """What `make` returns for each item. Other requests are answered after each SLICE of them."""
    made: list[Any] = []
    for item in items:
        made.append(make(item))
        if not len(made) % SLICE:
            await asyncio.sleep(0)
    return made

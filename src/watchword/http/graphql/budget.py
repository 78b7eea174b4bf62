"""The processor budget: limits what one actor may cost a worker beyond ordinary requests.

Charged in seconds of processor time: parsing, validating and compiling documents that the worker has not cached, and
execution by graphql-core, such as introspection, which all run on the event loop that verifies tokens; and searches of
the caller's own tokens, which take a thread. Cached documents and the first page of a caller's own tokens are free.

Each actor has a token bucket that fills at a share of a processor, and all actors of a worker share another one. Work
starts while a bucket is not empty and is charged in full, so a bucket can go into debt. As the shared bucket runs out,
it stops the actors first that used most of their own.
"""

import gc
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

from watchword.domain.errors import Fault, Reason

ACTOR_SHARE = 0.05
"""The default share of a processor. All actors together have four times as much, at most MAX_SHARED."""
SHARED_FACTOR, MAX_SHARED = 4, 0.8
ACTOR_BURST, WORKER_BURST = 1.0, 2.5
"""The capacity of the buckets, in seconds."""
MAX_ACTORS = 4_096
"""Actors remembered. A forgotten actor starts with a full bucket; the shared bucket is not affected."""
MAX_WAIT = 60


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
    """The budget of one worker. A share of 0 disables it."""

    def __init__(self, share: float = ACTOR_SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._share, self._shared = share, min(MAX_SHARED, SHARED_FACTOR * share)
        self._everyone = _Bucket(self._shared, WORKER_BURST, clock())
        self._actors: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """The number of remembered actors."""
        return len(self._actors)

    def check(self, actor: str) -> None:
        """Raises if work for this actor must wait."""
        now = self._clock()
        bucket = self._actors.get(actor)
        own = 1.0 if bucket is None else bucket.fill(now)
        # The shared bucket limits nothing until half of it is used.
        needed = max(0.0, 1.0 - 2.0 * self._everyone.fill(now))
        if own > needed or not self._share:
            return
        own_rate, shared_rate = self._share / ACTOR_BURST, 2.0 * self._shared / WORKER_BURST
        wait = max(-own / own_rate, (needed - own) / (own_rate + shared_rate))
        seconds = min(MAX_WAIT, math.floor(wait) + 1)
        raise Fault(
            Reason.PROCESSOR_BUDGET_USED,
            "Your processor time for new GraphQL documents, introspection and searches of your own tokens is used up. "
            f"Try again in {seconds} s. "
            "Keep documents the same and send values as variables: a known document costs nothing to parse.",
            retryAfter=seconds,
        )

    def charge(self, actor: str, seconds: float) -> None:
        now = self._clock()
        bucket = self._actors.get(actor)
        if bucket is None:
            bucket = self._actors[actor] = _Bucket(self._share, ACTOR_BURST, now)
            if len(self._actors) > MAX_ACTORS:
                self._actors.popitem(last=False)
        else:
            self._actors.move_to_end(actor)
        bucket.spend(seconds, now)
        self._everyone.spend(seconds, now)


class Meter:
    """Charges the actor of one request for the code within it. It checks the budget once per request."""

    __slots__ = ("_actor", "_began", "_budget", "_checked", "_collects", "has_rejected")

    def __init__(self, budget: ProcessorBudget, actor: str) -> None:
        self._budget, self._actor = budget, actor
        self._checked = False
        self.has_rejected = False

    def __enter__(self) -> None:
        if not self._checked:
            self.check()
            self._checked = True
        # The garbage collector would traverse all cached documents several times: two thirds of the time.
        self._collects = gc.isenabled()
        gc.disable()
        self._began = time.thread_time()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.charge(time.thread_time() - self._began)
        if self._collects:
            gc.enable()

    def check(self) -> None:
        try:
            self._budget.check(self._actor)
        except Fault:
            self.has_rejected = True
            raise

    def charge(self, seconds: float) -> None:
        self._budget.charge(self._actor, seconds)

"""Processor budget: what one actor may cost a worker beyond the ordinary.

Documents that the worker has not seen yet are parsed, validated and planned on the event loop that verifies tokens, and
what has no plan, such as introspection, is executed there by graphql-core. Going through one's own tokens takes a
thread. All of it is charged to the actor in seconds of processor time. Parsing a known document and the first page of
one's own tokens cost nothing here.

Each actor has a bucket that fills at a share of a processor, and all actors of a worker together have another one.
Work starts while there is anything left, and is charged in full: a bucket in debt fills up first. As the shared bucket
runs out, actors that used much of their own wait first, so that others still get something.
"""

import gc
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

from watchword.domain.errors import Fault, Reason

ACTOR_SHARE = 0.05
"""Of a processor, unless a setting says otherwise. All actors together have four times as much, and never all of it."""
TOGETHER, MOST_TOGETHER = 4, 0.8
ACTOR_BURST, WORKER_BURST = 1.0, 2.5
"""Seconds that may be used at once."""
MAX_ACTORS = 4_096
"""BoundedCache at a time. A forgotten actor starts with a full bucket; the shared one stays as it is."""
LONGEST_WAIT = 60


class _Bucket:
    __slots__ = ("_at", "_burst", "_level", "_share")

    def __init__(self, share: float, burst: float, now: float) -> None:
        self._share, self._burst = share, burst
        self._level, self._at = burst, now

    def spend(self, seconds: float, now: float) -> None:
        self._level = min(self._burst, self._level + (now - self._at) * self._share) - seconds
        self._at = now

    def fill(self, now: float) -> float:
        """How full it is: 1 at most, below 0 in debt."""
        self.spend(0.0, now)
        return self._level / self._burst


class ProcessorBudget:
    """Of one worker. With a share of 0 nothing is refused."""

    def __init__(self, share: float = ACTOR_SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._share, self._shared = share, min(MOST_TOGETHER, TOGETHER * share)
        self._everyone = _Bucket(self._shared, WORKER_BURST, clock())
        self._actors: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """How many actors it remembers."""
        return len(self._actors)

    def check(self, actor: str) -> None:
        """Raise unless work for this actor may start."""
        now = self._clock()
        bucket = self._actors.get(actor)
        own = 1.0 if bucket is None else bucket.fill(now)
        # While half of the shared bucket is left, it holds nobody back.
        needed = max(0.0, 1.0 - 2.0 * self._everyone.fill(now))
        if own > needed or not self._share:
            return
        own_rate, shared_rate = self._share / ACTOR_BURST, 2.0 * self._shared / WORKER_BURST
        wait = max(-own / own_rate, (needed - own) / (own_rate + shared_rate))
        seconds = min(LONGEST_WAIT, math.floor(wait) + 1)
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
    """Of one request: charges its actor for what runs within it. Checked once, so that what was begun is completed."""

    __slots__ = ("_actor", "_began", "_budget", "_checked", "_collects", "has_refused")

    def __init__(self, budget: ProcessorBudget, actor: str) -> None:
        self._budget, self._actor = budget, actor
        self._checked = False
        self.has_refused = False

    def __enter__(self) -> None:
        if not self._checked:
            self.check()
            self._checked = True
        # The collector would go through all documents that are kept, several times while one more is made: it took
        # two thirds of the time.
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
            self.has_refused = True
            raise

    def charge(self, seconds: float) -> None:
        self._budget.charge(self._actor, seconds)

"""Recording when, how often and from where tokens are used."""

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

from watchword.basics.background import BATCH
from watchword.basics.errors import Fault, Reason
from watchword.basics.networks import MAX_NETWORKS, network_of
from watchword.tokens.counts import Use
from watchword.tokens.store import TokenStore

USAGE_SECONDS = 30.0
MANY_TOKENS = 50_000
"""Usage of this many tokens is written before the interval ends. Twice as many are kept while the store fails."""


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

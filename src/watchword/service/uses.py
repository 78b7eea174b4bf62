"""Uses: when, how often and from where each token was used, gathered in memory and written apart from any request.

A crash loses at most the last interval of it, and nothing else. What could not be written is kept and written with what
follows, as far as there is room. Nothing is counted twice: where it is not known whether a write was done, the time is
written again and the count is not.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

from watchword.domain.clients import network_of
from watchword.domain.errors import Fault, Reason
from watchword.domain.ports import TokenStore, Use

INTERVAL = 30.0
BATCH = 500
MANY = 50_000
"""So many tokens are not kept waiting for the interval's end. Twice as many are kept while they cannot be written."""


@dataclass(slots=True)
class _Noted:
    last: int
    count: int
    client: str


class Uses:
    def __init__(
        self,
        store: TokenStore,
        interval: float = INTERVAL,
        many: int = MANY,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._interval = interval
        self._many = many
        self._jitter = jitter
        self._noted: dict[str, _Noted] = {}
        self._are_many = asyncio.Event()
        self._flushing = asyncio.Lock()

    def note(self, token_id: str, at: int, client: str) -> None:
        """Every verification does this, so it does next to nothing: the network is looked for when it is written."""
        try:
            noted = self._noted[token_id]
        except KeyError:
            self._begin(token_id, _Noted(at, 1, client))
        else:
            noted.last = at
            noted.count += 1
            noted.client = client

    async def run(self) -> None:
        """Write what was gathered, again and again, until cancelled; what is just being written then is still written.
        Several processes do not keep step.
        """
        while True:
            pause = self._interval * (1 - self._jitter() / 4)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._are_many.wait()
            if not await asyncio.shield(asyncio.ensure_future(self.flush())):
                await asyncio.sleep(pause)

    async def flush(self) -> bool:
        """Write what was gathered, in small batches, so that no other write waits long behind them; what another call
        is just writing is written when this returns. Says whether all of it was.
        """
        async with self._flushing:
            noted, self._noted = self._noted, {}
            self._are_many.clear()
            left = iter(noted.items())
            while batch := dict(islice(left, BATCH)):
                try:
                    await self._store.record_uses(
                        {one: Use(noted.last, noted.count, network_of(noted.client)) for one, noted in batch.items()}
                    )
                except Exception as error:
                    if isinstance(error, Fault) and error.reason is Reason.OUTCOME_UNKNOWN:
                        for unknown in batch.values():
                            unknown.count = 0
                    self._keep(chain(batch.items(), left))
                    if isinstance(error, Fault) and error.is_outage:
                        return False
                    raise
            return True

    def _begin(self, token_id: str, noted: _Noted) -> None:
        if len(self._noted) < 2 * self._many:
            self._noted[token_id] = noted
        if len(self._noted) >= self._many:
            self._are_many.set()

    def _keep(self, unwritten: Iterable[tuple[str, _Noted]]) -> None:
        """Put back, under what was gathered meanwhile."""
        for token_id, old in unwritten:
            new = self._noted.get(token_id)
            if new is None:
                self._begin(token_id, old)
                continue
            new.count += old.count
            if new.last < old.last:
                new.last, new.client = old.last, old.client

"""Counts the tokens for metrics in the background. Each of the two counts takes at most 2 % of one core."""

import asyncio
import time
from typing import Protocol

from watchword.domain.errors import Fault
from watchword.domain.lifetimes import DAY
from watchword.domain.ports import TokenCountStore
from watchword.domain.token_counts import UNUSED_DAYS, TokenCounts
from watchword.service.background import PURGE_RESTS, in_batches

FIRST_SECONDS = 5.0
"""So that a start reads little, however many tokens there are."""
COUNT_SECONDS = 60.0
LONGEST_PAUSE = 3_600.0


class CountSink(Protocol):
    """Where the counts are published."""

    def token_counts(self, counts: TokenCounts) -> None: ...

    def unused_tokens(self, number: int) -> None: ...


class TokenCounter:
    def __init__(self, store: TokenCountStore, sink: CountSink) -> None:
        self._store = store
        self._sink = sink

    async def count(self) -> None:
        """Count at most once a minute, until cancelled. Counts that take long are made less often."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            began = time.monotonic()
            try:
                self._sink.token_counts(await self._store.token_counts())
            except Fault as fault:
                if not fault.is_outage:
                    raise
            await asyncio.sleep(max(COUNT_SECONDS, PURGE_RESTS * (time.monotonic() - began)))

    async def count_unused(self) -> None:
        """Read all tokens in small batches, until cancelled; publish the number when all were read. Pauses between two
        passes as long as one took, at least a minute and at most an hour.
        """
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            began = time.monotonic()
            try:
                self._sink.unused_tokens(await self._unused())
            except Fault as fault:
                if not fault.is_outage:
                    raise
            await asyncio.sleep(min(max(COUNT_SECONDS, time.monotonic() - began), LONGEST_PAUSE))

    async def _unused(self) -> int:
        unused, last = 0, ""

        async def read(most: int) -> int:
            nonlocal unused, last
            batch = await self._store.unused_tokens(last, most, UNUSED_DAYS * DAY)
            unused, last = unused + batch.unused, batch.last
            return batch.read

        await in_batches(read)
        return unused

"""Who is in a store that is measured: tokens whose text is known, some kept for callers, the others to be revoked.

The store is one that `watchword serve` would make; the tokens are put into it by SQL. An id is the digest of its text
under the store's own salt: the text is a bearer like any other, and ids lie in the indexes as real ones do, anywhere.
"""

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.fill import fill, filled_actor, filled_id, is_revoked
from watchword import wiring
from watchword.domain.secret import Secret
from watchword.domain.tokens import token_id
from watchword.settings import Settings, load

TOKENS_OF_AN_ACTOR = 100
MOST_CALLERS = 1_000
TEXT_LENGTH = 420
"""As long as a signed token."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An actor with one of its tokens, which stays."""

    actor: str
    token: str


@dataclass(slots=True)
class Population:
    size: int
    callers: list[Holder]
    to_revoke: deque[str] = field(default_factory=deque)
    """Ids, the next first. What a run creates comes at the end, so that the store stays of its size."""


def nobody() -> Population:
    """For a bare contender: requests as long as others get."""
    return Population(0, [Holder(filled_actor(0, 1), text_of(0))], deque([filled_id(0)]))


def populate(folder: Path, size: int, told: Mapping[str, str] | None = None, callers: int = MOST_CALLERS) -> Population:
    """Make a data folder, or what these settings name, with so many tokens in it."""
    settings = load({"data_dir": str(folder), **(told or {})}, {})
    wiring.prepare_store(settings)
    asyncio.run(wiring.settle(settings))
    salt = asyncio.run(_salt(settings))
    actors = max(1, size // TOKENS_OF_AN_ACTOR)
    now = time.time_ns() // 1_000_000
    fill(settings.place, size, now=now, actors=actors, id_of=lambda number: _id(number, salt))
    os.sync()  # or the disk would still be busy with it while others are measured
    live = [number for number in range(size) if not is_revoked(number)]
    random.Random(size).shuffle(live)
    kept = min(callers, size // 2)
    return Population(
        size,
        [Holder(filled_actor(number, actors), text_of(number)) for number in live[:kept]],
        deque(_id(number, salt) for number in live[kept:]),
    )


async def _salt(settings: Settings) -> Secret[bytes]:
    async with wiring.open_service(settings) as service:
        return service.salt


def text_of(number: int) -> str:
    return f"bench{number:0{TEXT_LENGTH - 5}}"


def _id(number: int, salt: Secret[bytes]) -> str:
    return token_id(text_of(number).encode(), salt)

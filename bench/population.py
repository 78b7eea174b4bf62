"""Who is in a store that is measured: tokens whose text is known, some kept for callers, the others to be revoked.

The store is one that `watchword serve` would make; the tokens are put into it by SQL. An id is the digest of its text
under the store's own salt: the text is a bearer like any other, and ids lie in the indexes as real ones do, anywhere.
"""

import asyncio
import os
import random
import shutil
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.fill import fill, filled_actor, filled_id, is_revoked
from watchword.app import wiring
from watchword.basics.secret import Secret
from watchword.settings import Settings, load
from watchword.tokens.rules import identifier

TOKENS_OF_AN_ACTOR = 100
MOST_CALLERS = 1_000
MOST_TO_REVOKE = 100_000
TEXT_LENGTH = 420
"""As long as a signed token."""
KEPT_SECONDS = 12 * 3600
"""After a day the first of the tokens end."""


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


def empty() -> Population:
    """For a bare contender: requests as long as others get."""
    return Population(0, [Holder(filled_actor(0, 1), text_of(0))], deque([filled_id(0)]))


def populate(
    folder: Path,
    size: int,
    told: Mapping[str, str] | None = None,
    callers: int = MOST_CALLERS,
    each: int = TOKENS_OF_AN_ACTOR,
) -> Population:
    """Create a data folder, or the store of these settings, with this many tokens, and this many per actor."""
    settings = load({"data_dir": str(folder), **(told or {})}, {})
    wiring.prepare_store(settings)
    asyncio.run(wiring.settle(settings))
    salt = asyncio.run(salt_of(settings))
    now = time.time_ns() // 1_000_000
    fill(settings.store_url, size, now=now, actors=_actors(size, each), id_of=lambda number: _id(number, salt))
    os.sync()  # or the disk would still be busy with it while others are measured
    return _those_in(size, salt, callers, each)


def populate_from(kept: Path, folder: Path, size: int) -> Population:
    """Copy an earlier store, because filling takes minutes. Recreate it when it is too old."""
    pristine, mark = kept / str(size), kept / f"{size}.made"
    if not mark.exists() or time.time() - mark.stat().st_mtime > KEPT_SECONDS:
        shutil.rmtree(pristine, ignore_errors=True)
        populate(pristine, size)
        mark.touch()
    shutil.copytree(pristine, folder)
    os.sync()
    settings = load({"data_dir": str(folder)}, {})
    return _those_in(size, asyncio.run(salt_of(settings)), MOST_CALLERS)


def _those_in(size: int, salt: Secret[bytes], callers: int, each: int = TOKENS_OF_AN_ACTOR) -> Population:
    kept = min(callers, size // 2)
    drawn = random.Random(size).sample(range(size), min(size, MOST_TO_REVOKE))
    live = [number for number in drawn if not is_revoked(number)]
    return Population(
        size,
        [Holder(filled_actor(number, _actors(size, each)), text_of(number)) for number in live[:kept]],
        deque(_id(number, salt) for number in live[kept:]),
    )


def _actors(size: int, each: int) -> int:
    return max(1, size // each)


async def salt_of(settings: Settings) -> Secret[bytes]:
    async with wiring.open_service(settings) as service:
        return service.salt


def text_of(number: int) -> str:
    return f"bench{number:0{TEXT_LENGTH - 5}}"


def _id(number: int, salt: Secret[bytes]) -> str:
    return identifier(salt)(text_of(number).encode())

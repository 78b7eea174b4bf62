"""A store with many tokens, a million in the soak: the service starts and answers as with an empty store."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.fill import fill, filled_actor, filled_id, is_revoked
from tests.support.costs import Cost, Watched, operations
from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS, until
from watchword.tokens.counts import Use
from watchword.tokens.keys import SealedKey

SIZES = (100_000, pytest.param(1_000_000, marks=pytest.mark.soak))
ACTORS = 1_000
MUCH = 4 * 1024 * 1024  # bytes read: ten pages per response are 40 kB, a scan of the smallest index is 5 MB or 50 MB
UNUSED = 10**9
NO_NOTICES = {"WATCHWORD_EXPIRY_NOTICE_DAYS": ""}


def read_by(server: Server) -> int:
    """Bytes read so far by the server's processes."""
    assert server.process is not None
    main = psutil.Process(server.process.pid)
    return sum(process.io_counters().read_chars for process in (main, *main.children(recursive=True)))


def read_at_start(server: Server) -> int:
    assert server.http.get("/health/ready").status_code == 200
    return read_by(server)


def has_counted(server: Server) -> bool:
    return "watchword_tokens_unused{" in server.metrics()


def use_tokens(server: Server, actor: str) -> dict[str, Any]:
    """Typical requests of a user, with the totals seen."""
    own = [{"field": "actorUrn", "value": actor}]
    before = server.tokens(ADMIN)["total"], server.tokens(actor, own)["total"]
    made = server.create(actor, duration="ONE_YEAR")
    token, token_id = made["accessToken"], made["metadata"]["id"]
    assert server.verify(token).status_code == 204
    everybodys, ones = server.tokens(ADMIN), server.tokens(actor, own)
    assert (everybodys["total"], ones["total"]) == (before[0] + 1, before[1] + 1)
    assert everybodys["tokens"][0]["id"] == ones["tokens"][0]["id"] == token_id  # the latest expiry comes first
    assert server.revoke(token_id, actor=actor) is True
    assert server.verify(token).status_code == 401
    assert (server.tokens(ADMIN)["total"], server.tokens(actor, own)["total"]) == before
    return {"all": before[0], "own": before[1], "first page": len(everybodys["tokens"])}


def lived(server: Server, actor: str) -> tuple[dict[str, Any], int]:
    """The results of the second run, and the bytes the server read for it."""
    server.grant(actor)
    use_tokens(server, actor)
    before = read_by(server)
    seen = use_tokens(server, actor)
    return seen, read_by(server) - before


def counted(path: Path, now: int) -> dict[str, Cost]:
    """The cost of the operations on this file, by SQLite's counters."""
    with asyncio.Runner() as runner, Watched(runner.run, path, lambda: now) as watched:
        store = watched.store
        runner.run(
            store.settle_keys(b"sealed", *(SealedKey(kid, b"public", b"sealed", now) for kid in ("first", "next")))
        )
        kid = runner.run(store.keys())[0].kid
        # The first use of a day inserts the day's sum, later ones update it.
        runner.run(store.record_uses({filled_id(9): Use(now, 1, "10.0.0.0/24")}))
        wanted = operations(now, ACTORS, UNUSED, kid)
        del wanted["policies"]  # a served store has more
        return {name: watched.cost(work(store)) for name, work in wanted.items()}


@pytest.fixture
def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def file(tmp_path: Path, now: int, size: int) -> Iterator[Path]:
    """Up to half a gigabyte, removed at the end."""
    path = tmp_path / "full" / "data" / "watchword.db"
    fill(path, size, now=now, actors=ACTORS)
    yield path
    path.unlink()


def test_many_tokens_are_served_like_none(
    make_server: Callable[..., Server], tmp_path: Path, file: Path, now: int, size: int
) -> None:
    actor = filled_actor(3, ACTORS)

    # Without the background pass over tokens that expire soon, which reads in its own time.
    empty, full = (make_server(folder=tmp_path / name, env=NO_NOTICES) for name in ("empty", "full"))
    started = [read_at_start(server) for server in (empty, full)]
    for server in (empty, full):
        # The count rests fifty times as long as it reads, which is long for a million on a busy machine.
        counted_once = "the tokens are counted for the metrics, and not again for a minute"
        until(partial(has_counted, server), counted_once, 4 * SECONDS)
    (seen_empty, read_empty), (seen_full, read_full) = lived(empty, actor), lived(full, actor)

    assert seen_empty == {"all": 0, "own": 0, "first page": 1}
    own = sum(not is_revoked(number) for number in range(3, size, ACTORS))
    assert seen_full == {"all": size - size // 10, "own": own, "first page": 20}
    # Measured by bytes read, not by time: neither start nor requests scan the file.
    assert started[1] - started[0] < MUCH
    assert max(read_empty, read_full) < MUCH

    assert full.stop() == 0
    small = tmp_path / "small" / "watchword.db"
    fill(small, 1_000, now=now, actors=20)
    few, many = counted(small, now), counted(file, now)
    assert {name: cost.steps for name, cost in many.items()} == {name: cost.steps for name, cost in few.items()}
    assert all(cost.pages <= 3 * few[name].pages for name, cost in many.items())

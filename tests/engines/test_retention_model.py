"""Retention rules against a model, with the real store, scheduler, supervisor and engine, and a clock that jumps.

After every step: no row that is younger than `keep` by the true time is gone, nor one of the last rows of an urn, nor
one that is held; the rows are those of the model.
"""

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contract.harness import SYSTEM, StoreHarness, allow
from tests.engines.conftest import ON_CLUSTERS
from tests.engines.harness import EngineHarness
from tests.engines.retention_model import HOUR, MINUTE, Limits, RetentionModel, is_last, timed
from tests.support.backends import SettableClock, SqliteLocation
from tests.support.engines import Backend, IndexLocation, Source
from tests.support.retention import SERIES, ScheduledInstance, rule
from tests.support.waiting import SECONDS
from watchword.basics.times import DAY
from watchword.index.engine import ClusterEngine, Engine
from watchword.index.indices import IndexNames, Row, parse_aspect
from watchword.index.jobs import Supervisor
from watchword.index.rules import State
from watchword.stores.joined import Store

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEWER = settings(FEW, max_examples=3)
MANY = settings(FEW, max_examples=200)
ON_EMBEDDED = pytest.mark.parametrize("backend", ["embedded"], indirect=True)
LONGEST_AHEAD = 59 * MINUTE  # A clock that is ahead for an hour is trusted again.
ENDING = 3

_folders = itertools.count()
_sometimes = st.none()
_limits = st.builds(
    lambda keep, more, *rest: Limits(keep, None if more is None else keep + more, *rest),
    st.integers(2, 4),
    _sometimes | st.integers(0, 3),
    _sometimes | st.integers(1, 8),
    _sometimes | st.integers(1, 3),
    _sometimes | st.integers(1, 3),
)
# From which limit an age is counted, how many half hours and milliseconds more or less, and the urn.
_rows = st.tuples(
    st.sampled_from(["keep", "age", "new", "none"]),
    st.integers(-4, 4),
    st.integers(-1, 1),
    st.sampled_from(["urn:a", "urn:b", None]),
)
_steps = st.one_of(
    st.tuples(st.just("write"), st.lists(_rows, min_size=1, max_size=8)),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 60, 90, 180]).map(lambda minutes: minutes * MINUTE)),
    st.tuples(st.sampled_from(["due", "due", "due", "tick", "work", "hold", "release"])),
    st.tuples(st.just("jump"), st.sampled_from([-DAY, -90 * MINUTE, -MINUTE, 0, 6 * MINUTE, 2 * HOUR, 400 * DAY])),
)
_HELD: list[tuple[Any, ...]] = [("write", [("keep", -4, 0, "urn:a")]), ("due",), ("hold",), ("work",), ("release",)]
held_while_planned = example(limits=Limits(2, None, None, None, None), steps=_HELD)
sequences = st.lists(_steps, min_size=5, max_size=20)


@dataclass
class Sequence:
    model: RetentionModel
    store: Store
    clock: SettableClock
    engine: Engine
    place: IndexLocation
    held: set[str] = field(default_factory=set)
    ahead_since: int | None = None
    instance: ScheduledInstance = field(init=False)

    def __post_init__(self) -> None:
        names = IndexNames(self.place.name("").removesuffix("_"))
        self.index = names.index_of(parse_aspect(SERIES))
        self.instance = ScheduledInstance(self.store, self.engine, self.clock, names=names)
        self.ticking = itertools.count()

    async def begin(self) -> None:
        await self.engine.make(self.index)
        made = rule(schedule="0 * * * *", atMost="100%", **self.model.limits.fields())
        await self.store.put_rule(SYSTEM, made, allow)
        await self.tick()

    async def take(self, step: tuple[Any, ...]) -> None:
        name, *values = step
        await getattr(self, name)(*values)
        self.check()

    async def write(self, drawn: list[tuple[str, int, int, str | None]]) -> None:
        limits, model = self.model.limits, self.model
        rows: dict[str, Source] = {}
        for origin, half_hours, millis, urn in drawn:
            row: Source = {"text": "x" * 200} | ({} if urn is None else {"urn": urn})
            if origin != "none":
                age = {"keep": limits.keep, "age": limits.age or 24, "new": 0}[origin] * HOUR
                row["timestampMillis"] = model.time - age + half_hours * 30 * MINUTE + millis
            rows[f"row-{len(model.written) + len(rows)}"] = row
        model.write(rows)
        await self.engine.write(self.index, [Row(json.dumps(row).encode(), row_id) for row_id, row in rows.items()])

    async def wait(self, millis: int) -> None:
        if self.ahead_since is not None and self.model.time + millis > self.ahead_since + LONGEST_AHEAD:
            await self.jump(0)
        self.model.time += millis
        self.clock.now = self.model.clock

    async def due(self) -> None:
        await self.wait(HOUR)
        await self.tick()

    async def jump(self, ahead: int) -> None:
        """A scheduler ticks twice a minute, so it sees every clock that stays."""
        self.model.ahead = self.instance.jumped = ahead
        self.clock.now = self.model.clock
        since = self.model.time if self.ahead_since is None else self.ahead_since
        self.ahead_since = since if ahead > 0 else None
        await self.tick()

    async def tick(self) -> None:
        sized = self.model.limits.max_size is not None
        self.model.tick((await self.engine.count(self.index, 0)).live_bytes if sized else 0)
        await self.instance.tick()

    async def work(self) -> None:
        problems: list[str] = []
        supervisor = Supervisor(
            self.store, self.engine, 0, lambda: self.clock() + next(self.ticking), lambda _, why: problems.append(why)
        )
        working = asyncio.ensure_future(supervisor.run())
        async with asyncio.timeout(SECONDS):
            while any(not state.is_over for state in await self.states()):  # noqa: ASYNC110 - others change the store
                await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert problems == []
        assert await self.states() <= {State.DONE, State.CANCELLED}
        self.model.work()

    async def states(self) -> set[State]:
        return {one.state for one in (await self.store.operations(0, 100)).rows}

    async def hold(self) -> None:
        await self.store.set_hold(SYSTEM, SERIES, "a dispute")
        self.model.hold()
        self.held |= self.place.rows(self.index).keys()

    async def release(self) -> None:
        if self.model.is_held:
            await self.store.release_hold(SYSTEM, SERIES, allow)
        self.model.is_held = False
        self.held.clear()

    async def end(self) -> None:
        """With a clock that is right."""
        await self.take(("jump", 0))
        await self.take(("release",))
        for _ in range(ENDING):
            await self.take(("due",))
            await self.take(("work",))
        assert self.instance.problems == [one for one in self.instance.problems if "clock jumped" in one]
        age, keep_last = self.model.limits.age, self.model.limits.keep_last
        if age is not None:
            rows, until = self.model.rows, self.model.time - age * HOUR
            old = [row for row in rows.values() if timed(row) and row["timestampMillis"] <= until]
            assert all(is_last(row, rows, keep_last) for row in old)

    def check(self) -> None:
        model, left = self.model, self.place.rows(self.index)
        gone = {row_id: row for row_id, row in model.written.items() if row_id not in left}
        youngest = model.time - model.limits.keep * HOUR
        assert all(timed(row) for row in gone.values())
        assert all(row["timestampMillis"] <= youngest for row in gone.values())
        assert not any(is_last(row, model.written, model.limits.keep_last) for row in gone.values())
        assert not self.held & gone.keys()
        assert left == model.rows


def follows_the_model(
    harness: EngineHarness, backend: Backend, folder: Path, limits: Limits, steps: list[tuple[Any, ...]]
) -> None:
    if isinstance(harness.engine, ClusterEngine):
        limits = limits._replace(max_size=None)  # the size of a cluster's index changes by itself
    location = SqliteLocation(folder / f"store-{next(_folders)}" / "watchword.db", 0)
    store = harness.run(location.open())
    StoreHarness(harness.run, store, location.clock).first_start()
    sequence = Sequence(RetentionModel(limits), store, location.clock, harness.engine, backend.place())

    async def follow() -> None:
        await sequence.begin()
        for step in steps:
            await sequence.take(step)
        await sequence.end()

    try:
        harness.run(follow())
    finally:
        harness.run(store.close())


@ON_EMBEDDED
@FEW
@held_while_planned
@given(limits=_limits, steps=sequences)
def test_rules_remove_the_rows_of_the_model(
    harness: EngineHarness, backend: Backend, tmp_path: Path, limits: Limits, steps: list[tuple[Any, ...]]
) -> None:
    follows_the_model(harness, backend, tmp_path, limits, steps)


@ON_CLUSTERS
@FEWER
@held_while_planned
@given(limits=_limits, steps=sequences)
def test_rules_remove_the_rows_of_the_model_from_clusters(
    harness: EngineHarness, backend: Backend, tmp_path: Path, limits: Limits, steps: list[tuple[Any, ...]]
) -> None:
    follows_the_model(harness, backend, tmp_path, limits, steps)


@pytest.mark.soak
@ON_EMBEDDED
@MANY
@given(limits=_limits, steps=sequences)
def test_rules_remove_the_rows_of_the_model_in_many_sequences(
    harness: EngineHarness, backend: Backend, tmp_path: Path, limits: Limits, steps: list[tuple[Any, ...]]
) -> None:
    follows_the_model(harness, backend, tmp_path, limits, steps)

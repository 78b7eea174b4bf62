"""Run the same tests on every search engine."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.harness import ClusterHarness, EngineHarness, Run
from tests.support.engine_nodes import NODE_ENGINES
from tests.support.engines import ENGINES, Backend, IndexLocation
from tests.support.nodes import KINDS
from watchword.index.engine import ClusterEngine


def _param(name: str) -> Any:
    """All engines in the long run; otherwise one per vendor."""
    return name if name in ("embedded", KINDS[0]) else pytest.param(name, marks=pytest.mark.soak)


ON_CLUSTERS = pytest.mark.parametrize("backend", [_param(name) for name in sorted(NODE_ENGINES)], indirect=True)


@pytest.fixture(scope="session", params=[_param(name) for name in sorted(ENGINES)])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with ENGINES[request.param](tmp_path_factory) as made:
        yield made


@pytest.fixture
def place(backend: Backend) -> IndexLocation:
    return backend.place()


@pytest.fixture
def run() -> Iterator[Run]:
    """Run coroutines on one event loop per test; fail if a thread leaks."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        yield runner.run
    gc.collect()
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("watchword")]


@pytest.fixture
def harness(place: IndexLocation, run: Run) -> Iterator[EngineHarness]:
    engine = run(place.open())
    yield ClusterHarness(run, engine, place) if isinstance(engine, ClusterEngine) else EngineHarness(run, engine, place)
    run(engine.close())

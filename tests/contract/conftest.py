"""Run the same tests on every store backend."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.harness import Run, StoreHarness
from tests.support.backends import BACKENDS, Backend, SettableClock, StoreLocation, backend_of
from tests.support.postgres import SharedClusters
from watchword.stores.joined import Store


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, shared_clusters: SharedClusters) -> Iterator[Backend]:
    made = backend_of(request.param, tmp_path, shared_clusters)
    yield made
    made.release()


@pytest.fixture
def run() -> Iterator[Run]:
    """Run coroutines on one event loop per test; fail if a thread leaks."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        yield runner.run
    gc.collect()
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("watchword")]


@pytest.fixture
def location(backend: Backend) -> StoreLocation:
    return backend.location()


@pytest.fixture
def clock(location: StoreLocation) -> SettableClock:
    return location.clock


@pytest.fixture
def store(run: Run, location: StoreLocation) -> Iterator[Store]:
    opened = run(location.open())
    yield opened
    run(opened.close())


@pytest.fixture
def other(run: Run, location: StoreLocation) -> Iterator[Store]:
    """A second store on the same data, as in another worker process."""
    opened = run(location.open())
    yield opened
    run(opened.close())


@pytest.fixture
def harness(run: Run, store: Store, clock: SettableClock) -> StoreHarness:
    """The store after its first start, with keys and the root policy."""
    made = StoreHarness(run, store, clock)
    made.first_start()
    return made

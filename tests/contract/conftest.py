"""One suite over every store. A test sees a `store` and its clock, never which backend it runs on."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.given import Given, Run
from tests.support.backends import BACKENDS, Backend, Hand, Place, backend_of
from tests.support.postgres import SharedClusters
from watchword.domain.ports import Store


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, shared_clusters: SharedClusters) -> Iterator[Backend]:
    made = backend_of(request.param, tmp_path, shared_clusters)
    yield made
    made.close()


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs what is awaited, on one event loop for the whole test; a thread left behind is a leak."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        yield runner.run
    gc.collect()
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("watchword")]


@pytest.fixture
def place(backend: Backend) -> Place:
    return backend.place()


@pytest.fixture
def clock(place: Place) -> Hand:
    return place.clock


@pytest.fixture
def store(run: Run, place: Place) -> Iterator[Store]:
    opened = run(place.open())
    yield opened
    run(opened.close())


@pytest.fixture
def other(run: Run, place: Place) -> Iterator[Store]:
    """A second store on the same content, as another worker process holds it."""
    opened = run(place.open())
    yield opened
    run(opened.close())


@pytest.fixture
def given(run: Run, store: Store, clock: Hand) -> Given:
    """The store as a first start leaves it: keys settled, the root policy in force."""
    made = Given(run, store, clock)
    made.first_start()
    return made

"""`kill -9` of the embedded engine's process: its tasks resume, lose nothing and repeat nothing."""

import os
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.engine_process import look, problems, start, working
from tests.engines.given import QUICK, TAG, UNTIL, Given, Run, old, staying, timeless, young
from tests.support.engines import EmbeddedPlace
from tests.support.waiting import until
from watchword.domain.engine import Pace
from watchword.domain.tasks import TaskId

ROWS = old(1_500) | young(1_500) | timeless(20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def given(path: Path, run: Run) -> Iterator[Given]:
    """On a new file without an engine process."""
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield Given(run, engine, place)
    run(engine.close())


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    print(f"TEST_SEED={seed}")
    return random.Random(seed)


def kill_repeatedly(given: Given, path: Path, task: TaskId, times: int, moments: random.Random) -> None:
    """Kill each time after some progress."""
    met = 0
    for _ in range(times):
        if given.status(task).completed:
            break
        before = given.status(task).counters.done
        process = start(path)
        try:
            until(lambda before=before: given.status(task).counters.done > before, "it has gone on")  # type: ignore[misc]
            time.sleep(moments.uniform(0, 0.02))
        finally:
            process.kill()
            process.wait()
        assert problems(path) == []
        met += not given.status(task).completed
    assert met, "it was over before the first kill: give it more to do"


def kill_and_resume_deletion(given: Given, path: Path, times: int, moments: random.Random) -> None:
    index = given.index("one", ROWS)
    task = given.run(given.engine.start_delete(index, UNTIL, Pace(TAG, max(1, 1_500 // (20 * times)))))
    kill_repeatedly(given, path, task, times, moments)
    with working(path):
        status = given.ended(task)
    counters = status.counters
    assert status.id == task
    assert (counters.total, counters.deleted, counters.version_conflicts) == (1_500, 1_500, 0)
    assert given.rows(index) == staying(ROWS)
    assert problems(path) == []


def test_deletion_killed_ten_times_resumes_and_deletes_each_row_once(
    given: Given, path: Path, moments: random.Random
) -> None:
    kill_and_resume_deletion(given, path, 10, moments)


@pytest.mark.soak
def test_deletion_killed_a_hundred_times_resumes_and_deletes_each_row_once(
    given: Given, path: Path, moments: random.Random
) -> None:
    kill_and_resume_deletion(given, path, 100, moments)


def test_task_waits_for_the_next_engine_process(given: Given, path: Path) -> None:
    index = given.index("one", old(10))
    task = given.run(given.engine.start_delete(index, UNTIL, QUICK))
    assert not given.status(task).completed
    assert given.run(given.engine.running(TAG)) == (task,)
    with working(path):
        given.ended(task)
    assert given.rows(index) == {}


def test_node_id_and_task_numbers_survive_a_restart(given: Given, path: Path) -> None:
    index = given.index("one", old(10))
    with working(path):
        first = given.run(given.engine.start_delete(index, UNTIL, QUICK))
        given.ended(first)
    look(path, "DELETE FROM tasks")
    other = given.run(given.place.open())
    try:
        second = given.run(other.start_delete(index, UNTIL, QUICK))
    finally:
        given.run(other.close())
    assert second.node == first.node
    assert second.number > first.number

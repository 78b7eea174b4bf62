"""`kill -9` of the embedded engine's process: its tasks resume, lose nothing and repeat nothing."""

import os
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.engine_process import look, problems, start, working
from tests.engines.harness import QUICK, TAG, UNTIL, EngineHarness, Run, old, staying, timeless, young
from tests.support.engines import EmbeddedPlace
from tests.support.waiting import until
from watchword.index.engine import Pace, TaskId

ROWS = old(1_500) | young(1_500) | timeless(20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def harness(path: Path, run: Run) -> Iterator[EngineHarness]:
    """On a new file without an engine process."""
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield EngineHarness(run, engine, place)
    run(engine.close())


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    print(f"TEST_SEED={seed}")
    return random.Random(seed)


def kill_repeatedly(harness: EngineHarness, path: Path, task: TaskId, times: int, moments: random.Random) -> None:
    """Kill each time after some progress."""
    met = 0
    for _ in range(times):
        if harness.status(task).completed:
            break
        before = harness.status(task).counters.done
        process = start(path)
        try:
            until(lambda before=before: harness.status(task).counters.done > before, "it has gone on")  # type: ignore[misc]
            time.sleep(moments.uniform(0, 0.02))
        finally:
            process.kill()
            process.wait()
        assert problems(path) == []
        met += not harness.status(task).completed
    assert met, "it was over before the first kill: give it more to do"


def kill_and_resume_deletion(harness: EngineHarness, path: Path, times: int, moments: random.Random) -> None:
    index = harness.index("one", ROWS)
    task = harness.run(harness.engine.start_delete(index, UNTIL, Pace(TAG, max(1, 1_500 // (20 * times)))))
    kill_repeatedly(harness, path, task, times, moments)
    with working(path):
        status = harness.ended(task)
    counters = status.counters
    assert status.id == task
    assert (counters.total, counters.deleted, counters.version_conflicts) == (1_500, 1_500, 0)
    assert harness.rows(index) == staying(ROWS)
    assert problems(path) == []


def test_deletion_killed_ten_times_resumes_and_deletes_each_row_once(
    harness: EngineHarness, path: Path, moments: random.Random
) -> None:
    kill_and_resume_deletion(harness, path, 10, moments)


@pytest.mark.soak
def test_deletion_killed_a_hundred_times_resumes_and_deletes_each_row_once(
    harness: EngineHarness, path: Path, moments: random.Random
) -> None:
    kill_and_resume_deletion(harness, path, 100, moments)


def test_task_waits_for_the_next_engine_process(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", old(10))
    task = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
    assert not harness.status(task).completed
    assert harness.run(harness.engine.running(TAG)) == (task,)
    with working(path):
        harness.ended(task)
    assert harness.rows(index) == {}


def test_node_id_and_task_numbers_survive_a_restart(harness: EngineHarness, path: Path) -> None:
    index = harness.index("one", old(10))
    with working(path):
        first = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
        harness.ended(first)
    look(path, "DELETE FROM tasks")
    other = harness.run(harness.place.open())
    try:
        second = harness.run(other.start_delete(index, UNTIL, QUICK))
    finally:
        harness.run(other.close())
    assert second.node == first.node
    assert second.number > first.number

"""`kill -9` of the embedded engine's process: its tasks go on where they stood, lose nothing and repeat nothing."""

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.engine_process import look, problems, start, working
from tests.engines.given import QUICK, TAG, UNTIL, Given, Run, old, staying, timeless, young
from tests.support.engines import EmbeddedPlace
from tests.support.waiting import until
from watchword.domain.engine import Pace
from watchword.domain.tasks import TaskId

Work = Callable[[Given, Path, int, random.Random], None]
ROWS = old(1_500) | young(1_500) | timeless(20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def given(path: Path, run: Run) -> Iterator[Given]:
    """On a file of its own, on which nobody works yet."""
    place = EmbeddedPlace(path)
    engine = run(place.open())
    yield Given(run, engine, place)
    run(engine.close())


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    print(f"TEST_SEED={seed}")
    return random.Random(seed)


def killed_again_and_again(given: Given, path: Path, task: TaskId, times: int, moments: random.Random) -> None:
    """Each time after it has got a little further, so that every kill meets it at work."""
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


def a_deletion(given: Given, path: Path, times: int, moments: random.Random) -> None:
    index = given.index("one", ROWS)
    task = given.run(given.engine.start_delete(index, UNTIL, Pace(TAG, max(1, 1_500 // (20 * times)))))
    killed_again_and_again(given, path, task, times, moments)
    with working(path):
        status = given.ended(task)
    counters = status.counters
    assert status.id == task
    assert (counters.total, counters.deleted, counters.version_conflicts) == (1_500, 1_500, 0)
    assert given.rows(index) == staying(ROWS)
    assert problems(path) == []


def a_copy(given: Given, path: Path, times: int, moments: random.Random) -> None:
    index = given.index("one", ROWS)
    target = given.copy_of(index)
    task = given.run(given.engine.start_copy(index, target, UNTIL, Pace(TAG, max(1, 1_500 // (20 * times)))))
    killed_again_and_again(given, path, task, times, moments)
    with working(path):
        status = given.ended(task)
    counters = status.counters
    assert (counters.total, counters.created, counters.updated, counters.version_conflicts) == (1_520, 1_520, 0, 0)
    assert given.rows(target) == staying(ROWS)
    assert given.rows(index) == ROWS
    assert problems(path) == []


@pytest.mark.parametrize("work", [a_deletion, a_copy])
def test_a_task_whose_process_is_killed_again_and_again_is_done_once(
    given: Given, path: Path, moments: random.Random, work: Work
) -> None:
    work(given, path, 10, moments)


@pytest.mark.soak
@pytest.mark.parametrize("work", [a_deletion, a_copy])
def test_a_task_whose_process_is_killed_a_hundred_times_is_done_once(
    given: Given, path: Path, moments: random.Random, work: Work
) -> None:
    work(given, path, 100, moments)


def test_a_task_that_nobody_works_on_waits_for_the_next_process(given: Given, path: Path) -> None:
    index = given.index("one", old(10))
    task = given.run(given.engine.start_delete(index, UNTIL, QUICK))
    assert not given.status(task).completed
    assert given.run(given.engine.running(TAG)) == (task,)
    with working(path):
        given.ended(task)
    assert given.rows(index) == {}


def test_numbers_of_tasks_and_the_node_are_the_same_story_after_a_restart(given: Given, path: Path) -> None:
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


def test_rows_of_a_dropped_index_go_although_the_process_is_killed(given: Given, path: Path) -> None:
    index, kept = given.index("one", ROWS), given.index("two", old(5))
    given.run(given.engine.drop(index))
    assert given.rows(kept) == old(5)
    for left in (2_500, 1_500, 500):
        process = start(path)
        try:
            until(lambda left=left: look(path, "SELECT count(*) FROM documents")[0][0] < left, "some are gone")  # type: ignore[misc]
        finally:
            process.kill()
            process.wait()
    with working(path):
        until(lambda: look(path, "SELECT count(*) FROM indices") == [(1,)], "the index is gone for good")
    assert look(path, "SELECT count(*) FROM documents") == [(5,)]
    assert given.rows(kept) == old(5)
    assert problems(path) == []

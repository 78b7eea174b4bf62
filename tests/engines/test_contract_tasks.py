"""Contract of every engine: what tasks do and report."""

import pytest

from tests.engines.harness import QUICK, SLOW, TAG, UNTIL, EngineHarness, old, staying, timeless, young
from tests.support.waiting import seen_in_time
from watchword.basics.errors import Reason
from watchword.index.engine import LARGEST, Pace, TaskId

MIXED = old(30) | young(25) | timeless(5)
MANY = 2_000
"""Enough rows that a throttled task does not finish before the test cancels it."""


def test_deletion_deletes_exactly_the_old_rows(harness: EngineHarness) -> None:
    index = harness.index("one", MIXED)
    harness.ended(harness.run(harness.engine.start_delete(index, UNTIL, QUICK)))
    assert harness.rows(index) == staying(MIXED)
    counted = harness.run(harness.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (30, 0)


@pytest.mark.parametrize("batch", [1, 7, 30, 1_000])
def test_deletion_counts_its_rows(harness: EngineHarness, batch: int) -> None:
    index = harness.index("one", MIXED)
    task = harness.run(harness.engine.start_delete(index, UNTIL, Pace(TAG, batch)))
    status = harness.ended(task)
    counters = status.counters
    assert status.id == task
    assert (counters.total, counters.deleted, counters.done) == (30, 30, 30)
    assert counters.batches >= 30 / batch
    assert counters.requests_per_second == -1.0
    assert status.run_time_nanos > 0
    assert (status.error, status.failures) == (None, ())


def test_deletion_without_old_rows_succeeds(harness: EngineHarness) -> None:
    index = harness.index("one", young(3))
    status = harness.ended(harness.run(harness.engine.start_delete(index, UNTIL, QUICK)))
    assert (status.counters.total, status.counters.deleted) == (0, 0)
    assert harness.rows(index) == young(3)


def test_throttled_task_reports_its_pauses(harness: EngineHarness) -> None:
    index = harness.index("one", old(MANY))
    task = harness.run(harness.engine.start_delete(index, UNTIL, SLOW))
    first = harness.until(task, lambda s: s.counters.deleted > 0 and s.counters.throttled_millis > 0, "it has begun")
    assert not first.completed
    assert first.counters.total == MANY
    assert first.counters.deleted < MANY
    assert first.counters.requests_per_second == SLOW.rate
    before = first.counters
    later = harness.until(task, lambda s: s.counters.deleted > before.deleted, "it has gone on")
    assert later.run_time_nanos > first.run_time_nanos
    harness.until(task, lambda s: s.counters.throttled_millis > before.throttled_millis, "it has paused again")
    harness.until(task, lambda s: s.counters.batches > before.batches, "there were more batches")
    harness.until(task, lambda s: s.counters.throttled_until_millis > 0, "it pauses")
    harness.run(harness.engine.cancel(task))
    harness.over(task)


def test_throttled_task_keeps_its_rate(harness: EngineHarness) -> None:
    index = harness.index("one", old(40))
    status = harness.ended(harness.run(harness.engine.start_delete(index, UNTIL, Pace(TAG, batch=5, rate=40.0))))
    seconds = status.run_time_nanos / 1e9
    assert status.counters.deleted == 40
    assert 40.0 * seconds * 1.05 >= 40 - 5  # all but the last batch, with a tolerance for the clock
    assert 0 < status.counters.throttled_millis <= seconds * 1_000
    assert status.counters.throttled_until_millis == 0


def test_cancelled_task_ends_with_an_error(harness: EngineHarness) -> None:
    index = harness.index("one", old(MANY))
    task = harness.run(harness.engine.start_delete(index, UNTIL, SLOW))
    harness.until(task, lambda s: s.counters.deleted > 0, "it has begun")
    harness.run(harness.engine.cancel(task))
    status = harness.over(task)
    assert status.error is not None
    assert "cancel" in status.error
    left = harness.run(harness.engine.count(index, UNTIL))
    assert left.total == left.old == MANY - status.counters.deleted > 0


def test_finished_task_is_not_cancelled(harness: EngineHarness) -> None:
    index = harness.index("one", old(3))
    task = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
    harness.ended(task)
    harness.run(harness.engine.cancel(task))
    assert harness.status(task).error is None


def test_another_task_does_not_wait_for_a_throttled_one(harness: EngineHarness) -> None:
    slow, quick = harness.index("slow", old(MANY)), harness.index("quick", old(20))
    throttled = harness.run(harness.engine.start_delete(slow, UNTIL, SLOW))
    harness.until(throttled, lambda s: s.counters.deleted > 0, "it has begun")
    harness.ended(harness.run(harness.engine.start_delete(quick, UNTIL, QUICK)))
    assert not harness.status(throttled).completed
    harness.run(harness.engine.cancel(throttled))
    harness.over(throttled)


def test_unknown_task_is_not_found(harness: EngineHarness) -> None:
    index = harness.index("one", old(1))
    known = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
    harness.ended(known)
    for unknown in (TaskId(known.node, LARGEST), TaskId("nobody", known.number), TaskId(known.node[:-1], known.number)):
        assert harness.run(harness.engine.task(unknown)) is None
        harness.run(harness.engine.cancel(unknown))


def test_task_ids_are_unique(harness: EngineHarness) -> None:
    indices = [harness.index(f"number_{number}", old(2)) for number in range(3)]
    tasks = [harness.run(harness.engine.start_delete(index, UNTIL, QUICK)) for index in indices * 2]
    for task in tasks:
        harness.over(task)
    assert len(set(tasks)) == len(tasks)


def test_task_is_visible_to_another_engine_on_the_same_indices(harness: EngineHarness) -> None:
    index = harness.index("one", old(3))
    task = harness.run(harness.engine.start_delete(index, UNTIL, QUICK))
    status = harness.ended(task)
    other = harness.run(harness.place.open())
    try:
        assert harness.run(other.task(task)) == status
    finally:
        harness.run(other.close())


def test_running_tasks_are_found_by_their_tag(harness: EngineHarness) -> None:
    tag = harness.place.name("tag")
    index = harness.index("one", old(MANY))
    task = harness.run(harness.engine.start_delete(index, UNTIL, SLOW._replace(tag=tag)))
    other = harness.run(harness.engine.start_delete(index, UNTIL, SLOW._replace(tag=f"{tag}2")))
    assert harness.run(harness.engine.running(tag)) == (task,)
    assert harness.run(harness.engine.running(tag[:-1])) == ()
    assert harness.status(task).tag == tag
    for one in (task, other):
        harness.run(harness.engine.cancel(one))
        harness.over(one)
    assert harness.run(harness.engine.running(tag)) == ()
    assert harness.status(task).tag == tag


def test_deletion_needs_an_existing_index(harness: EngineHarness) -> None:
    none = harness.place.name("none")
    assert harness.refused(harness.engine.start_delete(none, UNTIL, QUICK)).reason is Reason.INDEX_REFUSED
    assert harness.run(harness.engine.resolve(none)) is None


def test_rows_changed_during_a_deletion_are_skipped_and_counted(harness: EngineHarness) -> None:
    def left_out(count: int) -> int | None:
        index = harness.index(f"of_{count}", old(count))
        task = harness.run(harness.engine.start_delete(index, UNTIL, Pace(TAG, 5, 30.0)))
        harness.until(task, lambda s: s.counters.total > 0 and s.counters.deleted > 0, "it has begun")
        changed = {row_id: {**source, "value": 1_000_000} for row_id, source in harness.rows(index).items()}
        harness.write(index, changed)
        counters = harness.ended(task).counters
        assert harness.rows(index) == changed
        assert counters.total == counters.deleted + counters.version_conflicts == count
        return counters.version_conflicts or None

    assert seen_in_time(left_out, 60, 600) > 0

"""Contract of every engine: what tasks do and report."""

import pytest

from tests.engines.given import QUICK, SLOW, TAG, UNTIL, Given, old, staying, timeless, young
from tests.support.waiting import seen_in_time
from watchword.domain.engine import Pace
from watchword.domain.errors import Reason
from watchword.domain.tasks import LARGEST, TaskId

MIXED = old(30) | young(25) | timeless(5)
MANY = 2_000
"""Enough rows that a throttled task does not finish before the test cancels it."""


def test_deletion_deletes_exactly_the_old_rows(given: Given) -> None:
    index = given.index("one", MIXED)
    given.ended(given.run(given.engine.start_delete(index, UNTIL, QUICK)))
    assert given.rows(index) == staying(MIXED)
    counted = given.run(given.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (30, 0)


@pytest.mark.parametrize("batch", [1, 7, 30, 1_000])
def test_deletion_counts_its_rows(given: Given, batch: int) -> None:
    index = given.index("one", MIXED)
    task = given.run(given.engine.start_delete(index, UNTIL, Pace(TAG, batch)))
    status = given.ended(task)
    counters = status.counters
    assert status.id == task
    assert (counters.total, counters.deleted, counters.done) == (30, 30, 30)
    assert counters.batches >= 30 / batch
    assert counters.requests_per_second == -1.0
    assert status.run_time_nanos > 0
    assert (status.error, status.failures) == (None, ())


def test_deletion_without_old_rows_succeeds(given: Given) -> None:
    index = given.index("one", young(3))
    status = given.ended(given.run(given.engine.start_delete(index, UNTIL, QUICK)))
    assert (status.counters.total, status.counters.deleted) == (0, 0)
    assert given.rows(index) == young(3)


def test_throttled_task_reports_its_pauses(given: Given) -> None:
    index = given.index("one", old(MANY))
    task = given.run(given.engine.start_delete(index, UNTIL, SLOW))
    first = given.until(task, lambda s: s.counters.deleted > 0 and s.counters.throttled_millis > 0, "it has begun")
    assert not first.completed
    assert first.counters.total == MANY
    assert first.counters.deleted < MANY
    assert first.counters.requests_per_second == SLOW.rate
    before = first.counters
    later = given.until(task, lambda s: s.counters.deleted > before.deleted, "it has gone on")
    assert later.run_time_nanos > first.run_time_nanos
    given.until(task, lambda s: s.counters.throttled_millis > before.throttled_millis, "it has paused again")
    given.until(task, lambda s: s.counters.batches > before.batches, "there were more batches")
    given.until(task, lambda s: s.counters.throttled_until_millis > 0, "it pauses")
    given.run(given.engine.cancel(task))
    given.over(task)


def test_throttled_task_keeps_its_rate(given: Given) -> None:
    index = given.index("one", old(40))
    status = given.ended(given.run(given.engine.start_delete(index, UNTIL, Pace(TAG, batch=5, rate=40.0))))
    seconds = status.run_time_nanos / 1e9
    assert status.counters.deleted == 40
    assert 40.0 * seconds * 1.05 >= 40 - 5  # all but the last batch, with a tolerance for the clock
    assert 0 < status.counters.throttled_millis <= seconds * 1_000
    assert status.counters.throttled_until_millis == 0


def test_cancelled_task_ends_with_an_error(given: Given) -> None:
    index = given.index("one", old(MANY))
    task = given.run(given.engine.start_delete(index, UNTIL, SLOW))
    given.until(task, lambda s: s.counters.deleted > 0, "it has begun")
    given.run(given.engine.cancel(task))
    status = given.over(task)
    assert status.error is not None
    assert "cancel" in status.error
    left = given.run(given.engine.count(index, UNTIL))
    assert left.total == left.old == MANY - status.counters.deleted > 0


def test_finished_task_is_not_cancelled(given: Given) -> None:
    index = given.index("one", old(3))
    task = given.run(given.engine.start_delete(index, UNTIL, QUICK))
    given.ended(task)
    given.run(given.engine.cancel(task))
    assert given.status(task).error is None


def test_another_task_does_not_wait_for_a_throttled_one(given: Given) -> None:
    slow, quick = given.index("slow", old(MANY)), given.index("quick", old(20))
    throttled = given.run(given.engine.start_delete(slow, UNTIL, SLOW))
    given.until(throttled, lambda s: s.counters.deleted > 0, "it has begun")
    given.ended(given.run(given.engine.start_delete(quick, UNTIL, QUICK)))
    assert not given.status(throttled).completed
    given.run(given.engine.cancel(throttled))
    given.over(throttled)


def test_unknown_task_is_not_found(given: Given) -> None:
    index = given.index("one", old(1))
    known = given.run(given.engine.start_delete(index, UNTIL, QUICK))
    given.ended(known)
    for unknown in (TaskId(known.node, LARGEST), TaskId("nobody", known.number), TaskId(known.node[:-1], known.number)):
        assert given.run(given.engine.task(unknown)) is None
        given.run(given.engine.cancel(unknown))


def test_task_ids_are_unique(given: Given) -> None:
    indices = [given.index(f"number_{number}", old(2)) for number in range(3)]
    tasks = [given.run(given.engine.start_delete(index, UNTIL, QUICK)) for index in indices * 2]
    for task in tasks:
        given.over(task)
    assert len(set(tasks)) == len(tasks)


def test_task_is_visible_to_another_engine_on_the_same_indices(given: Given) -> None:
    index = given.index("one", old(3))
    task = given.run(given.engine.start_delete(index, UNTIL, QUICK))
    status = given.ended(task)
    other = given.run(given.place.open())
    try:
        assert given.run(other.task(task)) == status
    finally:
        given.run(other.close())


def test_running_tasks_are_found_by_their_tag(given: Given) -> None:
    tag = given.place.name("tag")
    index = given.index("one", old(MANY))
    task = given.run(given.engine.start_delete(index, UNTIL, SLOW._replace(tag=tag)))
    other = given.run(given.engine.start_delete(index, UNTIL, SLOW._replace(tag=f"{tag}2")))
    assert given.run(given.engine.running(tag)) == (task,)
    assert given.run(given.engine.running(tag[:-1])) == ()
    assert given.status(task).tag == tag
    for one in (task, other):
        given.run(given.engine.cancel(one))
        given.over(one)
    assert given.run(given.engine.running(tag)) == ()
    assert given.status(task).tag == tag


def test_deletion_needs_an_existing_index(given: Given) -> None:
    none = given.place.name("none")
    assert given.refused(given.engine.start_delete(none, UNTIL, QUICK)).reason is Reason.INDEX_REFUSED
    assert given.run(given.engine.resolve(none)) is None


def test_rows_changed_during_a_deletion_are_skipped_and_counted(given: Given) -> None:
    def left_out(count: int) -> int | None:
        index = given.index(f"of_{count}", old(count))
        task = given.run(given.engine.start_delete(index, UNTIL, Pace(TAG, 5, 30.0)))
        given.until(task, lambda s: s.counters.total > 0 and s.counters.deleted > 0, "it has begun")
        changed = {row_id: {**source, "value": 1_000_000} for row_id, source in given.rows(index).items()}
        given.write(index, changed)
        counters = given.ended(task).counters
        assert given.rows(index) == changed
        assert counters.total == counters.deleted + counters.version_conflicts == count
        return counters.version_conflicts or None

    assert seen_in_time(left_out, 60, 600) > 0

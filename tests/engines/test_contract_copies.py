"""Contract of every engine, with generated changes: a copy loses nothing, and other indices are not changed."""

import itertools
from typing import NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.engines.conftest import ON_CLUSTERS
from tests.engines.harness import (
    QUICK,
    SLOW,
    TAG,
    UNTIL,
    ClusterHarness,
    EngineHarness,
    Rows,
    old,
    row,
    staying,
    timeless,
    young,
)
from tests.support.engines import Source
from watchword.index.engine import Checkpoints, Pace

_examples = itertools.count()


class Change(NamedTuple):
    """A written row, or a removed one if there is no source."""

    row_id: str
    source: Source | None


_times = st.sampled_from([UNTIL - 1, UNTIL, UNTIL + 1, UNTIL + 2, UNTIL + 3])
_sources = st.builds(row, st.integers(0, 99), _times) | st.builds(lambda value: {"value": value}, st.integers(0, 99))
_changes = st.lists(
    st.builds(Change, st.sampled_from("abcdef"), st.none() | _sources | _sources),
    max_size=6,
)


def apply(harness: ClusterHarness, index: str, changes: list[Change], model: Rows) -> None:
    for row_id, source in changes:
        if source is None:
            harness.place.remove(index, row_id)
            model.pop(row_id, None)
        else:
            assert harness.place.put(index, row_id, source)
            model[row_id] = source


def catch_up(harness: ClusterHarness, index: str, target: str, since: Checkpoints) -> None:
    if any(status.counters.version_conflicts for status in harness.caught_up(index, target, since)):
        harness.caught_up(index, target, since, overwrite=True)


@ON_CLUSTERS
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(first=_changes, meanwhile=_changes, after=_changes, last=_changes)
@example(
    first=[Change("a", row(1, UNTIL + 1)), Change("b", row(2, UNTIL + 1))],
    meanwhile=[Change("a", None), Change("a", row(3, UNTIL + 2))],
    after=[Change("b", row(4, UNTIL))],
    last=[Change("c", row(5, UNTIL + 1)), Change("a", None)],
)
def test_caught_up_copy_equals_the_model(
    harness: ClusterHarness, first: list[Change], meanwhile: list[Change], after: list[Change], last: list[Change]
) -> None:
    number = next(_examples)
    model: Rows = {}
    index = harness.index(f"source_{number}")
    apply(harness, index, first, model)

    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copy_of(index, f"copy_{number}")
    task = harness.run(harness.engine.start_copy(index, target, UNTIL, Pace(TAG, batch=2)))
    apply(harness, index, meanwhile, model)
    harness.over(task)
    apply(harness, index, after, model)

    then = harness.run(harness.engine.checkpoints(index))
    catch_up(harness, index, target, marks)
    apply(harness, index, last, model)
    harness.run(harness.engine.block(index))
    catch_up(harness, index, target, then)
    harness.run(harness.engine.reconcile(index, target, UNTIL))

    assert harness.rows(index) == model
    assert harness.rows(target) == staying(model)
    counted = harness.run(harness.engine.count(target, UNTIL))
    assert (counted.total, counted.old) == (len(staying(model)), 0)
    harness.run(harness.engine.swap(index, index, target))
    assert harness.rows(index) == staying(model)
    harness.run(harness.engine.drop(target))


def test_no_call_touches_an_index_with_a_similar_name(harness: EngineHarness) -> None:
    rows = old(10) | young(10) | timeless(2)
    words = (
        "dataset_usage",
        "dataset_usages",
        "dataset_usag",
        "dataset_usage_1",
        "dataset",
        "x_dataset_usage",
        "copy_",
    )
    bystanders = [harness.index(word, rows) for word in words if word != "dataset_usage"]
    before = [harness.run(harness.engine.resolve(name)) for name in bystanders]

    def untouched() -> None:
        assert [harness.rows(name) for name in bystanders] == [rows] * len(bystanders)
        assert [harness.run(harness.engine.resolve(name)) for name in bystanders] == before
        if isinstance(harness, ClusterHarness):
            assert not any(harness.run(harness.engine.is_blocked(name)) for name in bystanders)

    name = harness.index("dataset_usage", rows)
    untouched()
    harness.ended(harness.run(harness.engine.start_delete(name, UNTIL - 5, QUICK)))
    cancelled = harness.run(harness.engine.start_delete(name, UNTIL - 2, SLOW))
    harness.run(harness.engine.cancel(cancelled))
    harness.over(cancelled)
    untouched()
    if not isinstance(harness, ClusterHarness):
        return
    marks = harness.run(harness.engine.checkpoints(name))
    target = harness.copied(name)
    harness.run(harness.engine.block(name))
    untouched()
    harness.caught_up(name, target, marks)
    harness.run(harness.engine.reconcile(name, target, UNTIL))
    harness.run(harness.engine.unblock(name))
    untouched()
    harness.run(harness.engine.swap(name, name, target))
    untouched()
    harness.run(harness.engine.drop(target))
    untouched()

"""Contract of every engine, with generated changes: a copy loses nothing, and other indices are not changed."""

import itertools
from typing import NamedTuple

from hypothesis import HealthCheck, example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.engines.conftest import ON_CLUSTERS
from tests.engines.given import QUICK, SLOW, TAG, UNTIL, ClusterGiven, Given, Rows, old, row, staying, timeless, young
from tests.support.engines import Source
from watchword.domain.engine import Checkpoints, Pace

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


def apply(given: ClusterGiven, index: str, changes: list[Change], model: Rows) -> None:
    for row_id, source in changes:
        if source is None:
            given.place.remove(index, row_id)
            model.pop(row_id, None)
        else:
            assert given.place.put(index, row_id, source)
            model[row_id] = source


def catch_up(given: ClusterGiven, index: str, target: str, since: Checkpoints) -> None:
    if any(status.counters.version_conflicts for status in given.caught_up(index, target, since)):
        given.caught_up(index, target, since, overwrite=True)


@ON_CLUSTERS
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@drawn(first=_changes, meanwhile=_changes, after=_changes, last=_changes)
@example(
    first=[Change("a", row(1, UNTIL + 1)), Change("b", row(2, UNTIL + 1))],
    meanwhile=[Change("a", None), Change("a", row(3, UNTIL + 2))],
    after=[Change("b", row(4, UNTIL))],
    last=[Change("c", row(5, UNTIL + 1)), Change("a", None)],
)
def test_caught_up_copy_equals_the_model(
    given: ClusterGiven, first: list[Change], meanwhile: list[Change], after: list[Change], last: list[Change]
) -> None:
    number = next(_examples)
    model: Rows = {}
    index = given.index(f"source_{number}")
    apply(given, index, first, model)

    marks = given.run(given.engine.checkpoints(index))
    target = given.copy_of(index, f"copy_{number}")
    task = given.run(given.engine.start_copy(index, target, UNTIL, Pace(TAG, batch=2)))
    apply(given, index, meanwhile, model)
    given.over(task)
    apply(given, index, after, model)

    then = given.run(given.engine.checkpoints(index))
    catch_up(given, index, target, marks)
    apply(given, index, last, model)
    given.run(given.engine.block(index))
    catch_up(given, index, target, then)
    given.run(given.engine.reconcile(index, target, UNTIL))

    assert given.rows(index) == model
    assert given.rows(target) == staying(model)
    counted = given.run(given.engine.count(target, UNTIL))
    assert (counted.total, counted.old) == (len(staying(model)), 0)
    given.run(given.engine.swap(index, index, target))
    assert given.rows(index) == staying(model)
    given.run(given.engine.drop(target))


def test_no_call_touches_an_index_with_a_similar_name(given: Given) -> None:
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
    bystanders = [given.index(word, rows) for word in words if word != "dataset_usage"]
    before = [given.run(given.engine.resolve(name)) for name in bystanders]

    def untouched() -> None:
        assert [given.rows(name) for name in bystanders] == [rows] * len(bystanders)
        assert [given.run(given.engine.resolve(name)) for name in bystanders] == before
        if isinstance(given, ClusterGiven):
            assert not any(given.run(given.engine.is_blocked(name)) for name in bystanders)

    name = given.index("dataset_usage", rows)
    untouched()
    given.ended(given.run(given.engine.start_delete(name, UNTIL - 5, QUICK)))
    cancelled = given.run(given.engine.start_delete(name, UNTIL - 2, SLOW))
    given.run(given.engine.cancel(cancelled))
    given.over(cancelled)
    untouched()
    if not isinstance(given, ClusterGiven):
        return
    marks = given.run(given.engine.checkpoints(name))
    target = given.copied(name)
    given.run(given.engine.block(name))
    untouched()
    given.caught_up(name, target, marks)
    given.run(given.engine.reconcile(name, target, UNTIL))
    given.run(given.engine.unblock(name))
    untouched()
    given.run(given.engine.swap(name, name, target))
    untouched()
    given.run(given.engine.drop(target))
    untouched()

"""Contract of cluster engines: aliases, copies, write blocks, catching up, reconciling, the swap."""

import pytest

from tests.engines.conftest import ON_CLUSTERS
from tests.engines.given import QUICK, TAG, UNTIL, ClusterGiven, as_rows, old, row, staying, timeless, young
from watchword.domain.engine import Pace
from watchword.domain.errors import Reason

MIXED = old(10) | young(10) | timeless(3)
pytestmark = ON_CLUSTERS


def test_index_created_like_another_is_empty(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copy_of(index)
    assert given.rows(target) == {}
    assert given.concrete(target) == target


def test_make_like_needs_an_existing_source(given: ClusterGiven) -> None:
    none, target = given.place.name("none"), given.place.name("copy")
    assert given.refused(given.engine.make_like(none, target)).reason is Reason.INDEX_REFUSED
    assert given.run(given.engine.resolve(target)) is None


def test_make_like_does_not_replace_an_index(given: ClusterGiven) -> None:
    index, target = given.index("one", MIXED), given.index("two", young(2))
    assert given.refused(given.engine.make_like(index, target)).reason is Reason.INDEX_REFUSED
    assert given.rows(target) == young(2)


def test_blocked_index_rejects_writes_and_answers_reads(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    assert not given.run(given.engine.is_blocked(index))
    given.run(given.engine.block(index))
    assert given.run(given.engine.is_blocked(index))
    assert given.refused(given.engine.write(index, as_rows({"new": row(1)}))).reason is Reason.INDEX_BLOCKED
    assert given.rows(index) == MIXED
    assert given.run(given.engine.count(index, UNTIL)).total == len(MIXED)


def test_unblocked_index_accepts_writes(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    for _ in range(2):
        given.run(given.engine.block(index))
    for _ in range(2):
        given.run(given.engine.unblock(index))
    assert not given.run(given.engine.is_blocked(index))
    given.write(index, {"new": row(1)})
    assert given.rows(index) == MIXED | {"new": row(1)}


def test_writes_by_an_alias_of_a_blocked_index_are_rejected(given: ClusterGiven) -> None:
    index, alias = given.index("one", MIXED), given.place.name("alias")
    assert given.place.alias(alias, index)
    given.run(given.engine.block(index))
    assert given.refused(given.engine.write(alias, as_rows({"new": row(1)}))).reason is Reason.INDEX_BLOCKED
    assert given.rows(alias) == MIXED


def test_blocked_index_can_be_copied(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    given.run(given.engine.block(index))
    assert given.rows(given.copied(index)) == staying(MIXED)


def test_index_created_like_a_blocked_one_is_not_blocked(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    given.run(given.engine.block(index))
    target = given.copy_of(index)
    assert not given.run(given.engine.is_blocked(target))
    given.write(target, {"new": row(1)})
    assert given.rows(target) == {"new": row(1)}


def test_checkpoints_move_only_with_writes(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.checkpoints(index))
    assert given.run(given.engine.checkpoints(index)) == marks
    given.write(index, young(1))
    after = given.run(given.engine.checkpoints(index))
    assert after != marks
    assert len(after) == len(marks)


def test_catch_up_copies_added_and_changed_rows(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.checkpoints(index))
    target = given.copied(index)
    changed = {"young-1": row(101, UNTIL + 50), "added": row(102, UNTIL + 1), "timeless-0": {"value": 7}}
    given.write(index, changed | {"too old": row(103, UNTIL)})
    statuses = given.caught_up(index, target, marks)
    assert given.rows(target) == staying(MIXED) | changed
    assert sum(status.counters.created for status in statuses) == 1
    assert sum(status.counters.updated for status in statuses) == 2


def test_repeated_catch_up_changes_nothing(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.checkpoints(index))
    target = given.copied(index)
    given.write(index, young(2) | {"added": row(1, UNTIL + 1)})
    for _ in range(2):
        given.caught_up(index, target, marks)
        assert given.rows(target) == staying(MIXED) | {"added": row(1, UNTIL + 1)}


def test_catch_up_from_the_beginning_copies_everything(given: ClusterGiven) -> None:
    index = given.index("empty")
    marks = given.run(given.engine.checkpoints(index))
    target = given.copy_of(index)
    given.write(index, MIXED)
    given.caught_up(index, target, marks)
    assert given.rows(target) == staying(MIXED)


def test_recreated_row_is_caught_up(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    for value in range(3):
        given.write(index, {"young-1": row(value, UNTIL + 1)})
    marks = given.run(given.engine.checkpoints(index))
    target = given.copied(index)
    given.place.remove(index, "young-1")
    given.write(index, {"young-1": row(99, UNTIL + 2)})
    if any(status.counters.version_conflicts for status in given.caught_up(index, target, marks)):
        given.caught_up(index, target, marks, overwrite=True)
    assert given.rows(target) == staying(MIXED) | {"young-1": row(99, UNTIL + 2)}


def test_catch_up_with_overwrite_gives_the_same_rows(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.checkpoints(index))
    target = given.copied(index)
    given.write(index, {"young-1": row(101, UNTIL + 50), "added": row(102, UNTIL + 1), "old-1": row(1, UNTIL - 7)})
    given.caught_up(index, target, marks, overwrite=True)
    assert given.rows(target) == staying(given.rows(index))


def test_reconcile_deletes_rows_deleted_in_the_source(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    for gone in ("young-0", "young-7", "timeless-2", "old-3"):
        given.place.remove(index, gone)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 3
    assert given.rows(target) == staying(given.rows(index))
    assert len(given.rows(target)) == 10


def test_reconcile_deletes_rows_that_became_old(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.checkpoints(index))
    target = given.copied(index)
    given.write(index, {"young-4": row(4, UNTIL - 5), "timeless-1": row(5, UNTIL)})
    given.caught_up(index, target, marks)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 2
    assert given.rows(target) == staying(given.rows(index))


def test_reconcile_of_equal_indices_deletes_nothing(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 0
    assert given.rows(target) == staying(MIXED)
    assert given.rows(index) == MIXED


def test_reconcile_with_an_emptied_source_empties_the_copy(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    for gone in staying(MIXED):
        given.place.remove(index, gone)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 13
    assert given.rows(target) == {}


def test_swap_replaces_an_index_by_its_copy(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    given.run(given.engine.swap(index, index, target))
    resolved = given.run(given.engine.resolve(index))
    assert resolved is not None
    assert (resolved.concrete, resolved.by_alias) == (target, True)
    assert given.rows(index) == staying(MIXED)


def test_swap_moves_an_alias_to_the_copy(given: ClusterGiven) -> None:
    index, alias = given.index("one", MIXED), given.place.name("alias")
    assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.swap(alias, index, target))
    assert given.concrete(alias) == target
    assert given.concrete(index) == index
    assert given.rows(alias) == staying(MIXED)
    assert given.rows(index) == MIXED


@pytest.mark.parametrize("by_alias", [True, False])
def test_swap_moves_all_aliases(given: ClusterGiven, by_alias: bool) -> None:
    index, others = given.index("one", MIXED), [given.place.name(word) for word in ("this", "that")]
    name = given.place.name("name") if by_alias else index
    for alias in [name, *others] if by_alias else others:
        assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.swap(name, index, target))
    assert [given.concrete(alias) for alias in (name, *others)] == [target] * 3


def test_second_swap_replaces_the_first_copy(given: ClusterGiven) -> None:
    name = given.index("one", MIXED)
    first = given.copied(name, "first")
    given.run(given.engine.swap(name, name, first))
    second = given.copied(first, "second")
    given.run(given.engine.swap(name, first, second))
    given.run(given.engine.drop(first))
    assert given.concrete(name) == second
    assert given.rows(name) == staying(MIXED)
    assert given.run(given.engine.resolve(first)) is None


@pytest.mark.parametrize("by_alias", [True, False])
def test_swap_to_a_missing_copy_is_rejected(given: ClusterGiven, by_alias: bool) -> None:
    index, other = given.index("one", MIXED), given.place.name("other")
    name = given.place.name("name") if by_alias else index
    for alias in [name, other] if by_alias else [other]:
        assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.drop(target))
    assert given.refused(given.engine.swap(name, index, target)).reason is Reason.INDEX_REFUSED
    assert [given.concrete(one) for one in (name, other, index, target)] == [index, index, index, None]
    assert given.rows(name) == MIXED


def test_swap_to_an_abandoned_copy_is_rejected(given: ClusterGiven) -> None:
    rows = {"a": {"timestampMillis": UNTIL + 1}}
    index = given.index("one", rows)
    target = given.copied(index)
    assert given.run(given.engine.abandon(target))
    assert given.run(given.engine.abandon(target))
    assert given.refused(given.engine.swap(index, index, target)).reason is Reason.INDEX_REFUSED
    assert given.place.rows(index) == rows
    given.run(given.engine.drop(target))
    assert given.run(given.engine.abandon(target))
    assert given.place.rows(index) == rows


def test_copy_in_use_cannot_be_abandoned(given: ClusterGiven) -> None:
    rows = {"a": {"timestampMillis": UNTIL + 1}}
    index = given.index("one", rows)
    target = given.copied(index)
    given.run(given.engine.flush(target))
    given.run(given.engine.swap(index, index, target))
    assert not given.run(given.engine.abandon(target))
    assert given.place.rows(index) == rows
    given.write(index, {"b": {"timestampMillis": UNTIL + 2}})


def test_swap_from_a_missing_index_is_rejected(given: ClusterGiven) -> None:
    index, alias = given.index("one", MIXED), given.place.name("alias")
    assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.drop(index))
    assert given.refused(given.engine.swap(alias, index, target)).reason is Reason.INDEX_REFUSED
    assert given.refused(given.engine.swap(index, index, target)).reason is Reason.INDEX_REFUSED
    assert [given.concrete(one) for one in (alias, index, target)] == [None, None, target]
    assert given.rows(target) == staying(MIXED)


def test_swapped_index_is_writable_by_its_name(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    given.run(given.engine.swap(index, index, target))
    given.write(index, {"young-1": row(77, UNTIL + 5)})
    status = given.ended(given.run(given.engine.start_delete(target, UNTIL + 2, QUICK)))
    assert status.counters.deleted == 1  # young-0 is of UNTIL + 1; young-1 was of UNTIL + 2
    assert given.rows(index)["young-1"] == row(77, UNTIL + 5)


def test_copy_holds_exactly_the_rows_that_stay(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copy_of(index)
    status = given.ended(given.run(given.engine.start_copy(index, target, UNTIL, QUICK)))
    assert given.rows(target) == staying(MIXED)
    assert given.rows(index) == MIXED
    assert (status.counters.total, status.counters.created, status.counters.done) == (13, 13, 13)


@pytest.mark.parametrize("batch", [1, 7, 1_000])
def test_copy_is_independent_of_the_batch_size(given: ClusterGiven, batch: int) -> None:
    index = given.index("one", MIXED)
    target = given.copy_of(index)
    given.ended(given.run(given.engine.start_copy(index, target, UNTIL, Pace(TAG, batch))))
    assert given.rows(target) == staying(MIXED)


def test_repeated_copy_reports_version_conflicts(given: ClusterGiven) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    again = given.over(given.run(given.engine.start_copy(index, target, UNTIL, QUICK)))
    assert (again.counters.created, again.counters.updated, again.counters.version_conflicts) == (0, 0, 13)
    assert given.rows(target) == staying(MIXED)


def test_rows_can_be_written_through_an_alias(given: ClusterGiven) -> None:
    index, alias = given.index("one", old(1)), given.place.name("alias")
    assert given.place.alias(alias, index)
    given.run(given.engine.make(alias))
    given.write(alias, young(1))
    assert given.rows(index) == given.rows(alias) == old(1) | young(1)
    assert given.concrete(alias) == index


def test_index_is_found_by_its_alias(given: ClusterGiven) -> None:
    index, alias = given.index("one"), given.place.name("alias")
    assert given.place.alias(alias, index)
    by_name, by_alias = given.run(given.engine.resolve(index)), given.run(given.engine.resolve(alias))
    assert by_name is not None
    assert by_alias is not None
    assert (by_alias.concrete, by_alias.uuid, by_alias.by_alias) == (index, by_name.uuid, True)


def test_alias_of_several_indices_is_ambiguous(given: ClusterGiven) -> None:
    one, two, alias = given.index("one"), given.index("two"), given.place.name("alias")
    assert given.place.alias(alias, one)
    assert given.place.alias(alias, two)
    assert given.refused(given.engine.resolve(alias)).reason is Reason.INDEX_AMBIGUOUS


def test_recreated_index_has_another_uuid(given: ClusterGiven) -> None:
    index = given.index("one", old(3))
    before = given.run(given.engine.resolve(index))
    given.run(given.engine.drop(index))
    assert given.run(given.engine.resolve(index)) is None
    given.index("one", young(1))
    after = given.run(given.engine.resolve(index))
    assert before is not None
    assert after is not None
    assert after.uuid != before.uuid
    assert given.rows(index) == young(1)
    counted = given.run(given.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (1, 0)


def test_repeated_drop_succeeds(given: ClusterGiven) -> None:
    index = given.index("one")
    given.run(given.engine.drop(index))
    given.run(given.engine.drop(index))
    assert given.run(given.engine.resolve(index)) is None


def test_alias_is_never_dropped(given: ClusterGiven) -> None:
    index, alias = given.index("one", old(2)), given.place.name("alias")
    assert given.place.alias(alias, index)
    assert given.refused(given.engine.drop(alias)).reason is Reason.INDEX_REFUSED
    assert given.concrete(alias) == index
    assert given.rows(index) == old(2)


def test_size_is_listed_under_the_matching_alias(given: ClusterGiven) -> None:
    ending = "aspect_v1"
    index, alias = given.index("a_aspect_v1_1767225600000", old(3)), given.place.name(f"a_{ending}")
    assert given.place.alias(alias, index)
    given.run(given.engine.count(index, UNTIL))
    sizes = given.run(given.engine.sizes(given.place.name(""), ending))
    assert [(size.name, size.rows) for size in sizes] == [(alias, 3)]


def test_copy_needs_source_and_target(given: ClusterGiven) -> None:
    index, none = given.index("one", young(2)), given.place.name("none")
    for work in (
        given.engine.start_copy(none, index, UNTIL, QUICK),
        given.engine.start_copy(index, none, UNTIL, QUICK),
    ):
        assert given.refused(work).reason is Reason.INDEX_REFUSED
    assert given.rows(index) == young(2)
    assert given.run(given.engine.resolve(none)) is None

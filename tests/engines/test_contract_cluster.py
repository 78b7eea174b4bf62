"""Contract of cluster engines: aliases, copies, write blocks, catching up, reconciling, the swap."""

import pytest

from tests.engines.conftest import ON_CLUSTERS
from tests.engines.harness import QUICK, TAG, UNTIL, ClusterHarness, as_rows, old, row, staying, timeless, young
from watchword.basics.errors import Reason
from watchword.index.engine import Pace

MIXED = old(10) | young(10) | timeless(3)
pytestmark = ON_CLUSTERS


def test_index_created_like_another_is_empty(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copy_of(index)
    assert harness.rows(target) == {}
    assert harness.concrete(target) == target


def test_make_like_needs_an_existing_source(harness: ClusterHarness) -> None:
    none, target = harness.place.name("none"), harness.place.name("copy")
    assert harness.refused(harness.engine.make_like(none, target)).reason is Reason.INDEX_REFUSED
    assert harness.run(harness.engine.resolve(target)) is None


def test_make_like_does_not_replace_an_index(harness: ClusterHarness) -> None:
    index, target = harness.index("one", MIXED), harness.index("two", young(2))
    assert harness.refused(harness.engine.make_like(index, target)).reason is Reason.INDEX_REFUSED
    assert harness.rows(target) == young(2)


def test_blocked_index_rejects_writes_and_answers_reads(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    assert not harness.run(harness.engine.is_blocked(index))
    harness.run(harness.engine.block(index))
    assert harness.run(harness.engine.is_blocked(index))
    assert harness.refused(harness.engine.write(index, as_rows({"new": row(1)}))).reason is Reason.INDEX_BLOCKED
    assert harness.rows(index) == MIXED
    assert harness.run(harness.engine.count(index, UNTIL)).total == len(MIXED)


def test_unblocked_index_accepts_writes(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    for _ in range(2):
        harness.run(harness.engine.block(index))
    for _ in range(2):
        harness.run(harness.engine.unblock(index))
    assert not harness.run(harness.engine.is_blocked(index))
    harness.write(index, {"new": row(1)})
    assert harness.rows(index) == MIXED | {"new": row(1)}


def test_writes_by_an_alias_of_a_blocked_index_are_rejected(harness: ClusterHarness) -> None:
    index, alias = harness.index("one", MIXED), harness.place.name("alias")
    assert harness.place.alias(alias, index)
    harness.run(harness.engine.block(index))
    assert harness.refused(harness.engine.write(alias, as_rows({"new": row(1)}))).reason is Reason.INDEX_BLOCKED
    assert harness.rows(alias) == MIXED


def test_blocked_index_can_be_copied(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    harness.run(harness.engine.block(index))
    assert harness.rows(harness.copied(index)) == staying(MIXED)


def test_index_created_like_a_blocked_one_is_not_blocked(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    harness.run(harness.engine.block(index))
    target = harness.copy_of(index)
    assert not harness.run(harness.engine.is_blocked(target))
    harness.write(target, {"new": row(1)})
    assert harness.rows(target) == {"new": row(1)}


def test_checkpoints_move_only_with_writes(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    marks = harness.run(harness.engine.checkpoints(index))
    assert harness.run(harness.engine.checkpoints(index)) == marks
    harness.write(index, young(1))
    after = harness.run(harness.engine.checkpoints(index))
    assert after != marks
    assert len(after) == len(marks)


def test_catch_up_copies_added_and_changed_rows(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copied(index)
    changed = {"young-1": row(101, UNTIL + 50), "added": row(102, UNTIL + 1), "timeless-0": {"value": 7}}
    harness.write(index, changed | {"too old": row(103, UNTIL)})
    statuses = harness.caught_up(index, target, marks)
    assert harness.rows(target) == staying(MIXED) | changed
    assert sum(status.counters.created for status in statuses) == 1
    assert sum(status.counters.updated for status in statuses) == 2


def test_repeated_catch_up_changes_nothing(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copied(index)
    harness.write(index, young(2) | {"added": row(1, UNTIL + 1)})
    for _ in range(2):
        harness.caught_up(index, target, marks)
        assert harness.rows(target) == staying(MIXED) | {"added": row(1, UNTIL + 1)}


def test_catch_up_from_the_beginning_copies_everything(harness: ClusterHarness) -> None:
    index = harness.index("empty")
    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copy_of(index)
    harness.write(index, MIXED)
    harness.caught_up(index, target, marks)
    assert harness.rows(target) == staying(MIXED)


def test_recreated_row_is_caught_up(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    for value in range(3):
        harness.write(index, {"young-1": row(value, UNTIL + 1)})
    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copied(index)
    harness.place.remove(index, "young-1")
    harness.write(index, {"young-1": row(99, UNTIL + 2)})
    if any(status.counters.version_conflicts for status in harness.caught_up(index, target, marks)):
        harness.caught_up(index, target, marks, overwrite=True)
    assert harness.rows(target) == staying(MIXED) | {"young-1": row(99, UNTIL + 2)}


def test_catch_up_with_overwrite_gives_the_same_rows(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copied(index)
    harness.write(index, {"young-1": row(101, UNTIL + 50), "added": row(102, UNTIL + 1), "old-1": row(1, UNTIL - 7)})
    harness.caught_up(index, target, marks, overwrite=True)
    assert harness.rows(target) == staying(harness.rows(index))


def test_reconcile_deletes_rows_deleted_in_the_source(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copied(index)
    for gone in ("young-0", "young-7", "timeless-2", "old-3"):
        harness.place.remove(index, gone)
    assert harness.run(harness.engine.reconcile(index, target, UNTIL)) == 3
    assert harness.rows(target) == staying(harness.rows(index))
    assert len(harness.rows(target)) == 10


def test_reconcile_deletes_rows_that_became_old(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    marks = harness.run(harness.engine.checkpoints(index))
    target = harness.copied(index)
    harness.write(index, {"young-4": row(4, UNTIL - 5), "timeless-1": row(5, UNTIL)})
    harness.caught_up(index, target, marks)
    assert harness.run(harness.engine.reconcile(index, target, UNTIL)) == 2
    assert harness.rows(target) == staying(harness.rows(index))


def test_reconcile_of_equal_indices_deletes_nothing(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copied(index)
    assert harness.run(harness.engine.reconcile(index, target, UNTIL)) == 0
    assert harness.rows(target) == staying(MIXED)
    assert harness.rows(index) == MIXED


def test_reconcile_with_an_emptied_source_empties_the_copy(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copied(index)
    for gone in staying(MIXED):
        harness.place.remove(index, gone)
    assert harness.run(harness.engine.reconcile(index, target, UNTIL)) == 13
    assert harness.rows(target) == {}


def test_swap_replaces_an_index_by_its_copy(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copied(index)
    harness.run(harness.engine.swap(index, index, target))
    resolved = harness.run(harness.engine.resolve(index))
    assert resolved is not None
    assert (resolved.concrete, resolved.by_alias) == (target, True)
    assert harness.rows(index) == staying(MIXED)


def test_swap_moves_an_alias_to_the_copy(harness: ClusterHarness) -> None:
    index, alias = harness.index("one", MIXED), harness.place.name("alias")
    assert harness.place.alias(alias, index)
    target = harness.copied(index)
    harness.run(harness.engine.swap(alias, index, target))
    assert harness.concrete(alias) == target
    assert harness.concrete(index) == index
    assert harness.rows(alias) == staying(MIXED)
    assert harness.rows(index) == MIXED


@pytest.mark.parametrize("by_alias", [True, False])
def test_swap_moves_all_aliases(harness: ClusterHarness, by_alias: bool) -> None:
    index, others = harness.index("one", MIXED), [harness.place.name(word) for word in ("this", "that")]
    name = harness.place.name("name") if by_alias else index
    for alias in [name, *others] if by_alias else others:
        assert harness.place.alias(alias, index)
    target = harness.copied(index)
    harness.run(harness.engine.swap(name, index, target))
    assert [harness.concrete(alias) for alias in (name, *others)] == [target] * 3


def test_second_swap_replaces_the_first_copy(harness: ClusterHarness) -> None:
    name = harness.index("one", MIXED)
    first = harness.copied(name, "first")
    harness.run(harness.engine.swap(name, name, first))
    second = harness.copied(first, "second")
    harness.run(harness.engine.swap(name, first, second))
    harness.run(harness.engine.drop(first))
    assert harness.concrete(name) == second
    assert harness.rows(name) == staying(MIXED)
    assert harness.run(harness.engine.resolve(first)) is None


@pytest.mark.parametrize("by_alias", [True, False])
def test_swap_to_a_missing_copy_is_rejected(harness: ClusterHarness, by_alias: bool) -> None:
    index, other = harness.index("one", MIXED), harness.place.name("other")
    name = harness.place.name("name") if by_alias else index
    for alias in [name, other] if by_alias else [other]:
        assert harness.place.alias(alias, index)
    target = harness.copied(index)
    harness.run(harness.engine.drop(target))
    assert harness.refused(harness.engine.swap(name, index, target)).reason is Reason.INDEX_REFUSED
    assert [harness.concrete(one) for one in (name, other, index, target)] == [index, index, index, None]
    assert harness.rows(name) == MIXED


def test_swap_to_an_abandoned_copy_is_rejected(harness: ClusterHarness) -> None:
    rows = {"a": {"timestampMillis": UNTIL + 1}}
    index = harness.index("one", rows)
    target = harness.copied(index)
    assert harness.run(harness.engine.abandon(target))
    assert harness.run(harness.engine.abandon(target))
    assert harness.refused(harness.engine.swap(index, index, target)).reason is Reason.INDEX_REFUSED
    assert harness.place.rows(index) == rows
    harness.run(harness.engine.drop(target))
    assert harness.run(harness.engine.abandon(target))
    assert harness.place.rows(index) == rows


def test_copy_in_use_cannot_be_abandoned(harness: ClusterHarness) -> None:
    rows = {"a": {"timestampMillis": UNTIL + 1}}
    index = harness.index("one", rows)
    target = harness.copied(index)
    harness.run(harness.engine.flush(target))
    harness.run(harness.engine.swap(index, index, target))
    assert not harness.run(harness.engine.abandon(target))
    assert harness.place.rows(index) == rows
    harness.write(index, {"b": {"timestampMillis": UNTIL + 2}})


def test_swap_from_a_missing_index_is_rejected(harness: ClusterHarness) -> None:
    index, alias = harness.index("one", MIXED), harness.place.name("alias")
    assert harness.place.alias(alias, index)
    target = harness.copied(index)
    harness.run(harness.engine.drop(index))
    assert harness.refused(harness.engine.swap(alias, index, target)).reason is Reason.INDEX_REFUSED
    assert harness.refused(harness.engine.swap(index, index, target)).reason is Reason.INDEX_REFUSED
    assert [harness.concrete(one) for one in (alias, index, target)] == [None, None, target]
    assert harness.rows(target) == staying(MIXED)


def test_swapped_index_is_writable_by_its_name(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copied(index)
    harness.run(harness.engine.swap(index, index, target))
    harness.write(index, {"young-1": row(77, UNTIL + 5)})
    status = harness.ended(harness.run(harness.engine.start_delete(target, UNTIL + 2, QUICK)))
    assert status.counters.deleted == 1  # young-0 is of UNTIL + 1; young-1 was of UNTIL + 2
    assert harness.rows(index)["young-1"] == row(77, UNTIL + 5)


def test_copy_holds_exactly_the_rows_that_stay(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copy_of(index)
    status = harness.ended(harness.run(harness.engine.start_copy(index, target, UNTIL, QUICK)))
    assert harness.rows(target) == staying(MIXED)
    assert harness.rows(index) == MIXED
    assert (status.counters.total, status.counters.created, status.counters.done) == (13, 13, 13)


@pytest.mark.parametrize("batch", [1, 7, 1_000])
def test_copy_is_independent_of_the_batch_size(harness: ClusterHarness, batch: int) -> None:
    index = harness.index("one", MIXED)
    target = harness.copy_of(index)
    harness.ended(harness.run(harness.engine.start_copy(index, target, UNTIL, Pace(TAG, batch))))
    assert harness.rows(target) == staying(MIXED)


def test_repeated_copy_reports_version_conflicts(harness: ClusterHarness) -> None:
    index = harness.index("one", MIXED)
    target = harness.copied(index)
    again = harness.over(harness.run(harness.engine.start_copy(index, target, UNTIL, QUICK)))
    assert (again.counters.created, again.counters.updated, again.counters.version_conflicts) == (0, 0, 13)
    assert harness.rows(target) == staying(MIXED)


def test_rows_can_be_written_through_an_alias(harness: ClusterHarness) -> None:
    index, alias = harness.index("one", old(1)), harness.place.name("alias")
    assert harness.place.alias(alias, index)
    harness.run(harness.engine.make(alias))
    harness.write(alias, young(1))
    assert harness.rows(index) == harness.rows(alias) == old(1) | young(1)
    assert harness.concrete(alias) == index


def test_index_is_found_by_its_alias(harness: ClusterHarness) -> None:
    index, alias = harness.index("one"), harness.place.name("alias")
    assert harness.place.alias(alias, index)
    by_name, by_alias = harness.run(harness.engine.resolve(index)), harness.run(harness.engine.resolve(alias))
    assert by_name is not None
    assert by_alias is not None
    assert (by_alias.concrete, by_alias.uuid, by_alias.by_alias) == (index, by_name.uuid, True)


def test_alias_of_several_indices_is_ambiguous(harness: ClusterHarness) -> None:
    one, two, alias = harness.index("one"), harness.index("two"), harness.place.name("alias")
    assert harness.place.alias(alias, one)
    assert harness.place.alias(alias, two)
    assert harness.refused(harness.engine.resolve(alias)).reason is Reason.INDEX_AMBIGUOUS


def test_recreated_index_has_another_uuid(harness: ClusterHarness) -> None:
    index = harness.index("one", old(3))
    before = harness.run(harness.engine.resolve(index))
    harness.run(harness.engine.drop(index))
    assert harness.run(harness.engine.resolve(index)) is None
    harness.index("one", young(1))
    after = harness.run(harness.engine.resolve(index))
    assert before is not None
    assert after is not None
    assert after.uuid != before.uuid
    assert harness.rows(index) == young(1)
    counted = harness.run(harness.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (1, 0)


def test_repeated_drop_succeeds(harness: ClusterHarness) -> None:
    index = harness.index("one")
    harness.run(harness.engine.drop(index))
    harness.run(harness.engine.drop(index))
    assert harness.run(harness.engine.resolve(index)) is None


def test_alias_is_never_dropped(harness: ClusterHarness) -> None:
    index, alias = harness.index("one", old(2)), harness.place.name("alias")
    assert harness.place.alias(alias, index)
    assert harness.refused(harness.engine.drop(alias)).reason is Reason.INDEX_REFUSED
    assert harness.concrete(alias) == index
    assert harness.rows(index) == old(2)


def test_size_is_listed_under_the_matching_alias(harness: ClusterHarness) -> None:
    ending = "aspect_v1"
    index, alias = harness.index("a_aspect_v1_1767225600000", old(3)), harness.place.name(f"a_{ending}")
    assert harness.place.alias(alias, index)
    harness.run(harness.engine.count(index, UNTIL))
    sizes = harness.run(harness.engine.sizes(harness.place.name(""), ending))
    assert [(size.name, size.rows) for size in sizes] == [(alias, 3)]


def test_copy_needs_source_and_target(harness: ClusterHarness) -> None:
    index, none = harness.index("one", young(2)), harness.place.name("none")
    for work in (
        harness.engine.start_copy(none, index, UNTIL, QUICK),
        harness.engine.start_copy(index, none, UNTIL, QUICK),
    ):
        assert harness.refused(work).reason is Reason.INDEX_REFUSED
    assert harness.rows(index) == young(2)
    assert harness.run(harness.engine.resolve(none)) is None

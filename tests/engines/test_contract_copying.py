"""Contract of every engine: what copying without loss stands on: blocks, marks, catching up, reconciling, the swap."""

import pytest

from tests.engines.given import QUICK, UNTIL, Given, as_rows, old, row, staying, timeless, young
from watchword.domain.errors import Reason

MIXED = old(10) | young(10) | timeless(3)


def test_an_index_made_like_another_is_empty(given: Given) -> None:
    index = given.index("one", MIXED)
    target = given.copy_of(index)
    assert given.rows(target) == {}
    assert given.concrete(target) == target


def test_an_index_can_be_made_like_one_that_is_there_alone(given: Given) -> None:
    none, target = given.place.name("none"), given.place.name("copy")
    assert given.refused(given.engine.make_like(none, target)).reason is Reason.INDEX_REFUSED
    assert given.run(given.engine.resolve(target)) is None


def test_no_index_is_made_over_another(given: Given) -> None:
    index, target = given.index("one", MIXED), given.index("two", young(2))
    assert given.refused(given.engine.make_like(index, target)).reason is Reason.INDEX_REFUSED
    assert given.rows(target) == young(2)


def test_a_blocked_index_refuses_writes_and_is_read(given: Given) -> None:
    index = given.index("one", MIXED)
    assert not given.run(given.engine.is_blocked(index))
    given.run(given.engine.block(index))
    assert given.run(given.engine.is_blocked(index))
    assert given.refused(given.engine.write(index, as_rows({"new": row(1)}))).reason is Reason.INDEX_BLOCKED
    assert given.rows(index) == MIXED
    assert given.run(given.engine.count(index, UNTIL)).total == len(MIXED)


def test_an_unblocked_index_takes_writes_again(given: Given) -> None:
    index = given.index("one", MIXED)
    for _ in range(2):
        given.run(given.engine.block(index))
    for _ in range(2):
        given.run(given.engine.unblock(index))
    assert not given.run(given.engine.is_blocked(index))
    given.write(index, {"new": row(1)})
    assert given.rows(index) == MIXED | {"new": row(1)}


def test_writes_by_an_alias_of_a_blocked_index_are_held_back(given: Given) -> None:
    index, alias = given.index("one", MIXED), given.place.name("alias")
    assert given.place.alias(alias, index)
    given.run(given.engine.block(index))
    assert given.refused(given.engine.write(alias, as_rows({"new": row(1)}))).reason is Reason.INDEX_BLOCKED
    assert given.rows(alias) == MIXED


def test_a_blocked_index_can_be_copied(given: Given) -> None:
    index = given.index("one", MIXED)
    given.run(given.engine.block(index))
    assert given.rows(given.copied(index)) == staying(MIXED)


def test_an_index_made_like_a_blocked_one_is_not_blocked(given: Given) -> None:
    index = given.index("one", MIXED)
    given.run(given.engine.block(index))
    target = given.copy_of(index)
    assert not given.run(given.engine.is_blocked(target))
    given.write(target, {"new": row(1)})
    assert given.rows(target) == {"new": row(1)}


def test_marks_move_with_writes_and_not_without(given: Given) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.marks(index))
    assert given.run(given.engine.marks(index)) == marks
    given.write(index, young(1))
    after = given.run(given.engine.marks(index))
    assert after != marks
    assert len(after) == len(marks)


def test_catching_up_brings_what_was_added_and_changed(given: Given) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.marks(index))
    target = given.copied(index)
    changed = {"young-1": row(101, UNTIL + 50), "added": row(102, UNTIL + 1), "timeless-0": {"value": 7}}
    given.write(index, changed | {"too old": row(103, UNTIL)})
    statuses = given.caught_up(index, target, marks)
    assert given.rows(target) == staying(MIXED) | changed
    assert sum(status.counters.created for status in statuses) == 1
    assert sum(status.counters.updated for status in statuses) == 2


def test_catching_up_twice_changes_nothing(given: Given) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.marks(index))
    target = given.copied(index)
    given.write(index, young(2) | {"added": row(1, UNTIL + 1)})
    for _ in range(2):
        given.caught_up(index, target, marks)
        assert given.rows(target) == staying(MIXED) | {"added": row(1, UNTIL + 1)}


def test_catching_up_from_the_beginning_is_a_copy(given: Given) -> None:
    index = given.index("empty")
    marks = given.run(given.engine.marks(index))
    target = given.copy_of(index)
    given.write(index, MIXED)
    given.caught_up(index, target, marks)
    assert given.rows(target) == staying(MIXED)


def test_a_row_that_was_removed_and_came_again_is_caught_up_with(given: Given) -> None:
    index = given.index("one", MIXED)
    for value in range(3):
        given.write(index, {"young-1": row(value, UNTIL + 1)})
    marks = given.run(given.engine.marks(index))
    target = given.copied(index)
    given.place.remove(index, "young-1")
    given.write(index, {"young-1": row(99, UNTIL + 2)})
    if any(status.counters.version_conflicts for status in given.caught_up(index, target, marks)):
        given.caught_up(index, target, marks, over=True)
    assert given.rows(target) == staying(MIXED) | {"young-1": row(99, UNTIL + 2)}


def test_catching_up_over_what_is_there_brings_the_same(given: Given) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.marks(index))
    target = given.copied(index)
    given.write(index, {"young-1": row(101, UNTIL + 50), "added": row(102, UNTIL + 1), "old-1": row(1, UNTIL - 7)})
    given.caught_up(index, target, marks, over=True)
    assert given.rows(target) == staying(given.rows(index))


def test_reconciling_removes_what_was_deleted(given: Given) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    for gone in ("young-0", "young-7", "timeless-2", "old-3"):
        given.place.remove(index, gone)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 3
    assert given.rows(target) == staying(given.rows(index))
    assert len(given.rows(target)) == 10


def test_reconciling_removes_what_became_old(given: Given) -> None:
    index = given.index("one", MIXED)
    marks = given.run(given.engine.marks(index))
    target = given.copied(index)
    given.write(index, {"young-4": row(4, UNTIL - 5), "timeless-1": row(5, UNTIL)})
    given.caught_up(index, target, marks)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 2
    assert given.rows(target) == staying(given.rows(index))


def test_reconciling_what_is_the_same_removes_nothing(given: Given) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 0
    assert given.rows(target) == staying(MIXED)
    assert given.rows(index) == MIXED


def test_reconciling_with_an_index_where_nothing_stays_empties_the_copy(given: Given) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    for gone in staying(MIXED):
        given.place.remove(index, gone)
    assert given.run(given.engine.reconcile(index, target, UNTIL)) == 13
    assert given.rows(target) == {}


def test_a_swap_puts_the_copy_in_the_place_of_an_index(given: Given) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    given.run(given.engine.swap(index, index, target))
    resolved = given.run(given.engine.resolve(index))
    assert resolved is not None
    assert (resolved.concrete, resolved.by_alias) == (target, True)
    assert given.rows(index) == staying(MIXED)


def test_a_swap_leads_an_alias_to_the_copy(given: Given) -> None:
    index, alias = given.index("one", MIXED), given.place.name("alias")
    assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.swap(alias, index, target))
    assert given.concrete(alias) == target
    assert given.concrete(index) == index
    assert given.rows(alias) == staying(MIXED)
    assert given.rows(index) == MIXED


@pytest.mark.parametrize("by_alias", [True, False])
def test_a_swap_takes_the_other_aliases_along(given: Given, by_alias: bool) -> None:
    index, others = given.index("one", MIXED), [given.place.name(word) for word in ("this", "that")]
    name = given.place.name("name") if by_alias else index
    for alias in [name, *others] if by_alias else others:
        assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.swap(name, index, target))
    assert [given.concrete(alias) for alias in (name, *others)] == [target] * 3


def test_an_index_swapped_twice_is_that_of_the_second_copy(given: Given) -> None:
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
def test_a_swap_to_a_copy_that_is_gone_is_refused_and_changes_nothing(given: Given, by_alias: bool) -> None:
    index, other = given.index("one", MIXED), given.place.name("other")
    name = given.place.name("name") if by_alias else index
    for alias in [name, other] if by_alias else [other]:
        assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.drop(target))
    assert given.refused(given.engine.swap(name, index, target)).reason is Reason.INDEX_REFUSED
    assert [given.concrete(one) for one in (name, other, index, target)] == [index, index, index, None]
    assert given.rows(name) == MIXED


def test_a_swap_to_a_copy_that_was_withdrawn_is_refused_and_changes_nothing(given: Given) -> None:
    rows = {"a": {"timestampMillis": UNTIL + 1}}
    index = given.index("one", rows)
    target = given.copied(index)
    assert given.run(given.engine.withdraw(target))
    assert given.run(given.engine.withdraw(target))
    assert given.refused(given.engine.swap(index, index, target)).reason is Reason.INDEX_REFUSED
    assert given.place.rows(index) == rows
    given.run(given.engine.drop(target))
    assert given.run(given.engine.withdraw(target))
    assert given.place.rows(index) == rows


def test_a_copy_that_has_taken_its_place_is_withdrawn_no_more(given: Given) -> None:
    rows = {"a": {"timestampMillis": UNTIL + 1}}
    index = given.index("one", rows)
    target = given.copied(index)
    given.run(given.engine.flush(target))
    given.run(given.engine.swap(index, index, target))
    assert not given.run(given.engine.withdraw(target))
    assert given.place.rows(index) == rows
    given.write(index, {"b": {"timestampMillis": UNTIL + 2}})


def test_a_swap_from_an_index_that_is_gone_is_refused_and_changes_nothing(given: Given) -> None:
    index, alias = given.index("one", MIXED), given.place.name("alias")
    assert given.place.alias(alias, index)
    target = given.copied(index)
    given.run(given.engine.drop(index))
    assert given.refused(given.engine.swap(alias, index, target)).reason is Reason.INDEX_REFUSED
    assert given.refused(given.engine.swap(index, index, target)).reason is Reason.INDEX_REFUSED
    assert [given.concrete(one) for one in (alias, index, target)] == [None, None, target]
    assert given.rows(target) == staying(MIXED)


def test_a_swapped_index_is_written_by_its_name_as_before(given: Given) -> None:
    index = given.index("one", MIXED)
    target = given.copied(index)
    given.run(given.engine.swap(index, index, target))
    given.write(index, {"young-1": row(77, UNTIL + 5)})
    status = given.ended(given.run(given.engine.start_delete(target, UNTIL + 2, QUICK)))
    assert status.counters.deleted == 1  # young-0 is of UNTIL + 1; young-1 was of UNTIL + 2
    assert given.rows(index)["young-1"] == row(77, UNTIL + 5)

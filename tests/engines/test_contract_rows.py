"""Contract of every engine: writing and counting rows, and index names."""

from typing import Any

import pytest

from tests.engines.given import UNTIL, Given, as_rows, old, row, timeless, young
from watchword.domain.errors import Reason
from watchword.domain.indices import Row


def test_probe_names_the_engine(given: Given) -> None:
    assert given.run(given.engine.probe())


def test_empty_index_has_no_rows(given: Given) -> None:
    counted = given.run(given.engine.count(given.index("one"), UNTIL))
    assert (counted.total, counted.old) == (0, 0)


def test_every_acknowledged_write_is_counted(given: Given) -> None:
    index = given.index("one")
    for number in range(5):
        given.write(index, old(1, number))
        given.write(index, young(1, number))
        counted = given.run(given.engine.count(index, UNTIL))
        assert (counted.total, counted.old) == (2 * (number + 1), number + 1)


@pytest.mark.parametrize(("at", "is_old"), [(UNTIL - 1, True), (UNTIL, True), (UNTIL + 1, False)])
def test_row_of_exactly_that_time_is_old(given: Given, at: int, is_old: bool) -> None:
    index = given.index("one", {"it": row(1, at)})
    assert given.run(given.engine.count(index, UNTIL)).old == int(is_old)


def test_row_without_a_time_is_never_old(given: Given) -> None:
    index = given.index("one", timeless(3) | {"null": row(1, None)} | old(2))
    counted = given.run(given.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (6, 2)


@pytest.mark.parametrize("at", ["long ago", True, False, {"a": 1}])
def test_row_without_a_numeric_time_is_never_old(given: Given, at: Any) -> None:
    index = given.index("one", old(1))
    taken = given.place.put(index, "odd", row(9, at))
    counted = given.run(given.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (1 + int(taken), 1)


@pytest.mark.parametrize(("at", "is_old"), [(UNTIL - 1.5, True), (float(UNTIL), True), (UNTIL + 1.5, False)])
def test_time_may_have_a_fraction(given: Given, at: float, is_old: bool) -> None:
    index = given.index("one")
    assert given.place.put(index, "it", row(1, at))
    assert given.run(given.engine.count(index, UNTIL)).old == int(is_old)


def test_no_row_is_old_before_the_oldest(given: Given) -> None:
    index = given.index("one", old(3) | young(3))
    assert given.run(given.engine.count(index, UNTIL - 10)).old == 0


def test_missing_index_cannot_be_counted(given: Given) -> None:
    assert given.refused(given.engine.count(given.place.name("none"), UNTIL)).reason is Reason.INDEX_REFUSED


def test_written_row_is_stored_with_its_content(given: Given) -> None:
    rows = old(2) | young(2) | timeless(2)
    assert given.rows(given.index("one", rows)) == rows


def test_row_with_the_same_id_is_replaced(given: Given) -> None:
    index = given.index("one", {"it": row(1), "other": row(2)})
    given.write(index, {"it": row(3, UNTIL + 1)})
    assert given.rows(index) == {"it": row(3, UNTIL + 1), "other": row(2)}
    counted = given.run(given.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (2, 1)


def test_last_row_of_an_id_in_one_write_wins(given: Given) -> None:
    index = given.index("one")
    given.run(given.engine.write(index, [*as_rows({"it": row(1)}), *as_rows({"it": row(2)})]))
    assert given.rows(index) == {"it": row(2)}


def test_rows_without_an_id_get_different_ids(given: Given) -> None:
    index = given.index("one")
    given.run(given.engine.write(index, [Row(b'{"value": 1}'), Row(b'{"value": 1}')]))
    rows = given.rows(index)
    assert len(rows) == 2
    assert list(rows.values()) == [{"value": 1}, {"value": 1}]


def test_writing_nothing_changes_nothing(given: Given) -> None:
    index = given.index("one", old(1))
    given.run(given.engine.write(index, []))
    assert given.rows(index) == old(1)


@pytest.mark.parametrize("source", [b"[1]", b"{", b"5", b"\xff", b""])
def test_row_that_is_not_a_json_object_is_rejected(given: Given, source: bytes) -> None:
    index = given.index("one")
    assert given.refused(given.engine.write(index, [Row(source, "bad")])).reason is Reason.INDEX_REFUSED
    assert "bad" not in given.rows(index)


def test_creating_an_existing_index_changes_nothing(given: Given) -> None:
    index = given.index("one", old(2))
    uuid = given.run(given.engine.resolve(index))
    given.run(given.engine.make(index))
    assert given.run(given.engine.resolve(index)) == uuid
    assert given.rows(index) == old(2)


def test_index_is_found_by_its_name(given: Given) -> None:
    index = given.index("one")
    resolved = given.run(given.engine.resolve(index))
    assert resolved is not None
    assert (resolved.concrete, resolved.by_alias) == (index, False)
    assert resolved.uuid


def test_missing_index_is_not_found(given: Given) -> None:
    given.index("one_more")
    assert given.run(given.engine.resolve(given.place.name("one"))) is None


def test_sizes_lists_matching_indices_sorted_by_name(given: Given) -> None:
    ending = "aspect_v1"
    small, large = given.index(f"b_{ending}", old(1)), given.index(f"a_{ending}", old(40))
    given.index("c_aspect_v2", old(1))
    given.index(f"d_{ending}_1767225600000", old(1))
    head = given.place.name("")
    given.run(given.engine.count(large, UNTIL))
    sizes = given.run(given.engine.sizes(head, ending))
    assert [size.name for size in sizes] == [large, small]
    assert [size.rows for size in sizes] == [40, 1]
    assert all(size.size_bytes > 0 for size in sizes)


def test_index_with_more_rows_is_larger(given: Given) -> None:
    small, large = given.index("small", old(5)), given.index("large", old(500))
    weights = [given.run(given.engine.count(index, UNTIL)).size_bytes for index in (small, large)]
    assert 0 < weights[0] < weights[1]

"""Contract of every engine: writing and counting rows, and index names."""

from typing import Any

import pytest

from tests.engines.harness import UNTIL, EngineHarness, as_rows, old, row, timeless, young
from watchword.basics.errors import Reason
from watchword.index.indices import Row


def test_probe_names_the_engine(harness: EngineHarness) -> None:
    assert harness.run(harness.engine.probe())


def test_empty_index_has_no_rows(harness: EngineHarness) -> None:
    counted = harness.run(harness.engine.count(harness.index("one"), UNTIL))
    assert (counted.total, counted.old) == (0, 0)


def test_every_acknowledged_write_is_counted(harness: EngineHarness) -> None:
    index = harness.index("one")
    for number in range(5):
        harness.write(index, old(1, number))
        harness.write(index, young(1, number))
        counted = harness.run(harness.engine.count(index, UNTIL))
        assert (counted.total, counted.old) == (2 * (number + 1), number + 1)


@pytest.mark.parametrize(("at", "is_old"), [(UNTIL - 1, True), (UNTIL, True), (UNTIL + 1, False)])
def test_row_of_exactly_that_time_is_old(harness: EngineHarness, at: int, is_old: bool) -> None:
    index = harness.index("one", {"it": row(1, at)})
    assert harness.run(harness.engine.count(index, UNTIL)).old == int(is_old)


def test_row_without_a_time_is_never_old(harness: EngineHarness) -> None:
    index = harness.index("one", timeless(3) | {"null": row(1, None)} | old(2))
    counted = harness.run(harness.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (6, 2)


@pytest.mark.parametrize("at", ["long ago", True, False, {"a": 1}])
def test_row_without_a_numeric_time_is_never_old(harness: EngineHarness, at: Any) -> None:
    index = harness.index("one", old(1))
    taken = harness.place.put(index, "odd", row(9, at))
    counted = harness.run(harness.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (1 + int(taken), 1)


@pytest.mark.parametrize(("at", "is_old"), [(UNTIL - 1.5, True), (float(UNTIL), True), (UNTIL + 1.5, False)])
def test_time_may_have_a_fraction(harness: EngineHarness, at: float, is_old: bool) -> None:
    index = harness.index("one")
    assert harness.place.put(index, "it", row(1, at))
    assert harness.run(harness.engine.count(index, UNTIL)).old == int(is_old)


def test_no_row_is_old_before_the_oldest(harness: EngineHarness) -> None:
    index = harness.index("one", old(3) | young(3))
    assert harness.run(harness.engine.count(index, UNTIL - 10)).old == 0


def test_missing_index_cannot_be_counted(harness: EngineHarness) -> None:
    assert harness.refused(harness.engine.count(harness.place.name("none"), UNTIL)).reason is Reason.INDEX_REFUSED


def test_written_row_is_stored_with_its_content(harness: EngineHarness) -> None:
    rows = old(2) | young(2) | timeless(2)
    assert harness.rows(harness.index("one", rows)) == rows


def test_row_with_the_same_id_is_replaced(harness: EngineHarness) -> None:
    index = harness.index("one", {"it": row(1), "other": row(2)})
    harness.write(index, {"it": row(3, UNTIL + 1)})
    assert harness.rows(index) == {"it": row(3, UNTIL + 1), "other": row(2)}
    counted = harness.run(harness.engine.count(index, UNTIL))
    assert (counted.total, counted.old) == (2, 1)


def test_last_row_of_an_id_in_one_write_wins(harness: EngineHarness) -> None:
    index = harness.index("one")
    harness.run(harness.engine.write(index, [*as_rows({"it": row(1)}), *as_rows({"it": row(2)})]))
    assert harness.rows(index) == {"it": row(2)}


def test_rows_without_an_id_get_different_ids(harness: EngineHarness) -> None:
    index = harness.index("one")
    harness.run(harness.engine.write(index, [Row(b'{"value": 1}'), Row(b'{"value": 1}')]))
    rows = harness.rows(index)
    assert len(rows) == 2
    assert list(rows.values()) == [{"value": 1}, {"value": 1}]


def test_writing_nothing_changes_nothing(harness: EngineHarness) -> None:
    index = harness.index("one", old(1))
    harness.run(harness.engine.write(index, []))
    assert harness.rows(index) == old(1)


@pytest.mark.parametrize("source", [b"[1]", b"{", b"5", b"\xff", b""])
def test_row_that_is_not_a_json_object_is_rejected(harness: EngineHarness, source: bytes) -> None:
    index = harness.index("one")
    assert harness.refused(harness.engine.write(index, [Row(source, "bad")])).reason is Reason.INDEX_REFUSED
    assert "bad" not in harness.rows(index)


def test_creating_an_existing_index_changes_nothing(harness: EngineHarness) -> None:
    index = harness.index("one", old(2))
    uuid = harness.run(harness.engine.resolve(index))
    harness.run(harness.engine.make(index))
    assert harness.run(harness.engine.resolve(index)) == uuid
    assert harness.rows(index) == old(2)


def test_index_is_found_by_its_name(harness: EngineHarness) -> None:
    index = harness.index("one")
    resolved = harness.run(harness.engine.resolve(index))
    assert resolved is not None
    assert (resolved.concrete, resolved.by_alias) == (index, False)
    assert resolved.uuid


def test_missing_index_is_not_found(harness: EngineHarness) -> None:
    harness.index("one_more")
    assert harness.run(harness.engine.resolve(harness.place.name("one"))) is None


def test_sizes_lists_matching_indices_sorted_by_name(harness: EngineHarness) -> None:
    ending = "aspect_v1"
    small, large = harness.index(f"b_{ending}", old(1)), harness.index(f"a_{ending}", old(40))
    harness.index("c_aspect_v2", old(1))
    harness.index(f"d_{ending}_1767225600000", old(1))
    head = harness.place.name("")
    harness.run(harness.engine.count(large, UNTIL))
    sizes = harness.run(harness.engine.sizes(head, ending))
    assert [size.name for size in sizes] == [large, small]
    assert [size.rows for size in sizes] == [40, 1]
    assert all(size.size_bytes > 0 for size in sizes)


def test_index_with_more_rows_is_larger(harness: EngineHarness) -> None:
    small, large = harness.index("small", old(5)), harness.index("large", old(500))
    weights = [harness.run(harness.engine.count(index, UNTIL)).size_bytes for index in (small, large)]
    assert 0 < weights[0] < weights[1]

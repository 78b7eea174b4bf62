"""Contract of every engine: histograms over time."""

from typing import Any

import pytest

from tests.engines.harness import UNTIL, EngineHarness, old, row, timeless, young
from watchword.basics.errors import Reason
from watchword.index.indices import Histogram

HOUR = 3_600_000


def spread(harness: EngineHarness, index: str, spans: int) -> list[tuple[int, int]]:
    """The first time and the row counts of the spans."""
    found: Histogram = harness.run(harness.engine.histogram(index, spans))
    assert found.spans is not None
    return list(zip(found.spans.starts(), found.counts, strict=True))


def at(*moments: Any) -> dict[str, dict[str, Any]]:
    return {f"row-{number}": row(number, moment) for number, moment in enumerate(moments)}


def test_rows_are_counted_in_equal_spans_from_oldest_to_newest(harness: EngineHarness) -> None:
    index = harness.index("one", at(*(UNTIL + n * HOUR for n in (0, 0, 1, 5, 5, 5, 9))))
    span = (9 * HOUR + 1 + 2) // 3
    assert spread(harness, index, 3) == [(UNTIL, 3), (UNTIL + span, 3), (UNTIL + 2 * span, 1)]


def test_spans_are_at_least_one_millisecond(harness: EngineHarness) -> None:
    index = harness.index("one", at(UNTIL, UNTIL + 1, UNTIL + 1, UNTIL + 3))
    assert spread(harness, index, 200) == [(UNTIL, 1), (UNTIL + 1, 2), (UNTIL + 2, 0), (UNTIL + 3, 1)]


def test_rows_of_one_time_are_one_span(harness: EngineHarness) -> None:
    assert spread(harness, harness.index("one", at(UNTIL, UNTIL)), 50) == [(UNTIL, 2)]


def test_span_includes_its_start(harness: EngineHarness) -> None:
    index = harness.index("one", at(0, 99, 100, 199))
    assert spread(harness, index, 2) == [(0, 2), (100, 2)]


@pytest.mark.parametrize("spans", [1, 7, 200])
def test_count_up_to_a_span_equals_the_spans_before_it(harness: EngineHarness, spans: int) -> None:
    index = harness.index("one", old(25) | young(40) | timeless(3))
    cells = spread(harness, index, spans)
    for number, (start, _) in enumerate(cells):
        before = sum(rows for _, rows in cells[:number])
        assert harness.run(harness.engine.count(index, start - 1)).old == before
    assert sum(rows for _, rows in cells) == 65


def test_rows_without_a_time_are_in_no_span(harness: EngineHarness) -> None:
    found = harness.run(harness.engine.histogram(harness.index("one", old(2) | timeless(3)), 10))
    assert (found.total, found.timeless, sum(found.counts)) == (5, 3, 2)


@pytest.mark.parametrize("rows", [{}, timeless(4)], ids=["no rows", "none with a time"])
def test_index_without_times_has_no_spans(harness: EngineHarness, rows: dict[str, Any]) -> None:
    found = harness.run(harness.engine.histogram(harness.index("one", rows), 10))
    assert (found.total, found.timeless, found.spans, found.counts) == (len(rows), len(rows), None, ())


def test_extreme_time_is_in_the_outermost_span(harness: EngineHarness) -> None:
    index = harness.index("one", at(UNTIL, 9_000_000_000_000_000_000))
    cells = spread(harness, index, 4)
    assert [rows for _, rows in cells] == [1, 0, 0, 1]
    assert cells[-1][0] < 253_402_300_799_999


def test_time_before_1970_or_with_a_fraction_is_in_its_span(harness: EngineHarness) -> None:
    """Before 1970 a whole second: Elasticsearch 7 takes hardly another for a time, and keeps its row."""
    index = harness.index("one")
    for number, moment in enumerate((-2_000, 999.5)):
        assert harness.place.put(index, str(number), row(number, moment))
    assert spread(harness, index, 3) == [(-2_000, 1), (-1_000, 0), (0, 1)]


def test_write_just_acknowledged_is_counted(harness: EngineHarness) -> None:
    index = harness.index("one", old(1))
    for number in range(1, 4):
        harness.write(index, old(1, number))
        assert sum(harness.run(harness.engine.histogram(index, 5)).counts) == number + 1


def test_missing_index_has_no_histogram(harness: EngineHarness) -> None:
    assert harness.refused(harness.engine.histogram(harness.place.name("none"), 5)).reason is Reason.INDEX_REFUSED

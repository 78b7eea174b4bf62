"""Contract of every engine: the last rows of each urn stay, and the moment up to which an index has so many rows.

A model in Python says which rows go.
"""

import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.harness import QUICK, UNTIL, EngineHarness, Rows, old, row, timeless, young
from watchword.basics.errors import Reason
from watchword.index.engine import MAX_KEEP_LAST

FEW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(FEW, max_examples=100)

_times = st.integers(UNTIL - 4, UNTIL + 4) | st.integers(0, UNTIL + 10**10)
_urns = st.sampled_from(["urn:a", "urn:b", "urn:b ", "urn:ä 😀", "5", "", 5, 5.5, True, None])
_sources = st.fixed_dictionaries({}, optional={"timestampMillis": _times | st.none(), "urn": _urns})
_series = st.lists(_sources, max_size=40).map(lambda rows: {f"row-{number}": one for number, one in enumerate(rows)})
_cutoffs = st.tuples(_times, st.integers(1, 4) | st.just(MAX_KEEP_LAST))


def going(rows: Rows, cutoff: int, keep_last: int) -> set[str]:
    times: dict[str, list[int]] = {}
    for source in rows.values():
        if source.get("timestampMillis") is not None and source.get("urn") is not None:
            times.setdefault(_text(source["urn"]), []).append(source["timestampMillis"])

    def goes(source: dict[str, Any]) -> bool:
        at = source.get("timestampMillis")
        if at is None or at > cutoff:
            return False
        if source.get("urn") is None:
            return True
        newest = sorted(times[_text(source["urn"])], reverse=True)
        return len(newest) >= keep_last and at < newest[keep_last - 1]

    return {row_id for row_id, source in rows.items() if goes(source)}


def _text(urn: Any) -> str:
    return urn if isinstance(urn, str) else json.dumps(urn)


def moment(rows: Rows, wanted: int, latest: int) -> int | None:
    times = sorted(at for one in rows.values() if (at := one.get("timestampMillis")) is not None and at <= latest)
    if not times:
        return None
    return times[wanted - 1] if wanted <= len(times) else latest


def check_against_model(harness: EngineHarness, rows: Rows, cutoffs: list[tuple[int, int]]) -> None:
    index = harness.index(f"i{uuid.uuid4().hex[:8]}", rows)
    for number, (cutoff, keep_last) in enumerate(cutoffs):
        counted = harness.run(harness.engine.count(index, cutoff, keep_last))
        assert (counted.total, counted.old) == (len(rows), len(going(rows, cutoff, keep_last)))
        assert harness.run(harness.engine.moment(index, number + 1, cutoff)) == moment(rows, number + 1, cutoff)
    cutoff, keep_last = cutoffs[0]
    gone = going(rows, cutoff, keep_last)
    assert harness.deleted(index, cutoff, keep_last) == len(gone)
    assert harness.rows(index) == {row_id: source for row_id, source in rows.items() if row_id not in gone}
    assert harness.run(harness.engine.count(index, cutoff, keep_last)).old == 0


@FEW
@given(rows=_series, cutoffs=st.lists(_cutoffs, min_size=1, max_size=2))
def test_exactly_the_rows_of_the_model_go(harness: EngineHarness, rows: Rows, cutoffs: list[tuple[int, int]]) -> None:
    check_against_model(harness, rows, cutoffs)


@pytest.mark.soak
@MANY
@given(rows=_series, cutoffs=st.lists(_cutoffs, min_size=1, max_size=2))
def test_exactly_the_rows_of_the_model_go_in_many_series(
    harness: EngineHarness, rows: Rows, cutoffs: list[tuple[int, int]]
) -> None:
    check_against_model(harness, rows, cutoffs)


def test_last_rows_of_more_urns_than_a_page_has_stay(harness: EngineHarness) -> None:
    """All limits differ, which makes the largest query that a page can need."""
    rows: Rows = {
        f"{urn}-{n}": {"urn": f"urn:li:dataset:{urn:03}", "timestampMillis": UNTIL - 1_000 * n - urn}
        for urn in range(650)
        for n in range(3)
    }
    index = harness.index("one", rows)
    assert harness.run(harness.engine.count(index, UNTIL, 2)).old == 650
    assert harness.deleted(index, UNTIL, 2) == 650
    assert harness.rows(index).keys() == {row_id for row_id in rows if not row_id.endswith("-2")}


def test_urn_with_fewer_rows_keeps_all_of_them(harness: EngineHarness) -> None:
    rows = old(3) | young(3) | timeless(3)
    index = harness.index("one", rows)
    assert harness.deleted(index, UNTIL, MAX_KEEP_LAST) == 0
    assert harness.rows(index) == rows


def test_rows_of_one_millisecond_go_together(harness: EngineHarness) -> None:
    index = harness.index("one", {f"row-{n}": row(n, UNTIL - n // 4) for n in range(12)})
    found = [harness.run(harness.engine.moment(index, rows, UNTIL)) for rows in (1, 4, 5, 12, 13)]
    assert found == [UNTIL - 2, UNTIL - 2, UNTIL - 1, UNTIL, UNTIL]
    assert harness.run(harness.engine.moment(index, 1, UNTIL - 3)) is None


def test_missing_index_has_no_moment_and_no_pages(harness: EngineHarness) -> None:
    none = harness.place.name("none")
    assert harness.refused(harness.engine.moment(none, 1, UNTIL)).reason is Reason.INDEX_REFUSED
    assert harness.refused(harness.engine.count(none, UNTIL, 1)).reason is Reason.INDEX_REFUSED


def test_rows_written_during_a_deletion_do_not_endanger_the_last_rows(harness: EngineHarness) -> None:
    """Rewritten rows keep their times: none may count twice."""
    rows: Rows = {f"row-{n}": {"urn": "urn:a", "timestampMillis": UNTIL - n} for n in range(20)}
    index = harness.index("one", rows)
    page = harness.run(harness.engine.deletion_page(index, UNTIL, 10, None))
    harness.write(index, rows)
    harness.ended(harness.run(harness.engine.start_delete(index, UNTIL, QUICK, page)))
    assert harness.rows(index).keys() >= {f"row-{n}" for n in range(10)}

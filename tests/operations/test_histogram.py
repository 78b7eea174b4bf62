"""Histograms of a time series by GraphQL, on every engine."""

import time
from typing import Any

import pytest

from tests.support.indexed import DAY, Series, times
from tests.support.server import ADMIN, GraphQLRefused

HISTOGRAM = """query ($input: TimeseriesHistogramInput!) { timeseriesHistogram(input: $input) {
  indexName rows rowsWithoutTime spanMillis spans { startMillis rows } } }"""


NEVER_FILLED = {"entityType": "query", "aspect": "queryUsageStatistics"}


def ask(series: Series, *, actor: str = ADMIN, **fields: Any) -> Any:
    wanted = {"entityType": "dataset", "aspect": series.aspect, **fields}
    return series.server.ask(HISTOGRAM, {"input": wanted}, actor=actor)["timeseriesHistogram"]


def test_spans_before_a_cutoff_hold_the_rows_a_plan_deletes(series: Series) -> None:
    start = time.time_ns() // 1_000_000
    series.load(times(30, start) | {"timeless": {"urn": "urn:none"}})
    found = ask(series, spans=10)
    assert (found["indexName"], found["rows"], found["rowsWithoutTime"]) == (series.name, 31, 1)
    assert len(found["spans"]) == 10
    assert found["spans"][0]["startMillis"] == start - 29 * DAY
    cut = found["spans"][4]["startMillis"]
    assert cut == start - 29 * DAY + 4 * found["spanMillis"]
    before = sum(span["rows"] for span in found["spans"][:4])
    assert series.plan(cut - 1).startswith(f"Delete {before} out of 31 rows ")


def test_aspect_without_an_index_has_no_spans(series: Series) -> None:
    found = ask(series, **NEVER_FILLED)
    assert (found["rows"], found["spanMillis"], found["spans"]) == (0, None, [])


@pytest.mark.parametrize("spans", [0, 201, -1])
def test_too_many_spans_are_rejected(series: Series, spans: int) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        ask(series, spans=spans)
    assert refused.value.code == 400
    assert "spans must be a whole number from 1 to 200." in str(refused.value)


def test_histogram_of_an_unknown_aspect_is_rejected(series: Series) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        ask(series, aspect="neverheard")
    assert refused.value.reason == "aspect_not_found"


def test_histogram_needs_the_truncate_privilege(series: Series, actor: str) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        ask(series, actor=actor, spans=0)
    assert refused.value.reason == "missing_privilege"
    series.server.grant(actor, privileges=("TRUNCATE_TIMESERIES_INDEX_PRIVILEGE",))
    assert ask(series, actor=actor, **NEVER_FILLED)["rows"] == 0

"""A hold stops every removal of a series, on every engine: no operation starts, and one that runs ends."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.operations.test_rejected_requests import PLAN
from tests.support.indexed import DAY, Series, times
from tests.support.server import ADMIN, GraphQLRefused
from tests.support.waiting import until

HOLD = """mutation ($input: HoldSeriesInput!) { holdSeries(input: $input) {
  hold { series reason setBy byRule } activeOperations { id cancelRequestedBy } } }"""
RELEASE = "mutation ($series: String!) { releaseSeries(series: $series) }"


def held(series: Series, name: str | None = None) -> Any:
    wanted = {"series": name or f"{series.entity}.{series.aspect}", "reason": "tax audit"}
    return series.server.ask(HOLD, {"input": wanted}, actor=ADMIN)["holdSeries"]


def release(series: Series, name: str | None = None) -> None:
    assert series.server.ask(RELEASE, {"series": name or f"{series.entity}.{series.aspect}"}, actor=ADMIN)


def test_hold_stops_a_running_deletion(slow_series: Callable[[], Series]) -> None:
    series, start = slow_series(), time.time_ns() // 1_000_000
    series.load(times(1_000, start, step=DAY // 100))
    # Not all rows are old, and they are deleted in place: it takes ten seconds.
    task = series.truncate(start - DAY // 200, forceDeleteByQuery=True, batchSize=50)
    until(lambda: series.operation(task)["rowsDone"] > 0, "rows are deleted")
    (active,) = held(series)["activeOperations"]
    assert active == {"id": task, "cancelRequestedBy": ADMIN}
    ended = series.over(task)
    rows = series.rows()
    assert ended["state"] == "CANCELLED"
    assert len(rows) > 1
    answer = series.server.operate("truncateTimeseriesAspect", series.asked(start, dryRun=False), token=series.token)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "series_held")
    assert "tax audit" in answer.json()["error"]["message"]
    assert series.plan(start).startswith(f"Delete {len(rows)} out of {len(rows)} rows")
    assert series.rows() == rows
    release(series)
    series.over(series.truncate(0))


def test_hold_on_every_series_rejects_truncations_of_any(slow_series: Callable[[], Series]) -> None:
    series, start = slow_series(), time.time_ns() // 1_000_000
    series.load(times(3, start))
    assert held(series, "*")["hold"] == {"series": "*", "reason": "tax audit", "setBy": ADMIN, "byRule": False}
    try:
        with pytest.raises(GraphQLRefused) as refused:
            series.server.ask(PLAN, {"input": series.asked(start, dryRun=False)}, actor=ADMIN)
        assert (refused.value.code, refused.value.reason) == (409, "series_held")
        assert refused.value.errors[0]["extensions"]["setBy"] == ADMIN
    finally:
        release(series, "*")
    assert len(series.rows()) == 3

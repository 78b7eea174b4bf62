"""Plans, runs and sizes of retention over GraphQL: who may see and do what, and what is rejected."""

from typing import Any

import pytest

from tests.http.test_retention_api import DELETE, SET, TRUNCATE, refused
from tests.support.server import ADMIN, Server

PLAN = """query ($input: RetentionPlanInput) { retentionPlan(input: $input) { total pausedForMillis plans {
  series rows nextDueAt outcome rule { series } plan { rowsToDelete } spans { rows } waiting { number } } } }"""
RUNS = """query ($input: ListRetentionRunsInput) { retentionRuns(input: $input) {
  start count total runs { number series state requestedBy rule } } }"""
SIZES = "query ($input: SeriesSizesInput) { seriesSizes(input: $input) { series dayMillis rows sizeInBytes } }"
RUN = "mutation ($series: String!) { runRetention(series: $series) { number state plan { rows } operation { id } } }"
APPROVE = "mutation ($input: ApproveRetentionRunInput!) { approveRetentionRun(input: $input) { state } }"


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        (PLAN, {"input": {"series": "nonsense"}}),
        (RUNS, {"input": {"series": "nonsense"}}),
        (RUN, {"series": "nonsense"}),
        (APPROVE, {"input": {"number": 1, "rows": 1}}),
    ],
    ids=["plan", "runs", "run", "approve"],
)
def test_denial_names_the_privilege_before_parsing(
    server: Server, actor: str, query: str, variables: dict[str, Any]
) -> None:
    error = refused(server, query, variables, actor)
    assert (error.code, error.errors[0]["extensions"]["privilege"]) == (403, TRUNCATE)


def test_sizes_need_the_right_to_see_sizes(server: Server, actor: str) -> None:
    assert refused(server, SIZES, {"input": {"days": 0}}, actor).code == 403
    server.grant(actor, privileges=("GET_TIMESERIES_INDEX_SIZES_PRIVILEGE",))
    assert isinstance(server.ask(SIZES, {}, actor=actor)["seriesSizes"], list)


@pytest.mark.parametrize(
    ("query", "variables", "field"),
    [
        (PLAN, {"input": {"count": 11}}, "count"),
        (PLAN, {"input": {"series": "*"}}, "series"),
        (RUNS, {"input": {"series": "dataset"}}, "series"),
        (RUNS, {"input": {"start": -1}}, "start"),
        (SIZES, {"input": {"days": 401}}, "days"),
        (RUN, {"series": "*"}, "series"),
    ],
)
def test_invalid_input_is_rejected_with_its_field(
    server: Server, query: str, variables: dict[str, Any], field: str
) -> None:
    error = refused(server, query, variables)
    assert (error.code, error.errors[0]["extensions"]["field"]) == (400, field)


def test_run_of_an_unknown_series_by_the_rule_of_every_series_is_not_found(server: Server) -> None:
    server.ask(SET, {"input": {"series": "*", "keep": "P30D"}}, actor=ADMIN)
    try:
        assert refused(server, RUN, {"series": "chart.unknown"}).reason == "aspect_not_found"
    finally:
        server.ask(DELETE, {"series": "*"}, actor=ADMIN)


def test_run_by_hand_is_recorded_with_who_asked(server: Server) -> None:
    series = "chart.runByHand"
    assert refused(server, PLAN, {"input": {"series": series}}).code == 404
    assert refused(server, RUN, {"series": series}).reason == "rule_not_found"
    server.ask(SET, {"input": {"series": series, "keep": "P30D"}}, actor=ADMIN)
    [plan] = server.ask(PLAN, {"input": {"series": series}}, actor=ADMIN)["retentionPlan"]["plans"]
    assert (plan["series"], plan["rows"], plan["outcome"]) == (series, 0, "NOTHING_TO_REMOVE")
    made = server.ask(RUN, {"series": series}, actor=ADMIN)["runRetention"]
    assert (made["state"], made["operation"]) == ("NOTHING_TO_REMOVE", None)
    found = server.ask(RUNS, {"input": {"series": series.upper()}}, actor=ADMIN)["retentionRuns"]
    [run] = found["runs"]
    assert (found["total"], run["number"], run["requestedBy"]) == (1, made["number"], ADMIN)
    assert run["rule"]["keep"] == "P30D"
    assert refused(server, APPROVE, {"input": {"number": made["number"], "rows": 0}}).reason == "run_not_waiting"
    assert refused(server, APPROVE, {"input": {"number": 10**9, "rows": 0}}).reason == "run_not_found"

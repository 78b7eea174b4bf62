"""Retention of time series: rules, holds, plans and runs."""

from dataclasses import field
from datetime import datetime, timedelta

from watchword.client.operations import OperationInfo, TimeSpan, TruncationPlan
from watchword.client.records import GRAPHQL_NAME, Json, Record
from watchword.client.requests import (
    PAGE_SIZE,
    ApiRequest,
    Listing,
    ask,
    ask_tuple,
    iso,
    list_records,
    lists,
    named,
    require_true,
    rule_input,
    sends,
)

PLAN_PAGE_SIZE = 10  # the most series that one request plans


class RetentionHold(Record):
    """A hold: nothing of the series is removed while it lasts. The series `*` is every series."""

    series: str
    reason: str
    set_by: str
    set_by_name: str | None
    set_at: datetime
    by_rule: bool


class RetentionRuleInfo(Record):
    """A retention rule, with the values as a policy file has them. `hold` is the hold in effect, if any;
    `hold_reason` the reason of the hold that the rule itself declares.
    """

    series: str
    keep: str
    remove_after: str | None
    max_size: str | None
    max_rows: int | None
    keep_last: int | None
    schedule: str
    time_zone: str
    window: str | None
    at_most: str
    mode: str
    hold_reason: str | None
    set: str | None
    changed_at: datetime
    changed_by: str
    changed_by_name: str | None
    hold: RetentionHold | None


class HeldSeries(Record):
    """A hold that was set, and the operations on the series that are not over yet. All are cancelled, except one
    that is SWAPPING.
    """

    hold: RetentionHold
    active_operations: tuple[OperationInfo, ...]


class RetentionRunInfo(Record):
    """A run of a retention rule. `state` is that of its operation where it has one. `rule` is the rule as it was."""

    number: int
    series: str
    due_at: datetime
    created_at: datetime
    state: str
    rule: Json
    plan: TruncationPlan | None
    operation: OperationInfo | None
    requested_by: str
    requested_by_name: str | None
    approved_by: str | None
    approved_by_name: str | None
    approved_at: datetime | None
    error: str | None


class PlannedSpan(TimeSpan):
    """A span, and how many of its rows would be removed."""

    rows_to_remove: int


class SeriesPlanInfo(Record):
    """What a run of the retention rule would do to a series now."""

    series: str
    rows: int
    size_in_bytes: int
    rule: RetentionRuleInfo | None
    hold: RetentionHold | None
    next_due_at: datetime | None
    outcome: str | None
    plan: TruncationPlan | None
    spans: tuple[PlannedSpan, ...]
    waiting: RetentionRunInfo | None
    error: str | None


class SeriesSize(Record):
    """The size of a series on a day."""

    series: str
    day: datetime = field(metadata={GRAPHQL_NAME: "dayMillis"})
    rows: int
    size_in_bytes: int


class RetentionMethods:
    @sends
    def retention_rules(self) -> ApiRequest[tuple[RetentionRuleInfo, ...]]:
        """Get all retention rules, by series. Needs Truncate time series index."""
        return ask_tuple("retentionRules", RetentionRuleInfo)

    @sends
    def get_retention_rule(self, series: str) -> ApiRequest[RetentionRuleInfo]:
        """Get the retention rule of a series (`entity.aspect`): its own, or else that of every series (`*`). Needs
        Truncate time series index.
        """
        return ask("retentionRule", RetentionRuleInfo, {"series: String!": series})

    @sends
    def set_retention_rule(
        self,
        series: str,
        *,
        keep: timedelta | str,
        remove_after: timedelta | str | None = None,
        max_size: str | None = None,
        max_rows: int | None = None,
        keep_last: int | None = None,
        schedule: str | None = None,
        time_zone: str | None = None,
        window: str | None = None,
        at_most: str | None = None,
        mode: str | None = None,
        hold: str | None = None,
    ) -> ApiRequest[RetentionRuleInfo]:
        """Create or replace the retention rule of a series (`entity.aspect`, or `*`). The values are those of a policy
        file, such as `keep="30d"`, `max_size="20GB"`, `at_most="20%"`, `mode="enforce"`; None is the default. Needs
        Truncate time series index.
        """
        keep, remove_after = iso("keep", keep) or keep, iso("remove_after", remove_after)
        given = {name: value for name, value in named(locals()).items() if value is not None}
        variables = {"input: RetentionRuleInput!": rule_input(given)}
        return ask("setRetentionRule", RetentionRuleInfo, variables, mutation=True)

    @sends
    def delete_retention_rule(self, series: str) -> ApiRequest[None]:
        """Delete the retention rule of a series. Needs Truncate time series index."""
        return ask("deleteRetentionRule", require_true, {"series: String!": series}, mutation=True)

    @sends
    def retention_holds(self) -> ApiRequest[tuple[RetentionHold, ...]]:
        """Get all holds, by series. Needs Truncate time series index."""
        return ask_tuple("retentionHolds", RetentionHold)

    @sends
    def hold_series(self, series: str, reason: str) -> ApiRequest[HeldSeries]:
        """Hold a series, or all for `*`: nothing of it is removed until it is released. Needs Truncate time series
        index.
        """
        variables = {"input: HoldSeriesInput!": named(locals())}
        return ask("holdSeries", HeldSeries, variables, mutation=True)

    @sends
    def release_series(self, series: str) -> ApiRequest[None]:
        """Release the hold on a series. Needs Truncate time series index, and Release Retention Holds if someone else
        set the hold.
        """
        return ask("releaseSeries", require_true, {"series: String!": series}, mutation=True)

    @lists
    def retention_plan(self, series: str | None = None) -> Listing[SeriesPlanInfo]:
        """Show for every series, or for one (`entity.aspect`), what a run of its retention rule would remove now. Needs
        Truncate time series index.
        """
        call = "retentionPlan", "plans", SeriesPlanInfo, "RetentionPlanInput"
        return list_records(*call, PLAN_PAGE_SIZE, key=("series",), series=series)

    @lists
    def retention_runs(self, series: str | None = None, *, page_size: int = PAGE_SIZE) -> Listing[RetentionRunInfo]:
        """List the runs of retention rules, newest first. Needs Truncate time series index."""
        call = "retentionRuns", "runs", RetentionRunInfo, "ListRetentionRunsInput"
        return list_records(*call, page_size, key=("number",), series=series)

    @sends
    def run_retention(self, series: str) -> ApiRequest[RetentionRunInfo]:
        """Run the retention rule of a series now, as if it were due. Needs Truncate time series index."""
        return ask("runRetention", RetentionRunInfo, {"series: String!": series}, mutation=True)

    @sends
    def approve_retention_run(self, number: int, rows: int) -> ApiRequest[RetentionRunInfo]:
        """Approve a run that waits and would remove this number of rows. Raises `Conflict` if the number differs.
        If there are more when it starts, it waits again. Needs Truncate time series index.
        """
        variables = {"input: ApproveRetentionRunInput!": named(locals())}
        return ask("approveRetentionRun", RetentionRunInfo, variables, mutation=True)

    @sends
    def series_sizes(self, series: str | None = None, *, days: int = 30) -> ApiRequest[tuple[SeriesSize, ...]]:
        """Get the sizes of series by day. Needs Get time series index sizes or Truncate time series index."""
        return ask_tuple("seriesSizes", SeriesSize, {"input: SeriesSizesInput": named(locals())})

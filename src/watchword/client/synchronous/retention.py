# Generated. Change asynchronous/retention.py, then run: make reference
"""Retention of time series: rules, holds, plans and runs."""

from datetime import timedelta

from watchword.client.answers import HeldSeries, RetentionHold, RetentionRuleInfo, RetentionRunInfo, SeriesPlanInfo
from watchword.client.requests import ask, ask_tuple, iso, named, require_true, rule_input
from watchword.client.synchronous.lists import Results
from watchword.client.synchronous.namespace import PAGE_SIZE, Namespace

PLAN_PAGE_SIZE = 10  # the most series that one request plans


class Retention(Namespace):
    """How long time series are kept: rules, holds, plans and runs. Needs Truncate time series index."""

    def list(self) -> tuple[RetentionRuleInfo, ...]:
        """Get all retention rules, by series."""
        return self._send(ask_tuple("retentionRules", RetentionRuleInfo))

    def get(self, series: str) -> RetentionRuleInfo:
        """Get the retention rule of a series (`entity.aspect`): its own, or else that of every series (`*`)."""
        return self._send(ask("retentionRule", RetentionRuleInfo, {"series: String!": series}))

    def set(
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
    ) -> RetentionRuleInfo:
        """Create or replace the retention rule of a series (`entity.aspect`, or `*`). The values are those of a policy
        file, such as `keep="30d"`, `max_size="20GB"`, `at_most="20%"`, `mode="enforce"`; None is the default.
        """
        given = named(series=series, keep=iso("keep", keep) or keep, remove_after=iso("remove_after", remove_after))
        given |= named(max_size=max_size, max_rows=max_rows, keep_last=keep_last, at_most=at_most, mode=mode, hold=hold)
        given |= named(schedule=schedule, time_zone=time_zone, window=window)
        rule = rule_input({name: value for name, value in given.items() if value is not None})
        return self._send(
            ask("setRetentionRule", RetentionRuleInfo, {"input: RetentionRuleInput!": rule}, mutation=True)
        )

    def delete(self, series: str) -> None:
        """Delete the retention rule of a series."""
        self._send(ask("deleteRetentionRule", require_true, {"series: String!": series}, mutation=True))

    def holds(self) -> tuple[RetentionHold, ...]:
        """Get all holds, by series."""
        return self._send(ask_tuple("retentionHolds", RetentionHold))

    def hold(self, series: str, reason: str) -> HeldSeries:
        """Hold a series, or all for `*`: nothing of it is removed until it is released."""
        variables = {"input: HoldSeriesInput!": named(series=series, reason=reason)}
        return self._send(ask("holdSeries", HeldSeries, variables, mutation=True))

    def release(self, series: str) -> None:
        """Release the hold on a series. Needs also Release Retention Holds if someone else set the hold."""
        self._send(ask("releaseSeries", require_true, {"series: String!": series}, mutation=True))

    def plan(self, series: str | None = None) -> Results[SeriesPlanInfo]:
        """Show for every series, or for one (`entity.aspect`), what a run of its retention rule would remove now."""
        call = "retentionPlan", "plans", SeriesPlanInfo, "RetentionPlanInput"
        return self._list(*call, PLAN_PAGE_SIZE, key=("series",), series=series)

    def runs(self, series: str | None = None, *, page_size: int = PAGE_SIZE) -> Results[RetentionRunInfo]:
        """List the runs of retention rules, newest first."""
        call = "retentionRuns", "runs", RetentionRunInfo, "ListRetentionRunsInput"
        return self._list(*call, page_size, key=("number",), series=series)

    def run(self, series: str) -> RetentionRunInfo:
        """Run the retention rule of a series now, as if it were due."""
        return self._send(ask("runRetention", RetentionRunInfo, {"series: String!": series}, mutation=True))

    def approve(self, number: int, rows: int) -> RetentionRunInfo:
        """Approve a run that waits and would remove this number of rows. Raises `Conflict` if the number differs.
        If there are more when it starts, it waits again.
        """
        variables = {"input: ApproveRetentionRunInput!": named(number=number, rows=rows)}
        return self._send(ask("approveRetentionRun", RetentionRunInfo, variables, mutation=True))

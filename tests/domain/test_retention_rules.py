"""Retention rules are written as they are read."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.index.schedules import parse_window
from watchword.retention.rules import LONGEST, MAX_ROWS, Mode, RetentionRule, parse_rule

SECONDS = st.integers(0, LONGEST // 1_000).map(lambda seconds: seconds * 1_000)
TIMES = st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda at: f"{at[0]:02}:{at[1]:02}")
WINDOWS = st.lists(TIMES, min_size=2, max_size=2, unique=True).map("-".join)
RULES = st.builds(
    RetentionRule,
    series=st.sampled_from(["*", "dataset.operation", "Chart.chartUsageStatistics"]),
    keep=SECONDS,
    max_size=st.none() | st.integers(1, 999_999).map(lambda size: size * 1_000),
    max_rows=st.none() | st.integers(1, MAX_ROWS),
    keep_last=st.none() | st.integers(1, 100),
    schedule=st.sampled_from(["0 1 * * *", "5 0-6 1,15 * 1-5", "0 0 29 2 *"]),
    time_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    at_most=st.integers(0, 100_000).map(lambda share: share / 1_000),
    mode=st.sampled_from(Mode),
    hold=st.none() | st.text("abc é.", min_size=1, max_size=20).filter(str.strip),
)


@given(RULES, st.none() | SECONDS, st.none() | WINDOWS)
def test_written_rule_reads_back_equal(rule: RetentionRule, longer: int | None, window: str | None) -> None:
    if longer is not None:
        rule = replace(rule, remove_after=min(LONGEST, rule.keep + longer))
    read = parse_rule(rule.written() | ({} if window is None else {"window": window}))
    assert replace(read, window=None) == rule
    assert parse_rule(read.written()) == read == RetentionRule.unpacked(read.packed())


@pytest.mark.parametrize(
    ("window", "now", "opens"),
    [
        ("02:30-05:00", "2026-10-24T22:00Z", "2026-10-25T00:30Z"),
        ("02:30-05:00", "2026-10-25T01:10Z", "2026-10-25T01:30Z"),  # 02:10, for the second time
        ("02:30-05:00", "2026-10-25T04:00Z", "2026-10-26T01:30Z"),
        ("02:30-03:15", "2026-03-28T22:00Z", "2026-03-29T01:00Z"),  # 02:30 is skipped
    ],
)
def test_window_opens_on_the_nights_in_which_the_clocks_change(window: str, now: str, opens: str) -> None:
    def millis(moment: str) -> int:
        return int(datetime.fromisoformat(moment).timestamp() * 1_000)

    zone, parsed = ZoneInfo("Europe/Berlin"), parse_window(window)
    assert parsed.next_opening(millis(now), zone) == millis(opens)
    assert parsed.is_open(millis(opens), zone)

"""The activity page links an operation's event to the operation."""

import re

from playwright.sync_api import expect

from tests.console.conftest import Windows
from tests.support.console import Console

BEGIN = """mutation { truncateTimeseriesAspect(input: {entityType: "chart", aspect: "chartUsageStatistics",
  endTimeMillis: 0, dryRun: false}) { operation { id } } }"""


def test_operation_event_links_to_the_operation(console: Console, window: Windows) -> None:
    console.ask(BEGIN)
    page = window(console.root).open("/console/activity?action=operation.planned")
    page.get_by_role("link", name=re.compile("^a truncation of ")).first.click()
    expect(page.get_by_role("dialog", name="Truncation of chart.chartUsageStatistics")).to_be_visible()

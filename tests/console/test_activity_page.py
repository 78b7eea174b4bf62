"""The activity page: filters, time range and paging."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Windows
from tests.support.console import Console, now
from tests.support.server import GENERATE


def test_event_filters_are_kept_in_the_url(console: Console, window: Windows) -> None:
    busy = console.person("busy", GENERATE)
    _, token_id = console.token(busy.urn, by=busy, name="laptop")
    console.server.revoke(token_id, token=busy.token)
    page = window(console.root).open("/console/activity")
    rows = page.locator("main tbody tr")
    page.get_by_role("combobox", name="Actor", exact=True).fill(busy.name)
    page.get_by_role("combobox", name="Actor", exact=True).press("Enter")
    expect(rows).to_have_count(2)
    page.get_by_role("combobox", name="Action", exact=True).select_option("token.revoked")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("action=token.revoked"))
    page.reload()
    expect(rows).to_have_count(1)
    rows.get_by_text("Details").click()
    expect(rows).to_contain_text(token_id)
    page.get_by_role("link", name="Clear filters").click()
    page.get_by_label("Target").fill(token_id)
    page.get_by_label("Target").press("Enter")
    expect(rows.locator("td:nth-child(2)")).to_have_text(["token.revoked", "token.created"])


def test_events_are_filtered_by_time_and_paged(console: Console, window: Windows) -> None:
    busy = console.person("busy", GENERATE)
    for number in range(35):
        console.token(busy.urn, by=busy, name=f"job {number}")
    page = window(console.root).open(f"/console/activity?actor={quote(busy.urn)}")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(30)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(5)
    page.go_back()
    expect(rows).to_have_count(30)
    later = window(console.root).open(f"/console/activity?actor={quote(busy.urn)}&since={now() + 60_000}")
    expect(later.get_by_role("heading", name="No event matches")).to_be_visible()


@pytest.mark.parametrize("since", ["9e99", "yesterday", "-", "99999999999999999999"])
def test_invalid_time_in_the_url_is_reported(console: Console, window: Windows, since: str) -> None:
    opened = window(console.root)
    opened.watch.allow("status of 400")
    page = opened.open(f"/console/activity?since={since}")
    expect(page.get_by_role("alert")).to_contain_text("since")
    expect(page.get_by_role("link", name="Clear filters")).to_be_visible()


def test_empty_time_in_the_url_is_ignored(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/activity?since=&until=")
    expect(page.get_by_role("table", name="Events, newest first")).to_be_visible()


def test_events_of_the_service_name_the_service_as_actor(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/activity?action=key.created")
    expect(page.locator("main tbody tr")).to_contain_text("the service")

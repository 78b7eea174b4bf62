"""The activity page: sentences, filters, time range, paging, export."""

import csv
import json
import re
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browsing import Browser
from tests.support.console import Console, now
from tests.support.pages import ROOT
from tests.support.server import GENERATE, MANAGE_ALL, SET_STATUS
from tests.support.store_file import change_store
from watchword.authority.privileges import Privilege
from watchword.journal.events import Action

SET_NAME = "mutation ($i: SetActorInput!) { setActor(input: $i) }"


def saved(page: Page, button: str) -> str:
    with page.expect_download() as caught:
        page.get_by_role("button", name=button).click()
    return Path(caught.value.path()).read_text("utf-8-sig")


def test_events_are_sentences_that_filters_in_the_url_narrow(console: Console, window: Windows) -> None:
    busy = console.person("busy", GENERATE)
    console.ask(SET_NAME, {"i": {"urn": busy.urn, "displayName": "Ada Busy"}})
    _, token_id = console.token(busy.urn, by=busy, name="=laptop")
    console.server.revoke(token_id, actor=busy.urn, token=console.root.token)
    page = window(console.root).open("/console/activity")
    rows = page.locator("main .events > li")
    expect(page.get_by_role("heading", name="Today")).to_be_visible()
    page.get_by_role("combobox", name="By", exact=True).fill(busy.name)
    page.get_by_role("combobox", name="By", exact=True).press("Enter")
    expect(rows.locator(".sentence")).to_have_text(["Ada Busy created =laptop"])
    page.get_by_role("combobox", name="By", exact=True).fill("")
    page.get_by_role("combobox", name="By", exact=True).press("Enter")
    page.get_by_role("combobox", name="About", exact=True).fill(busy.name)
    page.get_by_role("combobox", name="About", exact=True).press("Enter")
    expect(rows.first.locator(".sentence")).to_have_text("admin revoked =laptop of Ada Busy")
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
    expect(rows.locator(".sentence")).to_have_text(["admin revoked =laptop of Ada Busy", "Ada Busy created =laptop"])

    head, *lines = csv.reader(saved(page, "CSV").splitlines())
    assert [line[head.index("action")] for line in lines] == ["token.revoked", "token.created"]
    assert lines[1][head.index("target name")] == "'=laptop"
    events = [json.loads(line) for line in saved(page, "JSON lines").splitlines()]
    assert [event["sentence"] for event in events][1] == "Ada Busy created =laptop"
    expect(page.get_by_role("status").filter(has_text="Saved 2 events")).to_be_visible()


def test_equal_events_are_one_line_and_presets_and_the_chart_narrow_them(console: Console, window: Windows) -> None:
    denied = console.person("denied")
    for _ in range(3):
        console.server.post("{ listPolicies(input: {}) { total } }", token=denied.token)
    page = window(console.root).open(f"/console/activity?actor={quote(denied.urn)}")
    rows = page.locator("main .events > li")
    expect(rows).to_contain_text(
        re.compile(rf"{denied.name} was denied listPolicies: lacks View Policies 3 times, \d\d:\d\d", re.IGNORECASE)
    )
    presets = page.get_by_role("navigation", name="Presets")
    presets.get_by_role("link", name="Sign-ins").click()
    expect(page.get_by_role("heading", name="No event matches")).to_be_visible()
    presets.get_by_role("link", name="Denials").click()
    expect(rows).to_have_count(1)
    expect(presets.get_by_role("link", name="Denials")).to_have_attribute("aria-current", "true")
    presets.get_by_role("link", name="Today").click()
    expect(page).to_have_url(re.compile("range=today"))
    bars = page.get_by_role("slider", name=re.compile("^Events by hour"))
    bars.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"since=\d+&until=\d+"))
    expect(rows).to_have_count(1)


def test_sentences_of_rejections_name_the_cause(console: Console, window: Windows) -> None:
    bob = console.person("bob", GENERATE, MANAGE_ALL)
    limited, _ = console.token(bob.urn, scopes=[GENERATE])
    elsewhere, _ = console.token(bob.urn, allowedNetworks=["192.0.2.0/24"])
    console.server.post("{ listAccessTokens { total } }", token=limited)
    console.server.verify(elsewhere)
    with closing(Browser(console.server).signed_in(token=bob.token)) as browser:
        browser.send("POST", "/device", {"userCode": "BCDF-GHJK"})
    console.ask(SET_STATUS, {"urn": bob.urn, "status": "SUSPENDED"})
    console.server.verify(bob.token)
    page = window(console.root).open(f"/console/activity?show=denials&actor={quote(bob.urn)}")
    expect(page.locator("main .events .sentence")).to_have_text(
        [
            f"A credential of {bob.name} was rejected at /auth: the actor is suspended",
            f"{bob.name} entered a user code at /device that is unknown or expired",
            f"A credential of {bob.name} was rejected at /auth: the token is limited to other networks",
            f"{bob.name} was denied listAccessTokens: the scopes of the token do not include Manage All Access Tokens",
        ]
    )


def test_notices_of_expiry_of_many_tokens_are_one_line(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    for number in range(3):
        console.token(owner.urn, by=owner, name=f"job {number}")
    change_store(
        console.server,
        """UPDATE events SET action = 'token.expiring', detail = json_set(detail, '$.days', 30)
        WHERE action = 'token.created' AND actor = ?""",
        owner.urn,
    )
    page = window(console.root).open(f"/console/activity?action=token.expiring&actor={quote(owner.urn)}")
    row = page.locator("main .events > li")
    expect(row).to_contain_text("job 2 expires within 30 days and so do 2 other tokens")
    row.locator("summary").click()
    expect(row.get_by_role("listitem")).to_have_count(3)
    expect(row.get_by_role("listitem").last).to_contain_text("job 0 expires within 30 days")


def test_events_are_filtered_by_time_and_paged(console: Console, window: Windows) -> None:
    busy = console.person("busy", GENERATE)
    for number in range(55):
        console.token(busy.urn, by=busy, name=f"job {number}")
    page = window(console.root).open(f"/console/activity?actor={quote(busy.urn)}")
    rows = page.locator("main .events > li")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Older").first.click()
    expect(rows).to_have_count(5)
    page.go_back()
    expect(rows).to_have_count(50)
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
    expect(page.locator("main .events > li").first).to_be_visible()


def test_every_action_has_a_sentence() -> None:
    text = (ROOT / "src/watchword/console/event_sentences.js").read_text()
    assert set(re.findall(r'^  "([a-z_]+\.[a-z_]+)": ', text, re.MULTILINE)) == {action.value for action in Action}


def test_console_has_the_display_name_of_every_privilege() -> None:
    text = (ROOT / "src/watchword/console/privileges.js").read_text()
    assert dict(re.findall(r'^  ([A-Z_]+): "(.+)",$', text, re.MULTILINE)) == {
        privilege.name: privilege.display_name for privilege in Privilege
    }


def test_events_of_the_service_name_the_service_as_actor(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/activity?action=key.created")
    expect(page.locator("main .events > li")).to_contain_text("The service created the first signing key")

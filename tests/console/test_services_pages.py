"""The pages of webhooks, retention and imports, on one server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import standardwebhooks
from playwright.sync_api import expect

from tests.console.conftest import Windows
from tests.support.browser import settled
from tests.support.console import Console
from tests.support.receivers import Receiver, status
from tests.support.series import lines, new_aspect
from tests.support.server import watchword
from tests.support.waiting import until

TRUNCATE = ("TRUNCATE_TIMESERIES_INDEX_PRIVILEGE", "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE")
TOKEN = "5nRkbVYHoAMZBdMrDqNBYJPqsmIVbWaKlH3OnJbmNmI="


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with Console.on(tmp_path_factory.mktemp("serving"), "--webhook-allowed-networks", "127.0.0.0/8") as console:
        yield console


def make_group(console: Console, id_: str) -> None:
    console.ask("mutation ($id: String!) { createGroup(input: {id: $id, name: $id}) }", {"id": id_})


def test_webhook_is_created_tested_replayed_rotated_and_deleted(serving: Console, window: Windows) -> None:
    keeper = serving.person("keeper", "MANAGE_WEBHOOKS", "VIEW_AUDIT_LOG")
    opened = window(keeper, on=serving)
    page = opened.open("/console/webhooks")
    with Receiver(status(200, b"<b>thanks</b>")) as receiver:
        page.get_by_role("link", name="New webhook").first.click()
        form = page.get_by_role("dialog", name="New webhook")
        form.get_by_label("Name", exact=True).fill("Chat")
        form.get_by_label("URL", exact=True).fill("http://10.0.0.1/hook")
        form.get_by_label("Id (optional)").fill("chat")
        form.locator("summary", has_text="group").click()
        form.get_by_role("checkbox", name=re.compile("group.created")).check()
        expect(form.get_by_role("radio", name="These")).to_be_checked()
        opened.watch.allow("400")
        form.get_by_role("button", name="Create webhook").click()
        expect(form.locator("[data-field=hook-url]").get_by_role("alert")).to_be_visible()
        form.get_by_label("URL", exact=True).fill(receiver.url)
        form.get_by_role("button", name="Create webhook").click()
        secret = page.locator("#secret").inner_text()
        assert secret.startswith("whsec_")
        page.get_by_role("link", name="Activity").first.click()
        question = page.get_by_role("dialog", name="Leave without the secret?")
        question.get_by_role("button", name="Stay").click()
        page.get_by_role("button", name="I have stored it").click()
        panel = page.get_by_role("dialog", name="Chat")
        expect(panel).to_contain_text("group.created")
        assert secret not in page.content()
        assert not any("whsec" in request for request in opened.watch.requests)
        assert "whsec" not in page.evaluate(
            "() => JSON.stringify([{...sessionStorage}, {...localStorage}, history.state])"
        )

        panel.get_by_role("button", name="Send a test").click()
        expect(panel.get_by_text("The receiver accepted the test message: status 200")).to_be_visible()
        (test,) = receiver.messages
        standardwebhooks.Webhook(secret).verify(test.body, test.headers)

        make_group(serving, "told-once")
        message = receiver.first("group.created", "urn:li:corpGroup:told-once")
        until(lambda: waiting(serving) == 0, "the delivery is recorded")
        page.reload()
        settled(page)
        delivery = panel.get_by_role("listitem").filter(has_text="delivered").first
        delivery.get_by_text("group.created").first.click()
        expect(delivery.get_by_role("region", name="Answer of the receiver")).to_have_text("<b>thanks</b>")
        expect(delivery).to_contain_text(message.id)
        delivery.get_by_role("button", name="Send again").click()
        expect(panel.get_by_text("1 delivery to send.")).to_be_visible()
        assert receiver.first("group.created", "urn:li:corpGroup:told-once", number=2).id == message.id

        receiver.answer = status(500, b"out of order")
        make_group(serving, "refused")
        receiver.first("group.created", "urn:li:corpGroup:refused")
        until(lambda: waiting(serving) == 1, "the delivery waits")
        page.goto("/console/webhooks/chat?state=WAITING")
        refused = panel.get_by_role("listitem").filter(has_text="not accepted").first
        refused.get_by_text("group.created").first.click()
        expect(refused.get_by_role("region", name="Answer of the receiver").first).to_have_text("out of order")
        expect(page.get_by_role("row", name=re.compile("Chat .*failing.*status 500"))).to_be_visible()
        page.goto("/")
        need = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
        expect(need).to_contain_text("The webhook Chat fails since")
        need.get_by_role("link", name="See deliveries").click()
        receiver.answer = status(200)
        panel.get_by_role("button", name="Send waiting deliveries now").click()
        until(lambda: waiting(serving) == 0, "what waited is delivered")
        panel.get_by_role("button", name="Replay since…").click()
        page.get_by_label("Since, in your time zone").fill("2020-01-01T00:00")
        page.locator("dialog[open]").get_by_role("button", name="Send again").click()
        expect(panel.get_by_text("2 deliveries to send.")).to_be_visible()
        receiver.first("group.created", "urn:li:corpGroup:told-once", number=3)
        until(lambda: waiting(serving) == 0, "what is replayed is delivered")

    panel.get_by_role("button", name="Rotate secret…").click()
    asked = page.get_by_role("dialog", name="Rotate the secret of Chat?")
    asked.get_by_label("The old secret signs too for").select_option("P7D")
    asked.get_by_role("button", name="Rotate secret").click()
    expect(page.get_by_role("heading", name="The new secret")).to_be_focused()
    assert page.locator("#secret").inner_text() not in (secret, "")
    page.get_by_role("button", name="I have stored it").click()
    expect(panel).to_contain_text("signs too until")
    panel.get_by_role("button", name="Disable").click()
    expect(panel.get_by_text("Nothing is queued or sent")).to_be_visible()
    panel.get_by_role("button", name="Enable").click()
    panel.get_by_role("link", name="Edit").click()
    form = page.get_by_role("dialog", name="Edit Chat")
    form.get_by_label("Name", exact=True).fill("Room")
    form.get_by_role("button", name="Save webhook").click()
    page.get_by_role("dialog", name="Room").get_by_role("button", name="Delete Room…").click()
    sure = page.get_by_role("dialog", name="Delete Room?").get_by_role("button", name="Delete Room")
    expect(sure).to_be_disabled()
    page.get_by_label("Type Room to confirm").fill("Room")
    sure.click()
    expect(page.get_by_text("Deleted the webhook Room")).to_be_visible()
    expect(page.get_by_role("heading", name="No webhooks yet")).to_be_visible()

    half = window(serving.person("half", "MANAGE_WEBHOOKS"), on=serving).open("/console/webhooks")
    expect(half.get_by_role("heading", name="Access denied")).to_be_visible()
    expect(half.locator("main")).to_contain_text("You lack View Audit Log for")


def waiting(console: Console) -> int:
    count: int = console.ask('{ getWebhook(id: "chat") { waiting } }')["getWebhook"]["waiting"]
    return count


def test_rule_is_made_run_approved_and_the_series_held(serving: Console, window: Windows) -> None:
    aspect = new_aspect()
    series = f"dataset.{aspect}"
    rows = lines([100.0 + n / 6 for n in range(6)] + [10.0 - n / 10 for n in range(10)])
    loaded = serving.server.command_line("index", "load", f"dataset.{aspect}", "-", stdin=rows)
    assert loaded.returncode == 0, loaded.stderr
    opened = window(serving.person("worker", *TRUNCATE), on=serving)
    page = opened.open("/console/operations")
    page.get_by_role("link", name="Retention rules").click()
    expect(page.get_by_role("row", name=re.compile(f"{series} none: every row stays 16"))).to_be_visible()
    page.get_by_role("link", name=series).click()
    panel = page.get_by_role("dialog", name=series, exact=True)
    panel.get_by_role("link", name="New rule of this series").click()
    form = page.get_by_role("dialog", name=f"New rule of {series}")
    opened.watch.allow("400")
    form.get_by_label("Keep", exact=True).fill("soon")
    form.get_by_role("button", name="Create rule").click()
    expect(form.locator("[data-field=rule-keep]").get_by_role("alert")).to_contain_text("keep must be")
    form.get_by_label("Keep", exact=True).fill("50 days")
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name=series, exact=True).get_by_role("link", name="New rule of this series").click()
    expect(form.get_by_label("Keep", exact=True)).to_have_value("50 days")
    form.get_by_label("Share without approval").fill("10%")
    form.get_by_role("radio", name=re.compile("Enforce")).check()
    form.get_by_role("button", name="Create rule").click()
    sure = page.get_by_role("dialog", name=f"Remove rows of {series} by this rule?")
    expect(sure).to_contain_text("older than 50 days are removed, up to 10%")
    sure.get_by_role("button", name="Enforce the rule").click()

    expect(panel).to_contain_text("would wait for approval")
    counts = panel.get_by_role("table", name=f"Rows of {series} by time")
    cells = [[int(text) for text in row.locator("td").all_inner_texts()] for row in counts.locator("tbody tr").all()]
    assert [sum(column) for column in zip(*cells, strict=True)] == [6, 10]
    panel.get_by_role("button", name="Run now…").click()
    page.get_by_role("dialog", name=f"Run the rule of {series} now?").get_by_role("button", name="Run now").click()
    expect(panel.get_by_role("button", name="Approve 6 rows…")).to_be_visible()
    page.goto("/")
    need = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(need).to_contain_text(f"of {series} waits for approval to remove 6 rows")
    need.get_by_role("link", name="Review…").click()
    panel.get_by_role("button", name="Approve 6 rows…").click()
    page.get_by_label("Type 6 to confirm").fill("6")
    page.get_by_role("button", name="Remove 6 rows").click()
    expect(page.get_by_text(re.compile(r"Approved run \d+ of"))).to_be_visible()
    until(lambda: last_run(serving, series) == "DONE", "the run is done")
    page.reload()
    settled(page)
    expect(panel.get_by_role("listitem").filter(has_text="6 of 16 rows")).to_contain_text("done")
    expect(panel).to_contain_text("10 rows")

    panel.get_by_role("button", name="Hold…").click()
    asked = page.get_by_role("dialog", name=f"Hold {series}?")
    asked.get_by_label("Reason").fill("an audit")
    asked.get_by_role("button", name="Hold", exact=True).click()
    expect(panel).to_contain_text("an audit")
    expect(page.get_by_role("row", name=re.compile(f"{series} .*held"))).to_be_visible()
    panel.get_by_role("button", name="Release…").click()
    page.get_by_role("dialog", name=re.compile("Release")).get_by_role("button", name="Release").click()
    expect(panel.get_by_role("button", name="Hold…")).to_be_visible()
    page.get_by_role("link", name="Close details").click()
    page.get_by_role("link", name="Operations").first.click()
    expect(page.get_by_role("heading", name="Operations", exact=True)).to_be_visible()


def last_run(console: Console, series: str) -> str:
    query = "query ($input: ListRetentionRunsInput) { retentionRuns(input: $input) { runs { state } } }"
    state: str = console.ask(query, {"input": {"series": series, "count": 1}})["retentionRuns"]["runs"][0]["state"]
    return state


def test_import_status_shows_what_is_still_accepted(serving: Console, window: Windows, tmp_path: Path) -> None:
    page = window(serving.root, on=serving).open("/console/all-tokens")
    page.get_by_role("link", name="Import from DataHub").click()
    expect(page.get_by_role("heading", name="Nothing was imported")).to_be_visible()
    ann = "urn:li:corpuser:imported-ann"
    info = {"name": "nightly", "actorUrn": ann, "ownerUrn": ann, "createdAt": 1, "expiresAt": 4102444800000}
    aspects = {
        (ann, "corpUserKey"): {"username": "imported-ann"},
        (f"urn:li:dataHubAccessToken:{TOKEN}", "dataHubAccessTokenInfo"): info,
    }
    file = tmp_path / "datahub.jsonl"
    file.write_text(
        "".join(
            json.dumps({"urn": urn, "aspect": aspect, "version": 0, "metadata": metadata}) + "\n"
            for (urn, aspect), metadata in aspects.items()
        )
    )
    done = serving.server.command_line("import", "datahub", "--from", str(file))
    assert done.returncode == 0, done.stderr
    page.reload()
    expect(page.get_by_text("DataHub's salt is not set")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="imported")).to_contain_text("1")
    expect(page.get_by_role("listitem").filter(has_text="still accepted")).to_contain_text("0")
    expect(page.get_by_text("Accepted until")).to_be_visible()
    shown = watchword(
        "token", "overview", "--all-actors", env={"WATCHWORD_URL": serving.url, "WATCHWORD_TOKEN": serving.root.token}
    )
    assert re.search(r"Live of these +1\n", shown.stdout), shown.stdout + shown.stderr
    denied = window(serving.person("ordinary"), on=serving).open("/console/import")
    expect(denied.get_by_role("heading", name="Access denied")).to_be_visible()

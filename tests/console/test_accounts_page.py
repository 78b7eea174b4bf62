"""The accounts page: create an account, give it a token, delete it with its tokens."""

import re

from playwright.sync_api import expect

from tests.console.conftest import Windows
from tests.support.console import Console
from tests.support.server import GENERATE

ACCOUNTS = "MANAGE_SERVICE_ACCOUNTS"


def test_account_is_created_and_deleted_with_its_tokens(console: Console, window: Windows) -> None:
    keeper = console.person("keeper", GENERATE, ACCOUNTS)
    page = window(keeper).open("/console/accounts")
    page.get_by_role("button", name="New account").first.click()
    page.get_by_role("textbox", name="Name").fill("CI deployer")
    page.get_by_role("button", name="Create account").click()
    panel = page.get_by_role("dialog", name="CI deployer")
    expect(panel).to_contain_text("No live token: nothing can act as this account.")
    urn = panel.locator(".urn code").inner_text()
    expect(panel.get_by_role("link", name="New token for CI deployer")).to_have_attribute(
        "href", re.compile(r"/console/tokens/new\?for=urn%3Ali%3Acorpuser%3Aservice_")
    )

    token, _ = console.token(urn, name="pipeline", type="SERVICE_ACCOUNT", by=keeper)
    assert console.server.verify(token).status_code == 204
    page.reload()
    expect(panel).to_contain_text("1 live token")
    expect(panel.get_by_role("link", name="pipeline")).to_be_visible()

    panel.get_by_role("button", name="Delete CI deployer…").click()
    sure = page.get_by_role("dialog", name="Delete CI deployer?")
    expect(sure).to_contain_text("1 live token is revoked at the same time")
    sure.get_by_role("button", name="Delete CI deployer").click()
    expect(page.get_by_role("status").filter(has_text="Deleted the account CI deployer")).to_be_visible()
    assert console.server.verify(token).status_code == 401
    expect(page.get_by_role("link", name="CI deployer")).to_have_count(0)


def test_account_dialog_shows_the_error_and_stays_open(console: Console, window: Windows) -> None:
    page = window(console.person("keeper", ACCOUNTS)).open("/console/accounts")
    page.get_by_role("button", name="New account").first.click()
    page.get_by_role("textbox", name="Name").fill(" ")
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("displayName")


def test_deleting_an_account_with_ten_live_tokens_needs_their_number(console: Console, window: Windows) -> None:
    made = console.ask('mutation { createServiceAccount(input: {displayName: "Fleet"}) { urn } }')
    urn = made["createServiceAccount"]["urn"]
    token, _ = console.token(urn, name="first", type="SERVICE_ACCOUNT")
    page = window(console.root).open(f"/console/accounts/{urn}")
    page.get_by_role("button", name="Delete Fleet…").click()
    sure = page.get_by_role("dialog", name="Delete Fleet?")
    expect(sure).to_contain_text("1 live token is revoked at the same time")
    expect(sure.get_by_role("button", name="Delete Fleet")).to_be_enabled()
    page.keyboard.press("Escape")
    for number in range(9):
        console.token(urn, name=f"robot-{number}", type="SERVICE_ACCOUNT")
    page.get_by_role("button", name="Delete Fleet…").click()
    expect(sure).to_contain_text("10 live tokens are revoked")
    expect(sure.get_by_role("button", name="Delete Fleet")).to_be_disabled()
    sure.get_by_label("Type 10 to confirm").fill("10")
    sure.get_by_role("button", name="Delete Fleet").click()
    expect(page.get_by_role("status").filter(has_text="Deleted the account Fleet")).to_be_visible()
    assert console.server.verify(token).status_code == 401


def test_tokens_of_a_suspended_account_show_suspended(console: Console, window: Windows) -> None:
    made = console.ask('mutation { createServiceAccount(input: {displayName: "Stopped"}) { urn } }')
    urn = made["createServiceAccount"]["urn"]
    console.token(urn, name="idle", type="SERVICE_ACCOUNT")
    console.ask("mutation ($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }", {"urn": urn})
    opened = window(console.root)
    panel = opened.open(f"/console/accounts/{urn}").get_by_role("dialog", name="Stopped")
    expect(panel).to_contain_text("1 suspended token")
    expect(panel.get_by_role("listitem")).to_contain_text("suspended")
    panel = opened.open(f"/console/actors/{urn}").get_by_role("dialog", name="Stopped")
    expect(panel).to_contain_text("1 suspended token")

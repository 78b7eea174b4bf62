"""The Overview page."""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.console.conftest import Windows
from tests.console.test_palette import palette, paste
from tests.support.browser import Window, settled
from tests.support.console import Console
from tests.support.server import GENERATE, Server
from tests.support.waiting import SECONDS


def test_overview_of_own_tokens_links_to_lists_and_mends(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    secret, _ = console.token(owner.urn, name="ends soon", duration="ONE_DAY")
    console.token(owner.urn, name="another")
    console.server.verify(secret)
    for number in range(4):
        console.server.verify(console.token(owner.urn, name=f"job-{number}", duration="ONE_DAY")[0])
    console.server.stop()  # the server writes uses in intervals and when it stops
    console.server.start()
    page = window(owner).open("/")
    tiles = page.get_by_role("list", name="Summary")
    expect(tiles).to_contain_text(
        re.compile(r"7\s+live.*5\s+expire within 7 days.*0\s+not used.*0\s+never expire", re.DOTALL)
    )
    expect(page.get_by_role("table", name="Accepted requests by day").get_by_role("row").last).to_contain_text("5")
    expect(page.get_by_role("heading", name="Denials")).to_have_count(0)
    expect(page.get_by_role("heading", name="Live tokens by owner")).to_have_count(0)

    tomorrow = datetime.now(UTC) + timedelta(days=1)
    day = page.get_by_role("link", name=f"5 tokens expire on {tomorrow.day} {tomorrow:%b %Y}")
    day.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("link", name="2 tokens expire on")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/console/tokens\?status=live&expires={tomorrow:%Y-%m-%d}$"))
    expect(page.locator("table.rows tbody tr")).to_have_count(5)
    page.go_back()
    more = page.get_by_role("listitem").filter(has_text="1 more token in use expires within 7 days")
    more.get_by_role("link", name="Show all…").click()
    expect(page.locator(".chips")).to_contain_text("Last used: Within 7 days")
    expect(page.locator("table.rows tbody tr")).to_have_count(5)
    page.go_back()

    need = page.get_by_role("listitem").filter(has_text="ends soon is in use")
    need.get_by_role("link", name="Rotate…").click()
    page.get_by_role("dialog", name="Rotate ends soon?").get_by_role("button", name="Rotate ends soon").click()
    page.get_by_role("button", name="I have stored it").click()
    page.get_by_role("link", name="Overview").click()
    expect(need).to_contain_text("Its successor waits for its first use until")
    expect(need.get_by_role("link", name="Rotate…")).to_have_count(0)
    need.get_by_role("link", name="Open successor").click()
    expect(page.get_by_role("dialog", name="ends soon")).to_contain_text("not used yet")

    page.goto("/")
    settled(page)
    page.get_by_role("combobox").focus()
    paste(page, secret)
    page.get_by_role("option", name="Open ends soon").click()
    expect(page.get_by_role("dialog", name="ends soon")).to_be_visible()


def test_overview_of_all_tokens_names_owners_and_what_needs_attention(console: Console, window: Windows) -> None:
    gone = console.person("gone")
    console.token(console.root.urn, name="stays")
    console.server.ask(
        "mutation ($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }",
        {"urn": gone.urn},
        token=console.root.token,
    )
    opened = window(console.root)
    page = opened.open("/")
    for heading in ("Use, 30 days", "Denials and failed sign-ins", "Expiries, 12 weeks", "Live tokens by owner"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_role("table", name="Live tokens by owner")).to_contain_text("admin")
    needs = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(needs.filter(has_text="is suspended").first.get_by_role("link", name="Offboard…")).to_be_visible()
    opened.watch.allow("ERR_INTERNET_DISCONNECTED")
    opened.context.set_offline(True)
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("alert").first).to_contain_text("The server could not be reached.")
    opened.context.set_offline(False)
    page.get_by_role("button", name="Retry").first.click()
    expect(page.get_by_role("list", name="Summary")).to_contain_text("live")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("slider", name="Denied requests").press("Shift+ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/console/activity\?show=denials&since=\d+&until=\d+$"))
    expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    settled(page)


def test_person_who_may_not_list_tokens_reads_that_those_made_by_others_work(console: Console, window: Windows) -> None:
    somebody = console.person("nobody")
    page = window(somebody).open("/")
    expect(page.locator("#numbers")).to_contain_text(
        "No policy lets you create or list tokens of your own. Tokens that others created for you work."
    )
    page.get_by_role("link", name="What to ask for").click()
    main = page.locator("main")
    expect(main).to_contain_text("Generate Personal Access Tokens")
    expect(main).to_contain_text("Tokens that others created for you work, but you may not list them.")
    expect(main).not_to_contain_text("No tokens yet")
    assert console.server.verify(somebody.token).status_code == 204


def test_person_who_may_see_tokens_made_by_others_sees_them(console: Console, window: Windows) -> None:
    reader = console.person("reader", GENERATE)
    page = window(reader).open("/console/tokens")
    expect(page.get_by_role("row").filter(has_text="to sign in with")).to_be_visible()
    manager = console.person("manager", "MANAGE_SERVICE_ACCOUNTS")
    made = console.ask('mutation { createServiceAccount(input: {displayName: "Nightly"}) { urn } }')
    account = made["createServiceAccount"]["urn"]
    console.token(account, type="SERVICE_ACCOUNT", name="of the account", by=manager)
    opened = window(manager)
    page = opened.open("/console/tokens")
    page.locator("main").get_by_role("link", name="service accounts").click()
    expect(page.get_by_role("heading", name="Service accounts", level=1)).to_be_visible()
    opened.go(page, f"/console/accounts/{account}")
    expect(page.get_by_role("dialog", name="Nightly")).to_contain_text("of the account")


def test_commands_of_the_first_steps_work(browser: Browser, make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server()
    local = Window(browser, server)
    page = local.open("/")
    page.get_by_label("Act as").fill("admin")
    page.get_by_role("button", name="Act as this actor").click()
    expect(page.get_by_role("heading", name="Start in three steps")).to_be_visible()
    expect(page.locator(".start")).to_contain_text(str(server.folder))
    create, verify, revoke = page.locator(".start pre").all_text_contents()
    path = sys.executable.rpartition("/")[0]
    lines = [f"export HOME='{tmp_path}' PATH='{path}':$PATH", create, verify, revoke, verify]
    ran = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert re.findall(r"HTTP/1.1 (\d+)", ran.stdout) == ["204", "401"]
    page.keyboard.press("Control+k")
    expect(palette(page)).to_be_visible()
    local.close()

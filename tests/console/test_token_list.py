"""The list of tokens on both pages: search, filters, views, CSV, the menu of a row, and bulk actions."""

import csv
import io
import re

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browser import settled
from tests.support.console import Console
from tests.support.server import GENERATE

CLIPBOARD = ["clipboard-read", "clipboard-write"]
NAME = "mutation ($urn: String!, $name: String!) { setActor(input: {urn: $urn, displayName: $name}) }"
SUSPEND = "mutation ($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }"


def names(page: Page) -> list[str]:
    found: list[str] = page.locator("table.rows tbody th a").all_inner_texts()
    return found


def search(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    page.get_by_role("searchbox").press("Enter")


def test_search_finds_people_in_any_case_and_filters_are_removed_one_by_one(console: Console, window: Windows) -> None:
    who = console.person("zed", GENERATE, "reports:read")
    console.ask(NAME, {"urn": who.urn, "name": f"Zoë Ångström {who.name}"})
    console.token(who.urn, name="Nightly EXPORT", scopes=["reports:read"], duration="ONE_DAY")
    _, later = console.token(who.urn, name="later", description="for the Warehouse")
    page = window(console.root).open("/console/all-tokens")
    search(page, f"zoë ångSTRÖM {who.name}")
    expect(page.locator("tbody tr")).to_have_count(3)
    assert names(page)[0] == "Nightly EXPORT"
    assert set(names(page)[1:]) == {"later", "to sign in with"}
    expect(page.get_by_role("row", name=re.compile("later"))).to_contain_text("Zoë Ångström")
    for text, found in (("WAREHOUSE", "later"), (later, "later"), (f"urn:li:serviceAccessToken:{later}", "later")):
        search(page, text)
        expect(page.locator("tbody tr")).to_have_count(1)
        assert names(page) == [found]

    page.goto(
        f"/console/all-tokens?owner=admin&actor={who.urn}&scope=reports:read&status=live&expires=week&scopes=some"
    )
    settled(page)
    assert names(page) == ["Nightly EXPORT"]
    chips = page.get_by_role("list", name="Filters").get_by_role("link")
    expect(chips).to_have_count(7)  # one of them clears all
    expect(chips.filter(has_text="Actor: Zoë Ångström")).to_be_visible()
    for name in ("scope", "scopes", "expires"):
        page.locator(f"#chip-{name}").click()
        expect(page.locator(f"#chip-{name}")).to_have_count(0)
    expect(page.locator("tbody tr")).to_have_count(3)
    console.ask(SUSPEND, {"urn": who.urn})
    page.reload()
    expect(page.get_by_role("heading", name="No token matches")).to_be_visible()
    page.locator("#chip-status").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody tr").first).to_contain_text("suspended")


def test_views_are_saved_and_csv_has_all_rows_without_formulas(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    texts = ['=HYPERLINK("x"),1', "+1", "-1", "@SUM(A1)", "\uff1d1+1", " =2", 'say "hi", twice']
    texts += ["x;=cmd|' /C calc'!A0", 'x; "=2', "x,@y", "a - b; c"]
    for text in texts:
        console.token(owner.urn, name=text)
    for number in range(19):
        console.token(owner.urn, name=f"job {number}")
    console.token(owner.urn, name="job 19", description="two lines\n=1\t+2")
    page = window(owner, permissions=CLIPBOARD).open("/console/tokens?sort=name&order=ASCENDING")
    with page.expect_download() as saving:
        page.get_by_role("button", name="Download CSV").click()
    text = saving.value.path().read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    saved = {row["name"] for row in rows}
    assert len(rows) == 32
    assert re.match(r'"id","name",(?:"[^"]*",?)+\n"[^"]+","', text)
    assert [row["description"] for row in rows if row["description"]] == ["two lines\n'=1\t'+2"]
    # A spreadsheet with another separator splits the lines again.
    cells = [cell for line in csv.reader(io.StringIO(text), delimiter=";") for cell in line]
    assert [cell for cell in cells if re.match(r"[\s\"]*[=+@-]", cell)] == []
    assert {
        '\'=HYPERLINK("x"),1',
        "'+1",
        "'-1",
        "'@SUM(A1)",
        "'\uff1d1+1",
        "' =2",
        'say "hi", twice',
        "x;'=cmd|' /C calc'!A0",
        "x;' \"=2",
        "x,'@y",
        "a - b; c",
        "job 19",
    } <= saved
    assert {row["status"] for row in rows} == {"ACTIVE"}
    assert {row["actor urn"] for row in rows} == {owner.urn}
    expect(page.get_by_role("status").filter(has_text="Saved 32 tokens as CSV.")).to_be_visible()

    search(page, "JOB 1")
    expect(page.locator("tbody tr")).to_have_count(11)
    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("button", name="Save this view…").click()
    page.get_by_label("Name", exact=True).fill("Jobs")
    page.get_by_role("button", name="Save view", exact=True).click()
    page.goto("/console/tokens")
    settled(page)
    page.get_by_role("button", name="Saved views").press("Enter")
    page.get_by_role("link", name="Jobs").click()
    expect(page).to_have_url(re.compile(r"\?sort=name&order=ASCENDING&q=JOB\+1$"))
    expect(page.locator("tbody tr")).to_have_count(11)
    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("button", name="Remove view Jobs").click()
    page.get_by_role("button", name="Saved views").click()
    expect(page.get_by_role("link", name="Jobs")).to_have_count(0)
    page.keyboard.press("Escape")

    _, token_id = console.token(owner.urn, name="a menu")  # with a space, so that no id contains it
    search(page, "a menu")
    page.get_by_role("button", name="Actions for a menu").press("Enter")
    page.get_by_role("button", name="Copy id").click()
    assert page.evaluate("navigator.clipboard.readText()") == token_id
    page.get_by_role("button", name="Actions for a menu").click()
    page.get_by_role("button", name="Revoke…").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke a menu").click()
    expect(page.get_by_role("status").filter(has_text="Revoked a menu at")).to_be_visible()
    expect(page.get_by_role("heading", name="No token matches")).to_be_visible()
    page.get_by_role("link", name="Search ended tokens too").click()
    expect(page.locator("tbody tr")).to_contain_text("revoked")


def test_bulk_actions_need_a_selection_or_a_filter_and_a_list(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    secrets = {f"run {number}": console.token(owner.urn, name=f"run {number}")[0] for number in range(9)}
    console.server.verify(secrets["run 7"])
    opened = window(owner)
    page = opened.open("/console/tokens")
    bulk = page.get_by_role("group", name="Revoke many")
    expect(bulk.get_by_role("button")).to_have_count(0)
    page.get_by_label("Select run 3", exact=True).check()
    page.get_by_label("Select run 4", exact=True).check()
    expect(bulk).to_contain_text("2 selected")
    search(page, "RUN 4")
    expect(page.locator("tbody tr")).to_have_count(1)
    bulk.get_by_text("2 selected, 1 not shown").click()
    expect(bulk.get_by_role("listitem")).to_contain_text("run 3")

    opened.watch.allow("ERR_INTERNET_DISCONNECTED")
    opened.context.set_offline(True)
    search(page, "run")
    expect(page.get_by_role("alert")).to_contain_text("The server could not be reached.")
    expect(page.get_by_role("button", name="Revoke selected…")).to_be_disabled()
    expect(page.get_by_role("button", name="Revoke all matching…")).to_be_disabled()
    opened.context.set_offline(False)
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("tbody tr")).to_have_count(9)
    page.get_by_role("button", name="Revoke all matching…").click()
    expect(page.get_by_role("heading", name="Dry run: 9 tokens of 1 actor")).to_be_focused()
    expect(page.get_by_role("table", name="Tokens to revoke").locator("tbody tr")).to_have_count(9)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Revoke selected…").click()
    expect(page.get_by_role("heading", name="Dry run: 2 tokens of 1 actor")).to_be_focused()
    page.get_by_role("button", name="Revoke 2 tokens…").click()
    sure = page.get_by_role("dialog").get_by_role("button", name="Revoke 2 tokens")
    expect(sure).to_be_enabled()  # typed only from ten on
    sure.click()
    expect(page.get_by_role("status").filter(has_text="Revoked 2 tokens")).to_be_visible()
    dead = {name for name, secret in secrets.items() if console.server.verify(secret).status_code == 401}
    assert dead == {"run 3", "run 4"}
    expect(page.locator("tbody tr")).to_have_count(7)

"""The page of a token, and what leads from it: edits, a handover, another token like it."""

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.console.test_my_tokens import derive, token_path
from tests.support.console import Console, Person

OWN = "GENERATE_PERSONAL_ACCESS_TOKENS"
GET = """query ($id: String!) { getAccessToken(id: $id) {
  name description awaitsFirstUse useCount scopes allowedNetworks audience createdAt expiresAt } }"""


def record(console: Console, token_id: str) -> dict[str, Any]:
    found: dict[str, Any] = console.ask(GET, {"id": token_id})["getAccessToken"]
    return found


def id_of(page: Page) -> str:
    """The id of the token whose page is shown."""
    page.wait_for_url(re.compile("/console/tokens/[A-Za-z0-9_-]{43}"))
    return page.url.rpartition("/")[2].replace("-", "+").replace("_", "/") + "="


def test_successor_is_checked_without_a_use_before_the_handover_starts(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    _, old = console.token(owner.urn, by=owner, name="deploy")
    page = window(owner).open(token_path(old))
    page.get_by_role("button", name="Rotate").click()
    page.get_by_role("dialog", name="Rotate deploy?").get_by_role("button", name="Rotate deploy").click()
    secret = page.locator("#secret").inner_text()
    expect(page.get_by_role("heading", name="Start the handover")).to_be_visible()
    expect(page.locator("main")).to_contain_text("5 minutes after its first use the old token expires")
    expect(page.locator("main")).not_to_contain_text("Try it")
    page.get_by_role("button", name="Check without using it").click()
    expect(page.get_by_role("status").filter(has_text="The server accepts this token")).to_contain_text(
        "This check was not a use"
    )
    page.get_by_role("button", name="I have stored it").click()
    new = id_of(page)
    expect(page.get_by_role("dialog", name="deploy")).to_contain_text("Its first use starts it")
    assert record(console, new)["awaitsFirstUse"]
    assert console.server.verify(secret).status_code == 204
    assert not record(console, new)["awaitsFirstUse"]
    page.goto(token_path(old))
    expect(page.locator(".timeline")).to_contain_text("Its successor was used for the first time.")
    page.locator(".lineage").get_by_role("link", name="deploy").click()
    expect(page.locator(".lineage")).to_contain_text("replaces deploy")
    assert id_of(page) == new


def test_name_and_description_are_edited(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    _, token_id = console.token(owner.urn, by=owner, name="reprots")
    page = window(owner).open(token_path(token_id))
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Edit reprots")
    dialog.get_by_label("Name").fill(" ")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("name must have 1 to 200 characters")
    dialog.get_by_label("Name").fill("reports")
    dialog.get_by_label("Description").fill("Nightly.\nAsk Ann.")
    dialog.get_by_role("button", name="Save").click()
    panel = page.get_by_role("dialog", name="reports")
    expect(panel).to_contain_text("It was not used.")
    expect(panel).to_contain_text("Ask Ann.")
    expect(page.locator("table.rows tbody")).to_contain_text("reports")
    assert record(console, token_id)["description"] == "Nightly.\nAsk Ann."
    told = window(console.root).open(token_path(token_id)).locator(".timeline li")
    expect(told).to_contain_text(["renamed reprots to reports.", "created reprots."])
    console.server.revoke(token_id, token=console.root.token)
    page.reload()
    expect(panel.locator(".timeline li").first).to_contain_text("It was revoked.")
    expect(panel.get_by_role("button", name="Edit")).to_have_count(0)


def test_another_token_is_created_with_the_same_limits(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN, "VIEW_AUDIT_LOG", "orders:*")
    limits = {"scopes": ["VIEW_AUDIT_LOG", "orders:read"], "allowedNetworks": ["10.0.0.0/8"]}
    _, token_id = console.token(
        owner.urn, by=owner, name="reports", description="Nightly.", duration="ONE_WEEK", **limits
    )
    page = window(owner).open(token_path(token_id))
    page.get_by_role("link", name="Create one like this").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("reports 2")
    expect(page.get_by_label("Lifetime")).to_have_value("ONE_WEEK")
    expect(page.locator("#summary")).to_have_text(
        "reports 2, for 7 days, may only View Audit Log and orders:read, from 10.0.0.0/8."
    )
    page.get_by_role("button", name="Create token").click()
    page.get_by_role("button", name="I have stored it").click()
    made, old = record(console, id_of(page)), record(console, token_id)
    same = ("scopes", "allowedNetworks", "audience", "description")
    assert [made[name] for name in same] == [old[name] for name in same]
    assert made["expiresAt"] - made["createdAt"] == old["expiresAt"] - old["createdAt"]


def test_template_fills_the_form_and_the_summary_follows(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN, "INTROSPECT_TOKENS")
    page = window(owner).open("/console/tokens/new")
    summary = page.locator("#summary")
    expect(summary).to_have_text("This token, for 30 days, may do nothing yet: select scopes, from anywhere.")
    page.get_by_role("button", name="laptop").click()
    expect(summary).to_have_text("laptop, for 7 days, may do everything that you may, from anywhere.")
    expect(page.locator(".warning").filter(has_text="Anyone who gets this token")).to_be_visible()
    page.get_by_role("button", name="Gateway").click()
    page.get_by_label("Networks", exact=True).fill("10.0.0.0/8\n192.0.2.7/32")
    page.get_by_label("Name", exact=True).fill("edge")
    expect(summary).to_have_text("edge, for 90 days, may only Introspect Tokens, from 10.0.0.0/8 and 192.0.2.7/32.")
    page.get_by_role("button", name="CI job").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("edge")
    expect(page.get_by_label("Introspect Tokens")).not_to_be_checked()
    page.get_by_label("Lifetime").select_option("own")
    page.get_by_label("Length").fill("1")
    page.get_by_label("Only for these services").check()
    expect(summary).to_have_text(re.compile("^edge, for 1 day, .*, only for services that you enter.$"))
    page = window(console.person("owner", OWN)).open("/console/tokens/new")
    expect(page.get_by_role("button", name="Gateway")).to_be_disabled()


def test_lineage_names_the_tokens_above_and_below(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    child = derive(console, owner, "child")
    derive(console, child, "grandchild")
    _, minted = console.token(owner.urn, by=Person(owner.urn, owner.token, owner.token_id), name="minted")
    page = window(owner).open(token_path(child.token_id))
    lineage = page.locator(".lineage")
    expect(lineage.locator("[aria-current]")).to_have_text("child")
    expect(lineage.get_by_role("link")).to_have_text(["to sign in with", "grandchild"])
    lineage.get_by_role("link", name="to sign in with").click()
    expect(lineage.get_by_role("link")).to_have_text(["child", "grandchild", "minted"])
    assert minted


def test_typed_text_survives_leaving_until_it_is_saved(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    _, token_id = console.token(owner.urn, by=owner, name="deploy")
    page = window(owner).open("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("typed")
    page.get_by_label("None").check()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("link", name="New token").click()
    expect(page.locator(".draft")).to_contain_text("Restored what you had typed.")
    expect(page.locator("#summary")).to_contain_text("typed, for 30 days, may do nothing and only identifies its actor")
    page.get_by_role("button", name="Create token").click()
    secret = page.locator("#secret").inner_text()
    assert secret not in page.evaluate("() => JSON.stringify(sessionStorage) + JSON.stringify(localStorage)")
    page.get_by_role("button", name="I have stored it").click()
    page.goto("/console/tokens/new")
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    page.goto(token_path(token_id))
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog", name="Edit deploy").get_by_label("Description").fill("Not saved yet.")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_role("dialog", name="Edit deploy").get_by_label("Description")).to_have_value("Not saved yet.")

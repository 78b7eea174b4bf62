"""The form for a new token, and the secret that it shows."""

import re

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console, Person

OWN = "GENERATE_PERSONAL_ACCESS_TOKENS"


def create_token(page: Page, name: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name=re.compile("(Create|Derive) token")).click()
    expect(page.locator("#secret")).to_be_visible()


def shown_record(console: Console, page: Page, by: Person) -> dict[str, object]:
    """Return the record of the token whose secret is shown."""
    found: dict[str, object] = console.ask(
        "query ($token: String!) { getAccessTokenMetadata(token: $token) { id name scopes allowedNetworks parentId } }",
        {"token": page.locator("#secret").inner_text()},
        by=by,
    )["getAccessTokenMetadata"]
    return found


def test_new_token_gets_the_chosen_limits(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN, "VIEW_AUDIT_LOG", "orders:*")
    page = window(owner).open("/console/tokens/new")
    expect(page.get_by_label("Only selected scopes")).to_be_checked()
    expect(page.get_by_label("Manage Policies")).to_have_count(0)
    page.get_by_label("View Audit Log").check()
    page.get_by_label("Scopes of other services").fill("reports:read")
    page.get_by_label("Name", exact=True).fill("limited")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("[data-field=scopes]").get_by_role("alert")).to_contain_text(
        "No policy grants the scope reports:read"
    )
    page.get_by_label("Scopes of other services").fill("orders:read")
    page.get_by_label("Only from these networks").check()
    page.get_by_label("Networks", exact=True).fill("10.0.0.0/8\n192.0.2.7/32")
    create_token(page, "limited")
    found = shown_record(console, page, owner)
    assert found["scopes"] == ["VIEW_AUDIT_LOG", "orders:read"]
    assert found["allowedNetworks"] == ["10.0.0.0/8", "192.0.2.7/32"]


def test_rejected_value_is_reported_at_its_field_and_input_is_kept(console: Console, window: Windows) -> None:
    page = window(console.person("owner", OWN)).open("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("narrow")
    page.get_by_label("None").check()
    page.get_by_label("Only from these networks").check()
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("group", name="Networks").get_by_role("alert")).to_contain_text(
        "Enter at least one network"
    )
    page.get_by_label("Networks", exact=True).fill("10.0.0.1/8")
    page.get_by_role("button", name="Create token").click()
    beside = page.get_by_role("group", name="Networks").get_by_role("alert")
    expect(beside).to_contain_text("allowedNetworks[0] must be a CIDR network")
    expect(beside).to_contain_text("invalid_field · request ")
    expect(page.get_by_label("Name", exact=True)).to_have_value("narrow")


def test_exact_expiry_follows_the_chosen_lifetime(console: Console, window: Windows) -> None:
    page = window(console.person("owner", OWN)).open("/console/tokens/new")
    page.get_by_label("Lifetime").select_option("ONE_DAY")
    day = page.locator(".exact-end").inner_text()
    page.get_by_label("Lifetime").select_option("own")
    page.get_by_label("Length").fill("2")
    page.get_by_label("Unit").select_option("W")
    weeks = page.locator(".exact-end").inner_text()
    assert re.search(r"Expires \d+ \w+ \d{4}, [\d:]+ \S+ · [\d-]+ [\d:]+ UTC", day)
    assert day != weeks
    expect(page.get_by_label("Lifetime").locator("option[value=NO_EXPIRY]")).to_have_count(0)


def test_leaving_the_secret_asks_for_confirmation(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="New token").click()
    page.get_by_label("None").check()
    create_token(page, "unkept")
    page.go_back()
    question = page.get_by_role("dialog", name="Leave without the token?")
    question.get_by_role("button", name="Stay").click()
    expect(page.locator("#secret")).to_be_visible()
    expect(page).to_have_url(re.compile("/console/tokens/new$"))  # the browser goes back there by itself
    page.get_by_role("link", name="My tokens").click()
    question.get_by_role("button", name="Leave").click()
    expect(page.locator("table.rows tbody")).to_contain_text("unkept")
    expect(page.locator("#secret")).to_have_count(0)


def test_narrower_token_is_derived_from_the_session_token(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="to sign in with").click()
    page.get_by_role("link", name="Derive a token").click()
    page.get_by_label("None").check()
    create_token(page, "narrow")
    found = shown_record(console, page, owner)
    assert (found["parentId"], found["scopes"]) == (owner.token_id, [])


def test_new_token_page_names_the_missing_privilege(console: Console, window: Windows) -> None:
    page = window(console.person("guest")).open("/console/tokens/new")
    expect(page.get_by_role("alert")).to_contain_text("You lack the privilege")
    expect(page.locator("pre")).to_contain_text(f"Please grant {OWN} to urn:li:corpuser:guest")
    expect(page.get_by_role("button", name="Create token")).to_have_count(0)


def test_token_manager_creates_a_token_for_another_actor(console: Console, window: Windows) -> None:
    manager = console.person("manager", "MANAGE_ACCESS_TOKENS")
    other = "urn:li:corpuser:somebody-else"
    page = window(manager).open(f"/console/tokens/new?for={other}")
    expect(page.get_by_label("Acts as")).to_have_value("somebody-else")
    page.get_by_label("Everything its actor may do").check()
    expect(page.locator("#summary")).to_contain_text("may do everything that somebody-else may")
    create_token(page, "for another")
    expect(page.locator(".facts").get_by_title(other)).to_have_text("somebody-else")

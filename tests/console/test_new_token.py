"""A new token, from the form to the secret."""

import re

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console, Person

OWN = "GENERATE_PERSONAL_ACCESS_TOKENS"


def make(page: Page, name: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name=re.compile("(Create|Derive) token")).click()
    expect(page.locator("#secret")).to_be_visible()


def shown(console: Console, page: Page, by: Person) -> dict[str, object]:
    """The record of the token whose secret is shown."""
    found: dict[str, object] = console.ask(
        "query ($token: String!) { getAccessTokenMetadata(token: $token) { id name scopes allowedNetworks parentId } }",
        {"token": page.locator("#secret").inner_text()},
        by=by,
    )["getAccessTokenMetadata"]
    return found


def test_limits_are_chosen_in_plain_words(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN, "VIEW_AUDIT_LOG")
    page = window(owner).open("/console/tokens/new")
    page.get_by_label("Only selected scopes").check()
    expect(page.get_by_label("Manage Policies")).to_have_count(0)
    page.get_by_label("View Audit Log").check()
    page.get_by_label("Scopes of other services").fill("orders:read")
    page.get_by_label("Only from these networks").check()
    page.get_by_label("Networks", exact=True).fill("10.0.0.0/8\n192.0.2.7/32")
    make(page, "limited")
    found = shown(console, page, owner)
    assert found["scopes"] == ["VIEW_AUDIT_LOG", "orders:read"]
    assert found["allowedNetworks"] == ["10.0.0.0/8", "192.0.2.7/32"]


def test_a_refused_value_is_told_beside_its_field_and_nothing_typed_is_lost(console: Console, window: Windows) -> None:
    page = window(console.person("owner", OWN)).open("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("narrow")
    page.get_by_label("Only from these networks").check()
    page.get_by_label("Networks", exact=True).fill("10.0.0.1/8")
    page.get_by_role("button", name="Create token").click()
    beside = page.get_by_role("group", name="Networks").get_by_role("alert")
    expect(beside).to_contain_text("allowedNetworks[0] must be a CIDR network")
    expect(beside).to_contain_text("invalid_field · request ")
    expect(page.get_by_label("Name", exact=True)).to_have_value("narrow")


def test_the_exact_end_follows_the_chosen_length(console: Console, window: Windows) -> None:
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


def test_leaving_the_secret_asks_first(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="New token").click()
    make(page, "unkept")
    page.go_back()
    question = page.get_by_role("dialog", name="Leave without the token?")
    question.get_by_role("button", name="Stay").click()
    expect(page.locator("#secret")).to_be_visible()
    expect(page).to_have_url(re.compile("/console/tokens/new$"))  # the browser goes there again by itself
    page.get_by_role("link", name="My tokens").click()
    question.get_by_role("button", name="Leave").click()
    expect(page.locator("table.rows tbody")).to_contain_text("unkept")
    expect(page.locator("#secret")).to_have_count(0)


def test_a_narrower_token_is_derived_from_the_sessions_own(console: Console, window: Windows) -> None:
    owner = console.person("owner", OWN)
    page = window(owner).open("/console/tokens")
    page.get_by_role("link", name="to sign in with").click()
    page.get_by_role("link", name="Derive a token").click()
    page.get_by_label("None").check()
    make(page, "narrow")
    found = shown(console, page, owner)
    assert (found["parentId"], found["scopes"]) == (owner.token_id, [])


def test_who_may_make_none_is_told_what_to_ask_for(console: Console, window: Windows) -> None:
    page = window(console.person("guest")).open("/console/tokens/new")
    expect(page.get_by_role("alert")).to_contain_text("You lack the privilege")
    expect(page.locator("pre")).to_contain_text(f"Please grant {OWN} to urn:li:corpuser:guest")
    expect(page.get_by_role("button", name="Create token")).to_have_count(0)


def test_who_manages_all_tokens_makes_one_for_another(console: Console, window: Windows) -> None:
    manager = console.person("manager", "MANAGE_ACCESS_TOKENS")
    other = "urn:li:corpuser:somebody-else"
    page = window(manager).open(f"/console/tokens/new?for={other}")
    expect(page.get_by_label("Acts as")).to_have_value(other)
    make(page, "for another")
    expect(page.locator(".facts")).to_contain_text(other)

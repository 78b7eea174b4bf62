"""The My tokens page."""

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console, Person

OWN = "GENERATE_PERSONAL_ACCESS_TOKENS"
DERIVE = (
    "mutation ($input: DeriveAccessTokenInput!) { deriveAccessToken(input: $input) { accessToken metadata { id } } }"
)
NASTY = '<img src=/nothing onerror="document.title=1">'


def token_owner(console: Console) -> Person:
    return console.person("owner", OWN)


def names(page: Page) -> list[str]:
    return page.locator("table.rows tbody th a").all_text_contents()


def token_path(token_id: str) -> str:
    return "/console/tokens/" + token_id.replace("+", "-").replace("/", "_").rstrip("=")


def derive(console: Console, parent: Person, name: str) -> Person:
    made: dict[str, Any] = console.ask(DERIVE, {"input": {"name": name}}, by=parent)["deriveAccessToken"]
    return Person(parent.urn, made["accessToken"], made["metadata"]["id"])


def test_filters_order_and_page_survive_a_reload(console: Console, window: Windows) -> None:
    owner = token_owner(console)
    for number in range(23):
        console.token(owner.urn, name=f"job-{number:02}")
    page = window(owner).open("/console/tokens")
    page.get_by_role("searchbox").fill("job-")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Name").click()
    expect(page.locator("table.rows tbody th a").first).to_have_text("job-00")
    page.locator("#filter-status").select_option("live")
    page.get_by_role("link", name="Next page").click()
    expect(page.locator(".pager")).to_contain_text("21\N{EN DASH}23 of 23")
    assert "q=job-" in page.url
    assert "sort=name" in page.url
    assert "page=2" in page.url
    page.reload()
    expect(page.locator(".pager")).to_contain_text("21\N{EN DASH}23 of 23")
    assert names(page) == ["job-20", "job-21", "job-22"]
    expect(page.locator("#filter-status")).to_have_value("live")
    page.go_back()
    expect(page.locator(".pager")).to_contain_text("1\N{EN DASH}20 of 23")


def test_totals_link_to_the_filtered_list(console: Console, window: Windows) -> None:
    owner = token_owner(console)
    console.token(owner.urn, name="short", duration="ONE_DAY")
    page = window(owner).open("/console/tokens")
    expect(page.locator(".numbers")).to_contain_text("2 live")
    page.get_by_role("link", name="1 expires within 7 days").click()
    expect(page.locator("table.rows tbody tr")).to_have_count(1)
    assert names(page) == ["short"]
    expect(page.locator("table.rows tbody tr")).to_contain_text("soon")


def test_details_have_a_url_and_show_derived_tokens_as_a_tree(console: Console, window: Windows) -> None:
    owner = token_owner(console)
    child = derive(console, owner, "child")
    derive(console, child, "grandchild")
    page = window(owner).open(token_path(owner.token_id))
    panel = page.get_by_role("dialog", name="to sign in with")
    expect(panel.locator(".tree .tree .tree")).to_contain_text("grandchild")
    panel.get_by_role("link", name="child", exact=True).click()
    expect(page.get_by_role("dialog", name="child")).to_contain_text("it is revoked and expires with the token above")
    page.keyboard.press("Escape")
    expect(page.locator(".panel")).to_have_count(0)
    assert page.url.endswith("/console/tokens")
    page.go_back()
    expect(page.get_by_role("dialog", name="child")).to_be_visible()


def test_revoke_dialog_lists_derived_tokens(console: Console, window: Windows) -> None:
    owner = token_owner(console)
    secret, token_id = console.token(owner.urn, by=owner, name="deploy")
    derive(console, Person(owner.urn, secret, token_id), "by derivation")
    console.token(owner.urn, by=Person(owner.urn, secret, token_id), name="by its holder")
    page = window(owner).open(token_path(token_id))
    page.get_by_role("button", name="Revoke deploy").click()
    question = page.get_by_role("dialog", name="Revoke deploy?")
    expect(question).to_contain_text("1 other token: derived from it")
    question.get_by_label("Also revoke the 1 token created with it").check()
    question.get_by_role("button", name="Revoke deploy").click()
    expect(page.get_by_role("status").filter(has_text="Revoked deploy and 2 tokens with it")).to_be_visible()
    expect(page.locator("table.rows tbody tr")).to_have_count(1)


def test_rotation_dialog_states_the_grace_period_and_shows_the_new_token_once(
    console: Console, window: Windows
) -> None:
    owner = token_owner(console)
    secret, token_id = console.token(owner.urn, by=owner, name="deploy")
    page = window(owner).open(token_path(token_id))
    page.get_by_role("button", name="Rotate").click()
    question = page.get_by_role("dialog", name="Rotate deploy?")
    question.get_by_label("Grace period of the old token").select_option("PT1H")
    expect(question).to_contain_text("1 hour after its first use the old token expires")
    question.get_by_label("Time until the first use").select_option("until the old token expires")
    question.get_by_role("button", name="Rotate deploy").click()
    successor = page.locator("#secret").inner_text()
    record = "query ($token: String!) { getAccessTokenMetadata(token: $token) { expiresAt } }"
    old, new = (
        console.ask(record, {"token": one})["getAccessTokenMetadata"]["expiresAt"] for one in (secret, successor)
    )
    assert 0 < old - new < 60 * 60_000
    page.get_by_role("button", name="I have stored it").click()
    expect(page.get_by_role("dialog", name="deploy")).to_contain_text("not used yet")
    assert console.server.ask("{ me { corpUser { urn } } }", token=successor)["me"]["corpUser"]["urn"] == owner.urn
    page.goto(token_path(token_id))
    expect(page.get_by_role("dialog", name="deploy")).to_contain_text("in use since")


def test_html_in_names_and_descriptions_is_escaped(console: Console, window: Windows) -> None:
    owner = token_owner(console)
    _, token_id = console.token(owner.urn, by=owner, name=NASTY, description=f"{NASTY} {{ww:0}} <!--ww:0-->")
    page = window(owner).open(token_path(token_id))
    expect(page.get_by_role("dialog", name=NASTY).locator(".text")).to_contain_text(f"{NASTY} {{ww:0}} <!--ww:0-->")
    page.get_by_role("button", name="Revoke").click()
    expect(page.locator("dialog")).to_contain_text(f"Revoke {NASTY}?")
    assert page.locator("main img").count() == 0
    assert page.title() == "My tokens · Watchword"


def test_trusted_types_block_inner_html(console: Console, window: Windows) -> None:
    opened = window(token_owner(console))
    page = opened.open("/console/tokens")
    opened.watch.allow("require-trusted-types-for|TrustedHTML")
    tried = (
        "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } return 'done'; }"
    )
    assert page.evaluate(tried) == "TypeError"
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()


def test_failed_paging_keeps_the_current_page(console: Console, window: Windows) -> None:
    owner = token_owner(console)
    for number in range(21):
        console.token(owner.urn, name=f"job-{number}")
    opened = window(owner)
    page = opened.open("/console/tokens")
    opened.watch.allow("ERR_INTERNET_DISCONNECTED")
    opened.context.set_offline(True)
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("alert")).to_contain_text("The server could not be reached.")
    assert len(names(page)) == 20
    opened.context.set_offline(False)
    page.reload()
    expect(page.locator(".pager")).to_contain_text("21\N{EN DASH}22 of 22")


def test_page_has_keyboard_shortcuts(console: Console, window: Windows) -> None:
    page = window(token_owner(console)).open("/console/tokens")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search or paste a token")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("/console/tokens/new$"))
    expect(page.get_by_label("Name", exact=True)).to_be_focused()


def test_chosen_theme_survives_a_reload(console: Console, window: Windows) -> None:
    page = window(token_owner(console)).open("/console/tokens")
    ground = "getComputedStyle(document.querySelector('.table-box')).backgroundColor"
    light = page.evaluate(ground)
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    page.reload()
    expect(page.locator(".table-box")).to_be_visible()
    assert page.evaluate(ground) != light


def test_exact_time_is_shown_on_focus(console: Console, window: Windows) -> None:
    page = window(token_owner(console)).open("/console/tokens")
    moment = page.locator("table time").first
    page.get_by_role("link", name="to sign in with").focus()
    page.keyboard.press("Tab")
    expect(moment).to_be_focused()
    expect(page.locator(".tip")).to_have_text(
        re.compile(r"^\d+ \w+ \d{4}, [\d:]+ (CET|CEST|GMT\+\d) · [\d-]+ [\d:]+ UTC$")
    )

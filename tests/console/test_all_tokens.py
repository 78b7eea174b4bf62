"""The All tokens page: search, dry run, bulk revocation and its receipt."""

import hashlib
import re

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console
from tests.support.server import GENERATE, MANAGE_ALL

MANY = 200
TYPED_FROM = 10


def create_many(console: Console, urn: str) -> list[tuple[str, str]]:
    """Create MANY tokens, twenty per request."""
    create = """createAccessToken(input: {type: PERSONAL, actorUrn: "%s", duration: ONE_MONTH, name: "leaked %d"})
      { accessToken metadata { id } }"""
    made: list[tuple[str, str]] = []
    for first in range(0, MANY, 20):
        fields = " ".join(f"t{number}: " + create % (urn, number) for number in range(first, first + 20))
        answers = console.ask(f"mutation {{ {fields} }}").values()
        made += [(one["accessToken"], one["metadata"]["id"]) for one in answers]
    return made


def revoke_after_dry_run(page: Page, count: int) -> None:
    """Confirm; from ten tokens on the count is typed, and the button is disabled until then."""
    page.get_by_role("button", name=f"Revoke {count} tokens…").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name=f"Revoke {count} tokens")
    if count >= TYPED_FROM:
        expect(confirm).to_be_disabled()
        page.get_by_label(f"Type {count} to confirm").fill(str(count))
    confirm.click()


def test_admin_revokes_200_tokens_and_gets_a_receipt(console: Console, window: Windows) -> None:
    leaker = console.person("leaker", GENERATE)
    made = create_many(console, leaker.urn)
    page = window(console.root).open("/console/all-tokens")
    page.locator("#filter-actor").fill(leaker.name)
    page.locator("#filter-actor").press("Enter")
    page.get_by_role("searchbox").fill("leaked")
    page.get_by_role("searchbox").press("Enter")
    page.get_by_role("button", name="Revoke all matching…").click()
    expect(page.get_by_role("heading", name=f"Dry run: {MANY} tokens of 1 actor")).to_be_focused()
    assert console.server.verify(made[0][0]).status_code == 204
    revoke_after_dry_run(page, MANY)
    receipt = page.get_by_role("status").filter(has_text=f"Revoked {MANY} tokens")
    digest = hashlib.sha256("".join(f"{one}\n" for one in sorted(token_id for _, token_id in made)).encode())
    expect(receipt).to_contain_text(digest.hexdigest())
    expect(page.get_by_role("heading", name="No token matches")).to_be_visible()
    assert {console.server.verify(token).status_code for token, _ in made} == {401}
    assert console.server.verify(leaker.token).status_code == 204
    page.get_by_role("link", name="My tokens").click()
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    expect(receipt).to_have_count(0)
    page.go_back()
    page.reload()
    expect(receipt).to_contain_text(digest.hexdigest())
    receipt.get_by_role("button", name="Dismiss").click()
    expect(receipt).to_have_count(0)


def test_selection_across_pages_revokes_only_selected_tokens(console: Console, window: Windows) -> None:
    holder = console.person("holder", GENERATE)
    made = {f"job {number:02}": console.token(holder.urn, name=f"job {number:02}")[0] for number in range(25)}
    page = window(console.root).open(f"/console/all-tokens?actor={holder.urn}&q=job&sort=name&order=ASCENDING")
    page.get_by_label("Select job 03").check()
    page.get_by_role("link", name="Next page").click()
    page.get_by_label("Select job 21").check()
    page.get_by_role("button", name="Revoke selected…").click()
    revoke_after_dry_run(page, 2)
    expect(page.get_by_role("status").filter(has_text="Revoked 2 tokens")).to_be_visible()
    dead = {name for name, token in made.items() if console.server.verify(token).status_code == 401}
    assert dead == {"job 03", "job 21"}


def test_token_created_after_the_dry_run_stops_the_revocation(console: Console, window: Windows) -> None:
    busy = console.person("busy", GENERATE)
    made = [console.token(busy.urn, name=f"run {number}")[0] for number in range(2)]
    opened = window(console.root)
    page = opened.open(f"/console/all-tokens?actor={busy.urn}&q=run")
    page.get_by_role("button", name="Revoke all matching…").click()
    expect(page.get_by_role("heading", name="Dry run: 2 tokens of 1 actor")).to_be_visible()
    made.append(console.token(busy.urn, name="run 2")[0])
    revoke_after_dry_run(page, 2)
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("3 tokens match; atMost is")
    assert {console.server.verify(token).status_code for token in made} == {204}
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Dry run: 3 tokens of 1 actor")).to_be_visible()
    revoke_after_dry_run(page, 3)
    expect(page.get_by_role("status").filter(has_text="Revoked 3 tokens")).to_be_visible()
    assert {console.server.verify(token).status_code for token in made} == {401}


def test_dry_run_names_tokens_and_warns_about_the_own_session(console: Console, window: Windows) -> None:
    boss = console.person("boss", GENERATE, MANAGE_ALL)
    console.token(boss.urn, name="spare")
    page = window(boss).open(f"/console/all-tokens?actor={boss.urn}")
    page.get_by_role("button", name="Revoke all matching…").click()
    expect(page.get_by_text("you will be signed out")).to_be_visible()
    expect(page.get_by_role("table", name="Tokens to revoke")).to_contain_text("spare")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Revoke 2 tokens…")).to_have_count(0)
    assert console.server.verify(boss.token).status_code == 204


def test_html_in_a_token_name_is_escaped(console: Console, window: Windows) -> None:
    name = '<img src=x onerror="alert(1)"> & <script>1</script>'
    who = console.person("mallory", GENERATE)
    console.token(who.urn, name=name)
    page = window(console.root).open(f"/console/all-tokens?actor={who.urn}")
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    assert page.locator("main img, main script").count() == 0


def test_token_filters_are_kept_in_the_url(console: Console, window: Windows) -> None:
    who = console.person("filtered", GENERATE)
    console.token(who.urn, name="short", duration="ONE_DAY")
    console.token(who.urn, name="long", duration="ONE_YEAR")
    page = window(console.root).open(f"/console/all-tokens?actor={who.urn}")
    page.locator("#filter-expires").select_option("Within 7 days")
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.locator("main tbody tr")).to_contain_text("short")
    expect(page).to_have_url(re.compile("expires=week"))
    page.reload()
    expect(page.locator("#filter-expires")).to_have_value("week")
    expect(page.locator("main tbody tr")).to_have_count(1)


def test_all_tokens_page_is_denied_without_the_privilege(console: Console, window: Windows) -> None:
    user = console.person("user", GENERATE)
    opened = window(user)
    page = opened.open("/console/all-tokens")
    expect(page.get_by_role("link", name="All tokens")).to_have_count(0)
    expect(page.get_by_role("heading", name="Access denied")).to_be_visible()
    expect(page.locator("main")).to_contain_text("You lack Manage All Access Tokens for /console/all-tokens")
    answer = console.server.post("{ listAccessTokens(input: {filters: []}) { total } }", token=user.token).json()
    assert answer["errors"][0]["extensions"]["code"] == 403

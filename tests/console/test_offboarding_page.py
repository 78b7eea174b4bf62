"""The offboarding page: step by step, by keyboard alone, left and resumed, with a receipt."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Windows
from tests.console.test_every_page import NARROW, violations
from tests.support.console import Console, Person
from tests.support.server import GENERATE, MANAGE_ALL

ACCOUNTS = "MANAGE_SERVICE_ACCOUNTS"
PLAN = """mutation ($urn: String!) { offboardActor(input: {urn: $urn}) {
  tokenCount tokensForOthersCount groups policies { urn }
  suspension { tokens { count digest } tokensForOthers { count digest } } } }"""
MOST_STOPS = 120


def leaver_of(console: Console, colleague: Person) -> Person:
    """Somebody with eleven tokens, two made for a colleague, an account, a group and a policy."""
    leaver = console.person("leaver", GENERATE, MANAGE_ALL, ACCOUNTS)
    for number in range(10):
        console.token(leaver.urn, name=f"job-{number}")
    for name in ("shared-report", "shared-export"):
        console.token(colleague.urn, name=name, by=leaver)
    console.ask('mutation { createServiceAccount(input: {displayName: "Nightly run"}) { urn } }', by=leaver)
    group = console.ask(f'mutation {{ createGroup(input: {{id: "{leaver.name}", name: "Leavers"}}) }}')["createGroup"]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    console.ask(add, {"input": {"groupUrn": group, "userUrns": [leaver.urn]}})
    return leaver


def tab_to(page: Page, target: Locator) -> None:
    """By the Tab key alone."""
    expect(target).to_be_visible()
    for _ in range(MOST_STOPS):
        if target.evaluate("(node) => node === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {target}")


def press(page: Page, target: Locator, key: str = "Enter") -> None:
    tab_to(page, target)
    page.keyboard.press(key)


def step(page: Page, name: str) -> Locator:
    return page.get_by_role("heading", name=name, exact=True, level=2)


def test_person_is_offboarded_by_keyboard_with_a_receipt(console: Console, window: Windows) -> None:
    colleague = console.person("colleague", GENERATE)
    leaver = leaver_of(console, colleague)
    window(leaver).open()
    opened = window(console.root)
    page = opened.open(f"/console/actors/{leaver.urn}")
    press(page, page.get_by_role("link", name="Offboard…"))
    expect(step(page, "Suspend")).to_be_visible()
    assert violations(page) == []
    press(page, page.get_by_role("button", name=f"Suspend {leaver.name}"))
    expect(step(page, "Own tokens")).to_be_focused()
    assert console.server.verify(leaver.token).status_code == 401

    # Left, and resumed where something is to do.
    opened.go(page, "/console/tokens")
    opened.go(page, f"/console/actors/{leaver.urn}/offboard")
    expect(step(page, "Own tokens")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="job-3")).to_contain_text("suspended")
    press(page, page.get_by_role("button", name="Revoke 11 tokens…"))
    sure = page.get_by_role("dialog", name="Revoke 11 tokens?")
    expect(sure.get_by_role("button", name="Revoke 11 tokens")).to_be_disabled()
    assert violations(page) == []
    tab_to(page, sure.get_by_label("Type 11 to confirm"))
    page.keyboard.type("11")
    page.keyboard.press("Enter")

    expect(step(page, "Tokens for others")).to_be_visible()
    press(page, page.get_by_label("Select shared-report"), "Space")
    press(page, page.get_by_role("button", name="Revoke 1 selected…"))
    press(page, page.get_by_role("dialog").get_by_role("button", name="Revoke 1 token"))
    expect(page.get_by_role("status").filter(has_text="Revoked 1 token")).to_be_visible()
    press(page, page.get_by_role("link", name="Next: Service accounts"))
    expect(page.get_by_role("link", name="Nightly run")).to_be_visible()
    press(page, page.get_by_role("link", name="Next: Groups and policies"))
    press(page, page.get_by_role("button", name=f"Remove {leaver.name} from 1 group"))
    expect(page.get_by_text("is a member of no group")).to_be_visible()
    press(page, page.get_by_role("button", name=re.compile(f"Remove {leaver.name} from for ")))
    expect(page.get_by_text("No policy names")).to_be_visible()
    press(page, page.get_by_role("link", name="Next: Receipt"))

    plan = console.ask(PLAN, {"urn": leaver.urn})["offboardActor"]
    assert (plan["tokenCount"], plan["tokensForOthersCount"], plan["groups"], plan["policies"]) == (0, 1, [], [])
    since = plan["suspension"]
    assert (since["tokens"]["count"], since["tokensForOthers"]["count"]) == (11, 1)
    receipt = page.locator(".receipt")
    for words in (leaver.urn, since["tokens"]["digest"], since["tokensForOthers"]["digest"], "11 tokens revoked",
                  "shared-export", "it belongs to another actor", "Nightly run"):  # fmt: skip
        expect(receipt).to_contain_text(words)
    tab_to(page, page.get_by_label("Note"))
    page.keyboard.type("Keys of the office returned.")
    page.reload()
    expect(page.get_by_label("Note")).to_have_value("Keys of the office returned.")
    expect(receipt).to_contain_text("member of none; removed from Leavers")
    expect(receipt).to_contain_text(f"named by none; removed from for {leaver.name}")
    expect(receipt).to_contain_text("none open; 1 ended by the suspension")

    other = console.person("boss", "MANAGE_POLICIES", MANAGE_ALL, ACCOUNTS)
    theirs = window(other).open(f"/console/actors/{leaver.urn}/offboard?step=receipt").locator(".receipt")
    for words in (f"by {console.root.name}", "11 tokens revoked", since["tokens"]["digest"], "shared-export",
                  "none open; 1 ended", "none; removed from Leavers", f"removed from for {leaver.name}"):  # fmt: skip
        expect(theirs).to_contain_text(words)

    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Print")).to_be_hidden()
    expect(page.get_by_label("Steps")).to_be_hidden()
    expect(page.locator(".printed-note")).to_have_text("Keys of the office returned.")


def test_offboarding_page_passes_axe_and_fits_a_phone(console: Console, window: Windows) -> None:
    leaver = leaver_of(console, console.person("colleague"))
    page = (opened := window(console.root, theme="dark", width=NARROW)).open()
    for word in ("suspend", "tokens", "forOthers", "accounts", "access", "receipt"):
        opened.go(page, f"/console/actors/{leaver.urn}/offboard?step={word}")
        assert violations(page) == [], word
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, word


def test_policy_of_a_file_does_not_count_as_left(console: Console, window: Windows) -> None:
    leaver = console.person("leaver")
    declared = {
        "id": leaver.name,
        "name": "Readers",
        "privileges": ["VIEW_AUDIT_LOG"],
        "actors": {"users": [leaver.urn]},
    }
    console.ask(
        "mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) { unchanged } }",
        {"input": {"set": leaver.name, "policies": [declared]}},
    )
    page = window(console.root).open(f"/console/actors/{leaver.urn}/offboard?step=access")
    expect(page.locator("#step-access")).to_contain_text("1 cannot be changed here")
    expect(page.get_by_role("listitem").filter(has_text="Readers")).to_contain_text(
        "stays: it comes from a policy file"
    )
    page.get_by_role("link", name="Next: Receipt").click()
    expect(page.locator(".receipt")).to_contain_text("named by 1 policy")
    expect(page.locator(".receipt")).to_contain_text("change the file")


def test_receipt_names_the_file_that_may_bring_a_membership_back(console: Console, window: Windows) -> None:
    leaver = console.person("leaver")
    window(leaver).open()
    group = {"id": leaver.name, "name": "Operations", "members": [leaver.urn]}
    console.ask(
        "mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) { unchanged } }",
        {"input": {"set": leaver.name, "policies": [], "groups": [group]}},
    )
    address = f"/console/actors/{leaver.urn}/offboard?step="
    opened = window(console.root)
    page = opened.open(address + "access")
    sentence = f"A policy file, set {leaver.name}, declares the group Operations. If the file names {leaver.name}"
    expect(page.locator(".warning").filter(has_text=sentence)).to_be_visible()
    console.ask(
        "mutation ($urn: String!) { offboardActor(input: {urn: $urn, dryRun: false}) { dryRun } }", {"urn": leaver.urn}
    )
    for word in ("access", "receipt"):
        opened.go(page, address + word)
        expect(page.locator(".warning").filter(has_text=sentence)).to_be_visible()
    expect(page.locator(".receipt")).to_contain_text("member of none; removed from Operations")
    # In one request, sessions end before the suspension.
    expect(page.locator(".receipt")).to_contain_text("none open; 1 ended by the suspension")


def test_offboarding_is_offered_only_with_its_privileges(console: Console, window: Windows) -> None:
    other = console.person("other")
    boss = console.person("boss", "MANAGE_POLICIES")
    page = window(boss).open(f"/console/actors/{other.urn}")
    expect(page.get_by_role("button", name=f"Suspend {other.name}…")).to_be_visible()
    expect(page.get_by_role("link", name="Offboard…")).to_have_count(0)
    page = window(boss).open(f"/console/actors/{other.urn}/offboard")
    expect(page.get_by_role("alert")).to_contain_text("Manage All Access Tokens")

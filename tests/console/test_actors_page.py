"""The actors page: suspend and resume actors, manage groups."""

import re

from playwright.sync_api import expect

from tests.console.conftest import Windows
from tests.support.console import Console
from tests.support.server import GENERATE


def test_suspended_actor_loses_session_and_tokens_until_resumed(console: Console, window: Windows) -> None:
    mallory = console.person("mallory", GENERATE)
    theirs = window(mallory)
    theirs.watch.allow("401")
    other = theirs.open("/console/tokens")
    expect(other.get_by_role("heading", name="My tokens")).to_be_visible()

    page = window(console.root).open("/console/actors")
    page.get_by_role("searchbox").fill(mallory.name)
    page.get_by_role("searchbox").press("Enter")
    page.get_by_role("link", name=mallory.name).click()
    page.get_by_role("button", name=f"Suspend {mallory.name}…").click()
    sure = page.get_by_role("dialog", name=f"Suspend {mallory.name}?")
    expect(sure).to_contain_text("1 live token and 1 session")
    sure.get_by_role("button", name=f"Suspend {mallory.name}").click()
    expect(page.get_by_role("row", name=re.compile(mallory.name))).to_contain_text("suspended")
    assert console.server.verify(mallory.token).status_code == 401

    other.reload()
    expect(other).to_have_url(re.compile("/console/sign-in"))
    listed = window(console.root).open(f"/console/all-tokens?actor={mallory.name}")
    expect(listed.get_by_role("row", name=re.compile(mallory.name))).to_contain_text("suspended")
    listed.get_by_role("link", name="to sign in with").click()
    details = listed.get_by_role("dialog", name="to sign in with")
    expect(details).to_contain_text("suspended")
    expect(details.get_by_role("button", name=re.compile("^Revoke"))).to_be_visible()
    expect(details.get_by_role("button", name=re.compile("^Rotate"))).to_have_count(0)

    page.get_by_role("button", name=f"Resume {mallory.name}…").click()
    page.get_by_role("button", name=f"Resume {mallory.name}", exact=True).click()
    expect(page.get_by_role("row", name=re.compile(mallory.name))).to_contain_text("active")
    assert console.server.verify(mallory.token).status_code == 204


def test_name_of_an_actor_is_shown_with_initials_and_the_urn_on_demand(console: Console, window: Windows) -> None:
    ann = console.person("ann", GENERATE)
    page = window(console.root).open(f"/console/actors/{ann.urn}")
    page.get_by_role("button", name="Name…").click()
    page.locator("#actor-name").fill("Ann Example")
    page.locator("#actor-email").fill("ann@example.com")
    page.get_by_role("button", name="Save").click()
    panel = page.get_by_role("dialog", name="Ann Example")
    expect(panel).to_contain_text("ann@example.com")
    expect(panel).to_contain_text(ann.urn)
    page.get_by_role("link", name="Close details").click()
    page.get_by_role("searchbox").fill("ann example")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("row").filter(has_text="Ann Example")).to_be_visible()
    listed = window(console.root).open(f"/console/all-tokens?actor={ann.name}")
    shown = listed.get_by_role("table").get_by_text("Ann Example").first
    expect(shown).to_have_attribute("title", ann.urn)
    expect(shown).to_have_attribute("data-initials", "AE")
    expect(window(ann).open("/console/tokens").locator(".who")).to_have_text("Ann Example")


def test_root_actor_and_own_actor_have_no_suspend_button(console: Console, window: Windows) -> None:
    boss = console.person("boss", "MANAGE_POLICIES")
    opened = window(boss)
    for urn, why in ((console.root.urn, "The root actor cannot be suspended"), (boss.urn, "This is you")):
        page = opened.open(f"/console/actors/{urn}")
        expect(page.get_by_role("dialog")).to_contain_text(why)
        expect(page.get_by_role("button", name=re.compile("Suspend"))).to_have_count(0)


def test_group_page_manages_members_and_deletes_the_group(console: Console, window: Windows) -> None:
    carol = console.person("carol")
    group = f"ops-{carol.name}"
    page = window(console.root).open("/console/actors?show=groups")
    page.get_by_role("button", name="New group").first.click()
    page.get_by_label("Name").fill("Operations")
    page.get_by_label("Id").fill(group)
    page.get_by_role("button", name="Create group").click()
    panel = page.get_by_role("dialog", name="Operations")
    panel.get_by_label("Add members").fill(f"{carol.urn}, urn:li:corpuser:dave")
    panel.get_by_label("Add members").press("Enter")
    page.get_by_role("dialog", name="Use dave").get_by_role("button", name="Use dave").click()
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(panel.get_by_role("heading", name="2 members")).to_be_visible()
    panel.get_by_role("button", name=f"Remove {carol.name}").click()
    page.get_by_role("button", name=f"Remove {carol.name}", exact=True).last.click()
    expect(panel.get_by_role("heading", name="1 member")).to_be_visible()
    panel.get_by_label("Add members").fill("urn:li:corpGroup:other")
    panel.get_by_label("Add members").press("Enter")
    expect(panel.locator("#new-members-note")).to_contain_text("No actor here is named")
    panel.get_by_role("button", name="Delete Operations…").click()
    page.get_by_role("button", name="Delete Operations", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Deleted the group Operations")).to_be_visible()
    expect(panel).to_have_count(0)


def test_actors_are_paged_by_name(console: Console, window: Windows) -> None:
    word = console.person("crowd").name
    urns = [f"urn:li:corpuser:{word}-{number:02}" for number in range(25)]
    policy = {"type": "PLATFORM", "name": word, "state": "ACTIVE", "privileges": [GENERATE], "actors": {"users": urns}}
    console.ask("mutation ($i: PolicyUpdateInput!) { createPolicy(input: $i) }", {"i": policy})
    page = window(console.root).open(f"/console/actors?q={word}-")
    names = page.locator("main tbody th a")
    expect(names).to_have_count(20)
    page.get_by_role("link", name="Next").click()
    expect(names).to_have_text([f"{word}-{number:02}" for number in range(20, 25)])
    page.go_back()
    expect(names).to_have_count(20)


def test_deleting_a_group_names_the_policies_that_grant_to_it(console: Console, window: Windows) -> None:
    word = console.person("team").name
    group = console.ask(f'mutation {{ createGroup(input: {{id: "{word}", name: "{word}"}}) }}')["createGroup"]
    users = [f"urn:li:corpuser:{word}-{number}" for number in range(10)]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    console.ask(add, {"input": {"groupUrn": group, "userUrns": users}})
    page = window(console.root).open(f"/console/actors/{group}?show=groups")
    page.get_by_role("button", name=f"Delete {word}…").click()
    sure = page.get_by_role("dialog", name=f"Delete {word}?")
    expect(sure).to_contain_text("No active policy names it")
    expect(sure.get_by_role("button", name=f"Delete {word}")).to_be_enabled()
    page.keyboard.press("Escape")
    policy = {"type": "PLATFORM", "name": f"What {word} may", "state": "ACTIVE", "privileges": [GENERATE]}
    create = "mutation ($i: PolicyUpdateInput!) { createPolicy(input: $i) }"
    console.ask(create, {"i": policy | {"actors": {"groups": [group]}}})
    page.get_by_role("button", name=f"Delete {word}…").click()
    expect(sure).to_contain_text(f"What {word} may")
    expect(sure.get_by_role("button", name=f"Delete {word}")).to_be_disabled()
    expect(sure.get_by_label("Type 10 to confirm")).to_be_visible()


def test_administrator_sees_and_ends_the_sessions_of_others(console: Console, window: Windows) -> None:
    alice, boss = console.person("alice", GENERATE), console.person("boss", "MANAGE_POLICIES")
    theirs = window(alice)
    theirs.watch.allow("status of 401")
    page = theirs.open("/console/sessions")
    expect(page.get_by_role("row").filter(has_text="this browser")).to_have_count(1)
    expect(page.get_by_role("link", name="Everyone's")).to_have_count(0)
    admin = window(boss).open("/console/sessions")
    admin.get_by_role("link", name="Everyone's").click()
    row = admin.get_by_role("row").filter(has_text=alice.name)
    expect(row).to_have_count(1)
    admin.get_by_label("Of one actor").fill(alice.name)
    admin.get_by_label("Of one actor").press("Enter")
    expect(admin).to_have_url(re.compile("actor="))
    admin.get_by_role("button", name=f"End… the session of {alice.name}").click()
    admin.get_by_role("button", name="End session").click()
    expect(admin.get_by_text(f"Ended the session of {alice.name}")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

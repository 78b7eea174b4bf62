"""The policies page: create, check, change and delete policies; built-in policies are read-only."""

import re
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console
from tests.support.server import CREATE_POLICY, GENERATE, MANAGE_ALL

AUDIT, AUDIT_LOG = "View Audit Log", "VIEW_AUDIT_LOG"


def check_privilege(page: Page, actor: str, privilege: str) -> None:
    page.get_by_label("May", exact=True).fill(actor)
    page.get_by_label("do", exact=True).select_option(privilege)
    page.get_by_role("button", name="Check").click()


def test_policy_is_created_checked_changed_and_deleted(console: Console, window: Windows) -> None:
    reader = console.person("reader")
    name = f"Audit for {reader.name}"
    page = window(console.root).open("/console/policies")
    check_privilege(page, reader.name, AUDIT)
    expect(page.locator("#answer")).to_contain_text("You lack the privilege 'View Audit Log'")

    page.get_by_role("link", name="New policy").click()
    expect(page.get_by_role("heading", name="New policy")).to_be_focused()
    page.get_by_label("Name", exact=True).fill(name)
    expect(page.get_by_role("dialog")).to_contain_text("Read the audit log.")
    page.get_by_role("checkbox", name=re.compile(f"^{AUDIT}")).check()
    effect = page.get_by_role("region", name="Effect of saving")
    expect(effect).to_contain_text("applies to no one")
    page.get_by_role("combobox", name="People and groups").fill(reader.name)
    page.get_by_role("option", name=reader.name).click()
    expect(effect).to_contain_text(f"1 person gains {AUDIT}: {reader.name}")
    chosen = page.get_by_role("list", name="Chosen").get_by_role("listitem")
    page.get_by_role("combobox", name="People and groups").fill(console.root.urn)
    page.keyboard.press("Enter")
    expect(chosen).to_have_count(2)
    page.get_by_role("combobox", name="People and groups").fill("no-such-person")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Use no-such-person").click()
    expect(chosen.filter(has_text="not known here")).to_contain_text("no-such-person")
    for typed in ("no-such-person", console.root.name):
        page.get_by_role("button", name=f"Remove {typed}").click()
    expect(chosen).to_have_count(1)
    page.get_by_role("button", name="Create policy").click()
    expect(page.get_by_role("status").filter(has_text=f"Created the policy {name}")).to_be_visible()
    expect(page.locator("#answer")).to_contain_text("Yes")
    expect(page.locator("#answer").get_by_role("link", name=name)).to_be_visible()

    page.get_by_role("table", name="Policies").get_by_role("link", name=name).click()
    page.get_by_role("checkbox", name="Active").uncheck()
    page.get_by_role("button", name="Save policy").click()
    policies = page.get_by_role("table", name="Policies")  # until the matrix is redrawn, its row has this name too
    expect(policies.get_by_role("row", name=re.compile(name))).to_contain_text("inactive")
    expect(page.locator("#answer")).to_contain_text("may not do")

    page.get_by_role("table", name="Policies").get_by_role("link", name=name).click()
    page.get_by_role("button", name=f"Delete {name}…").click()
    expect(page.get_by_role("dialog", name=f"Delete {name}?")).to_contain_text("No one gains or loses anything.")
    page.get_by_role("button", name=f"Delete {name}", exact=True).click()
    expect(page.get_by_role("status").filter(has_text=f"Deleted the policy {name}")).to_be_visible()
    expect(page.get_by_role("table", name="Policies").get_by_role("link", name=name)).to_have_count(0)


def test_saving_an_unchanged_policy_keeps_its_actors(console: Console, window: Windows) -> None:
    name = f"Strange names of {console.person('maker').name}"
    users = ["urn:li:corpuser:urn:li:corpuser:mallory", "urn:other:admin", "urn:li:corpuser:a:b"]
    policy = {"type": "PLATFORM", "name": name, "state": "ACTIVE", "privileges": ["VIEW_AUDIT_LOG"]}
    urn = console.ask(CREATE_POLICY, {"input": {**policy, "actors": {"users": users}}})["createPolicy"]
    page = window(console.root).open(f"/console/policies/{quote(urn)}")
    page.get_by_role("textbox", name="Description").fill("changed")
    page.get_by_role("button", name="Save policy").click()
    expect(page.get_by_role("status").filter(has_text=f"Changed the policy {name}")).to_be_visible()
    kept = console.ask("query ($urn: String!) { getPolicy(urn: $urn) { description actors { users } } }", {"urn": urn})
    assert kept["getPolicy"]["description"] == "changed"
    assert sorted(kept["getPolicy"]["actors"]["users"]) == sorted(users)


def test_permission_check_names_the_granting_group_and_privilege(console: Console, window: Windows) -> None:
    member = console.person("member")
    group = f"urn:li:corpGroup:{member.name}"
    console.ask(f'mutation {{ createGroup(input: {{id: "{member.name}", name: "Team"}}) }}')
    console.ask(f'mutation {{ addGroupMembers(input: {{groupUrn: "{group}", userUrns: ["{member.urn}"]}}) }}')
    policy = {
        "type": "PLATFORM",
        "name": f"Team {member.name}",
        "state": "ACTIVE",
        "privileges": ["MANAGE_ACCESS_TOKENS"],
    }
    console.ask(
        "mutation ($i: PolicyUpdateInput!) { createPolicy(input: $i) }",
        {"i": {**policy, "actors": {"groups": [group]}}},
    )
    page = window(console.root).open(f"/console/policies?actor={member.urn}&privilege={GENERATE}")
    expect(page.locator("#answer li")).to_have_text(
        re.compile(rf"Team {member.name} names their group Team, by “Manage All Access Tokens”, which includes it")
    )


def test_built_in_policy_says_why_it_is_read_only(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/policies")
    page.get_by_role("link", name="Root actor").click()
    panel = page.get_by_role("dialog", name="Root actor")
    expect(panel).to_contain_text("WATCHWORD_ROOT_ACTOR")
    expect(panel.get_by_role("button", name=re.compile("Save|Delete"))).to_have_count(0)
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(page).to_have_url(re.compile("/console/policies$"))


def test_policy_error_is_shown_at_its_field_and_input_is_kept(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/policies/new")
    page.get_by_label("Name", exact=True).fill("half done")
    page.get_by_role("button", name="Create policy").click()
    expect(page.locator("[data-field=policy-privileges]").get_by_role("alert")).to_contain_text("at least one of")
    page.get_by_role("checkbox", name=re.compile(f"^{AUDIT}")).check()
    page.get_by_role("combobox", name="People and groups").fill("Ops Team")
    page.get_by_role("button", name="Create policy").click()
    expect(page.locator("[data-field=policy-subjects]").get_by_role("alert")).to_contain_text(
        "“Ops Team” is not chosen"
    )
    expect(page.get_by_label("Name", exact=True)).to_have_value("half done")


def test_matrix_shows_granted_and_included_privileges(console: Console, window: Windows) -> None:
    page = window(console.root).open("/console/policies")
    matrix = page.get_by_role("region", name="Privileges and scopes, and who has them")
    expect(matrix.get_by_role("columnheader", name="admin", exact=True)).to_be_visible()
    expect(matrix.get_by_role("row", name=re.compile("Manage Policies"))).to_contain_text("by Root actor")


def test_matrix_reaches_all_who_hold_a_right(console: Console, window: Windows) -> None:
    word = console.person("held").name
    users = [f"urn:li:corpuser:{word}-{number:02}" for number in range(30)]
    policy = {"type": "PLATFORM", "name": f"Many {word}", "state": "ACTIVE", "privileges": ["VIEW_AUDIT_LOG"]}
    urn = console.ask(CREATE_POLICY, {"input": {**policy, "actors": {"users": users}}})["createPolicy"]
    page = window(console.root).open("/console/policies")
    matrix = page.get_by_role("region", name="Privileges and scopes, and who has them")
    pages = page.get_by_role("navigation", name="Pages of actors and groups")
    seen: set[str] = set()
    for start in range(1, 1000, 12):
        expect(pages.get_by_role("status")).to_have_text(re.compile(rf"^{start}\D"))
        seen.update(matrix.get_by_role("columnheader").evaluate_all("all => all.map((one) => one.title)"))
        if not pages.get_by_role("link", name="Next").count():
            break
        pages.get_by_role("link", name="Next").click()
    assert set(users) <= seen
    console.ask("mutation ($urn: String!) { deletePolicy(urn: $urn) }", {"urn": urn})


def test_groups_are_shown_by_name_wherever_a_policy_names_them(console: Console, window: Windows) -> None:
    viewer = console.person("viewer", "VIEW_POLICIES")
    group, unnamed = f"urn:li:corpGroup:{viewer.name}", f"urn:li:corpGroup:{viewer.name}-unnamed"
    console.ask(f'mutation {{ createGroup(input: {{id: "{viewer.name}", name: "Name of {viewer.name}"}}) }}')
    console.ask(f'mutation {{ addGroupMembers(input: {{groupUrn: "{group}", userUrns: ["{viewer.urn}"]}}) }}')
    # With the most privileges, they are on the first page of the matrix.
    rights = {"type": "PLATFORM", "state": "ACTIVE", "privileges": ["MANAGE_POLICIES", MANAGE_ALL, AUDIT_LOG]}
    policy = {**rights, "name": f"Of groups {viewer.name}", "actors": {"groups": [group, unnamed]}}
    urn = console.ask(CREATE_POLICY, {"input": policy})["createPolicy"]

    opened = window(console.root)
    page = opened.open(f"/console/policies?q=groups+{viewer.name}&may={AUDIT_LOG}")
    row = page.get_by_role("table", name="Policies").get_by_role("row").filter(has_text=f"Of groups {viewer.name}")
    for text, title in ((f"group Name of {viewer.name}", group), (f"group {viewer.name}-unnamed", unnamed)):
        expect(row.get_by_text(text, exact=True)).to_have_attribute("title", title)
        header = page.locator(f'.matrix th[title="{title}"]')
        expect(header).to_have_text(text)
    expect(page.locator("#holders")).to_contain_text(f"to the group Name of {viewer.name}")

    opened.go(page, f"/console/actors?q={viewer.name}")
    named = page.get_by_role("row").filter(has_text=viewer.name).get_by_text(f"Name of {viewer.name}", exact=True)
    expect(named).to_have_attribute("title", group)
    opened.go(page, f"/console/actors/{viewer.urn}")
    panel = page.get_by_role("dialog", name=viewer.name)
    expect(panel.get_by_role("link", name=f"Name of {viewer.name}").locator("span")).to_have_attribute("title", group)
    console.ask("mutation ($urn: String!) { deletePolicy(urn: $urn) }", {"urn": urn})


def test_policy_grants_scopes_which_can_be_checked(console: Console, window: Windows) -> None:
    caller = console.person("caller")
    name = f"Reports for {caller.name}"
    page = window(console.root).open("/console/policies/new")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("combobox", name="People and groups").fill(caller.name)
    page.get_by_role("option", name=caller.name).click()
    page.get_by_role("textbox", name="Scopes of other services").fill("Reports")
    page.get_by_role("button", name="Create policy").click()
    expect(page.locator("[data-field=policy-scopes]").get_by_role("alert")).to_contain_text("scopes must be a scope")
    page.get_by_role("textbox", name="Scopes of other services").fill("reports:* orders:read")
    page.get_by_role("button", name="Create policy").click()
    policies = page.get_by_role("table", name="Policies")
    expect(policies.get_by_role("row", name=re.compile(name))).to_contain_text("orders:read, reports:*")
    matrix = page.get_by_role("region", name="Privileges and scopes, and who has them")
    expect(matrix.get_by_role("row", name=re.compile("orders:read"))).to_contain_text("by Root actor")

    page.get_by_label("May", exact=True).fill(caller.name)
    page.get_by_label("or use the scope").fill("reports:read")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#answer")).to_contain_text("may use the scope “reports:read”")
    expect(page.locator("#answer li")).to_contain_text("by “reports:*”, which includes it")
    page.locator("#answer").get_by_role("link", name=caller.name, exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Scope orders:read")


def test_policy_for_no_one_or_with_a_dangerous_privilege_asks_first(console: Console, window: Windows) -> None:
    chief, helper = console.person("chief"), console.person("helper")
    console.ask(
        "mutation ($i: SetActorInput!) { setActor(input: $i) }", {"i": {"urn": chief.urn, "displayName": "Grace Chief"}}
    )
    console.ask(f'mutation {{ createGroup(input: {{id: "{helper.name}", name: "Helpers of Grace"}}) }}')
    group = f"urn:li:corpGroup:{helper.name}"
    console.ask(f'mutation {{ addGroupMembers(input: {{groupUrn: "{group}", userUrns: ["{helper.urn}"]}}) }}')
    name = f"Chiefs {chief.name}"
    page = window(console.root).open("/console/policies/new")
    page.get_by_label("Name", exact=True).fill(name)
    expect(page.locator("label.choice", has_text="Manage Policies")).to_contain_text("can grant more to itself")
    page.get_by_role("checkbox", name=re.compile("^Manage Policies")).check()
    page.get_by_role("button", name="Create policy").click()
    empty = page.get_by_role("dialog", name="Save a policy for no one?")
    expect(empty).to_contain_text("applies to no one")
    page.keyboard.press("Escape")
    expect(empty).to_have_count(0)

    subjects = page.get_by_role("combobox", name="People and groups")
    for text in ("grace chief", "helpers of grace"):
        subjects.fill(text)
        expect(page.locator("[role=option]")).to_have_count(1)
        subjects.press("ArrowDown")
        subjects.press("Enter")
    effect = page.get_by_role("region", name="Effect of saving")
    page.get_by_role("link", name="Close details").click()
    page.get_by_role("link", name="New policy").click()
    expect(page.get_by_role("list", name="Chosen")).to_contain_text("Grace Chief")
    expect(effect).to_contain_text(f"2 people gain Manage Policies: Grace Chief, {helper.name}")
    page.get_by_role("button", name="Create policy").click()
    page.get_by_role("dialog", name=f"Save {name}?").get_by_role("button", name="Save policy").click()
    expect(page.get_by_role("status").filter(has_text=f"Created the policy {name}")).to_be_visible()

    page.get_by_label("Who has", exact=True).select_option("Manage Policies")
    page.get_by_role("button", name="List").click()
    holders = page.get_by_role("table", name="Who holds it, and by which policy")
    expect(holders.get_by_role("row", name=re.compile("Grace Chief"))).to_contain_text(name)
    expect(holders.get_by_role("row", name=re.compile(helper.name))).to_contain_text(
        f"{name} to the group Helpers of Grace"
    )
    expect(page).to_have_url(re.compile("may=MANAGE_POLICIES"))
    expect(page.locator("#holders")).to_contain_text(
        "Can be gained by who holds one of these: Manage All Access Tokens, Manage Service Accounts."
    )
    page.get_by_label("May", exact=True).fill("nobody-yet")
    page.get_by_label("or use the scope").fill("reports:read")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#question").get_by_role("alert")).to_contain_text("“nobody-yet” is not chosen")
    page.get_by_role("option", name="nobody-yet").click()
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#answer")).to_contain_text("No one of this name is known here yet.")
    expect(page.locator("#asked-privilege")).to_have_value("")


def test_viewer_reads_policies_and_is_offered_no_change(console: Console, window: Windows) -> None:
    viewer = console.person("viewer", "VIEW_POLICIES")
    page = window(viewer).open("/console/policies")
    check_privilege(page, console.root.name, AUDIT)
    expect(page.locator("#answer")).to_contain_text("Yes")
    table = page.get_by_role("table", name="Policies")
    table.get_by_role("link", name="Everyone reads task status").click()
    panel = page.get_by_role("dialog", name="Everyone reads task status")
    expect(panel).to_contain_text("To change it needs Manage Policies.")
    expect(panel).to_contain_text("all users")
    expect(panel.get_by_role("button", name=re.compile("Save|Delete"))).to_have_count(0)
    expect(page.get_by_role("link", name="New policy")).to_have_count(0)
    expect(page.get_by_role("navigation").get_by_role("link", name="Actors")).to_have_count(0)

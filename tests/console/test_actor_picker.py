"""Wherever an actor is typed: names are looked up, and only what was chosen counts."""

import re
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console, Person
from tests.support.server import GENERATE

SET_NAME = "mutation ($input: SetActorInput!) { setActor(input: $input) }"
MAKE_GROUP = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
MAKE_ACCOUNT = "mutation ($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) { urn } }"
MEMBERS = """query ($urn: String!) { listGroupMembers(input: {groupUrn: $urn, start: 0, count: 50}) {
  members { urn } } }"""


def named(console: Console, word: str, name: str) -> Person:
    who = console.person(word)
    console.ask(SET_NAME, {"input": {"urn": who.urn, "displayName": name}})
    return who


def group_page(console: Console, window: Windows, word: str) -> tuple[Page, str]:
    group: str = console.ask(MAKE_GROUP, {"input": {"id": word, "name": word}})["createGroup"]
    return window(console.root).open(f"/console/actors/{quote(group)}?show=groups"), group


def members(console: Console, group: str) -> list[str]:
    return [one["urn"] for one in console.ask(MEMBERS, {"urn": group})["listGroupMembers"]["members"]]


def options(page: Page) -> Locator:
    return page.locator("[role=option]")


def test_first_and_last_name_adds_the_one_actor_who_is_named_so(console: Console, window: Windows) -> None:
    word = console.person("countess").name
    ada = named(console, "ada", f"Ada {word}")
    page, group = group_page(console, window, f"engine-{word}")
    box = page.get_by_role("combobox", name="Add members")
    box.fill(f"Ada {word}")
    page.get_by_role("button", name="Add", exact=True).click()
    error = page.locator("[data-field=new-members]").get_by_role("alert")
    expect(error).to_contain_text(f"“Ada {word}” is not chosen")
    expect(box).to_be_focused()
    assert members(console, group) == []

    box.press("Enter")
    chosen = page.get_by_role("list", name="Chosen").get_by_role("listitem")
    expect(chosen).to_contain_text(f"Ada {word} {ada.urn}")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(f"Added 1 actor to engine-{word}.")).to_be_visible()
    assert members(console, group) == [ada.urn]


def test_namesakes_are_a_choice(console: Console, window: Windows) -> None:
    word = console.person("twin").name
    name = f"Sam {word}"
    one, other = named(console, "sam", name), named(console, "samuel", name)
    page, group = group_page(console, window, f"twins-{word}")
    box = page.get_by_role("combobox", name="Add members")
    box.fill(name.upper())
    box.press("Enter")
    expect(page.locator("#new-members-note")).to_contain_text(f"2 are named “{name.upper()}”. Choose one.")
    expect(page.get_by_role("list", name="Chosen").get_by_role("listitem")).to_have_count(0)
    expect(options(page)).to_have_count(2)
    options(page).filter(has_text=other.urn).click()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("Added 1 actor")).to_be_visible()
    assert members(console, group) == [other.urn] != [one.urn]


def test_unknown_actor_is_marked_and_used_only_after_a_question(console: Console, window: Windows) -> None:
    word = console.person("group").name
    page, group = group_page(console, window, f"new-{word}")
    stranger = f"newcomer-of-{word}"
    box = page.get_by_role("combobox", name="Add members")
    box.fill(stranger)
    expect(options(page)).to_contain_text(["not known here"])
    box.press("Enter")
    question = page.get_by_role("dialog", name=f"Use {stranger}, which is not known here?")
    expect(question).to_contain_text(f"urn:li:corpuser:{stranger}")
    question.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("list", name="Chosen").get_by_role("listitem")).to_have_count(0)
    box.fill("Nobody Of This Name")
    box.press("Enter")
    expect(page.locator("#new-members-note")).to_contain_text("No actor here is named “Nobody Of This Name”")
    expect(options(page)).to_have_count(0)

    box.fill(stranger)
    box.press("Enter")
    question.get_by_role("button", name=f"Use {stranger}").click()
    expect(page.get_by_role("list", name="Chosen").get_by_role("listitem")).to_contain_text("not known here")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("Added 1 actor")).to_be_visible()
    assert members(console, group) == [f"urn:li:corpuser:{stranger}"]


def test_several_pasted_names_are_chosen_except_those_that_are_not_clear(console: Console, window: Windows) -> None:
    word = console.person("paste").name
    name = f"Kim {word}"
    first, _ = named(console, "kim", name), named(console, "kimberly", name)
    other = named(console, "lovelace", f"Byron, {word}")
    page, _ = group_page(console, window, f"pasted-{word}")
    box = page.get_by_role("combobox", name="Add members")
    box.fill(f"{first.urn}; {name}; Byron, {word}")
    box.press("Enter")
    chosen = page.get_by_role("list", name="Chosen").get_by_role("listitem")
    expect(chosen).to_have_count(2)
    expect(chosen.nth(0)).to_contain_text(first.urn)
    expect(chosen.nth(1)).to_contain_text(other.urn)
    expect(box).to_have_value(name)
    expect(page.locator("#new-members-note")).to_contain_text(f"2 are named “{name}”")
    options(page).filter(has_text="kimberly").click()
    expect(chosen).to_have_count(3)
    expect(box).to_have_value("")


def test_new_token_for_the_name_of_an_account_is_the_account_s(console: Console, window: Windows) -> None:
    word = console.person("ci").name
    account = console.ask(MAKE_ACCOUNT, {"input": {"displayName": f"CI-{word}"}})["createServiceAccount"]["urn"]
    page = window(console.root).open("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("deploys")
    page.get_by_label("None").check()
    box = page.get_by_role("combobox", name="Acts as")
    expect(page.locator("#actorUrn-note")).to_have_text(console.root.urn)
    box.fill(f"CI-{word}")
    expect(page.locator("#summary")).to_contain_text(f"as “CI-{word}”, who is not chosen yet")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("[data-field=actorUrn]").get_by_role("alert")).to_contain_text("is not chosen")
    options(page).filter(has_text=account).click()
    expect(page.locator("#actorUrn-note")).to_have_text(account)
    expect(page.locator("#summary")).to_contain_text(f"as CI-{word},")
    page.get_by_role("button", name="Create token").click()
    token = page.locator("#secret").inner_text()
    about = "query ($token: String!) { getAccessTokenMetadata(token: $token) { actorUrn } }"
    assert console.ask(about, {"token": token})["getAccessTokenMetadata"]["actorUrn"] == account
    page.get_by_role("button", name="I have stored it").click()

    page = window(console.root).open("/console/tokens/new")
    page.get_by_role("combobox", name="Acts as").fill("")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("[data-field=actorUrn]").get_by_role("alert")).to_contain_text("Choose an actor")


def test_events_are_filtered_by_the_name_of_an_actor(console: Console, window: Windows) -> None:
    word = console.person("clerk").name
    clerk = named(console, "clerk", f"Grace {word}")
    console.token(clerk.urn, name="of the clerk")
    page = window(console.root).open("/console/activity")
    about = page.get_by_role("combobox", name="About")
    about.fill(f"grace {word}")
    about.press("Enter")
    expect(page).to_have_url(re.compile(quote(clerk.urn, safe="")))
    expect(about).to_have_value(f"Grace {word}")
    expect(page.locator("#list")).to_contain_text("of the clerk")

    about.fill(f"Grace M. {word}")
    about.press("Tab")
    expect(page.locator("#filter-about-note")).to_contain_text("No actor here is named")
    expect(about).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#list")).to_contain_text("of the clerk")
    about.fill("")
    about.press("Enter")
    expect(page).not_to_have_url(re.compile("about="))


def test_name_in_an_address_is_looked_up_before_anything_is_listed(console: Console, window: Windows) -> None:
    word = console.person("listed").name
    clerk = named(console, "lister", f"Lin {word}")
    page = window(console.root).open(f"/console/all-tokens?actor={quote(f'Lin {word}')}")
    expect(page.get_by_role("table").get_by_role("link", name="to sign in with")).to_have_count(1)
    expect(page.get_by_role("list", name="Filters")).to_contain_text(f"Actor: Lin {word}")
    expect(page).to_have_url(re.compile(quote(clerk.urn, safe="")))
    for path in ("all-tokens", "activity", "sessions"):
        page.goto(f"/console/{path}?actor={quote(f'Lin of {word}')}")
        expect(page.get_by_role("heading", name=f"“Lin of {word}” is not chosen")).to_be_visible()
        expect(page.get_by_text(f"No actor here is named “Lin of {word}”.")).to_be_visible()
        expect(page.get_by_text(re.compile("No (event|token) matches"))).to_have_count(0)


def test_filter_of_someone_who_may_not_look_up_names_takes_ids(console: Console, window: Windows) -> None:
    reader = console.person("auditor", "VIEW_AUDIT_LOG")
    who = console.person("audited", GENERATE)
    page = window(reader).open("/console/activity")
    about = page.get_by_role("combobox", name="About")
    about.fill("Some Body")
    about.press("Enter")
    expect(page.locator("#filter-about-note")).to_contain_text("“Some Body” is not an id or urn.")
    about.fill(who.name)
    about.press("Enter")
    expect(page.locator("#list")).to_contain_text("to sign in with")
    expect(page.locator("#filter-about-note")).to_have_text(who.urn)


def test_webhook_is_limited_to_the_chosen_actors_and_groups(console: Console, window: Windows) -> None:
    word = console.person("hook").name
    who = named(console, "hooked", f"Hedy {word}")
    wanted = {"id": f"hooked-{word}", "name": f"The hooked {word}"}
    group: str = console.ask(MAKE_GROUP, {"input": wanted})["createGroup"]
    page = window(console.root).open("/console/webhooks?form=new")
    page.get_by_label("Name", exact=True).fill(word)
    page.get_by_label("URL", exact=True).fill("https://example.com/hook")
    page.get_by_role("combobox", name="Only events by").fill(f"hedy {word}")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("[data-field=hook-actors]").get_by_role("alert")).to_contain_text("is not chosen")
    page.get_by_role("combobox", name="Only events by").press("Enter")
    page.get_by_role("combobox", name="Only events about tokens of groups").fill(f"the hooked {word}")
    page.get_by_role("combobox", name="Only events about tokens of groups").press("Enter")
    expect(page.get_by_role("list", name="Chosen").get_by_role("listitem")).to_have_count(2)
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("#secret")).to_be_visible()
    page.get_by_role("button", name="I have stored it").click()
    hooks = console.ask("{ listWebhooks(input: {count: 100}) { webhooks { id name actorUrns groupUrns } } }")
    made = next(one for one in hooks["listWebhooks"]["webhooks"] if one["name"] == word)
    console.ask("mutation ($id: String!) { deleteWebhook(id: $id) }", {"id": made["id"]})
    assert (made["actorUrns"], made["groupUrns"]) == ([who.urn], [group])

"""Accessibility of the panels and forms on the admin pages."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Windows
from tests.console.test_every_page import COMBINATIONS, violations
from tests.support.browser import Window
from tests.support.console import Console
from tests.support.profiles import Theme
from tests.support.server import GENERATE


def panel_paths(console: Console) -> list[str]:
    who = console.person("panel")
    group = console.ask(f'mutation {{ createGroup(input: {{id: "{who.name}", name: "Panel"}}) }}')["createGroup"]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    console.ask(add, {"input": {"groupUrn": group, "userUrns": [who.urn]}})
    policy = console.allow(who.urn, GENERATE)
    made = console.ask('mutation { createServiceAccount(input: {displayName: "Panel"}) { urn } }')
    account = made["createServiceAccount"]["urn"]
    console.token(account, type="SERVICE_ACCOUNT")
    return [
        f"/console/accounts/{quote(account)}",
        f"/console/policies/{quote(policy)}?actor={who.urn}&privilege={GENERATE}",
        "/console/policies/new",
        "/console/policies/urn:li:servicePolicy:root",
        f"/console/actors/{quote(who.urn)}",
        f"/console/actors/{quote(group)}?show=groups",
    ]


def check_panels(opened: Window, addresses: list[str]) -> None:
    page = opened.open()
    for address in addresses:
        opened.go(page, address)
        expect(page.locator(".panel h2")).to_be_focused()
        assert violations(page) == [], address
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, address


def test_panel_passes_axe_and_fits_the_window(console: Console, window: Windows) -> None:
    """Each panel in one combination, the next panel in the other; the soak checks all."""
    addresses = panel_paths(console)
    for number, (width, theme) in enumerate(COMBINATIONS):
        check_panels(window(console.root, theme=theme, width=width), addresses[number::2])


@pytest.mark.soak
@pytest.mark.parametrize(("width", "theme"), COMBINATIONS)
def test_every_panel_passes_axe_in_both_themes(console: Console, window: Windows, width: int, theme: Theme) -> None:
    check_panels(window(console.root, theme=theme, width=width), panel_paths(console))


def test_dry_run_and_its_dialog_pass_axe(console: Console, window: Windows) -> None:
    who = console.person("planned")
    page = window(console.root).open(f"/console/all-tokens?actor={who.urn}")
    page.get_by_label("All 1 on this page").check()
    page.get_by_role("button", name="Revoke selected…").click()
    expect(page.get_by_role("heading", name="Dry run: 1 token of 1 actor")).to_be_focused()
    assert violations(page) == []
    page.get_by_role("button", name="Revoke 1 token…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []

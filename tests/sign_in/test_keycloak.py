"""Keycloak, set up as docs/how-to/sign-in.md says, and people who sign in with it in a real browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import chromium, confirm_logout, fill_login, settled
from tests.support.identity_providers import ProviderUser
from tests.support.keycloak import Keycloak, page_users, running_keycloak
from tests.support.ports import free_port
from tests.support.server import Server


@pytest.mark.soak
def test_people_of_keycloak_sign_in_lose_groups_and_are_signed_out(tmp_path: Path) -> None:
    port = free_port()
    alice = page_users()["alice"]
    with running_keycloak(tmp_path / "keycloak") as keycloak:
        settings = keycloak.set_up(f"http://127.0.0.1:{port}")
        with Server(tmp_path / "server", port=port, env=settings) as server, chromium() as browser:
            page = signed_in(browser, server, alice)
            assert manages_policies(page)

            keycloak.set_groups(alice, "staff")
            other = signed_in(browser, server, alice)
            assert not manages_policies(other)

            sign_out_at(keycloak, other)
            other.goto(server.url)
            expect(other).to_have_url(f"{server.url}/console/sign-in?next=%2F")
            page.goto(server.url)  # of another session at Keycloak
            settled(page)


def signed_in(browser: Browser, server: Server, user: ProviderUser) -> Page:
    page = browser.new_context().new_page()
    page.goto(f"{server.url}/sign-in")
    fill_login(page, user)
    page.wait_for_url(f"{server.url}/**")
    settled(page)
    return page


def manages_policies(page: Page) -> bool:
    """Whether the person does; everybody in these tests may create tokens."""
    answer = page.evaluate(
        """(query) => fetch("/api/graphql", {
          method: "POST",
          headers: {"Content-Type": "application/json", "X-Watchword-Console": "1"},
          body: JSON.stringify({query}),
        }).then((answer) => answer.json())""",
        "{ me { platformPrivileges { managePolicies generatePersonalAccessTokens } } }",
    )
    held = answer["data"]["me"]["platformPrivileges"]
    assert held["generatePersonalAccessTokens"]
    return bool(held["managePolicies"])


def sign_out_at(keycloak: Keycloak, page: Page) -> None:
    page.goto(f"{keycloak.url}/realms/company/protocol/openid-connect/logout")
    confirm_logout(page)
    expect(page.get_by_role("heading", name="You are logged out")).to_be_visible()

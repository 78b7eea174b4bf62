"""People sign in with an identity provider in a real browser: to the console, by their groups, and out again."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Window, confirm_logout, fill_login, held_back
from tests.support.console import Console
from tests.support.identity_providers import IdentityProvider, ProviderUser
from tests.support.keycloak import Keycloak, page_users, running_keycloak
from tests.support.ports import free_port
from tests.support.profiles import ProfilePool
from tests.support.server import CREATE_POLICY, GENERATE, Server
from tests.support.signing_in import signing_in_at, urn

SCOPE = "reports:read"


class Company(NamedTuple):
    """A server, its provider, and somebody there."""

    console: Console
    issuer: str
    sign_out_address: str
    user: ProviderUser
    display_name: str
    set_groups: Callable[..., None]


@pytest.fixture(scope="module", params=["oidc-provider", pytest.param("keycloak", marks=pytest.mark.soak)])
def company(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    if request.param == "keycloak":
        with running_keycloak(folder / "keycloak") as keycloak:
            yield from with_keycloak(keycloak, folder / "server")
    else:
        yield from with_oidc_provider(request.getfixturevalue("identity_provider"), folder)


def with_oidc_provider(provider: IdentityProvider, folder: Path) -> Iterator[Company]:
    user = provider.add_user("grace")

    def set_groups(*groups: str) -> None:
        provider.change_user(user.name, groups=list(groups))

    with signing_in_at(provider.register, folder, None, "--local-mode", "off") as server:
        out = f"{provider.issuer}/session/end"
        yield Company(Console(server), provider.issuer, out, user, "Grace", set_groups)


def with_keycloak(keycloak: Keycloak, folder: Path) -> Iterator[Company]:
    """Set up as docs/how-to/sign-in.md says."""
    port = free_port()
    settings = keycloak.set_up(f"http://127.0.0.1:{port}")
    keycloak.run("kcadm.sh create groups -r company -s name=analysts")
    user = page_users()["alice"]
    with Server(folder, "--local-mode", "off", port=port, env=settings) as server:
        issuer = settings["WATCHWORD_OIDC_ISSUER"]
        out = f"{issuer}/protocol/openid-connect/logout"
        set_groups = partial(keycloak.set_groups, user)
        yield Company(Console(server), keycloak.url, out, user, "Alice Adams", set_groups)


@pytest.fixture
def window(profiles: ProfilePool, company: Company) -> Iterator[Window]:
    opened = new_window(profiles, company)
    yield opened
    opened.close()


def new_window(profiles: ProfilePool, company: Company) -> Window:
    """The provider's pages are its own."""
    opened = Window(profiles.browser, company.console, pool=profiles)
    opened.watch.allow(re.escape(company.issuer))
    return opened


def sign_in(window: Window, company: Company) -> Page:
    page = window.open("/")
    page.get_by_role("link", name="Sign in with localhost").click()
    heading = page.get_by_role("heading", name="Overview")
    expect(heading.or_(page.locator("[name=password]"))).to_be_visible()
    if not heading.is_visible():
        fill_login(page, company.user)
    expect(heading).to_be_visible()
    return page


def test_person_gets_a_scope_by_a_group_and_loses_it_with_the_group(window: Window, company: Company) -> None:
    console = company.console
    policy = {"type": "PLATFORM", "name": "Analysts", "state": "ACTIVE", "privileges": [GENERATE], "scopes": [SCOPE]}
    console.ask(CREATE_POLICY, {"input": policy | {"actors": {"groups": ["urn:li:corpGroup:analysts"]}}})
    company.set_groups("analysts")
    page = sign_in(window, company)
    expect(page.get_by_text(company.display_name, exact=True)).to_be_visible()
    page.goto("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("reports")
    page.get_by_label("Everything its actor may do").check()
    page.get_by_role("button", name="Create token").click()
    token = page.locator("#secret").inner_text()
    assert may_read_reports(console, token)
    company.set_groups()
    page.get_by_role("link", name="My tokens").click()
    page.get_by_role("button", name="Leave").click()
    sign_out_here(window, page)
    sign_in(window, company)
    assert not may_read_reports(console, token)


def may_read_reports(console: Console, token: str) -> bool:
    asked = {"Authorization": f"Bearer {token}"}
    status = console.server.http.get(f"/auth?watchword.scope={SCOPE}", headers=asked).status_code
    assert status in {204, 403}
    return status == 204


def sign_out_here(window: Window, page: Page) -> None:
    window.watch.allow("status of 401")  # requests that the page sent just before
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Stay signed in there").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_sign_out_leads_to_the_provider_and_back(window: Window, company: Company) -> None:
    page = sign_in(window, company)
    window.watch.allow("status of 401")
    with page.expect_response(lambda answer: answer.status == 401), held_back(page, "Sessions"):
        page.locator(".who").click()
        page.get_by_role("button", name="Sign out").click()
        question = page.get_by_role("button", name="Sign out there too")
        expect(question).to_be_visible()
    question.click()  # it stays, although a request of the page failed meanwhile
    confirm_logout(page)
    expect(page).to_have_url(re.compile(f"^{re.escape(company.console.url)}/"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_role("link", name="Sign in with localhost").click()
    expect(page.locator("[name=password]")).to_be_visible()


def test_sign_out_at_the_provider_ends_the_console_session(window: Window, company: Company) -> None:
    page = sign_in(window, company)
    there = window.context.new_page()
    there.goto(company.sign_out_address)
    confirm_logout(there)
    expect(there.locator("[name=logout], [name=confirmLogout]")).to_have_count(0)
    window.watch.allow("status of 401")
    page.goto("/console/tokens")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_suspended_person_is_out_and_sees_why_when_signing_in_again(window: Window, company: Company) -> None:
    page = sign_in(window, company)
    window.watch.allow("status of 40[13]")
    status = "mutation ($urn: String!, $status: CorpUserStatus!) { updateUserStatus(urn: $urn, status: $status) }"
    company.console.ask(status, {"urn": urn(company.user), "status": "SUSPENDED"})
    try:
        page.goto("/console/tokens")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_role("link", name="Sign in with localhost").click()
        expect(page.get_by_role("alert")).to_contain_text("suspended")
        page.get_by_role("link", name="Back to sign-in").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    finally:
        company.console.ask(status, {"urn": urn(company.user), "status": "ACTIVE"})


def test_person_ends_the_session_of_another_browser(window: Window, company: Company, profiles: ProfilePool) -> None:
    page = sign_in(window, company)
    other = new_window(profiles, company)
    other.watch.allow("status of 401")
    there = sign_in(other, company)
    page.goto("/console/sessions")
    row = (
        page.get_by_role("row").filter(has_not=page.get_by_text("this browser")).filter(has=page.get_by_role("button"))
    )
    row.first.get_by_role("button", name="End").click()
    page.get_by_role("button", name="End session").click()
    expect(page.get_by_text("Ended the session")).to_be_visible()
    there.goto("/console/tokens")
    expect(there.get_by_role("heading", name="Sign in")).to_be_visible()
    other.close()

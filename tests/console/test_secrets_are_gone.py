"""After the page that showed or took a secret is left, no script in the browser can read the secret."""

from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window, settled
from tests.support.console import Console
from tests.support.server import GENERATE

EVERYTHING = """async () => JSON.stringify([
  document.documentElement.outerHTML, document.title, location.href, history.state, document.cookie, name,
  { ...localStorage }, { ...sessionStorage }, await indexedDB.databases(), await caches.keys(),
  [...document.querySelectorAll("input, textarea")].map((one) => one.value),
  performance.getEntries().map((one) => one.name),
])"""


def check_gone(opened: Window, page: Page, secret: str) -> None:
    settled(page)
    assert secret not in page.evaluate(EVERYTHING)
    assert secret.rpartition(".")[2] not in page.evaluate(EVERYTHING), "the signature"
    assert not [one for one in opened.watch.requests if secret in one]


def test_no_secret_is_left_after_its_page(console: Console, window: Windows) -> None:
    owner = console.person("owner", GENERATE)
    opened = window()
    page = opened.open("/console/sign-in")
    page.get_by_label("Access token").fill(owner.token)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator(".who")).to_be_visible()
    check_gone(opened, page, owner.token)

    page.goto("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("fleeting")
    page.get_by_label("None").check()
    page.get_by_role("button", name="Create token").click()
    created = page.locator("#secret").inner_text()
    assert created in page.evaluate(EVERYTHING)
    page.get_by_role("button", name="I have stored it").click()
    expect(page.get_by_role("heading", name="fleeting")).to_be_visible()
    check_gone(opened, page, created)
    page.go_back()
    check_gone(opened, page, created)

    page.goto("/console/tokens?q=fleeting")
    page.get_by_role("link", name="fleeting").click()
    page.get_by_role("button", name="Rotate").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate fleeting").click()
    rotated = page.locator("#secret").inner_text()
    page.get_by_role("link", name="My tokens").click()
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("heading", name="My tokens", level=1)).to_be_visible()
    check_gone(opened, page, rotated)
    page.reload()
    check_gone(opened, page, rotated)


def test_sign_out_asks_before_it_removes_a_secret(console: Console, window: Windows) -> None:
    opened = window(console.person("owner", GENERATE))
    page = opened.open("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("unkept")
    page.get_by_label("None").check()
    page.get_by_role("button", name="Create token").click()
    secret = page.locator("#secret").inner_text()
    page.get_by_role("button", name="Sign out").click()
    question = page.get_by_role("dialog", name="Leave without the token?")
    question.get_by_role("button", name="Stay").click()
    page.get_by_role("button", name="Check without using it").click()
    expect(page.get_by_text("The server accepts this token")).to_be_visible()
    assert "DELETE /session" not in opened.watch.requests
    page.get_by_role("button", name="Sign out").click()
    question.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    check_gone(opened, page, secret)

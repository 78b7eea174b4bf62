"""The lifecycle of a token in the console, by mouse and by keyboard."""

import re
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Windows
from tests.support.console import Console
from tests.support.server import GENERATE
from tests.support.waiting import SECONDS

CLIPBOARD = ["clipboard-read", "clipboard-write"]


def copy_text(page: Page, button: Locator) -> str:
    """Press the button and return the clipboard. The button shows for two seconds that it copied."""
    button.evaluate(
        """(node) => { node.said = new Promise((done) => new MutationObserver(() => done(node.dataset.done))
          .observe(node, { attributeFilter: ["data-done"] })) }"""
    )
    button.click()
    assert button.evaluate("(node) => node.said") == "yes"
    text: str = page.evaluate("() => navigator.clipboard.readText()")
    return text


def shell(lines: str) -> str:
    ran = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=SECONDS, check=True)
    return ran.stdout


def create_token(page: Page, name: str) -> None:
    page.get_by_role("link", name="New token").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Everything its actor may do").check()
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("heading", name=f"Created {name}")).to_be_visible()


def test_token_is_created_copied_used_revoked_and_rejected(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window(alice, permissions=CLIPBOARD).open("/console/tokens")
    create_token(page, "ci-deploy")
    secret = copy_text(page, page.get_by_role("button", name="Copy the token"))
    assert console.server.verify(secret).status_code == 204
    curl = copy_text(page, page.get_by_role("button", name="Copy the curl lines"))
    assert curl.count(secret) == 1
    assert shell(curl) == f'{{"data":{{"me":{{"corpUser":{{"urn":"{alice.urn}"}}}}}}}}'
    console.server.stop()  # the server writes uses in intervals and when it stops; the session survives the restart
    console.server.start()
    page.get_by_role("button", name="I have stored it").click()
    panel = page.get_by_role("dialog", name="ci-deploy")
    expect(panel.get_by_role("table", name="Uses of ci-deploy by day").get_by_role("row").last).to_contain_text("2")
    expect(panel.locator(".facts").last).to_contain_text("127.0.0.0/24")
    page.get_by_role("button", name="Revoke ci-deploy").click()
    asked = page.get_by_role("dialog", name="Revoke ci-deploy?")
    used = rf"(just now|\d+ minutes? ago), as {alice.name}, from 127\.0\.0\.0/24"
    expect(asked).to_contain_text(re.compile(used))
    expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
    asked.get_by_role("button", name="Revoke ci-deploy").click()
    expect(page.get_by_role("status").filter(has_text="ci-deploy")).to_be_visible()
    assert console.server.verify(secret).status_code == 401
    assert '"reason":"token_revoked' in shell(curl)


@pytest.mark.parametrize("way", ["Python", "CLI"])
def test_copied_example_lines_work(console: Console, window: Windows, way: str, tmp_path: Any) -> None:
    alice = console.person("alice", GENERATE)
    page = window(alice, permissions=CLIPBOARD).open("/console/tokens/new")
    page.get_by_label("Name", exact=True).fill("to try")
    page.get_by_label("None").check()
    page.get_by_role("button", name="Create token").click()
    page.get_by_role("tab", name=way).click()
    text = copy_text(page, page.get_by_role("button", name=f"Copy the {way} lines"))
    if way == "Python":
        ran = subprocess.run(
            [sys.executable, "-"], input=text, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        assert ran.stdout == f"{alice.urn}\n"
    else:
        path = sys.executable.rpartition("/")[0]
        assert alice.urn in shell(f"export HOME='{tmp_path}' PATH='{path}':$PATH\n{text}")
    page.get_by_role("button", name="I have stored it").click()


def test_leaving_the_secret_asks_only_once(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window(alice).open("/console/tokens")
    create_token(page, "forgotten")
    page.get_by_role("link", name="My tokens").click()
    asked = page.get_by_role("dialog", name="Leave without the token?")
    asked.get_by_role("button", name="Stay").click()
    expect(page.get_by_role("heading", name="Created forgotten")).to_be_visible()
    page.get_by_role("link", name="My tokens").click()
    asked.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    expect(page.get_by_role("link", name="forgotten")).to_be_visible()


def test_user_without_a_policy_sees_the_missing_privilege(console: Console, window: Windows) -> None:
    nobody = console.person("nobody")
    opened = window(nobody)
    page = opened.open("/console/tokens")
    main = page.locator("main")
    expect(main).to_contain_text("Generate Personal Access Tokens")
    expect(main).to_contain_text(nobody.urn)
    expect(page.get_by_role("link", name="New token")).to_have_count(0)
    assert page.get_by_role("navigation", name="Views").get_by_role("link").all_inner_texts() == [
        "Overview",
        "My tokens",
    ]
    before = len(opened.watch.requests)
    opened.go(page, "/console/policies")
    expect(page.get_by_role("heading", name="Access denied")).to_be_visible()
    assert [one for one in opened.watch.requests[before:] if "graphql" in one] == []


def test_scripts_in_names_do_not_run(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    name = '<img src=x onerror="alert(1)"><script>alert(2)</script>${alert(3)}'
    console.token(alice.urn, by=alice, name=name, description='"><svg onload=alert(4)>')
    opened = window(alice)
    page = opened.open("/console/tokens")
    page.on("dialog", lambda box: opened.watch.faults.append(f"a script ran: {box.message}"))
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("dialog", name=name)).to_contain_text('"><svg onload=alert(4)>')
    page.get_by_role("button", name="Revoke ").click()
    expect(page.locator("dialog")).to_contain_text(name)
    assert page.locator("main img, main script, dialog img").count() == 0


def test_token_is_created_and_revoked_by_keyboard(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    page = window(alice).open("/console/tokens")
    keys = page.keyboard
    keys.press("n")
    expect(page.get_by_role("heading", name="New token")).to_be_visible()
    tab_to(page, "Name")
    keys.type("by-keyboard")
    keys.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Select at least one scope")
    expect(page.get_by_label("Generate Personal Access Tokens")).to_be_focused()
    keys.press("Space")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Created by-keyboard")).to_be_focused()
    tab_to(page, "I have stored it")
    keys.press("Enter")
    expect(page.get_by_role("dialog", name="by-keyboard")).to_be_visible()
    tab_to(page, "Revoke by-keyboard…")
    keys.press("Enter")
    expect(page.get_by_role("dialog", name="Revoke by-keyboard?")).to_be_visible()
    tab_to(page, "Revoke by-keyboard")
    keys.press("Space")
    expect(page.get_by_role("status").filter(has_text="by-keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".panel")).to_have_count(0)
    keys.press("/")
    expect(page.get_by_role("combobox", name="Search or paste a token")).to_be_focused()


FOCUSED = """() => { const at = document.activeElement; const label = at.labels?.[0]?.textContent
  ?? at.getAttribute("aria-label") ?? at.textContent; return label.trim().replace(/\\s+/g, " ") }"""


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the named element has the focus; check that the focus is visible."""
    passed: list[str] = []
    while (at := page.evaluate(FOCUSED)) != name:
        assert len(passed) < 60, f"{name} is not reached: {passed}"
        passed.append(at)
        page.keyboard.press("Tab")
    outlined = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outlined != "none", f"the focus on {name} is not seen"

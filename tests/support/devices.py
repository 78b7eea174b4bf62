"""Device authorization as a terminal asks for it."""

import re
from typing import Any

import httpx

from tests.support.browsing import Browser
from tests.support.server import ADMIN, Server
from tests.support.terminal import Terminal

CLIENT = "watchword-cli"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


def ask(server: Server, **fields: str) -> httpx.Response:
    return server.http.post("/oauth2/device_authorization", data={"client_id": CLIENT, **fields})


def start(server: Server, **fields: str) -> Any:
    answer = ask(server, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def poll(server: Server, started: Any, **fields: str) -> httpx.Response:
    form = {"grant_type": DEVICE_CODE, "device_code": started["device_code"], "client_id": CLIENT, **fields}
    return server.http.post("/oauth2/token", data=form)


def outcome(answer: httpx.Response) -> tuple[int, str]:
    """The status and the OAuth error; "" for a token."""
    content = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert ("error" in content) != ("access_token" in content)
    return answer.status_code, content.get("error", "")


def decide(browser: Browser, started: Any, *, approve: bool | None) -> httpx.Response:
    return browser.send("POST", "/device", {"userCode": started["user_code"], "approve": approve})


def approve(browser: Browser, started: Any) -> None:
    answer = decide(browser, started, approve=True)
    assert answer.status_code == 200, answer.text


def shown_code(terminal: Terminal) -> Any:
    """What `watchword login` printed, once it has."""
    terminal.wait_for("Compare the code")
    found = re.search(r"Code: +(\S+)\nAddress: +(\S+)", terminal.text)
    assert found is not None, terminal.text
    return {"user_code": found[1], "verification_uri_complete": found[2]}


def approve_shown(server: Server, terminal: Terminal, actor: str = ADMIN) -> None:
    browser = Browser(server).signed_in(actor=actor)
    approve(browser, shown_code(terminal))
    browser.close()

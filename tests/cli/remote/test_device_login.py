"""`watchword login` without a token: a code to compare, a browser, and a token for this terminal."""

import getpass
import json
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.cli.in_process import watchword
from tests.support.browsing import Browser
from tests.support.clock import SetClock
from tests.support.devices import approve_shown, decide, shown_code
from tests.support.server import ADMIN, Server
from tests.support.terminal import Terminal
from tests.support.waiting import until


def test_approval_denial_expiry_and_ctrl_c_each_end_the_login(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    """All at once: a terminal polls every five seconds."""
    clock = SetClock(tmp_path / "clock")
    server, late = make_server(), make_server(env=clock.env)
    config = tmp_path / "config"
    env = {"XDG_CONFIG_HOME": str(config), "DISPLAY": "", "WAYLAND_DISPLAY": ""}

    def login(profile: str, at: Server) -> Terminal:
        return Terminal("login", "--profile", profile, "--url", at.url, env=env)

    with ExitStack() as stack:
        terminals = [
            stack.enter_context(login(name, at))
            for name, at in (("approved", server), ("denied", server), ("cancelled", server), ("expired", late))
        ]
        approved, denied, cancelled, expired = terminals
        approve_shown(server, approved)
        assert shown_code(approved)["verification_uri_complete"].startswith(f"{server.url}/device?user_code=")
        browser = Browser(server).signed_in(actor=ADMIN)
        assert decide(browser, shown_code(denied), approve=False).status_code == 200
        browser.close()
        shown_code(expired)
        clock.advance(601)
        shown_code(cancelled)
        assert cancelled.interrupt() == 130
        assert [terminal.finish() for terminal in (approved, denied, expired)] == [0, 1, 1]
    assert "Cancelled. You are not signed in." in cancelled.text
    assert "denied in the browser. You are not signed in." in denied.text
    assert "The code has expired. You are not signed in." in expired.text
    assert not any("Traceback" in terminal.text for terminal in terminals)
    assert sorted(file.name for file in (config / "watchword").glob("*.token")) == ["approved.token"]
    token = (config / "watchword" / "approved.token").read_text().strip()
    assert token not in approved.output
    assert f"URN         {ADMIN}" in approved.text
    listed = json.loads(watchword("token", "list", "--json", env=env).stdout)
    name = f"watchword-cli login on {getpass.getuser()}@{socket.gethostname()}"[:200]
    assert [one["name"] for one in listed if one["name"].startswith("watchword-cli")] == [name]
    assert "Its token was revoked" in watchword("logout", env=env).stdout
    assert server.verify(token).status_code == 401


def test_token_that_cannot_be_stored_is_revoked(server: Server, actor: str, tmp_path: Path) -> None:
    server.grant(actor)
    no_folder = tmp_path / "file"
    no_folder.touch()
    with Terminal("login", "--device", "--url", server.url, env={"XDG_CONFIG_HOME": str(no_folder)}) as terminal:
        approve_shown(server, terminal, actor)
        assert terminal.finish() == 1
    assert "The token of this terminal was not stored, and was revoked." in terminal.text
    assert "Traceback" not in terminal.text
    (token,) = server.tokens(actor, [{"field": "actorUrn", "value": actor}, {"field": "status", "value": "REVOKED"}])[
        "tokens"
    ]
    assert token["name"].startswith("watchword-cli login")


def test_browser_opens_on_the_page_where_there_is_a_display(server: Server, tmp_path: Path) -> None:
    opened, program = tmp_path / "opened", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.draft && mv {opened}.draft {opened}\n')
    program.chmod(0o700)
    env = {"XDG_CONFIG_HOME": str(tmp_path), "DISPLAY": ":9", "BROWSER": f"{program} %s"}
    with Terminal("login", "--url", server.url, env=env) as terminal:
        shown = shown_code(terminal)
        assert "in the browser that opened" in terminal.text
        until(opened.exists, "the browser opened")
        assert opened.read_text() == shown["verification_uri_complete"]
        assert terminal.interrupt() == 130
    opened.unlink()
    with Terminal("login", "--device", "--url", server.url, env=env) as terminal:
        shown_code(terminal)
        assert "in a browser at this address" in terminal.text
        assert terminal.interrupt() == 130
    assert not opened.exists()


def test_server_without_device_authorization_suggests_a_token(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server("--console", "off")
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    ran = watchword("login", "--device", "--url", server.url, env=env)
    assert ran.returncode == 1
    assert "has no device authorization. Sign in with a token: watchword login --token" in ran.stderr
    assert watchword("login", "--device", "--token", env=env).returncode == 2

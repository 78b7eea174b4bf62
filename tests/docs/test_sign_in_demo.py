"""`make sign-in-demo` starts a provider and a service that its users sign in to."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.clients import node_program
from tests.support.identity_providers import ProviderUser, browser_client, submit_login
from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.waiting import SECONDS, until

ME = "{ me { corpUser { urn } platformPrivileges { managePolicies generatePersonalAccessTokens } } }"


def test_users_of_the_demo_sign_in_with_the_rights_of_their_groups(tmp_path: Path) -> None:
    node_program()  # installed before, so that the demo starts within its time
    ports = (free_port(), free_port())
    log = tmp_path / "log"
    flags = ["--port", str(ports[0]), "--provider-port", str(ports[1]), "--folder", str(tmp_path / "demo")]
    with log.open("wb") as out:
        demo = subprocess.Popen(
            [sys.executable, ROOT / "scripts/sign-in-demo", *flags], stdout=out, stderr=out, start_new_session=True
        )
    try:
        until(lambda: "Ctrl-C" in log.read_text() or demo.poll() is not None, "the demo runs")
        assert demo.poll() is None, log.read_text()
        (url,) = re.findall(r"^Open (\S+)/ and sign in", log.read_text(), re.MULTILINE)
        users = re.findall(r"^  user (\w+), password (\S+),", log.read_text(), re.MULTILINE)
        rights = {name: manages_policies(url, ProviderUser(name, password)) for name, password in users}
        assert rights == {"alice": True, "bob": False}
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(SECONDS) == 0, log.read_text()


def manages_policies(url: str, user: ProviderUser) -> bool:
    with browser_client() as browser:
        browser.follow_redirects = True
        submit_login(browser, browser.get(f"{url}/sign-in"), user)
        own = {"X-Watchword-Console": "1", "Origin": url}
        answer = browser.post(f"{url}/api/graphql", json={"query": ME}, headers=own)
        me = answer.json()["data"]["me"]
        assert me["corpUser"]["urn"] == f"urn:li:corpuser:{user.name}"
        assert me["platformPrivileges"]["generatePersonalAccessTokens"]
        return bool(me["platformPrivileges"]["managePolicies"])

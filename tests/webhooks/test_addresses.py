"""Webhooks are sent to public addresses only, whatever form a URL or a name gives them."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.networks import has_namespaces
from tests.support.server import ADMIN, Server
from tests.support.system import missing
from tests.webhooks.test_webhooks import CREATE

REFUSED = [
    "http://example.com/",  # not https
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:70/",
    "//127.0.0.1/",
    "https:/127.0.0.1/",
    "https:///path",
    "https://",
    "https://127.0.0.1/",
    "https://127.0.0.1:8080/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.000.000.001/",
    "https://127.0.0.1./",
    "https://134744072/",  # 8.8.8.8 to some programs
    "https://0/",
    "https://0.0.0.0/",
    "https://localhost/",
    "https://LOCALHOST./",
    "https://a.localhost/",
    "https://10.0.0.1/",
    "https://172.16.5.4/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",  # shared address space
    "https://169.254.169.254/latest/meta-data/",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://[::]/",
    "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::ffff:127.0.0.1]/",  # IPv4-mapped
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::127.0.0.1]/",  # IPv4-compatible
    "https://[64:ff9b::127.0.0.1]/",  # NAT64
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[64:ff9b:1::8.8.8.8]/",  # NAT64 of a local network
    "https://[2002:7f00:1::]/",  # 6to4
    "https://[2002:a9fe:a9fe::1]/",
    "https://[2001:0:7f00:1::f7f7:f7f7]/",  # Teredo with a loopback server
    "https://[2001:0:808:808:0:0:80ff:fffe]/",  # Teredo of 127.0.0.1
    "https://[fe80::1]/",
    "https://[fe80::1%25lo]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[2001:db8::1]/",
    "https://[3fff::1]/",  # documentation
    "https://[2001:20::1]/",  # ORCHIDv2
    "https://[2001:4860:4860::8888%25lo]/",
    "https://[v1.x]/",
    "https://192.88.99.1/",
    "https://168.63.129.16/",
    "https://[::1/",
    "https://user@8.8.8.8/",
    "https://8.8.8.8@127.0.0.1/",
    "https://8.8.8.8:443@127.0.0.1/",
    "https://127.0.0.1\\@8.8.8.8/",
    "https://8.8.8.8#@127.0.0.1/",
    "https://8.8.8.8/#fragment",
    "https://①②⑦.⓪.⓪.①/",
    "https://１２７.0.0.1/",  # noqa: RUF001
    "https://127。0。0。1/",
    "https://ex ample.com/",
    "https://8.8.8.8:0/",
    "https://8.8.8.8:70000/",
    "https://8.8.8.8/a\r\nHost: b",
    "https://" + "a" * 3_000,
]
ALLOWED = [
    "https://8.8.8.8/",
    "https://8.8.8.8:8443/hooks?team=a",
    "https://[2001:4860:4860::8888]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[64:ff9b::8.8.8.8]/",
    "https://[2002:808:808::1]/",
]


def test_urls_that_lead_elsewhere_are_refused(server: Server) -> None:
    wanted = {"id": "hostile", "name": "x", "enabled": False}
    answers = {url: server.post(CREATE, {"input": wanted | {"url": url}}, actor=ADMIN).json() for url in REFUSED}
    for url, answer in answers.items():
        assert "errors" in answer, url
        assert answer["errors"][0]["extensions"]["field"] == "url"


@pytest.mark.parametrize("url", ALLOWED)
def test_urls_of_public_addresses_are_accepted(server: Server, url: str) -> None:
    wanted = {"id": "public", "name": "x", "url": url, "enabled": False}
    server.ask(CREATE, {"input": wanted}, actor=ADMIN)
    server.ask('mutation { deleteWebhook(id: "public") }', actor=ADMIN)


def test_failed_attempt_names_the_host_that_cannot_be_resolved(server: Server) -> None:
    wanted = {"id": "nowhere", "name": "x", "url": "https://hooks.invalid/", "enabled": False}
    server.ask(CREATE, {"input": wanted}, actor=ADMIN)
    tried = server.ask('mutation { testWebhook(id: "nowhere") { error } }', actor=ADMIN)["testWebhook"]
    assert tried["error"].startswith("The host name hooks.invalid cannot be resolved (")
    server.ask('mutation { deleteWebhook(id: "nowhere") }', actor=ADMIN)


@pytest.fixture(scope="module")
def in_own_network() -> dict[str, Any]:
    """What a program found in a network of its own, with a name server of its own: tests/support/rebinding.py."""
    if not has_namespaces():
        missing("needs root and network namespaces: unshare")
    words = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.support.rebinding"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_name_that_changes_its_address_is_checked_with_each_attempt(in_own_network: dict[str, Any]) -> None:
    """The name server first answers with a public address, then with loopback, where a program listens."""
    first, second = in_own_network["errors"]
    assert "Cannot connect: 8.8.8.8" in first  # to the public address, which cannot be reached from there
    assert "127.0.0.1, which is not public" in second
    assert in_own_network["connections"] == 0
    assert in_own_network["lookups"] == 2


def test_webhooks_whose_names_hang_do_not_delay_the_identity_provider(in_own_network: dict[str, Any]) -> None:
    """While all lookups of webhooks hang, the provider's name is resolved, and its listener closes the connection."""
    assert in_own_network["provider"] == "invalid"

"""The actor header from another machine: two network namespaces joined by a veth pair."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support.disks import no_disk_in_use
from tests.support.server import ADMIN, Server
from tests.support.system import missing, need_program, need_root
from tests.support.waiting import SECONDS

MakeServer = Callable[..., Server]

# Sends one request from inside a namespace with the standard library; prints the status, or the error's name.
ASK = """
import http.client, sys
host, port, name, actor, token = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port))
headers = {"Content-Type": "application/json", "Host": name, "X-Service-Actor": actor}
if token:
    headers["Authorization"] = "Bearer " + token
try:
    connection.request("POST", "/api/graphql", '{"query": "{ me { corpUser { urn } } }"}', headers)
    print(connection.getresponse().status)
except OSError as error:
    print(type(error).__name__)
"""


class Machines:
    """Two machines, as the network sees them: the server's and another."""

    def __init__(self, ip: str) -> None:
        self._ip = ip
        self.here, self.there = f"ww-s-{os.getpid()}", f"ww-c-{os.getpid()}"
        self.address = "10.213.77.1"

    def build(self) -> None:
        for name, cable, address in ((self.here, "here", self.address), (self.there, "there", "10.213.77.2")):
            self._run("netns", "add", name)
            if cable == "there":
                self._run("-n", self.here, "link", "add", "here", "type", "veth", "peer", "there", "netns", name)
                self._run("-n", self.here, "addr", "add", f"{self.address}/24", "dev", "here")
                self._run("-n", self.here, "link", "set", "here", "up")
                self._run("-n", name, "addr", "add", f"{address}/24", "dev", "there")
                self._run("-n", name, "link", "set", "there", "up")
            self._run("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in (self.here, self.there):
            with suppress(subprocess.CalledProcessError):
                self._run("netns", "del", name)

    def route_loopback(self) -> None:
        """Route the other machine's packets to 127.0.0.5 to the server's loopback, as a misconfigured host does."""
        for name, cable in ((self.here, "here"), (self.there, "there")):
            self.inside(name, "sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/{cable}/route_localnet")
        self._run("-n", self.there, "route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local")
        self._run("-n", self.there, "route", "add", "127.0.0.5/32", "dev", "there", "src", "10.213.77.2")

    def prefix(self, name: str) -> tuple[str, ...]:
        return (self._ip, "netns", "exec", name)

    def inside(self, name: str, *words: str) -> str:
        return subprocess.run(
            [*self.prefix(name), *words], check=True, capture_output=True, text=True, timeout=SECONDS
        ).stdout.strip()

    def ask(self, name: str, host: str, port: int, *, called: str, token: str = "") -> str:
        return self.inside(name, sys.executable, "-c", ASK, host, str(port), called, ADMIN, token)

    def _run(self, *words: str) -> None:
        subprocess.run([self._ip, *words], check=True, capture_output=True, timeout=SECONDS)


@pytest.fixture
def machines() -> Iterator[Machines]:
    need_root("makes network namespaces")
    made = Machines(need_program("ip", "iproute2"))
    try:
        made.build()
    except subprocess.CalledProcessError as error:
        made.remove()
        missing(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    with no_disk_in_use():  # commands run inside have their own mounts
        yield made
    made.remove()


def first_token(server: Server) -> str:
    made = server.command_line("token", "create", "--local", "--json")
    content: dict[str, Any] = json.loads(made.stdout)
    token: str = content["accessToken"]
    return token


def test_server_on_a_public_address_rejects_actor_headers(make_server: MakeServer, machines: Machines) -> None:
    server = make_server("--host", "0.0.0.0", prefix=machines.prefix(machines.here))
    token = first_token(server)
    for name, host in ((machines.there, machines.address), (machines.here, "127.0.0.1")):
        for called in ("localhost", "127.0.0.1", host, f"{host}:{server.port}"):
            assert machines.ask(name, host, server.port, called=called) == "401"
        assert machines.ask(name, host, server.port, called=host, token=token) == "200"


def test_local_server_is_unreachable_from_other_machines(make_server: MakeServer, machines: Machines) -> None:
    server = make_server(prefix=machines.prefix(machines.here))
    assert machines.ask(machines.here, "127.0.0.1", server.port, called="localhost") == "200"
    assert machines.ask(machines.there, machines.address, server.port, called="localhost") == "ConnectionRefusedError"


def test_local_server_rejects_actor_headers_from_other_machines(make_server: MakeServer, machines: Machines) -> None:
    """If a host routes its loopback, the packet arrives, but the peer's address is not of this machine."""
    server = make_server("--host", "127.0.0.5", prefix=machines.prefix(machines.here))
    token = first_token(server)
    try:
        machines.route_loopback()
    except subprocess.CalledProcessError as error:
        missing(f"loopback cannot be routed here: {error.stderr}")
    assert machines.ask(machines.here, "127.0.0.5", server.port, called="localhost") == "200"
    assert machines.ask(machines.there, "127.0.0.5", server.port, called="localhost") == "401"
    assert machines.ask(machines.there, "127.0.0.5", server.port, called="localhost", token=token) == "200"


def test_trusted_network_excludes_other_networks(make_server: MakeServer, machines: Machines) -> None:
    server = make_server(
        "--host", "0.0.0.0", "--trusted-peers", "10.213.77.2/32", prefix=machines.prefix(machines.here)
    )
    assert machines.ask(machines.there, machines.address, server.port, called="anything") == "200"
    assert machines.ask(machines.here, machines.address, server.port, called="anything") == "401"

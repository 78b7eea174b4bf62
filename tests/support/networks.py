"""Addresses for several machines on this one: a network namespace each, whose connections can be cut, or loopback.

As root, each machine is a namespace behind one bridge, and this process reaches all of them. Nothing has to be removed:
a namespace and its links end with the last process in it. Without root, the machines are loopback addresses.
"""

import functools
import itertools
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.support.system import missing, need_program

Hold = Callable[[Sequence[str]], int]
"""Start a process behind these words that lives as long as the network; return its id."""
PORTS = (2379, 2380, 5432, 8008)
BOGUS = "02:00:00:00:00:01"
"""An Ethernet address that no machine has: what is sent there is lost without an error."""


class Network:
    def __init__(self, machines: Sequence[str], hold: Hold) -> None:
        self.machines = list(machines)
        self._pids: dict[str, int] = {}
        if has_namespaces():
            self._pids = {machine: hold(["unshare", "--net"]) for machine in machines}
            switch = hold(["unshare", "--net"])
            self.prefix = _uplink(switch)
            self._connect(switch)
        else:
            self.prefix = next(p for n in range(1, 255) if _is_free(p := f"127.{n}.0", len(machines)))

    @property
    def subnet(self) -> str:
        """Of everyone who may connect."""
        return f"{self.prefix}.0/24" if self._pids else "127.0.0.0/8"

    def address(self, machine: str) -> str:
        return f"{self.prefix}.{11 + self.machines.index(machine)}"

    def enter(self, machine: str) -> list[str]:
        """The words before a command that runs on this machine."""
        return ["nsenter", f"--net=/proc/{self._pids[machine]}/ns/net"] if self._pids else []

    def cut(self, machine: str) -> None:
        """Lose every packet between this machine and the others. This process still reaches all of them."""
        if not self._pids:
            missing("needs root and network namespaces: ip netns")
        for one, other in self._pairs(machine):
            self._ip(one, "neigh", "replace", self.address(other), "lladdr", BOGUS, "dev", "eth0", "nud", "permanent")

    def repair(self, machine: str) -> None:
        for one, other in self._pairs(machine):
            self._ip(one, "neigh", "del", self.address(other), "dev", "eth0")

    def _pairs(self, machine: str) -> list[tuple[str, str]]:
        others = [other for other in self.machines if other != machine]
        return [(machine, other) for other in others] + [(other, machine) for other in others]

    def _connect(self, switch: int) -> None:
        inside = ["nsenter", f"--net=/proc/{switch}/ns/net", "ip"]
        _run(*inside, "link", "add", "br0", "type", "bridge")
        _run(*inside, "link", "set", "uplink", "master", "br0", "up")
        _run(*inside, "link", "set", "br0", "up")
        for machine, pid in self._pids.items():
            _run(*inside, "link", "add", machine, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            _run(*inside, "link", "set", machine, "master", "br0", "up")
            self._ip(machine, "link", "set", "lo", "up")
            self._ip(machine, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
            self._ip(machine, "link", "set", "eth0", "up")

    def _ip(self, machine: str, *words: str) -> None:
        _run(*self.enter(machine), "ip", *words)


@functools.cache
def has_namespaces() -> bool:
    if os.geteuid() != 0:
        return False
    need_program("ip", "iproute2")
    probe = ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _uplink(switch: int) -> str:
    """Connect this process to the switch; the name of the link reserves a subnet of the range for tests of networks
    (RFC 2544)."""
    for number in itertools.count(1):
        name, prefix = f"watchword{number}", f"198.18.{number}"
        words = ["ip", "link", "add", name, "type", "veth", "peer", "name", "uplink", "netns", str(switch)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            _run("ip", "addr", "add", f"{prefix}.1/24", "dev", name)
            _run("ip", "link", "set", name, "up")
            return prefix
        assert "exists" in done.stderr, done.stderr
    raise AssertionError


def _is_free(prefix: str, count: int) -> bool:
    with suppress(OSError):
        for host, port in itertools.product(range(11, 11 + count), PORTS):
            with socket.socket() as probe:
                probe.bind((f"{prefix}.{host}", port))
        return True
    return False


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"

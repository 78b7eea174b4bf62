"""Helpers for truncation by copy on a real node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.gate import Gate, asks
from tests.support.indexed import NodeIndex, Series
from tests.support.nodes import Client
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store, look
from tests.support.traffic import UNTIL, Traffic

MakeServer = Callable[..., Server]


@dataclass(frozen=True, slots=True)
class Copy:
    """A server with a gate before its index, and a series with traffic that bypasses the gate."""

    server: Server
    series: Series
    traffic: Traffic
    node: Client
    gate: Gate
    flags: tuple[str, ...]

    def begin(self, **fields: Any) -> str:
        return self.series.truncate(UNTIL, forceReindex=True, batchSize=200, **fields)

    def hold_while_copying(self) -> None:
        """It keeps copying, because it gets no task status."""
        self.gate.hold(asks("GET", "/_tasks/"), after=1)

    def kill(self) -> None:
        """Kill the server and expire its lease."""
        self.server.kill()
        change_store(self.server, "UPDATE operations SET held_until = 0")

    def stored_state(self) -> str:
        state: str = look(self.server, "SELECT state FROM operations ORDER BY number DESC LIMIT 1")[0][0]
        return state

    def check(self) -> None:
        """The index has the expected rows, accepts writes, and nothing else is left."""
        self.traffic.check()
        name = self.series.name
        settings = self.node.ask("GET", f"/{name}/_settings")
        assert len(settings) == 1
        assert all("blocks" not in told["settings"]["index"] for told in settings.values())
        left = self.node.ask("GET", f"/_cat/indices/{name}*?format=json&h=index")
        assert {one["index"] for one in left} == set(settings)


def copy_of(
    make_server: MakeServer, node: Client, gate: Gate, *, rate: int = 1_000, old: int = 3_000, new: int = 2_000,
    alias: bool = True, **settings: Any,
) -> Copy:  # fmt: skip
    """2,000 rows stay, which takes two seconds at this rate."""
    index = NodeIndex(node.url)
    flags = ("--index-url", gate.url, "--index-prefix", index.prefix, "--index-rate", str(rate))
    server = make_server(*flags)
    series = Series(server, index, server.create(ADMIN)["accessToken"])
    traffic = Traffic(node.url, series.name)
    traffic.fill(old=old, new=new, alias=alias, **settings)
    return Copy(server, series, traffic, node, gate, flags)

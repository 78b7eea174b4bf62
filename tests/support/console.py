"""A server as an organisation would run it, without local mode, and the people who use its console."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.server import ADMIN, CREATE, CREATE_POLICY, Server

CONSOLE_HEADER = "X-Watchword-Console"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Person:
    """Somebody with a token to sign in with."""

    urn: str
    token: str
    token_id: str

    @property
    def name(self) -> str:
        return self.urn.rpartition(":")[2]


class Console:
    """The server, and its root actor, whose first token was made on the store itself."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = server.url
        self.root = Person(ADMIN, *first_token(server))
        self.settings: dict[str, str] = {}
        """Of the environment in which commands run on its data folder."""

    def ask(self, query: str, variables: Mapping[str, Any] | None = None, *, by: Person | None = None) -> Any:
        return self.server.ask(query, variables, token=(by or self.root).token)

    def person(self, word: str, *privileges: str) -> Person:
        """Somebody new, who may do this and has one token, which root made."""
        urn = f"urn:li:corpuser:{word}-{next(_numbers)}"
        if privileges:
            self.allow(urn, *privileges)
        return Person(urn, *self.token(urn, name="to sign in with"))

    def allow(self, urn: str, *rights: str, name: str | None = None) -> str:
        """A policy for this one actor, of privileges and scopes; returns its urn."""
        wanted = {
            "type": "PLATFORM",
            "name": name or f"for {urn.rpartition(':')[2]}",
            "state": "ACTIVE",
            "privileges": [right for right in rights if right.isupper()],
            "scopes": [right for right in rights if not right.isupper()],
            "actors": {"users": [urn]},
        }
        made: str = self.ask(CREATE_POLICY, {"input": wanted})["createPolicy"]
        return made

    def token(self, urn: str, *, by: Person | None = None, **fields: Any) -> tuple[str, str]:
        """A new token of this actor and its id."""
        wanted = {"type": "PERSONAL", "actorUrn": urn, "duration": "ONE_MONTH", "name": "test", **fields}
        made = self.ask(CREATE, {"input": wanted}, by=by)["createAccessToken"]
        return made["accessToken"], made["metadata"]["id"]

    @classmethod
    def on(cls, folder: Path, *flags: str) -> Self:
        server = Server(folder, "--local-mode", "off", *flags).start()
        try:
            return cls(server)
        except BaseException:
            server.stop()
            server.http.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.server.http.close()


def first_token(server: Server) -> tuple[str, str]:
    """Made on the store, by whoever may read its folder; and its id."""
    made = server.command_line("token", "create", "--local", "--name", "first", "--port", str(server.port))
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    query = "query ($token: String!) { getAccessTokenMetadata(token: $token) { id } }"
    return token, server.ask(query, {"token": token}, token=token)["getAccessTokenMetadata"]["id"]


def now() -> int:
    return time.time_ns() // 1_000_000

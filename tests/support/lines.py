"""Lines: kept connections, each of which stays with one worker process."""

import http.client
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import psutil

from tests.support.server import ADMIN, CREATE, DELETE_POLICY, REVOKE, SET_STATUS, GraphQLRefused, Server
from tests.support.waiting import SECONDS, until


class Line:
    """One connection to a server, by the standard library: no pool that would take another in silence."""

    def __init__(self, server: Server, timeout: float = SECONDS) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
        self._http.connect()
        self._http.auto_open = 0
        self.port: int = self._http.sock.getsockname()[1]

    def close(self) -> None:
        self._http.close()

    @property
    def is_open(self) -> bool:
        """Not after an answer that ended the connection, such as a refusal before the body was read."""
        return self._http.sock is not None

    def __del__(self) -> None:
        self.close()

    def get(self, path: str, token: str | None = None) -> http.client.HTTPResponse:
        """An answer, read to its end."""
        self._http.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = self._http.getresponse()
        answer.read()
        return answer

    def verify(self, token: str) -> int:
        return self.get("/auth", token).status

    def post(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        actor: str = ADMIN,
        token: str | None = None,
    ) -> Any:
        """The JSON of the answer, errors and all."""
        who = {"X-Service-Actor": actor} if token is None else {"Authorization": f"Bearer {token}"}
        body = json.dumps({"query": query, "variables": variables or {}}).encode()
        self._http.request("POST", "/api/graphql", body, {**who, "Content-Type": "application/json"})
        return json.loads(self._http.getresponse().read())

    def ask(self, query: str, variables: Mapping[str, Any] | None = None, **who: Any) -> Any:
        answer = self.post(query, variables, **who)
        if "errors" in answer:
            raise GraphQLRefused(answer)
        return answer["data"]

    def create(self, of: str, **who: Any) -> tuple[str, str]:
        """A new token of this actor: its id and itself."""
        created = self.ask(CREATE, {"input": wanted(of)}, **who)["createAccessToken"]
        return created["metadata"]["id"], created["accessToken"]

    def create_many(self, of: str, count: int, **who: Any) -> list[tuple[str, str]]:
        made: list[tuple[str, str]] = []
        while len(made) < count:
            names = [f"t{index}" for index in range(min(20, count - len(made)))]
            fields = " ".join(
                f"{name}: createAccessToken(input: $input) {{ accessToken metadata {{ id }} }}" for name in names
            )
            document = f"mutation ($input: GetAccessTokenInput!) {{ {fields} }}"
            answer = self.ask(document, {"input": wanted(of)}, **who)
            made += [(answer[name]["metadata"]["id"], answer[name]["accessToken"]) for name in names]
        return made

    def revoke(self, token_id: str, **who: Any) -> bool:
        revoked: bool = self.ask(REVOKE, {"id": token_id}, **who)["revokeAccessToken"]
        return revoked

    def withdraw(self, policy: str) -> None:
        self.ask(DELETE_POLICY, {"urn": policy})

    def set_status(self, actor: str, status: str) -> None:
        self.ask(SET_STATUS, {"urn": actor, "status": status})


def wanted(of: str) -> dict[str, str]:
    return {"type": "PERSONAL", "actorUrn": of, "duration": "ONE_HOUR", "name": "test"}


def holder(workers: Iterable[psutil.Process], port: int) -> int | None:
    """The pid of the worker at the other end of the connection from this port."""
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            if any(end.raddr and end.raddr.port == port for end in worker.net_connections("tcp")):
                return worker.pid
    return None


def lines_to_each_worker(server: Server) -> list[Line]:
    """One line to each worker of the server."""
    found: dict[int, Line] = {}
    workers = server.workers()

    def each_is_reached() -> bool:
        """As long as it takes, and not so many times: while one of them is stopped, the others take everybody."""
        line = Line(server)
        line.get("/health/live")  # once it was answered, somebody holds it
        pid = holder(workers, line.port)
        if pid is None or pid in found:
            line.close()
        else:
            found[pid] = line
        return len(found) == len(workers)

    until(each_is_reached, f"a connection reaches each of {len(workers)} workers")
    return list(found.values())

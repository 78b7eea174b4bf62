"""A client with one call at a time that records start, end and answer."""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.linear.history import Call, History, Kind, Outcome, Verdict, refused
from tests.support.server import ADMIN, CREATE, CREATE_POLICY, DELETE_POLICY, GENERATE, REVOKE, SET_STATUS, Server

LIST = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens { name } } }"
TOTAL = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total } }"
PRIVILEGES = "query ($input: GetGrantedPrivilegesInput!) { getGrantedPrivileges(input: $input) { privileges } }"
PATIENCE = 30.0
"""Seconds for an answer. Longer than any fault lasts: a call to a stopped instance is answered once it goes on."""
KEPT = 5.0
"""Seconds for which a connection is kept without a call: servers close what is idle for longer."""
LOST = "lost"


@dataclass(frozen=True, slots=True)
class Token:
    name: str
    actor: str
    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: Any


class Client:
    """One kept connection to each instance."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self._history = history
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._used: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def renew(self, server: Server) -> None:
        connection = self._connections.pop(server.url, None)
        if connection is not None:
            connection.close()

    def verify(self, server: Server, token: Token) -> Outcome:
        """By /auth."""
        outcome, _ = self._recorded(
            Kind.VERIFY, server, token.actor, token.name, None, lambda: self._auth(server, token)
        )
        return outcome

    def create(
        self, server: Server, actor: str, name: str, bearer: Token | None = None
    ) -> tuple[Outcome, Token | None]:
        wanted = {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_HOUR", "name": name}
        outcome, made = self._ask(Kind.CREATE, server, actor, name, CREATE, {"input": wanted}, bearer)
        return outcome, None if made is None else Token(name, actor, made["metadata"]["id"], made["accessToken"])

    def revoke(self, server: Server, token: Token, bearer: Token | None = None) -> Outcome:
        return self._ask(Kind.REVOKE, server, token.actor, token.name, REVOKE, {"id": token.id}, bearer)[0]

    def list(self, server: Server, actor: str, count: int, bearer: Token | None = None) -> Outcome:
        wanted = {"input": {"filters": [{"field": "actorUrn", "value": actor}], "count": count}}
        return self._ask(Kind.LIST, server, actor, "", LIST if count else TOTAL, wanted, bearer)[0]

    def privileges(self, server: Server, actor: str, bearer: Token | None = None) -> Outcome:
        wanted = {"input": {"actorUrn": actor}}
        return self._ask(Kind.PRIVILEGES, server, actor, "", PRIVILEGES, wanted, bearer)[0]

    def set_status(self, server: Server, actor: str, kind: Kind) -> Outcome:
        wanted = {"urn": actor, "status": "SUSPENDED" if kind is Kind.SUSPEND else "ACTIVE"}
        return self._ask(kind, server, actor, "", SET_STATUS, wanted)[0]

    def grant(self, server: Server, actor: str, name: str) -> tuple[Outcome, str | None]:
        """Grant the minimum by a policy of this name; return its urn."""
        who = {"users": [actor]}
        wanted = {"type": "PLATFORM", "name": name, "state": "ACTIVE", "privileges": [GENERATE], "actors": who}
        return self._ask(Kind.GRANT, server, actor, name, CREATE_POLICY, {"input": wanted})

    def withdraw(self, server: Server, actor: str, name: str, urn: str) -> Outcome:
        return self._ask(Kind.WITHDRAW, server, actor, name, DELETE_POLICY, {"urn": urn})[0]

    def _ask(
        self,
        kind: Kind,
        server: Server,
        actor: str,
        name: str,
        query: str,
        variables: Any,
        bearer: Token | None = None,
    ) -> tuple[Outcome, Any]:
        """By GraphQL, as an administrator or with a bearer; returns the field of a successful response."""
        who = {"X-Service-Actor": ADMIN} if bearer is None else {"Authorization": f"Bearer {bearer.secret}"}
        body = json.dumps({"query": query, "variables": variables})
        headers = {**who, "Content-Type": "application/json"}
        return self._recorded(
            kind, server, actor, name, bearer, lambda: self._exchange(server, "POST", "/api/graphql", body, headers)
        )

    def _auth(self, server: Server, token: Token) -> Answer:
        return self._exchange(server, "GET", "/auth", None, {"Authorization": f"Bearer {token.secret}"})

    def _recorded(
        self, kind: Kind, server: Server, actor: str, name: str, bearer: Token | None, ask: Callable[[], Answer]
    ) -> tuple[Outcome, Any]:
        start = time.monotonic_ns()
        try:
            answer = ask()
        except ConnectionRefusedError:
            self.renew(server)
            outcome, content = Outcome(Verdict.NOTHING, f"{LOST}: nobody listened"), None
        except (OSError, http.client.HTTPException) as error:
            self.renew(server)
            outcome, content = _unanswered(kind, f"{LOST}: {type(error).__name__}"), None
        else:
            outcome, content = heard(kind, answer)
        end = time.monotonic_ns()
        with_bearer = None if bearer is None else bearer.name
        self._history.note(Call(kind, actor, outcome, start, end, name, with_bearer, self.name, server.url))
        return outcome, content

    def _exchange(self, server: Server, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        if time.monotonic() - self._used.get(server.url, 0) > KEPT:
            self.renew(server)
        connection = self._connections.get(server.url)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            self._connections[server.url] = connection
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        self._used[server.url] = time.monotonic()
        return Answer(answer.status, json.loads(text) if text else None)


def heard(kind: Kind, answer: Answer) -> tuple[Outcome, Any]:
    """The outcome of a response. An unknown one is kept as is, and no order will explain it."""
    content = answer.content
    if kind is Kind.VERIFY:
        if answer.status == 204:
            return Outcome(Verdict.OK), None
        error = (content or {}).get("error", {})
        return _not_done(kind, answer.status, error.get("reason", ""), error.get("message", "")), None
    if "errors" in content:
        error = content["errors"][0]
        told = error["extensions"]
        return _not_done(kind, told["code"], told["reason"], error["message"]), None
    (value,) = content["data"].values()
    if kind is Kind.LIST:
        names = [token["name"] for token in value["tokens"]] if "tokens" in value else None
        if names is not None and len(set(names)) != len(names):
            return refused("a token is listed twice"), None
        return Outcome(Verdict.OK, names=None if names is None else frozenset(names), total=value["total"]), value
    if kind is Kind.PRIVILEGES:
        return Outcome(Verdict.OK, granted=GENERATE in value["privileges"]), value
    return Outcome(Verdict.OK), value


def _not_done(kind: Kind, code: int, reason: str, message: str) -> Outcome:
    if code != 503:
        return refused(reason or str(code))
    unchanged = reason == "contended" or "nothing was changed" in message.lower()
    return Outcome(Verdict.NOTHING, reason) if unchanged else _unanswered(kind, reason)


def _unanswered(kind: Kind, why: str) -> Outcome:
    return Outcome(Verdict.UNKNOWN if kind.writes else Verdict.NOTHING, why)

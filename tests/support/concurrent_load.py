"""Concurrent clients that create and revoke tokens and record the answers."""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.lines import Line
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.waiting import SECONDS, until

DISCONNECTED = (OSError, http.client.HTTPException)
RETRIABLE = frozenset({"contended", "store_unavailable"})
"""Reasons given while another process holds the store's lock. Nothing was changed; a retry succeeds."""


def retry_until_done(ask: Callable[[], object]) -> None:
    while True:
        try:
            ask()
        except GraphQLRefused as refusal:
            if refusal.reason not in RETRIABLE:
                raise
        else:
            return


@dataclass
class Answers:
    """What the clients know. An unanswered revocation is in doubt."""

    created: dict[str, str] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)
    refused: list[Any] = field(default_factory=list)

    def add(self, other: "Answers") -> None:
        self.created |= other.created
        self.revoked |= other.revoked
        self.in_doubt |= other.in_doubt
        self.refused += other.refused

    def assert_kept(self, server: Server) -> None:
        """Every answered creation works and every answered revocation holds."""
        line = Line(server)
        verdicts = {token_id: line.verify(token) for token_id, token in self.created.items()}
        line.close()
        assert [i for i in self.revoked if verdicts[i] != 401] == [], "an answered revocation did not hold"
        alive = self.created.keys() - self.revoked - self.in_doubt
        assert [i for i in alive if verdicts[i] != 204] == [], "an answered creation was lost"


class ConcurrentLoad:
    """`with ConcurrentLoad(server) as load:` runs until the server is gone or the block ends."""

    def __init__(self, server: Server, clients: int = 8, *, on_refusal: str = "stop") -> None:
        self._server = server
        self._continue_after_rejection = on_refusal == "go on"
        self._over = threading.Event()
        self._sealed = threading.Event()
        self._own = [Answers() for _ in range(clients)]
        self._threads = [
            threading.Thread(target=self._run, args=(index, own), daemon=True) for index, own in enumerate(self._own)
        ]
        self.answers = Answers()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        for own in self._own:
            self.answers.add(own)

    def seal(self) -> None:
        """Treat every later answer as in doubt."""
        self._sealed.set()

    @property
    def created_so_far(self) -> int:
        return sum(len(own.created) for own in self._own)

    def until_answered(self) -> None:
        """Wait for creations and a revocation."""
        until(lambda: any(own.revoked for own in self._own), "a first revocation is answered")

    def until_rejected(self) -> None:
        """Wait until each client is rejected or disconnected."""
        pairs = list(zip(self._own, self._threads, strict=True))
        until(lambda: all(own.refused or not thread.is_alive() for own, thread in pairs), "no client is served")

    def _run(self, index: int, own: Answers) -> None:
        try:
            line = Line(self._server)
        except DISCONNECTED:
            return
        kept: list[str] = []
        while not self._over.is_set():
            try:
                self._create_and_revoke(line, f"urn:li:corpuser:storm-{index}", own, kept)
            except GraphQLRefused as refusal:
                if not self._continue_after_rejection and refusal.reason in RETRIABLE:
                    continue
                own.refused.append(refusal.errors)
                if not self._continue_after_rejection:
                    break
            except DISCONNECTED:
                break
        line.close()

    def _create_and_revoke(self, line: Line, actor: str, own: Answers, kept: list[str]) -> None:
        token_id, token = line.create(actor, actor=ADMIN)
        if self._sealed.is_set():
            return
        own.created[token_id] = token
        kept.append(token_id)
        if len(kept) == 3:
            ended = kept.pop(0)
            own.in_doubt.add(ended)
            if line.revoke(ended) and not self._sealed.is_set():
                own.revoked.add(ended)
                own.in_doubt.discard(ended)

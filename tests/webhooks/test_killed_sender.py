"""With two instances on PostgreSQL, the sending one killed again and again, each event is delivered, in order."""

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.support.postgres import home, own_cluster
from tests.support.receivers import Handler, Message, Receiver, status
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.waiting import SECONDS, until
from tests.webhooks.test_webhooks import CREATE

MOST_AHEAD = 200


@pytest.mark.long
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_each_event_is_delivered_in_order_while_the_sender_is_killed(tmp_path: Path, kills: int) -> None:
    with own_cluster(tmp_path / "cluster") as cluster, home(cluster, tmp_path) as database:
        env = {**database.env, "WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}
        pair = [Server(tmp_path / name, "--local-mode", "on", env=env) for name in "ab"]
        with pair[0], pair[1], Receiver() as one, Receiver() as other:
            for id_, receiver in (("one", one), ("other", other)):
                wanted = {"id": id_, "name": id_, "url": receiver.url, "actions": ["token.created"]}
                pair[0].ask(CREATE, {"input": wanted}, actor=ADMIN)
            load = Load(pair, one)
            load.start()
            for number in range(kills):
                killer = Killer(pair)
                one.answer = killer
                until(killer.done.is_set, "a message arrives", 60)
                assert killer.killed is not None
                killer.killed.start()
                if number == kills // 2:
                    cluster.restart(immediate=True)
            load.end()
            events = database.look("SELECT seq, target FROM events WHERE action = 'token.created' ORDER BY seq")
            targets = {str(seq): target for seq, target in events}
            assert load.confirmed <= set(targets.values())
            for id_, receiver in (("one", one), ("other", other)):
                expected = [f"msg_{id_}_{seq}" for seq, _ in events]
                receiver.until(partial(has, expected[-1]), "the last one arrives", 120)
                assert list(dict.fromkeys(message.id for message in receiver.messages)) == expected
                assert all(targets[m.data["id"]] == m.data["target"]["id"] for m in receiver.messages)


def has(message_id: str, messages: list[Message]) -> bool:
    return any(message.id == message_id for message in messages)


class Killer:
    """Answers one message by killing its sender. Later ones are accepted."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers
        self._turn = threading.Lock()
        self.killed: Server | None = None
        self.done = threading.Event()

    def __call__(self, handler: Handler) -> None:
        with self._turn:
            if self.killed is None:
                self.killed = self._sender(handler.client_address[1])
                if self.killed is not None:
                    self.killed.kill()
                    self.done.set()
                    return
        status(200)(handler)

    def _sender(self, port: int) -> Server | None:
        return next((server for server in self._servers if server.process_of(port) is not None), None)


class Load(threading.Thread):
    """Creates tokens at whichever instance answers, at most so many as can be delivered soon after the last kill."""

    def __init__(self, servers: list[Server], receiver: Receiver) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._receiver = receiver
        self._ended = threading.Event()
        self.confirmed: set[str] = set()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            for server in self._servers if len(self.confirmed) < len(self._receiver.messages) + MOST_AHEAD else ():
                with suppress(httpx.HTTPError, GraphQLRefused, ValueError, RuntimeError):
                    self.confirmed.add(server.create(ADMIN)["metadata"]["id"])

    def end(self) -> None:
        self._ended.set()
        self.join(SECONDS)
        assert not self.is_alive()

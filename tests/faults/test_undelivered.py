"""A token whose answer reached nobody is ended; one whose answer was taken lives on."""

import json
import socket
import struct
from collections.abc import Callable

import pytest

from tests.support.lines import Line, wanted
from tests.support.server import ADMIN, CREATE, Server
from tests.support.store_file import assert_sound, events, last_event, locked, look
from tests.support.waiting import SECONDS, until

TIMES = 100
MakeServer = Callable[..., Server]


def ask_for_a_token(server: Server, actor: str) -> socket.socket:
    body = json.dumps({"query": CREATE, "variables": {"input": wanted(actor)}}).encode()
    head = (
        f"POST /api/graphql HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Service-Actor: {ADMIN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    client = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    client.sendall(head.encode() + body)
    return client


def until_heard(server: Server, clients: list[socket.socket]) -> None:
    ports = {client.getsockname()[1] for client in clients}
    until(lambda: ports <= taken(server), "all connections are taken")
    # What is asked after them is answered after they were read, or nearly so; who was not read makes no token.
    for _ in range(20):
        server.http.get("/health/live")


def taken(server: Server) -> set[int]:
    """The ports from which the workers have a connection. To look takes long, so it is done once for all of them."""
    return {end.raddr.port for one in server.workers() for end in one.net_connections("tcp") if end.raddr}


def leave(server: Server, clients: list[socket.socket], *, rudely: bool) -> None:
    ports = {client.getsockname()[1] for client in clients}
    for client in clients:
        if rudely:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    until(lambda: not ports & taken(server), "all connections are gone")


def until_all_revoked(server: Server, actor: str) -> None:
    live = "SELECT count(*) FROM tokens WHERE actor_urn = ? AND revoked_at IS NULL"
    # A write that waits in line behind all others: when it is answered, the creations are there or never will be.
    server.set_status(actor, "ACTIVE")
    until(lambda: look(server, live, actor) == [(0,)], "the tokens are revoked")


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
def test_a_token_whose_asker_went_away_is_revoked(make_server: MakeServer, actor: str, rudely: bool) -> None:
    server = make_server(env={"WATCHWORD_ACCESS_LOG": "off"})
    made = 0

    def enough_were_heard() -> bool:
        """A lock is waited for as long as two seconds: who was not heard and gone by then makes no token."""
        nonlocal made
        start = last_event(server)
        # The lock keeps every answer back until the server has seen its askers go.
        with locked(server):
            clients = [ask_for_a_token(server, actor) for _ in range(20)]
            until_heard(server, clients)
            leave(server, clients, rudely=rudely)
        until_all_revoked(server, actor)
        ended = [event for event in events(server, start) if event.action == "token.revoked"]
        assert {event.actor for event in ended} <= {"urn:li:corpuser:__system"}
        made += len(ended)
        return made >= TIMES

    until(enough_were_heard, "enough askers were heard before they went away", 600)
    counted = f"watchword_tokens_revoked_total {made:.1f}\n"
    until(lambda: counted in server.http.get("/metrics").text, "each is counted")
    assert look(server, "SELECT count(*) FROM tokens WHERE revoked_at IS NULL") == [(0,)]
    assert_sound(server)


def test_a_token_whose_asker_stays_lives_on(make_server: MakeServer, actor: str) -> None:
    server = make_server(env={"WATCHWORD_ACCESS_LOG": "off"})
    tokens: list[str] = []
    for _ in range(TIMES):
        line = Line(server)
        tokens.append(line.create(actor)[1])
        line.close()
    judge = Line(server)
    assert {judge.verify(token) for token in tokens} == {204}
    assert look(server, "SELECT count(*) FROM events WHERE action = 'token.revoked'") == [(0,)]

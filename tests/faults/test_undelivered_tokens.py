"""An undelivered token is revoked; a delivered one stays valid."""

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


def request_token(server: Server, actor: str) -> socket.socket:
    body = json.dumps({"query": CREATE, "variables": {"input": wanted(actor)}}).encode()
    head = (
        f"POST /api/graphql HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Service-Actor: {ADMIN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    client = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    client.sendall(head.encode() + body)
    return client


def wait_until_read(server: Server, clients: list[socket.socket]) -> None:
    ports = {client.getsockname()[1] for client in clients}
    until(lambda: ports <= taken(server), "all connections are taken")
    # A later request is answered after they were read; an unread request creates no token.
    for _ in range(20):
        server.http.get("/health/live")


def taken(server: Server) -> set[int]:
    """The client ports connected to the workers. This is slow, so it is done once for all."""
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
    # A write queued behind all others: when it is answered, the creations are done or never will be.
    server.set_status(actor, "ACTIVE")
    until(lambda: look(server, live, actor) == [(0,)], "the tokens are revoked")


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
def test_token_of_a_disconnected_client_is_revoked(make_server: MakeServer, actor: str, rudely: bool) -> None:
    server = make_server(env={"WATCHWORD_ACCESS_LOG": "off"})
    made = 0

    def enough_were_read() -> bool:
        """A lock is waited for up to two seconds: a request not read by then creates no token."""
        nonlocal made
        start = last_event(server)
        # The lock delays every response until the server has seen its clients disconnect.
        with locked(server):
            clients = [request_token(server, actor) for _ in range(20)]
            wait_until_read(server, clients)
            leave(server, clients, rudely=rudely)
        until_all_revoked(server, actor)
        ended = [event for event in events(server, start) if event.action == "token.revoked"]
        assert {event.actor for event in ended} <= {"urn:li:corpuser:__system"}
        made += len(ended)
        return made >= TIMES

    until(enough_were_read, "enough askers were heard before they went away", 600)
    counted = f"watchword_tokens_revoked_total {made:.1f}\n"
    until(lambda: counted in server.http.get("/metrics").text, "each is counted")
    assert look(server, "SELECT count(*) FROM tokens WHERE revoked_at IS NULL") == [(0,)]
    assert_sound(server)


def test_token_of_a_connected_client_stays_valid(make_server: MakeServer, actor: str) -> None:
    server = make_server(env={"WATCHWORD_ACCESS_LOG": "off"})
    tokens: list[str] = []
    for _ in range(TIMES):
        line = Line(server)
        tokens.append(line.create(actor)[1])
        line.close()
    judge = Line(server)
    assert {judge.verify(token) for token in tokens} == {204}
    assert look(server, "SELECT count(*) FROM events WHERE action = 'token.revoked'") == [(0,)]

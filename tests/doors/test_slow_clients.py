"""Clients that hold on to what others need: they read no answer, or send bodies that never end."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.server import Server
from tests.support.waiting import until

FILES = 420
"""With so many files a worker holds 164 connections."""
ATTACKERS = 220
PIPELINED = b"GET /assets/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 600


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("small")
    with Server(folder, prefix=("prlimit", f"--nofile={FILES}:{FILES}")) as running:
        yield running


def slow_reader(server: Server) -> socket.socket:
    """It has asked for more than fits on the way, and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.connect(("127.0.0.1", server.port))
    connection.setblocking(False)
    connection.send(PIPELINED)
    return connection


def answers(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/health/live", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def test_slow_readers_do_not_hold_every_connection(small_server: Server) -> None:
    with ExitStack() as held:
        for _ in range(ATTACKERS):
            held.enter_context(slow_reader(small_server))
        assert not answers(small_server)
        until(lambda: answers(small_server), "somebody else is answered")

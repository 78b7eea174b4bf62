"""Slow clients: they do not read responses, or never finish their bodies."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.server import ADMIN, Server
from tests.support.waiting import until
from tests.support.wire import AS_ADMIN, JSON_TYPE, connect, head, receive

FILES = 420
"""With this limit a worker holds 164 connections."""
ATTACKERS = 220
PIPELINED = 600


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("small")
    with Server(folder, "--access-log", "off", prefix=("prlimit", f"--nofile={FILES}:{FILES}")) as running:
        yield running


def slow_reader(server: Server, source: str) -> socket.socket:
    """Request more than the buffers hold and read nothing."""
    connection = socket.socket()
    connection.bind((source, 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.connect(("127.0.0.1", server.port))
    connection.setblocking(False)
    connection.send(f"GET {server.asset('style.css')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * PIPELINED)
    return connection


def is_responsive(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/health/live", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def test_slow_readers_do_not_hold_every_connection(small_server: Server) -> None:
    with ExitStack() as held:
        for number in range(ATTACKERS):  # from many addresses, so none exceeds its share
            held.enter_context(slow_reader(small_server, f"127.0.0.{number % 10 + 2}"))
        assert not is_responsive(small_server)
        until(lambda: is_responsive(small_server), "another client is answered")


def test_one_address_does_not_hold_every_connection(small_server: Server) -> None:
    with ExitStack() as held:
        for _ in range(ATTACKERS):
            held.enter_context(slow_reader(small_server, "127.0.0.77"))
        until(lambda: is_responsive(small_server), "another client is answered")
        until(lambda: "too many connections" in small_server.err.read_text(), "it is logged")
        (line, *_) = [json.loads(line) for line in small_server.err.read_text().splitlines() if "too many" in line]
        assert line["peer"] == "127.0.0.77"
        assert line["held"] - line["closed"] == (FILES - 256) // 2


ME = "{ me { corpUser { urn } } }"
MIB = 1024 * 1024
UNFINISHED = 300


def unfinished(server: Server, size: int, *headers: str) -> socket.socket:
    """Send a request whose body lacks its last byte."""
    connection = connect(server)
    chunked = any(header.startswith("Transfer-Encoding") for header in headers)
    length = None if chunked else size
    start = f"{size:x}\r\n".encode() if chunked else b""
    connection.sendall(head(server, "POST", "/api/graphql", [AS_ADMIN, JSON_TYPE, *headers], length) + start)
    connection.sendall(b" " * (size - 1))
    return connection


def resident(server: Server) -> int:
    return sum(worker.memory_info().rss for worker in server.workers())


@pytest.mark.parametrize("headers", [(), ("Transfer-Encoding: chunked",)], ids=["announced", "chunked"])
def test_unfinished_bodies_use_limited_memory(server: Server, headers: tuple[str, ...]) -> None:
    before = resident(server)
    with ExitStack() as held:
        bodies = [held.enter_context(unfinished(server, MIB, *headers)) for _ in range(UNFINISHED)]
        for dropped in bodies[: UNFINISHED - 33]:
            answer = receive(dropped)
            assert answer.status == 503
            assert answer.json()["errors"][0]["extensions"]["reason"] == "too_many_bodies"
            assert answer.header("Retry-After") == "1"
            assert answer.header("Connection") == "close"
        # 32 MiB are allowed; the rest is connection buffers and allocator overhead.
        assert resident(server) - before < UNFINISHED // 3 * MIB
        large = json.dumps({"query": ME}).ljust(MIB)
        asked = {"X-Service-Actor": ADMIN, "Content-Type": "application/json"}
        whole = server.http.post("/api/graphql", content=large, headers=asked)
        assert whole.json()["data"]["me"]["corpUser"]["urn"] == ADMIN
        bodies[-1].sendall(b" \r\n0\r\n\r\n" if headers else b" ")
        assert receive(bodies[-1]).json()["errors"][0]["extensions"]["reason"] == "invalid_json"


def test_leading_zeros_of_a_content_length_are_rejected(server: Server) -> None:
    for length in ("0" * 20 + "9" * 8, "0" * 5_000 + "9"):
        with connect(server) as connection:
            announced = f"Content-Length: {length}"
            connection.sendall(head(server, "POST", "/api/graphql", [AS_ADMIN, JSON_TYPE, announced], None))
            assert receive(connection).status in (400, 413)

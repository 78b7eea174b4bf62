"""Headers: bounded in size, for one request and for all that are unfinished, and in the members of their lists."""

import re
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx

from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS, until

FILES = 4_096
MANY = 3_000
BATCH = 300
"""Unfinished requests of so many connections are within the bound."""
BATCHES = 4
FEW = 700
LOOKS_SECONDS = 0.6
"""In which the server looks at its connections."""
UNFINISHED = b"GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 31_000
MOST_MB = 100
"""More than before. All unfinished requests together would take 135."""


def resident_mb(server: Server) -> float:
    (worker,) = server.workers()
    return float(worker.memory_info().rss) / 1e6


@contextmanager
def server_of_many(folder: Path) -> Iterator[tuple[Server, ExitStack]]:
    """A server that may have many connections, as this process may, and a stack that closes them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES, hard)), hard))
    with Server(folder, prefix=("prlimit", f"--nofile={FILES}:{FILES}")) as server, ExitStack() as held:
        yield server, held


def test_unfinished_headers_are_bounded_together(tmp_path: Path) -> None:
    with server_of_many(tmp_path) as (server, held):
        before = resident_mb(server)

        def flood() -> None:
            for _ in range(MANY):
                connection = held.enter_context(socket.socket())
                connection.connect(("127.0.0.1", server.port))
                connection.setblocking(False)
                with suppress(OSError):
                    connection.send(UNFINISHED)

        with ThreadPoolExecutor() as pool:
            flooding = pool.submit(flood)
            # Others are served meanwhile, each on a connection of its own.
            while not flooding.done() or "too many unfinished requests" not in server.err.read_text():
                assert httpx.get(f"http://127.0.0.1:{server.port}/health/live", timeout=SECONDS).status_code == 200
        flooding.result()
        until(lambda: resident_mb(server) < before + MOST_MB, "memory is returned")


def test_unfinished_headers_behind_an_answer_are_bounded_too(tmp_path: Path) -> None:
    """A client that reads the answer late acknowledges it after the unfinished request has arrived."""
    with server_of_many(tmp_path) as (server, held):
        page = server.http.get("/").text
        (script,) = re.findall(r'src="(/assets/[^"]*/main\.js)"', page)
        asked = f"GET {script} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for _ in range(BATCHES):
            batch = []
            for _ in range(BATCH):
                connection = held.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
                connection.connect(("127.0.0.1", server.port))
                connection.sendall(asked + UNFINISHED)
                batch.append(connection)
            time.sleep(LOOKS_SECONDS)
            for connection in batch * 3:  # what is read makes room for more
                with suppress(OSError):
                    connection.recv(65_536, socket.MSG_DONTWAIT)
            time.sleep(LOOKS_SECONDS)
        until(lambda: "too many unfinished requests" in server.err.read_text(), "some are closed")


def test_gateways_keep_their_connections_where_many_are_open(tmp_path: Path) -> None:
    """Connections with a valid token sent more than the bound, and all of it was answered."""
    with server_of_many(tmp_path) as (server, held):
        token = server.create(ADMIN)["accessToken"]
        asked = (
            f"GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Long: {'a' * 20_000}\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        connections = [held.enter_context(socket.socket()) for _ in range(FEW)]
        for connection in connections:
            connection.connect(("127.0.0.1", server.port))
        for _ in range(3):
            for connection in connections:
                connection.sendall(asked.encode())
                assert connection.recv(4_096).startswith(b"HTTP/1.1 204")
            time.sleep(LOOKS_SECONDS)
        assert "too many unfinished requests" not in server.err.read_text()


def test_headers_of_a_request_are_bounded(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        for size, status in ((30_000, 200), (40_000, 431)):
            assert server.http.get("/health/live", headers={"X-Long": "a" * size}).status_code == status


def test_lists_in_headers_are_read_to_a_bound(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        path = server.asset("style.css")
        tag = server.http.get(path, headers={"Accept-Encoding": "gzip"}).headers["etag"]
        for others, encoding, status in ((60, "gzip", 304), (70, None, 200)):
            codings = "x," * others + "gzip"
            answer = server.http.get(path, headers={"Accept-Encoding": codings})
            assert answer.headers.get("content-encoding") == encoding
            named = {"Accept-Encoding": "gzip", "If-None-Match": '"x",' * others + tag}
            assert server.http.get(path, headers=named).status_code == status


def test_more_cookies_than_a_browser_sends_are_ignored(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        signed_in = server.http.post(
            "/session", json={"actor": ADMIN}, headers={"Origin": server.url, "X-Watchword-Console": "1"}
        )
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        for others, status in ((150, 200), (300, 401)):
            headers = {"Cookie": "a=b; " * others + cookie, "X-Watchword-Console": "1", "Origin": server.url}
            server.http.cookies.clear()
            answer = server.http.post("/api/graphql", json={"query": "{ me { corpUser { urn } } }"}, headers=headers)
            assert answer.status_code == status, answer.text

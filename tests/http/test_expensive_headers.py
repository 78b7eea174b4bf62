"""Headers: bounded in size, for one request and for all that are unfinished, and in the members of their lists."""

import resource
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.server import ADMIN, Server
from tests.support.waiting import until

FILES = 4_096
MANY = 3_000
UNFINISHED = b"GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 31_000
MOST_MB = 100
"""More than before. All unfinished requests together would take 135."""


def resident_mb(server: Server) -> float:
    (worker,) = server.workers()
    return float(worker.memory_info().rss) / 1e6


def test_unfinished_headers_are_bounded_together(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES, hard)), hard))
    with Server(tmp_path, prefix=("prlimit", f"--nofile={FILES}:{FILES}")) as server, ExitStack() as held:
        before = resident_mb(server)
        for _ in range(MANY):
            connection = held.enter_context(socket.socket())
            connection.connect(("127.0.0.1", server.port))
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(UNFINISHED)
        until(lambda: "too many unfinished requests" in server.err.read_text(), "some are closed")
        assert server.http.get("/health/live").status_code == 200
        until(lambda: resident_mb(server) < before + MOST_MB, "memory is returned")


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

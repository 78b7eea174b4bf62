"""Something between an engine and a real node that breaks: it answers in the node's place, loses answers, and notes
every request. What it is not told to break it passes on.
"""

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.gate import Wanted
from tests.support.waiting import SECONDS

JSON = "Content-Type: application/json"


class Seen(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class _Rule(NamedTuple):
    wanted: Wanted
    act: Callable[["_Handler", bytes], None]
    times: list[int]


class Breaker:
    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = upstream.removeprefix("http://").partition(":")
        self.upstream = (host, int(port))
        self.tls = tls
        self.polite = True
        """Whether it says that it ends each connection after one answer, as it does."""
        self.seen: list[Seen] = []
        self._rules: list[_Rule] = []
        self._turn = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.breaker = self
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, wanted: Wanted, status: int, body: bytes = b"{}", *headers: str, times: int = 1_000) -> None:
        """In the node's place, which learns nothing of it."""
        lines = [f"HTTP/1.1 {status} Broken", f"Content-Length: {len(body)}", "Connection: close", JSON, *headers]
        whole = "\r\n".join([*lines, "", ""]).encode() + body
        self._rules.append(_Rule(wanted, lambda handler, _: handler.connection.sendall(whole), [times]))

    def lose_answer(self, wanted: Wanted, times: int = 1_000) -> None:
        """The node does it, and nobody hears of it."""
        self._rules.append(_Rule(wanted, lambda handler, request: handler.pass_on(request, back=False), [times]))

    def repair(self) -> None:
        self._rules.clear()

    def asked(self, wanted: Wanted) -> int:
        return sum(wanted(one.line.encode()) for one in self.seen)

    def handle(self, handler: "_Handler", request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        line, *rest = head.decode().split("\r\n")
        with self._turn:
            headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in rest)}
            self.seen.append(Seen(line, headers, body))
            rule = next((one for one in self._rules if one.times[0] > 0 and one.wanted(line.encode())), None)
            if rule is not None:
                rule.times[0] -= 1
        if rule is not None:
            rule.act(handler, request)
        else:
            handler.pass_on(request, back=True)


class _Server(socketserver.ThreadingTCPServer):
    breaker: Breaker
    daemon_threads = True
    request_queue_size = 64


class _Handler(socketserver.BaseRequestHandler):
    """One request a connection."""

    def handle(self) -> None:
        breaker = self.server.breaker  # type: ignore[attr-defined]
        self.request.settimeout(SECONDS)
        with suppress(OSError):
            self.connection: socket.socket = (
                self.request if breaker.tls is None else breaker.tls.wrap_socket(self.request, server_side=True)
            )
            if request := self._read():
                breaker.handle(self, request)
            self.connection.close()

    def _read(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = self.connection.recv(65_536)
            if not chunk:
                return b""
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [one for one in head.split(b"\r\n") if not one.lower().startswith(b"connection:")]
        length = next((int(one.split(b":")[1]) for one in lines if one.lower().startswith(b"content-length:")), 0)
        while len(body) < length:
            chunk = self.connection.recv(65_536)
            if not chunk:
                return b""
            body += chunk
        return b"\r\n".join([*lines, b"Connection: close", b"", body])

    def pass_on(self, request: bytes, *, back: bool) -> None:
        breaker: Breaker = self.server.breaker  # type: ignore[attr-defined]
        with socket.create_connection(breaker.upstream, timeout=SECONDS) as node:
            node.sendall(request)
            said = not breaker.polite
            while chunk := node.recv(65_536):
                if back:
                    self.connection.sendall(chunk if said else chunk.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                    said = True

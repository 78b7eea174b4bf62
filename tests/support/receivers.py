"""Receivers of webhooks: real HTTP servers that note what they get, and answer well or badly."""

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import until


@dataclass(frozen=True)
class Message:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.content["data"]


Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        wanted = int(self.headers["content-length"])
        body = self.rfile.read(wanted)
        if len(body) < wanted:
            return  # the sender was killed in the middle
        message = Message(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.receiver.note(message)
        self.server.receiver.answer(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Not on standard error."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100
    receiver: "Receiver"

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender may be killed."""


def status(code: int, body: bytes = b"ok", **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def endless(handler: Handler) -> None:
    """A gigabyte, if the sender reads it."""
    handler.send_response(200)
    handler.send_header("content-length", str(10**9))
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65_536)


def bomb(handler: Handler) -> None:
    """A compressed body. Nothing expands it."""
    handler.send_response(200)
    handler.send_header("content-encoding", "gzip")
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    while True:
        handler.wfile.write(b"10000\r\n" + b"\x1f\x8b" + b"\x00" * 65_534 + b"\r\n")


def hang(handler: Handler) -> None:
    threading.Event().wait(60)


def close_midway(handler: Handler) -> None:
    """Close the connection in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("content-length", "100")
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.wfile.flush()
    handler.connection.close()
    handler.close_connection = True


def endless_hints(handler: Handler) -> None:
    """Informational answers, and never the answer."""
    while True:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1_000)


def endless_header(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"X-Filler: " + b"x" * 1_000 + b"\r\n")


def tiny_chunks(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        handler.wfile.write(b"1\r\nx\r\n" * 10_000)


class Receiver:
    def __init__(self, answer: Answer | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.answer: Answer = answer or status(200)
        self.messages: list[Message] = []
        self._noting = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.receiver = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    def note(self, message: Message) -> None:
        with self._noting:
            self.messages.append(message)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?team=a"

    def until(self, true: Callable[[list[Message]], bool], what: str, seconds: float = 60) -> list[Message]:
        until(lambda: true(list(self.messages)), f"{what}, of {len(self.messages)} messages", seconds)
        return list(self.messages)

    def first(self, action: str, target: str | None = None, number: int = 1) -> Message:
        """Wait for a message about such an event."""

        def matching(messages: list[Message]) -> list[Message]:
            known = [one for one in messages if one.content["type"] == action]
            return [one for one in known if target is None or one.data["target"]["id"] == target]

        self.until(lambda messages: len(matching(messages)) >= number, f"{action} arrives")
        return matching(list(self.messages))[number - 1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

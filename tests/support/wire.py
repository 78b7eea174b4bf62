"""Requests as bytes on the wire, for what no client library would send."""

import http.client
import socket
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS

JSON_TYPE = "Content-Type: application/json"
AS_ADMIN = f"X-Service-Actor: {ADMIN}"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) <= 1, f"{name} came {len(found)} times"
        return found[0] if found else None


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)


def receive(connection: socket.socket, method: str = "POST") -> Answer:
    with closing(http.client.HTTPResponse(connection, method=method)) as response:
        response.begin()
        return Answer(response.status, response.getheaders(), response.read())


def head(
    server: Server, method: str, target: str, headers: Iterable[str | bytes], length: int | None, host: str | None = ""
) -> bytes:
    """A request's head; `host` empty is the server's own, None leaves it out."""
    lines: list[str | bytes] = [f"{method} {target} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host or f'127.0.0.1:{server.port}'}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines += [*headers, "Connection: close"]
    return b"\r\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\r\n\r\n"


def send(
    server: Server,
    method: str = "POST",
    target: str = "/api/graphql",
    headers: Iterable[str | bytes] = (AS_ADMIN, JSON_TYPE),
    body: bytes | None = b'{"query": "{ me { corpUser { urn } } }"}',
    host: str | None = "",
) -> Answer:
    """One request, one connection, nothing added but Host, Content-Length and Connection."""
    length = None if body is None else len(body)
    with closing(connect(server)) as connection:
        connection.sendall(head(server, method, target, headers, length, host) + (body or b""))
        return receive(connection, method)


def send_chunked(
    server: Server, chunks: Iterable[bytes], headers: Iterable[str | bytes] = (AS_ADMIN, JSON_TYPE)
) -> Answer:
    """A body without a length. A server that has heard enough may answer, and close, before the end."""
    with closing(connect(server)) as connection:
        wanted = [*headers, "Transfer-Encoding: chunked"]
        connection.sendall(head(server, "POST", "/api/graphql", wanted, None))
        try:
            for chunk in chunks:
                connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            connection.sendall(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        return receive(connection)

"""ASGI: requests of a server with trusted proxies, in the shape of RSGI, which the door takes.

RSGI leaves out a header line that is not ASCII when it comes after one that is. Where `X-Forwarded-For` is believed, a
client could so hide the line to which a proxy has added the client's address. ASGI shows every line, and costs more
(docs/decisions/rsgi-vs-asgi.md). It does not show whether a target was in absolute form.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypedDict

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]

from watchword.http.requests import UNREADABLE, Header

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class HttpScope(TypedDict):
    """What granian tells of a request: ports are text, paths decoded."""

    method: str
    path: str
    query_string: bytes
    scheme: str
    http_version: str
    client: tuple[str, str]
    server: tuple[str, str]
    headers: list[tuple[bytes, bytes]]


class AllHeaders:
    """Every line, with UNREADABLE for one that is not ASCII."""

    __slots__ = ("_lines",)

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._lines: dict[str, list[str]] = {}
        for name, value in raw:
            self._lines.setdefault(name.decode(), []).append(value.decode() if value.isascii() else UNREADABLE)

    def __contains__(self, name: str, /) -> bool:
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def get(self, name: str, /) -> str | None:
        lines = self._lines.get(name)
        return None if lines is None else lines[0]

    def get_all(self, name: str, /) -> list[str]:
        return self._lines.get(name, [])


class AsgiScope:
    __slots__ = ("_scope", "authority", "headers")

    def __init__(self, scope: HttpScope) -> None:
        self._scope = scope
        self.headers = AllHeaders(scope["headers"])
        self.authority: str | None = None

    @property
    def method(self) -> str:
        return self._scope["method"]

    @property
    def path(self) -> str:
        return self._scope["path"]

    @property
    def query_string(self) -> str:
        return self._scope["query_string"].decode(errors="replace")

    @property
    def scheme(self) -> str:
        return self._scope["scheme"]

    @property
    def http_version(self) -> str:
        return self._scope["http_version"]

    @property
    def client(self) -> str:
        return _end(self._scope["client"])

    @property
    def server(self) -> str:
        return _end(self._scope["server"])


class AsgiExchange:
    __slots__ = ("_receive", "_send")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def __call__(self) -> bytes:
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ProtocolClosed
            if message["body"]:
                yield message["body"]
            if not message["more_body"]:
                return

    async def client_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def response_empty(self, status: int, headers: list[Header], /) -> None:
        self.response_bytes(status, headers, b"")

    def response_bytes(self, status: int, headers: list[Header], body: bytes, /) -> None:
        # The server acts on a message when it is called with it; what it returns is nothing to wait for.
        lines = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        self._send({"type": "http.response.start", "status": status, "headers": lines})
        self._send({"type": "http.response.body", "body": body})


def _end(address: tuple[str, str]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

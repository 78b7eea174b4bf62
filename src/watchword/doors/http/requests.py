"""Requests and responses: one pass over the headers, a body with a bound in size and time."""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from watchword.domain.errors import Fault, Reason
from watchword.domain.limits import Network, within

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_BODY = 1024 * 1024
BODY_SECONDS = 15.0
UNIX_PEER = "unix"
UNKNOWN_CLIENT = "unknown"
NONE_REPEATED: frozenset[bytes] = frozenset()

# No dots: what looks like a token must not become a request id, which is logged.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")


class Response(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""


@dataclass(slots=True)
class Request:
    _scope: Scope
    _reader: "RequestReader"
    receive: Receive
    id: str
    headers: dict[bytes, bytes]
    repeated: frozenset[bytes]
    actor: str | None = None
    """Who it turned out to be, for the log."""
    _gone: asyncio.Task[None] | None = None
    _is_whole: bool = False

    @property
    def method(self) -> str:
        method: str = self._scope["method"]
        return method

    @property
    def path(self) -> str:
        path: str = self._scope["path"]
        return path

    @property
    def peer(self) -> str:
        """Who is at the other end of the connection."""
        end = self._scope.get("client")
        return str(end[0]) if end and end[0] else UNIX_PEER

    @property
    def client(self) -> str:
        """Who is calling: the peer, or whom a trusted proxy names."""
        return self._reader.client(self.peer, self._scope["headers"])

    @property
    def query(self) -> bytes:
        query: bytes = self._scope["query_string"]
        return query

    @property
    def scheme(self) -> str:
        scheme: str = self._scope["scheme"]
        return scheme

    @property
    def has_unread_body(self) -> bool:
        """The connection cannot be used again: what is left of the body stands before the next request."""
        announced = self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers
        return announced and not self._is_whole

    async def body(self, most: int = MAX_BODY) -> bytes:
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > most:
            raise _too_large(most)
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise Fault(Reason.BODY_TIMEOUT, "The caller went away before the body was whole.")
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > most:
                        raise _too_large(most)
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Fault(Reason.BODY_TIMEOUT, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
        self._is_whole = True
        return b"".join(chunks) if len(chunks) != 1 else chunks[0]

    def watch(self) -> None:
        """From now on, note when the caller goes away. Only after the body was read."""
        self._gone = asyncio.ensure_future(self._until_gone())

    @property
    def is_gone(self) -> bool:
        return self._gone is not None and self._gone.done()

    def unwatch(self) -> None:
        if self._gone is not None:
            self._gone.cancel()

    async def _until_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


def _too_large(most: int) -> Fault:
    return Fault(Reason.BODY_TOO_LARGE, f"The body must have at most {most:,} bytes.")


class RequestReader:
    """Turns the server's scope into a request."""

    def __init__(self, trusted_proxies: tuple[Network, ...], new_id: Callable[[], str]) -> None:
        self._proxies = trusted_proxies
        self._new_id = new_id

    def read(self, scope: Scope, receive: Receive) -> Request:
        sent: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(sent)
        repeated = NONE_REPEATED
        if len(headers) != len(sent):
            headers, repeated = _first_of_each(sent)
        given = headers.get(b"x-request-id")
        request_id = given.decode() if given and _REQUEST_ID.fullmatch(given) else self._new_id()
        return Request(scope, self, receive, request_id, headers, repeated)

    def client(self, peer: str, headers: list[tuple[bytes, bytes]]) -> str:
        """The last address in the chain that no trusted proxy stands behind."""
        if not self._proxies:
            return peer
        chain = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        client = peer
        for hop in reversed([word.strip() for word in chain.split(",") if word.strip()]):
            if not within(client, self._proxies):
                break
            client = _address(hop)
        return client


def _address(hop: str) -> str:
    """The address that a proxy names, with or without a port; one that cannot be read is nobody's."""
    host = hop[1 : hop.find("]")] if hop.startswith("[") else hop
    if hop.count(":") == 1:
        host = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return UNKNOWN_CLIENT


def _first_of_each(sent: list[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], frozenset[bytes]]:
    """The headers, each as it came first, and the names that came again."""
    headers: dict[bytes, bytes] = {}
    repeated: set[bytes] = set()
    for name, value in sent:
        if name in headers:
            repeated.add(name)
        else:
            headers[name] = value
    return headers, frozenset(repeated)

"""Requests and responses: what the server hands over, read when it is asked for; a body with a bound in size and time.

The door speaks RSGI, the server's own interface (docs/decisions/rsgi-vs-asgi.md). It shows header values that are
visible ASCII, and of others only that they are there; not even that, after one that is. Behind trusted proxies, where
every line counts, it is ASGI in the same shape (asgi.py).
"""

import asyncio
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NamedTuple, Protocol

from granian.rsgi import ProtocolClosed, ProtocolError  # type: ignore[attr-defined]

from watchword.domain.errors import Fault, Reason
from watchword.domain.token_limits import Network, within

MAX_BODY = 1024 * 1024
BODY_SECONDS = 15.0
MAX_DIGITS = 20
"""Of an announced length."""
SMALL_BODY = 8 * 1024
"""Up to so many bytes a body is not counted: its connection's own buffers are larger."""
SMALL_CHUNKS = 1_000
"""Of a body. The server hands over each chunk by itself, at a cost that does not depend on its size."""
CHUNK = 1024
"""Bytes for which one more is allowed. On a slow network a chunk has about 1,400."""
MAX_ARRIVING = 32 * 1024 * 1024
"""Bytes of all larger bodies that are not whole yet, in a worker."""
UNIX_PEER = "unix"
UNKNOWN_CLIENT = "unknown"
UNREADABLE = "\ufffd"
"""The value of a header that is not visible ASCII: like nothing that is expected anywhere."""
DROPPED = 0.0
"""The deadline of a body that is dropped: long over."""
MAX_HOPS = 20
"""Of a chain of proxies, the nearest."""

# No dots: what looks like a token must not become a request id, which is logged.
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

Header = tuple[str, str]


class Headers(Protocol):
    """The server's view of the headers. Names are in lower case; RSGI leaves out values that are not visible ASCII."""

    def __contains__(self, name: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def get(self, name: str, /) -> str | None: ...
    def get_all(self, name: str, /) -> list[str]: ...


class Scope(Protocol):
    """What the server knows of a request before its body."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query_string(self) -> str: ...
    @property
    def scheme(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def http_version(self) -> str: ...
    @property
    def authority(self) -> str | None:
        """Of a target in absolute form."""

    @property
    def headers(self) -> Headers: ...


class Exchange(Protocol):
    """The server's side of one request: its body, its end, and the one answer."""

    def __call__(self) -> Awaitable[bytes]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def client_disconnect(self) -> Awaitable[None]: ...
    def response_empty(self, status: int, headers: list[Header], /) -> None: ...
    def response_bytes(self, status: int, headers: list[Header], body: bytes, /) -> None: ...


class Response(NamedTuple):
    status: int
    headers: list[Header]
    body: bytes = b""


class Request:
    __slots__ = ("_exchange", "_gone", "_is_whole", "_reader", "_scope", "actor", "headers", "id", "path", "verdict")

    def __init__(self, scope: Scope, exchange: Exchange, reader: "RequestReader") -> None:
        self._scope = scope
        self._exchange = exchange
        self._reader = reader
        self.path = scope.path
        self.headers = scope.headers
        given = self.headers.get("x-request-id")
        self.id = reader.new_id() if given is None or not _REQUEST_ID.fullmatch(given) else given
        self.actor: str | None = None
        """Who it turned out to be, for the log."""
        self.verdict: str | None = None
        """What was said to who it is, for the metrics."""
        self._gone: asyncio.Task[None] | None = None
        self._is_whole = False

    @property
    def method(self) -> str:
        return self._scope.method

    @property
    def query(self) -> str:
        return self._scope.query_string

    @property
    def scheme(self) -> str:
        return self._scope.scheme

    @property
    def ends(self) -> tuple[str, str]:
        """The client's and our end of the connection, with their ports."""
        return self._scope.client, self._scope.server

    @property
    def is_direct(self) -> bool:
        """In the form in which a client asks a server: HTTP/1.1, and a target without a host."""
        return self._scope.http_version == "1.1" and self._scope.authority is None

    @property
    def peer(self) -> str:
        """Who is at the other end of the connection."""
        return self._reader.peer(self._scope.client)

    @property
    def client(self) -> str:
        """Who is calling: the peer, or whom a trusted proxy names."""
        return self._reader.client(self._scope.client, self.headers)

    def header(self, name: str) -> str:
        """As it came first; empty where it did not come."""
        value = self.headers.get(name)
        if value is None:
            return UNREADABLE if name in self.headers else ""
        return value

    def is_repeated(self, name: str) -> bool:
        """As far as it shows: by RSGI, not when a value that cannot be read comes after one that can."""
        readable = len(self.headers.get_all(name))
        return readable > 1 or (readable == 1 and self.headers.get(name) is None)

    @property
    def has_unread_body(self) -> bool:
        """The connection cannot be used again: what is left of the body stands before the next request."""
        headers = self.headers
        announced = "transfer-encoding" in headers or headers.get("content-length") not in {None, "0"}
        return announced and not self._is_whole

    async def body(self, most: int = MAX_BODY) -> bytes:
        if not self.has_unread_body:
            return b""
        length = None if "transfer-encoding" in self.headers else self.headers.get("content-length")
        if length is not None and (not length.isdecimal() or len(length) > MAX_DIGITS or int(length) > most):
            raise _too_large(most)
        is_small = length is not None and int(length) <= SMALL_BODY
        try:
            async with asyncio.timeout(BODY_SECONDS) as arrival:
                # A length that was announced is kept by the server; without one we count.
                body = await (self._exchange() if is_small else self._counted(most, arrival))
        except TimeoutError:
            if arrival.when() == DROPPED:
                raise Fault(
                    Reason.TOO_MANY_BODIES, "Too many large bodies are arriving at once. Retry the request."
                ) from None
            raise Fault(Reason.BODY_TIMEOUT, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
        except (ProtocolClosed, ProtocolError):
            raise Fault(Reason.BODY_TIMEOUT, "The caller went away before the body was whole.") from None
        self._is_whole = True
        return body

    async def _counted(self, most: int, arrival: asyncio.Timeout) -> bytes:
        """The server ends with an empty chunk. One more is all it tells of a body that broke off."""
        chunks: list[bytes] = []
        size = empty = 0
        arriving = self._reader.arriving
        try:
            async for chunk in self._exchange:
                size += len(chunk)
                empty += not chunk
                if size > most:
                    raise _too_large(most)
                if len(chunks) >= SMALL_CHUNKS + size // CHUNK:
                    raise Fault(
                        Reason.TOO_MANY_CHUNKS,
                        f"The body must come in at most {SMALL_CHUNKS:,} chunks, plus one for each {CHUNK:,} bytes. "
                        "Send larger chunks, or a Content-Length.",
                    )
                chunks.append(chunk)
                arriving.add(arrival, len(chunk))
        finally:
            arriving.remove(arrival)
        if empty > 1:
            raise Fault(Reason.BODY_TIMEOUT, "The body broke off before it was whole.")
        return b"".join(chunks)

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
        await self._exchange.client_disconnect()


def _too_large(most: int) -> Fault:
    return Fault(Reason.BODY_TOO_LARGE, f"The body must have at most {most:,} bytes.")


class ArrivingBodies:
    """What a worker has received of large bodies that are not whole. When it is too much, the body that has been
    arriving longest is dropped: that is a slow sender's, and later ones are not kept waiting.
    """

    def __init__(self) -> None:
        self._sizes: dict[asyncio.Timeout, int] = {}
        self._held = 0

    def add(self, arrival: asyncio.Timeout, size: int) -> None:
        self._sizes[arrival] = self._sizes.get(arrival, 0) + size
        self._held += size
        while self._held > MAX_ARRIVING:
            oldest = next(iter(self._sizes))
            self.remove(oldest)
            oldest.reschedule(DROPPED)

    def remove(self, arrival: asyncio.Timeout) -> None:
        self._held -= self._sizes.pop(arrival, 0)


class RequestReader:
    """What is known of all requests: whom to believe about where they come from, and how they are named."""

    def __init__(
        self, trusted_proxies: tuple[Network, ...], new_id: Callable[[], str], *, on_unix_socket: bool = False
    ) -> None:
        self._proxies = trusted_proxies
        self._on_unix_socket = on_unix_socket
        self.new_id = new_id
        self.arriving = ArrivingBodies()

    def peer(self, end: str) -> str:
        """The address without its port. On a Unix socket it would be whatever path the caller gave its own end."""
        if self._on_unix_socket:
            return UNIX_PEER
        address = end.rpartition(":")[0]
        return address[1:-1].partition("%")[0] if address.startswith("[") else address

    def client(self, end: str, headers: Headers) -> str:
        """The last address in the chain that no trusted proxy stands behind. Of a longer chain than there are proxies
        anywhere, whoever stands before its last hops is nobody.
        """
        client = self.peer(end)
        if not self._proxies:
            return client
        lines = headers.get_all("x-forwarded-for")
        if "x-forwarded-for" in headers and headers.get("x-forwarded-for") is None:
            lines = [UNREADABLE, *lines]
        hops = ",".join(lines).rsplit(",", MAX_HOPS)
        if len(hops) > MAX_HOPS:
            hops[0] = UNKNOWN_CLIENT
        for hop in reversed([word.strip() for word in hops if word.strip()]):
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

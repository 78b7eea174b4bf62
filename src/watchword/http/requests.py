"""Requests and responses of the server library, and the bodies of requests: bytes, JSON and forms; gzip for
responses that are made per request.

Bodies are limited in size and time, and in what makes them expensive to parse.

The app uses RSGI, granian's interface (docs/decisions/server.md). RSGI hides the value of a header that is not
visible ASCII, and hides the whole line when it follows a readable one. Behind trusted proxies a client could so hide
the `X-Forwarded-For` line to which a proxy appends the client's address. There the app uses ASGI, which shows every
line and costs more, through adapters. ASGI does not show whether a target was absolute.
"""

import asyncio
import ipaddress
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import orjson
from granian.rsgi import ProtocolClosed, ProtocolError  # type: ignore[attr-defined]

from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.networks import Network, within

MAX_BODY = 1024 * 1024
BODY_SECONDS = 15.0
LOOK_SECONDS = 0.5
"""How often the age of incomplete bodies is checked: a timer for each would be a tenth of the cost of a list."""
MAX_DIGITS = 20
"""Of a Content-Length."""
SMALL_BODY = 8 * 1024
"""Bytes up to which a body is not counted: the buffers of its connection are larger."""
SMALL_CHUNKS = 1_000
"""The server passes on each chunk separately, at a cost that does not depend on its size."""
CHUNK = 1024
"""Bytes that allow one more chunk. On a slow network a chunk has about 1,400."""
MAX_ARRIVING = 32 * 1024 * 1024
"""Bytes of all incomplete bodies larger than SMALL_BODY, per worker."""
MAX_MEMBERS = 12_000
"""List items and object members: enough for the ids of the most tokens that one request revokes."""
MAX_BACKSLASHES = 60_000
"""Some clients escape every character that is not ASCII."""
FORM = "application/x-www-form-urlencoded"
MAX_FORM = 64 * 1024
MAX_FORM_FIELDS = 20
MAX_QUERY_FIELDS = 50
MAX_PERCENT_ESCAPES = 1_500
MAX_LIST = 64
"""Members of a list in a header that are considered."""
UNIX_PEER = "unix"
UNKNOWN_CLIENT = "unknown"
UNREADABLE = "\ufffd"
"""Stands for a header value that is not visible ASCII. No header allows it."""
MAX_HOPS = 20
"""The nearest proxies of a chain that are considered."""

# No dots: a token must not become a request id, which is logged.
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

Header = tuple[str, str]


Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


# Granian's RSGI objects have these methods and attributes. The classes adapt ASGI to them.


class Headers:
    """By names in lower case. RSGI leaves out values that are not visible ASCII; here they are UNREADABLE."""

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


class Scope:
    __slots__ = ("authority", "client", "headers", "http_version", "method", "path", "query_string", "scheme", "server")

    def __init__(self, scope: dict[str, Any]) -> None:
        """Takes the ASGI scope as granian fills it: ports are text, paths are decoded."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: str = scope["query_string"].decode(errors="replace")
        self.scheme: str = scope["scheme"]
        self.http_version: str = scope["http_version"]
        self.client = _end(*scope["client"])  # address and port
        self.server = _end(*scope["server"])
        self.headers = Headers(scope["headers"])
        self.authority: str | None = None  # the host of a target in absolute form, which only RSGI shows


class Exchange:
    """The body of a request and its response."""

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
        # granian sends when it is called; there is nothing to await.
        lines = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        self._send({"type": "http.response.start", "status": status, "headers": lines})
        self._send({"type": "http.response.body", "body": body})


def _end(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Response(NamedTuple):
    status: int
    headers: list[Header]
    body: bytes = b""


class Request:
    __slots__ = ("_is_read", "_worker", "actor", "exchange", "headers", "id", "path", "scope", "verdict")

    def __init__(self, scope: Scope, exchange: Exchange, worker: "WorkerState") -> None:
        self.scope = scope
        self.exchange = exchange
        self._worker = worker
        self.path = scope.path
        self.headers = scope.headers
        given = self.headers.get("x-request-id")
        self.id = worker.new_id() if given is None or not _REQUEST_ID.fullmatch(given) else given
        self.actor: str | None = None
        """The authenticated caller, for the log."""
        self.verdict: str | None = None
        """The result of authentication, for the metrics."""
        self._is_read = False

    @property
    def is_direct(self) -> bool:
        """HTTP/1.1 with a target in origin form."""
        return self.scope.http_version == "1.1" and self.scope.authority is None

    @property
    def peer(self) -> str:
        """The address without its port. The client chooses the path of its end of a Unix socket, so that is ignored."""
        if self._worker.on_unix_socket:
            return UNIX_PEER
        address = self.scope.client.rpartition(":")[0]
        return address[1:-1].partition("%")[0] if address.startswith("[") else address

    @property
    def client(self) -> str:
        """The last address in the chain of proxies that is not a trusted proxy; unknown beyond MAX_HOPS."""
        client, proxies, headers = self.peer, self._worker.proxies, self.headers
        if not proxies:
            return client
        lines = headers.get_all("x-forwarded-for")
        if "x-forwarded-for" in headers and headers.get("x-forwarded-for") is None:
            lines = [UNREADABLE, *lines]
        hops = ",".join(lines).rsplit(",", MAX_HOPS)
        if len(hops) > MAX_HOPS:
            hops[0] = UNKNOWN_CLIENT
        for hop in reversed([word.strip() for word in hops if word.strip()]):
            if not within(client, proxies):
                break
            client = _address(hop)
        return client

    def header(self, name: str) -> str:
        """The first value; empty if the header is missing."""
        value = self.headers.get(name)
        if value is None:
            return UNREADABLE if name in self.headers else ""
        return value

    def is_repeated(self, name: str) -> bool:
        """RSGI does not show an unreadable value that follows a readable one."""
        readable = len(self.headers.get_all(name))
        return readable > 1 or (readable == 1 and self.headers.get(name) is None)

    @property
    def has_unread_body(self) -> bool:
        """Then the connection must close: the rest of the body precedes the next request."""
        headers = self.headers
        announced = "transfer-encoding" in headers or headers.get("content-length") not in {None, "0"}
        return announced and not self._is_read

    async def body(self, max_bytes: int = MAX_BODY) -> bytes:
        if not self.has_unread_body:
            return b""
        length = None if "transfer-encoding" in self.headers else self.headers.get("content-length")
        if length is not None and (not length.isdecimal() or len(length) > MAX_DIGITS or int(length) > max_bytes):
            raise _too_large(max_bytes)
        is_small = length is not None and int(length) <= SMALL_BODY
        task = asyncio.current_task()
        assert task is not None
        arrival = self._worker.arriving.start(task)
        try:
            # The server enforces a Content-Length; without one we count.
            body = await (self.exchange() if is_small else self._counted(max_bytes, arrival))
        except asyncio.CancelledError:
            if arrival.problem is None or task.uncancel() > 0:
                raise
            raise Fault(*arrival.problem) from None
        except (ProtocolClosed, ProtocolError):
            raise Fault(Reason.BODY_TIMEOUT, "The client disconnected before the body was complete.") from None
        finally:
            self._worker.arriving.end(arrival)
        self._is_read = True
        self._worker.note_body(self.scope, len(body))
        return body

    async def _counted(self, max_bytes: int, arrival: "Arrival") -> bytes:
        """The server ends a body with an empty chunk, and a truncated body with one more."""
        chunks: list[bytes] = []
        size = empty = 0
        try:
            async for chunk in self.exchange:
                size += len(chunk)
                empty += not chunk
                if size > max_bytes:
                    raise _too_large(max_bytes)
                if len(chunks) >= SMALL_CHUNKS + size // CHUNK:
                    raise Fault(
                        Reason.TOO_MANY_CHUNKS,
                        f"The body must come in at most {SMALL_CHUNKS:,} chunks, plus one for each {CHUNK:,} bytes. "
                        "Send larger chunks, or a Content-Length.",
                    )
                chunks.append(chunk)
                self._worker.arriving.add(arrival, len(chunk))
            if empty > 1:
                raise Fault(Reason.BODY_TIMEOUT, "The body ended before it was complete.")
            return b"".join(chunks)
        finally:
            chunks.clear()  # else the exception of a dropped body keeps them until the garbage collector runs

    def watch_disconnect(self) -> asyncio.Future[None]:
        """Is done when the client disconnects. Call this after reading the body; cancel it at the end. RSGI returns a
        future, which needs no task.
        """
        return asyncio.ensure_future(self.exchange.client_disconnect())


def _too_large(max_bytes: int) -> Fault:
    return Fault(Reason.BODY_TOO_LARGE, f"The body must have at most {max_bytes:,} bytes.")


def check_media_type(request: Request) -> None:
    kind, _, parameters = request.header("content-type").lower().partition(";")
    encoding = request.header("content-encoding").lower()
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != "application/json" or charset not in {"", "charset=utf-8"} or encoding not in {"", "identity"}:
        raise Fault(Reason.NOT_JSON, "Send the body as Content-Type: application/json, in UTF-8, uncompressed.")


async def read_json(request: Request, expected: str, max_bytes: int = MAX_BODY) -> Any:
    check_media_type(request)
    return parse_json(await request.body(max_bytes), expected)


def parse_json(body: bytes, expected: str) -> Any:
    """Limits the number of members first: parsed objects take far more memory than their text."""
    opened = body.count(b"[") + body.count(b"{")
    is_closed = opened <= MAX_MEMBERS or opened == body.count(b"]") + body.count(b"}")
    if is_closed and opened + body.count(b",") > MAX_MEMBERS:
        raise Fault(Reason.INVALID_JSON, f"The body may have at most {MAX_MEMBERS:,} commas and opening brackets.")
    if body.count(b"\\") > MAX_BACKSLASHES:
        raise Fault(Reason.INVALID_JSON, f"The body may have at most {MAX_BACKSLASHES:,} backslashes.")
    try:
        if is_closed:
            return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    raise Fault(Reason.INVALID_JSON, f"The body must be JSON: {expected}.")


async def read_object(request: Request, expected: str) -> dict[str, Any]:
    """A JSON object; no body counts as an empty one."""
    if "content-type" not in request.headers and not request.has_unread_body:
        return {}
    check_media_type(request)
    body = await request.body()
    content = parse_json(body, f"an object with {expected}") if body.strip() else {}
    if not isinstance(content, dict):
        raise Fault(Reason.INVALID_JSON, f"The body must be a JSON object with {expected}.")
    return content


def read_query(request: Request) -> dict[str, str]:
    """The parameters of the query string; each may occur once."""
    return _parameters(request.scope.query_string, "query", "query string", MAX_QUERY_FIELDS)


def _parameters(text: str, field: str, place: str, most: int, encoding: str = "utf-8") -> dict[str, str]:
    try:
        parameters = parse_qsl(text, keep_blank_values=True, encoding=encoding, max_num_fields=most)
    except ValueError:
        raise invalid(field, f"The {place} may have at most {most} parameters.") from None
    if len(named := dict(parameters)) < len(parameters):
        raise invalid(place, f"The {place} must have each parameter once.")
    return named


async def read_form(request: Request) -> dict[str, str]:
    """The form fields as latin-1, so that any bytes are accepted; each field may occur once."""
    kind = request.header("content-type").lower().partition(";")[0].strip()
    if kind != FORM or request.is_repeated("content-type") or "content-encoding" in request.headers:
        raise Fault(
            Reason.INVALID_HEADER,
            f"Send the parameters in the body as Content-Type: {FORM}, uncompressed.",
            field="Content-Type",
        )
    body = (await request.body(MAX_FORM)).decode("latin-1")
    if body.count("%") > MAX_PERCENT_ESCAPES:
        raise invalid("body", f"The body may have at most {MAX_PERCENT_ESCAPES:,} escapes.")
    return _parameters(body, "body", "body", MAX_FORM_FIELDS, "latin-1")


@dataclass(slots=True, eq=False)
class Arrival:
    """An incomplete body."""

    task: asyncio.Task[Any]
    since: float
    size: int = 0
    problem: tuple[Reason, str] | None = None
    """Why the task was cancelled. Not the exception, which would hold the body in a cycle."""


class ArrivingBodies:
    """The incomplete bodies of a worker, the oldest first. Cancels the tasks of those that take too long. Beyond the
    limit on their size it drops the oldest large one, which comes from a slow sender.
    """

    def __init__(self) -> None:
        self._arrivals: dict[Arrival, None] = {}
        self._held = 0
        self._looks = False

    def start(self, task: asyncio.Task[Any]) -> Arrival:
        loop = task.get_loop()
        arrival = Arrival(task, loop.time())
        self._arrivals[arrival] = None
        if not self._looks:
            self._looks = True
            loop.call_later(LOOK_SECONDS, self._look, loop)
        return arrival

    def add(self, arrival: Arrival, size: int) -> None:
        """Only for large bodies."""
        arrival.size += size
        self._held += size
        while self._held > MAX_ARRIVING:
            oldest = next(one for one in self._arrivals if one.size)
            self._cancel(
                oldest, Reason.TOO_MANY_BODIES, "Too many large bodies are arriving at once. Retry the request."
            )

    def end(self, arrival: Arrival) -> None:
        if self._arrivals.pop(arrival, arrival) is None:
            self._held -= arrival.size

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        late = loop.time() - BODY_SECONDS
        for arrival in list(takewhile(lambda one: one.since <= late, self._arrivals)):
            self._cancel(arrival, Reason.BODY_TIMEOUT, f"The body did not arrive within {BODY_SECONDS:g} seconds.")
        self._looks = bool(self._arrivals)
        if self._looks:
            loop.call_later(LOOK_SECONDS, self._look, loop)

    def _cancel(self, arrival: Arrival, reason: Reason, message: str) -> None:
        self.end(arrival)
        if arrival.task is asyncio.current_task(arrival.task.get_loop()):  # a cancelled task may run on for a while
            raise Fault(reason, message)
        arrival.problem = reason, message
        arrival.task.cancel()


@dataclass(slots=True)
class WorkerState:
    """What all requests of a worker share."""

    proxies: tuple[Network, ...]
    on_unix_socket: bool
    new_id: Callable[[], str]
    note_body: Callable[[Scope, int], None]
    """Called with each body that is complete."""
    arriving: ArrivingBodies = field(default_factory=ArrivingBodies)


def _address(hop: str) -> str:
    """The address in a hop, with or without a port."""
    host = hop[1 : hop.find("]")] if hop.startswith("[") else hop
    if hop.count(":") == 1:
        host = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return UNKNOWN_CLIENT


MIN_GZIP_BYTES = 1_024
LARGE_GZIP_BYTES = 32 * 1024
"""More than this would hold up the event loop; a thread compresses it."""
LEVEL, WINDOW, MEMORY = 1, 12, 6
"""The fastest level and a window of 4 KiB: for 20 tokens half the time of zlib's defaults, and as small."""
GZIP = 16
"""Added to the window size, it selects gzip's format."""
_Q_ZERO = re.compile(r"q\s*=\s*0(\.0*)?")


async def compressed(request: Request, response: Response) -> Response:
    """The response compressed, if it is large enough and the client accepts it. Never call this for a response with a
    secret next to text that another person may choose.
    """
    status, headers, body = response
    if len(body) < MIN_GZIP_BYTES or not accepts_gzip(request.header("accept-encoding")):
        return response
    packed = _gzip(body) if len(body) <= LARGE_GZIP_BYTES else await asyncio.to_thread(_gzip, body)
    return Response(status, [*headers, ("content-encoding", "gzip"), ("vary", "accept-encoding")], packed)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, wbits=WINDOW + GZIP, memLevel=MEMORY)
    return packer.compress(body) + packer.flush()


def accepts_gzip(accepted: str) -> bool:
    for word in accepted.lower().split(",", MAX_LIST)[:MAX_LIST]:
        coding, _, weight = word.partition(";")
        if coding.strip() == "gzip":
            return not _Q_ZERO.fullmatch(weight.strip())
    return False

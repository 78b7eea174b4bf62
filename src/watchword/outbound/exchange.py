"""One HTTP request to a stranger, on a connection of its own. What the answer costs is bounded as a whole: every byte
from the network counts (TLS, headers, informational answers, chunk framing), and every read and every part.

Proxies of the environment are ignored, redirects are not followed and nothing is decompressed.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

import h11

from watchword.basics.networks import Address
from watchword.outbound.addresses import addresses_of
from watchword.outbound.rules import AnswerBounds, OutboundAnswer, OutboundError, OutboundProblem, OutboundRequest

T = TypeVar("T")

CONNECT_SECONDS = 4.0
MAX_HEADERS = 32 * 1024
"""Of one answer, and of one informational answer."""
READ = 16 * 1024


async def exchange(request: OutboundRequest, tls: Callable[[], ssl.SSLContext]) -> OutboundAnswer:
    """Send the request and read the answer. Every failure is an `OutboundError`."""
    try:
        async with asyncio.timeout(request.bounds.seconds):
            addresses = await addresses_of(request.url, request.rule)
            with await _connected(addresses, request.url.port) as line:
                connection = _Connection(line, request.bounds)
                if request.url.scheme == "https":
                    # TLS verifies the certificate for this name.
                    await connection.start_tls(tls(), request.url.host.rstrip("."))
                return await _exchange(request, connection)
    except TimeoutError:
        problem, reason = OutboundProblem.TIME, f"No complete answer within {request.bounds.seconds:.0f} s."
    except ssl.SSLError as error:
        problem, reason = OutboundProblem.TLS, f"TLS failed: {error.strerror or error}"
    except OSError as error:
        problem, reason = OutboundProblem.INVALID, f"The connection failed: {error.strerror or type(error).__name__}."
    except h11.RemoteProtocolError as error:
        problem, reason = OutboundProblem.INVALID, f"The answer is not valid HTTP: {error}."
        if error.error_status_hint == 431:
            problem, reason = OutboundProblem.TOO_LONG, f"The answer has more than {MAX_HEADERS // 1024} kB of headers."
    except (h11.LocalProtocolError, UnicodeError) as error:
        # Without the message, which may have the value of a header.
        problem, reason = OutboundProblem.INVALID, f"The request cannot be sent ({type(error).__name__})."
    raise OutboundError(problem, reason)


async def _connected(addresses: list[Address], port: int) -> socket.socket:
    problem = "no address"
    for address in addresses:
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        with ExitStack() as unless_connected:
            line = unless_connected.enter_context(socket.socket(family, socket.SOCK_STREAM))
            line.setblocking(False)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(line, (str(address), port))
            except TimeoutError:
                problem = f"{address} does not answer"
            except OSError as error:
                problem = f"{address}: {error.strerror}"
            else:
                unless_connected.pop_all()
                return line
    raise OutboundError(OutboundProblem.UNREACHABLE, f"Cannot connect: {problem}.")


class _Connection:
    """A socket, with TLS or without, that counts what comes from it."""

    def __init__(self, line: socket.socket, bounds: AnswerBounds) -> None:
        self._line = line
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self.received = self._pieces = 0

    def count_piece(self) -> None:
        self._pieces += 1
        if self._pieces > self._bounds.pieces:
            raise OutboundError(
                OutboundProblem.TOO_LONG, f"The answer came in more than {self._bounds.pieces:,} pieces."
            )

    async def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        await self._until_done(self._tls.do_handshake)

    async def send(self, data: bytes) -> None:
        if self._tls is None:
            await self._loop.sock_sendall(self._line, data)
        else:
            tls = self._tls
            await self._until_done(lambda: tls.write(data))

    async def receive(self) -> bytes:
        """Empty at the end."""
        if self._tls is None:
            return await self._read()
        tls = self._tls
        with suppress(ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return await self._until_done(lambda: tls.read(READ))
        return b""

    async def _until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._read()
                self._incoming.write(data) if data else self._incoming.write_eof()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()  # the alert
                raise
            else:
                await self._flush()
                return done

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._loop.sock_sendall(self._line, self._outgoing.read())

    async def _read(self) -> bytes:
        self.count_piece()
        data = await self._loop.sock_recv(self._line, READ)
        self.received += len(data)
        if self.received > self._bounds.received + 2 * READ:  # of TLS records without data
            raise OutboundError(OutboundProblem.TOO_LONG, f"The answer has more than {self._bounds.received:,} bytes.")
        return data


async def _exchange(request: OutboundRequest, connection: _Connection) -> OutboundAnswer:
    bounds, http = request.bounds, h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADERS)
    headers = {"host": request.url.netloc, "accept-encoding": "identity", "connection": "close", **request.headers}
    if request.body or request.method == "POST":
        headers["content-length"] = str(len(request.body))
    asked = http.send(h11.Request(method=request.method, target=request.url.path, headers=list(headers.items())))
    sent = (asked or b"") + (http.send(h11.Data(data=request.body)) or b"") + (http.send(h11.EndOfMessage()) or b"")
    with suppress(ConnectionError):  # it may have answered before
        await connection.send(sent)
    status, kept, is_whole = 0, b"", True
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            if connection.received > bounds.received:
                if not status:
                    raise OutboundError(
                        OutboundProblem.TOO_LONG,
                        f"The answer has more than {bounds.received:,} bytes before its body.",
                    )
                return OutboundAnswer(status, kept, is_whole=False)
            http.receive_data(await connection.receive())
            continue
        connection.count_piece()
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            is_whole = is_whole and len(kept) + len(event.data) <= bounds.kept
            kept = (kept + event.data[: bounds.kept])[: bounds.kept]
        elif isinstance(event, h11.EndOfMessage):
            return OutboundAnswer(status, kept, is_whole)
        elif not isinstance(event, h11.InformationalResponse):
            reason = "The receiver closed the connection before its answer was complete."
            raise OutboundError(OutboundProblem.INVALID, reason)

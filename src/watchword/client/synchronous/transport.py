"""What the synchronous client needs of httpx and httpcore. `asynchronous/transport.py` has the same names.

httpx limits only each single read and write, so that a server that sends a byte a second would never time out. asyncio
can cancel a request from outside; a blocking client cannot. So this transport gives each read and write the time that
is left until the deadline of the whole request.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from time import sleep
from typing import Any, ParamSpec, TypeVar

import httpcore
import httpx

from watchword.client.http_clients import ServerConnection

__all__ = ["deadline", "open_http", "run_blocking", "sleep"]

A = ParamSpec("A")
T = TypeVar("T")
SocketOptions = Iterable[httpcore.SOCKET_OPTION] | None
MAX_CONNECTIONS, MAX_IDLE, IDLE_SECONDS = 100, 20, 5.0  # httpx's own defaults
_ERRORS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
)
_ends_at: ContextVar[float | None] = ContextVar("ends_at", default=None)


def run_blocking(function: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs) -> T:
    return function(*args, **kwargs)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """The time until which the requests inside must have ended."""
    before = _ends_at.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends_at.reset(before)


def open_http(server: ServerConnection, timeout: float, verify: ssl.SSLContext | bool) -> httpx.Client:
    with server.proxy() as proxy:
        transport = DeadlineTransport(server.socket, proxy, verify=server.verify_for(verify))
    return httpx.Client(transport=transport, timeout=timeout)


class DeadlineTransport(httpx.BaseTransport):
    def __init__(self, socket: str | None, proxy: httpx.Proxy | None, *, verify: ssl.SSLContext | bool) -> None:
        if proxy is not None and proxy.url.scheme.startswith("socks") and find_spec("socksio") is None:
            raise ImportError("socksio")
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(verify),
            proxy=None if proxy is None else _core_proxy(proxy),
            uds=socket,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        url = request.url
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _errors_of_httpx():
            response = self._pool.handle_request(sent)
        return httpx.Response(response.status, headers=response.headers, stream=_Answer(response))

    def close(self) -> None:
        self._pool.close()


class _Answer(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


def _core_proxy(proxy: httpx.Proxy) -> httpcore.Proxy:
    url = proxy.url
    return httpcore.Proxy(
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        auth=proxy.raw_auth,
        headers=proxy.headers.raw,
        ssl_context=proxy.ssl_context,
    )


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    """Both libraries give their errors the same names."""
    try:
        yield
    except _ERRORS as error:
        kind: type[httpx.HTTPError] = getattr(httpx, type(error).__name__)
        raise kind(str(error)) from error


def _left(timeout: float | None) -> float | None:
    """The time that is left, also for calls without a timeout, such as those of a SOCKS handshake."""
    ends_at = _ends_at.get()
    if ends_at is None:
        return timeout
    left = ends_at - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout
    return left if timeout is None else min(left, timeout)


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_tcp(host, port, _left(timeout), local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_unix_socket(path, _left(timeout), socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._inner.close()

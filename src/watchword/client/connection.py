"""How both clients connect: the server's address, the credential, proxies, and a deadline for each request.

A token is written only into the header of a request. Redirects are not followed, because they could send the token to
another server. A .netrc file is ignored, and so is a proxy for addresses of this machine.
"""

import ipaddress
import ssl
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from watchword import __version__
from watchword.client.api_requests import GRAPHQL_PATH, ApiRequest
from watchword.client.errors import Unreachable, WatchwordError
from watchword.client.profiles import DEFAULT_URL
from watchword.domain.secret import Secret

UNIX = "unix:"
_INVALID_URL = f"url must be an address such as {DEFAULT_URL} or unix:/path/of.sock, without a password."


class TokenSource(Protocol):
    """Provides the token for each request, such as a `TokenFile`."""

    def read(self) -> Secret[str]: ...


Bearer = str | Secret[str] | TokenSource


class CallerAuth(httpx.Auth):
    """Adds the token or the local actor to a request. Nothing that can be printed holds the token."""

    def __init__(self, token: Bearer | None, actor: str | None) -> None:
        if token is not None and actor is not None:
            raise ValueError("Give token or actor, not both.")
        self._source = None if token is None or isinstance(token, str | Secret) else token
        raw = token.reveal() if isinstance(token, Secret) else token if isinstance(token, str) else None
        for name, value in (("token", raw), ("actor", actor)):
            if value is not None and (not value or not all("\x21" <= character <= "\x7e" for character in value)):
                raise ValueError(f"{name} must be visible ASCII without blanks.")
        self._token = None if raw is None else Secret(raw)
        self._actor = actor

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        yield self._signed(request, self._token if self._source is None else self._source.read())

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        token = self._token
        if self._source is not None:
            import asyncio

            token = await asyncio.to_thread(self._source.read)
        yield self._signed(request, token)

    def _signed(self, request: httpx.Request, token: Secret[str] | None) -> httpx.Request:
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token.reveal()}"
        if self._actor is not None:
            request.headers["X-Service-Actor"] = self._actor
        return request


class ServerConnection:
    """The server's address, the credential, and how requests are put into httpx's arguments."""

    def __init__(self, url: str, token: Bearer | None, actor: str | None, retries: int) -> None:
        if retries < 0:
            raise ValueError("retries must be 0 or more.")
        self.retries = retries
        self.socket = url.removeprefix(UNIX) if url.startswith(UNIX) else None
        checked = _check_url(url)
        self.url = "http://localhost" if self.socket is not None else checked
        self._shown = checked
        self._auth = CallerAuth(token, actor)

    def __repr__(self) -> str:
        return self._shown

    def request(self, request: ApiRequest[Any]) -> dict[str, Any]:
        """The arguments of httpx's `stream`."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": f"watchword/{__version__}"}
        if request.content is not None:
            headers["Content-Type"] = request.media
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        return {
            "method": request.method,
            "url": self.url + request.path,
            "headers": headers,
            "content": request.content,
            "auth": None if request.public else self._auth,
            "follow_redirects": False,
        }

    def open_client(self, timeout: float, verify: ssl.SSLContext | bool) -> httpx.Client:
        transport = None if self.socket is None else httpx.HTTPTransport(uds=self.socket)
        with _proxy_errors():
            return enforce_deadlines(httpx.Client(transport=transport, **self._options(timeout, verify)))

    def open_async_client(self, timeout: float, verify: ssl.SSLContext | bool) -> httpx.AsyncClient:
        transport = None if self.socket is None else httpx.AsyncHTTPTransport(uds=self.socket)
        with _proxy_errors():
            return httpx.AsyncClient(transport=transport, **self._options(timeout, verify))

    def _options(self, timeout: float, verify: ssl.SSLContext | bool) -> dict[str, Any]:
        options: dict[str, Any] = {"timeout": timeout, "verify": verify}
        if is_loopback(self.url):
            if self.socket is None:
                options["mounts"] = {"http://": None, "https://": None}
            if not is_encrypted(self.url):
                options["verify"] = False  # plain HTTP; loading the certificate authorities would take time
        return options

    def check_http(self, http: object | None) -> None:
        if http is not None and self.socket is not None:
            raise ValueError("Give http a transport for the Unix socket, and url as http://localhost.")

    def lost(self, error: httpx.HTTPError | TimeoutError) -> Unreachable:
        late = isinstance(error, httpx.TimeoutException | TimeoutError)
        what = "did not answer in time" if late else f"cannot be reached: {error}"
        return Unreachable(f"{self._shown} {what.rstrip(': .')}.")


@contextmanager
def _proxy_errors() -> Iterator[None]:
    """While httpx opens: report a proxy setting that it cannot use as an error of this client."""
    try:
        yield
    except ImportError:
        raise WatchwordError(
            "The environment (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY) names a SOCKS proxy, which needs one more package. "
            "Run: pip install 'httpx[socks]', or name the server in NO_PROXY."
        ) from None
    except (httpx.InvalidURL, ValueError):
        raise WatchwordError(
            "The proxy in the environment (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY) must be an address such as "
            "http://proxy.example.org:3128. Correct it, or name the server in NO_PROXY."
        ) from None


def is_encrypted(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def is_loopback(url: str) -> bool:
    """Whether requests to this address stay on this machine."""
    if url.startswith(UNIX):
        return True
    host = (urlsplit(url).hostname or "").removesuffix(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_url(url: str) -> str:
    # Checked first, because urlsplit silently removes line ends.
    if not url.isprintable() or url == UNIX or (" " in url and not url.startswith(UNIX)):
        raise ValueError(_INVALID_URL)
    if url.startswith(UNIX):
        return url
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        httpx.URL(url.rstrip("/") + GRAPHQL_PATH)
    except (ValueError, httpx.InvalidURL):
        is_valid = False
    if not is_valid or parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        raise ValueError(_INVALID_URL)
    return url.rstrip("/").removesuffix(GRAPHQL_PATH)


# The deadline of a whole request. httpx limits only each single read and write, so that a server that sends a byte a
# second would never time out. asyncio can cancel a request from outside; a blocking client cannot, so each of its reads
# and writes gets the time that is left. httpx has no public way to set httpcore's network backend, so this replaces a
# private attribute of it. tests/client/test_bounds.py fails if that stops working.

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Limit the time of all reads and writes in this block, by a client of `enforce_deadlines`."""
    before = _deadline.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(before)


def enforce_deadlines(http: httpx.Client) -> httpx.Client:
    for transport in (http._transport, *http._mounts.values()):  # noqa: SLF001 - see above
        if transport is not None:
            pool: Any = transport._pool  # type: ignore[attr-defined]  # noqa: SLF001
            pool._network_backend = _DeadlineBackend(pool._network_backend)  # noqa: SLF001
    return http


def _remaining(timeout: float | None) -> float | None:
    ends = _deadline.get()
    if ends is None:
        return timeout
    left = ends - time.monotonic()
    if left <= 0:
        raise httpx.ReadTimeout("")
    return left if timeout is None else min(left, timeout)


class _DeadlineBackend:
    """A network backend of httpcore."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, *args: Any, timeout: float | None = None, **options: Any) -> "_DeadlineStream":
        return _DeadlineStream(self._inner.connect_tcp(*args, timeout=_remaining(timeout), **options))

    def connect_unix_socket(self, *args: Any, timeout: float | None = None, **options: Any) -> "_DeadlineStream":
        return _DeadlineStream(self._inner.connect_unix_socket(*args, timeout=_remaining(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _DeadlineStream:
    """A network stream of httpcore."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._inner.read(max_bytes, timeout=_remaining(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=_remaining(timeout))

    def start_tls(self, *args: Any, timeout: float | None = None, **options: Any) -> "_DeadlineStream":
        return _DeadlineStream(self._inner.start_tls(*args, timeout=_remaining(timeout), **options))

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

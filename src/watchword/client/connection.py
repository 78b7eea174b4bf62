"""Where the server is and as whom it is spoken to: what both clients share of a request.

A token is revealed only into the header of a request. Redirects are not followed, for they would carry it elsewhere,
and neither a .netrc nor a proxy in front of this very machine can change who is calling.
"""

import ipaddress
import ssl
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from watchword import __version__
from watchword.client.errors import Unreachable, WatchwordError
from watchword.client.wire import GRAPHQL, ApiRequest
from watchword.domain.secret import Secret

DEFAULT_URL = "http://127.0.0.1:8080"
UNIX = "unix:"
_WANTED = f"url must be an address such as {DEFAULT_URL} or unix:/path/of.sock, without a password."


class TokenSource(Protocol):
    """Where a token is read before each use, such as a `TokenFile`."""

    def read(self) -> Secret[str]: ...


Bearer = str | Secret[str] | TokenSource


class CallerAuth(httpx.Auth):
    """A token or the name of a local caller, put into the request and into nothing that can be printed."""

    def __init__(self, token: Bearer | None, actor: str | None) -> None:
        if token is not None and actor is not None:
            raise ValueError("Give token or actor, not both: either alone says who is calling.")
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
    def __init__(self, url: str, token: Bearer | None, actor: str | None, retries: int) -> None:
        if retries < 0:
            raise ValueError("retries must be 0 or more.")
        self.retries = retries
        _refuse_unprintable(url)
        self.socket = url.removeprefix(UNIX) if url.startswith(UNIX) else None
        self.url = "http://localhost" if self.socket is not None else _checked(url)
        self._shown = url if self.socket is not None else self.url
        self._credential = CallerAuth(token, actor)

    def __repr__(self) -> str:
        return self._shown

    def request(self, call: ApiRequest[Any]) -> dict[str, Any]:
        """The arguments of httpx's `request`."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": f"watchword/{__version__}"}
        if call.content is not None:
            headers["Content-Type"] = call.media
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        return {
            "method": call.method,
            "url": self.url + call.path,
            "headers": headers,
            "content": call.content,
            "auth": None if call.public else self._credential,
            "follow_redirects": False,
        }

    def options(self, timeout: float, verify: ssl.SSLContext | bool) -> dict[str, Any]:
        """The arguments of httpx's clients, but for the transport of a Unix socket."""
        options: dict[str, Any] = {"timeout": timeout, "verify": verify}
        if is_loopback(self.url):
            if self.socket is None:
                options["mounts"] = {"http://": None, "https://": None}
            if not is_encrypted(self.url):
                options["verify"] = False  # nothing is encrypted, and loading all authorities takes its time
        return options

    def check_own(self, http: object | None) -> None:
        if http is not None and self.socket is not None:
            raise ValueError("Give http a transport for the Unix socket, and url as http://localhost.")

    def lost(self, error: httpx.HTTPError | TimeoutError) -> Unreachable:
        late = isinstance(error, httpx.TimeoutException | TimeoutError)
        what = "did not answer in time" if late else f"cannot be reached: {error}"
        return Unreachable(f"{self._shown} {what.rstrip(': .')}.")


@contextmanager
def usable_proxy() -> Iterator[None]:
    """While httpx opens: what it thinks of a proxy that the environment names, as an error of this family."""
    try:
        yield
    except ImportError:
        raise WatchwordError(
            "The environment (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY) names a SOCKS proxy, which needs one more package. "
            "Run: pip install 'httpx[socks]', or name the server in NO_PROXY."
        ) from None
    except (httpx.InvalidURL, ValueError):
        raise WatchwordError(
            "The proxy that the environment names (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY) must be an address such as "
            "http://proxy.example.org:3128. Correct it, or name the server in NO_PROXY."
        ) from None


def is_encrypted(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def is_loopback(url: str) -> bool:
    """Whether what is sent to this address stays on this machine."""
    if url.startswith(UNIX):
        return True
    host = (urlsplit(url).hostname or "").removesuffix(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        httpx.URL(url.rstrip("/") + GRAPHQL)
    except (ValueError, httpx.InvalidURL):
        fine = False
    if not fine or parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        raise ValueError(_WANTED)
    return url.rstrip("/").removesuffix(GRAPHQL)


def _refuse_unprintable(url: str) -> None:
    """Python's own parser takes line ends out without a word."""
    if not url.isprintable() or url == UNIX or (" " in url and not url.startswith(UNIX)):
        raise ValueError(_WANTED)

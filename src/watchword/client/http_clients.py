"""`Client` and `AsyncClient`: how requests are sent, retried and answered. What can be asked for is in `api`.

A token is written only into the header of a request. Redirects are not followed, because they could send the token to
another server. A .netrc file is ignored, and so is a proxy for addresses of this machine.

Reads are retried when no answer came or the server is unavailable. A change is retried only after a 503 of the server
itself, which means that nothing was changed. It is never retried after a lost connection, because the change may have
been made. A request with an Idempotency-Key is retried after any of these failures: the server carries it out once.
"""

import ipaddress
import json
import random
import socket
import ssl
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from watchword import __version__
from watchword.basics.names import DEFAULT_URL
from watchword.basics.secret import Secret
from watchword.client.api import Api
from watchword.client.errors import (
    BY_CODE,
    BadRequest,
    ProfileChoiceError,
    RequestRejected,
    ServerError,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WatchwordError,
)
from watchword.client.profiles import Profiles, choose_server, read_environment
from watchword.client.requests import GRAPHQL_PATH, ApiRequest, Listing, Step

T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
TLS_PROBE_SECONDS = 2.0
MAX_BYTES = 32 * 1024 * 1024
"""Of an answer. The largest real one, a page of 1,000 records, has a tenth of that."""
UNIX = "unix:"
_INVALID_URL = f"url must be an address such as {DEFAULT_URL} or unix:/path/of.sock, without a password."
_DISCONNECTED = "Server disconnected"  # how httpcore begins the error of a connection closed without an answer
_GATEWAY = {502: "bad gateway", 503: "unavailable", 504: "gateway timeout"}


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
            "method": "GET" if request.content is None else "POST",
            "url": self.url + request.path,
            "headers": headers,
            "content": request.content,
            "auth": None if request.public else self._auth,
            "follow_redirects": False,
        }

    def open(self, kind: type[H], transport: Callable[..., Any], timeout: float, verify: ssl.SSLContext | bool) -> H:
        """A client of httpx, with the transport for a Unix socket."""
        options: dict[str, Any] = {"timeout": timeout, "verify": verify}
        if self.socket is not None:
            options["transport"] = transport(uds=self.socket)
        elif is_loopback(self.url):
            options["mounts"] = {"http://": None, "https://": None}
        if is_loopback(self.url) and not is_encrypted(self.url):
            options["verify"] = False  # plain HTTP; loading the certificate authorities would take time
        try:
            return kind(**options)
        except ImportError:
            raise WatchwordError(
                "The environment (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY) names a SOCKS proxy, which needs one more "
                "package. Run: pip install 'httpx[socks]', or name the server in NO_PROXY."
            ) from None
        except (httpx.InvalidURL, ValueError):
            raise WatchwordError(
                "The proxy in the environment (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY) must be an address such as "
                "http://proxy.example.org:3128. Correct it, or name the server in NO_PROXY."
            ) from None

    def lost(self, error: httpx.HTTPError | TimeoutError) -> Unreachable:
        late = isinstance(error, httpx.TimeoutException | TimeoutError)
        what = "did not answer in time" if late else f"cannot be reached: {error}"
        garbled = isinstance(error, httpx.RemoteProtocolError) and _DISCONNECTED not in str(error)
        return Unreachable(f"{self._shown} {what.rstrip(': .')}.", is_garbled=garbled)

    def explain(self, failure: WatchwordError) -> WatchwordError:
        """Say so where http meets a TLS port, or https a plain one. May open another connection."""
        scheme, _, rest = self._shown.partition("://")
        sentence = str(failure)
        if not isinstance(failure, Unreachable) or self.socket is not None:
            return failure
        if scheme.lower() == "https" and ("WRONG_VERSION_NUMBER" in sentence or "RECORD_LAYER_FAILURE" in sentence):
            return Unreachable(f"{sentence} The server does not use TLS on this port.", use_url=f"http://{rest}")
        if scheme.lower() == "http" and failure.is_garbled and speaks_tls(self._shown):
            return Unreachable(f"{sentence} The server uses TLS on this port.", use_url=f"https://{rest}")
        return failure


def speaks_tls(url: str) -> bool:
    """Whether a TLS handshake with this address succeeds. Sends nothing else."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only the protocol matters here; no secret is sent
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), TLS_PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except (OSError, ValueError):
        return False


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
# private attribute of it. tests/client/test_response_limits.py fails if that stops working.
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def enforce_deadlines(http: httpx.Client) -> httpx.Client:
    for transport in (http._transport, *http._mounts.values()):  # noqa: SLF001 - see above
        if transport is not None:
            pool: Any = transport._pool  # type: ignore[attr-defined]  # noqa: SLF001
            pool._network_backend = _WithDeadline(pool._network_backend)  # noqa: SLF001
    return http


def _remaining(timeout: float | None) -> float | None:
    ends = _deadline.get()
    if ends is None:
        return timeout
    left = ends - time.monotonic()
    if left <= 0:
        raise httpx.ReadTimeout("")
    return left if timeout is None else min(left, timeout)


_OPENING = frozenset({"connect_tcp", "connect_unix_socket", "start_tls"})
_TIMED = _OPENING | {"read", "write"}


class _WithDeadline:
    """A network backend of httpcore, or a stream that it opens: each call gets the time that is left, also calls
    without a timeout, such as those of a SOCKS handshake.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **options: Any) -> Any:
            if name in _TIMED:
                options["timeout"] = _remaining(options.get("timeout"))
            found = method(*args, **options)
            return _WithDeadline(found) if name in _OPENING else found

        return call


class AnswerBody:
    """Collects and decompresses an answer, up to the limit."""

    def __init__(self, response: httpx.Response) -> None:
        # An event hook of the given client may have read the answer.
        self.content = bytearray(response.content if response.is_closed else b"")
        encoding = response.headers.get("content-encoding", "").lower()
        if encoding not in {"", "identity", "gzip"}:
            raise UnexpectedAnswer(
                "The answer has a content encoding that was not asked for. Is this Watchword's address?"
            )
        self._decompressor = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        self._received = 0

    def add(self, chunk: bytes) -> None:
        self._received += len(chunk)
        if self._decompressor is not None:
            try:
                chunk = self._decompressor.decompress(chunk, MAX_BYTES + 1 - len(self.content))
            except zlib.error:
                raise UnexpectedAnswer("The answer cannot be decompressed. Is this Watchword's address?") from None
        self.content += chunk
        if max(self._received, len(self.content)) > MAX_BYTES:
            raise UnexpectedAnswer(
                f"The answer has more than {MAX_BYTES:,} bytes, more than Watchword sends. Is this its address?"
            )


def read_answer(request: ApiRequest[T], status: int, headers: Mapping[str, str], body: bytes | bytearray) -> T:
    """The result of a request. Raises the error that the answer stands for."""
    if request.read_headers is not None and status in {200, 204} and not body:
        try:
            return request.read_headers(headers)
        except KeyError:
            raise _unexpected(status, headers) from None
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        refused = _rejected(answer, status, headers)
        if isinstance(refused, BadRequest):
            refused.name_argument(request.arguments)
        if refused is not None:
            raise refused
        if status == 200:
            try:
                return request.read(answer)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                pass
    raise _unexpected(status, headers)


def _rejected(answer: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> RequestRejected | None:
    """Read the three forms of an error: GraphQL's, OAuth's, and that of all other addresses."""
    try:
        if "errors" in answer:
            first = answer["errors"][0]
            message, details = first["message"], dict(first["extensions"])
        elif isinstance(answer.get("error"), str):
            message = answer["error_description"]
            details = {"type": None, "code": status, "reason": answer["error"]}
        else:
            details = dict(answer["error"])
            message = details.pop("message")
        del details["type"]  # says the same as the code
        code = int(details.pop("code"))
        return BY_CODE.get(code, RequestRejected)(
            str(message),
            code=code,
            reason=str(details.pop("reason")),
            details=details,
            request_id=headers.get("x-request-id"),
            retry_after=_seconds(headers.get("retry-after")),
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _unexpected(status: int, headers: Mapping[str, str]) -> WatchwordError:
    if status in _GATEWAY:
        return Unreachable(f"A gateway answered {status} ({_GATEWAY[status]}) instead of Watchword.")
    if 300 <= status < 400:
        where = headers.get("location", "another address")
        return UnexpectedAnswer(f"The answer is a redirect to {where[:200]}, which is not followed. Use that address.")
    return UnexpectedAnswer(f"The answer ({status}) is not Watchword's. Is this its address?")


class RequestRetries:
    """How often one request is retried. Random pauses keep many clients from retrying at the same moment."""

    def __init__(self, request: ApiRequest[Any], retries: int, jitter: Callable[[], float] = random.random) -> None:
        self._request = request
        self._left = retries
        self._pause = FIRST_PAUSE
        self._jitter = jitter

    def pause_after(self, failure: WatchwordError) -> float | None:
        """Seconds to wait before the next try; None to give up."""
        if self._left <= 0 or not self._may_retry(failure):
            return None
        requested = failure.retry_after if isinstance(failure, RequestRejected) else None
        pause = self._pause if requested is None else requested
        if pause > LONGEST_PAUSE:
            return None
        self._left -= 1
        self._pause *= 2
        return pause * (1 + self._jitter() / 2)

    def _may_retry(self, failure: WatchwordError) -> bool:
        if isinstance(failure, Unreachable):
            return self._request.key is not None or not self._request.changes
        if isinstance(failure, Throttled):
            return failure.retry_after is not None  # nothing was changed
        return isinstance(failure, Unavailable) or (isinstance(failure, ServerError) and self._request.key is not None)


class _HttpClient(Api, Generic[H]):
    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: Bearer | None = None,
        actor: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
        verify: ssl.SSLContext | bool = True,
        http: H | None = None,
    ) -> None:
        self._connection = ServerConnection(url, token, actor, retries)
        if http is not None and self._connection.socket is not None:
            raise ValueError("Give http a transport for the Unix socket, and url as http://localhost.")
        self._closes = http is None
        self._timeout = timeout if http is None else None
        self._http: H = http or self._open(timeout, verify)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection})"

    def _open(self, timeout: float, verify: ssl.SSLContext | bool) -> H:
        raise NotImplementedError

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """Connect as the command line does: to WATCHWORD_URL with WATCHWORD_TOKEN, or by the profile that
        WATCHWORD_PROFILE names, or by the current profile of `watchword login`. `options` are those of the constructor.
        """
        environment = read_environment()
        profiles = Profiles(environment.folder)
        has_caller = bool(options.keys() & {"token", "actor"})
        chosen = choose_server(environment, profiles, has_caller=has_caller or environment.token is not None)
        if not has_caller:
            options["token"] = environment.token or (profiles.token(chosen.profile) if chosen.profile else None)
            if options["token"] is None:
                raise ProfileChoiceError("No credential. Set WATCHWORD_TOKEN, or sign in: watchword login")
        return cls(chosen.url, **options)

    @classmethod
    def from_profile(cls, name: str, **options: Any) -> Self:
        """Connect with the server and the token that `watchword login --profile NAME` stored."""
        profiles = Profiles(read_environment().folder)
        profile = profiles.get(name)
        return cls(profile.url, token=profiles.token(profile), **options)


class Client(_HttpClient[httpx.Client]):
    """A client of one server. Use it as a context manager, or `close` it.

    `token`, a string, `Secret` or `TokenFile`, identifies the caller. `actor` does so for a server in local mode. `url`
    may also be `unix:/path/of.sock`. `timeout` is the time in seconds for one try, to the last byte of its answer.
    `retries` is how often a request is retried. `http` is an `httpx.Client` to use, with its own timeout and
    certificates; it is not closed.
    """

    def _open(self, timeout: float, verify: ssl.SSLContext | bool) -> httpx.Client:
        return enforce_deadlines(self._connection.open(httpx.Client, httpx.HTTPTransport, timeout, verify))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._closes:
            self._http.close()

    def _send(self, request: ApiRequest[T]) -> T:
        retries = RequestRetries(request, self._connection.retries)
        while True:
            try:
                return self._send_once(request)
            except WatchwordError as failure:
                pause = retries.pause_after(failure)
                if pause is None:
                    raise (self._connection.explain(failure) if self._closes else failure) from None
            time.sleep(pause)

    def _send_once(self, request: ApiRequest[T]) -> T:
        before = _deadline.set(None if self._timeout is None else time.monotonic() + self._timeout)
        try:
            with self._http.stream(**self._connection.request(request)) as response:
                body = AnswerBody(response)
                if not response.is_closed:
                    for chunk in response.iter_raw():
                        body.add(chunk)
        except httpx.HTTPError as error:
            raise self._connection.lost(error) from None
        finally:
            _deadline.reset(before)
        return read_answer(request, response.status_code, response.headers, body.content)

    def _list(self, listing: Listing[T], step: Step[T]) -> Iterator[T]:
        while step.request is not None:
            time.sleep(step.pause)
            step = listing.send(self._send(step.request))
            yield from step.items


class AsyncClient(_HttpClient[httpx.AsyncClient]):
    """The same as `Client` for asyncio: `await` each call, and use `async for` for lists and `async with`."""

    def _open(self, timeout: float, verify: ssl.SSLContext | bool) -> httpx.AsyncClient:
        return self._connection.open(httpx.AsyncClient, httpx.AsyncHTTPTransport, timeout, verify)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._closes:
            await self._http.aclose()

    # asyncio is imported where it is used: the command line, which never needs it, would load it at each start.

    async def _send(self, request: ApiRequest[T]) -> T:
        from asyncio import sleep, to_thread

        retries = RequestRetries(request, self._connection.retries)
        while True:
            try:
                return await self._send_once(request)
            except WatchwordError as failure:
                pause = retries.pause_after(failure)
                if pause is None:
                    raise (await to_thread(self._connection.explain, failure) if self._closes else failure) from None
            await sleep(pause)

    async def _send_once(self, request: ApiRequest[T]) -> T:
        from asyncio import timeout

        try:
            async with timeout(self._timeout), self._http.stream(**self._connection.request(request)) as response:
                body = AnswerBody(response)
                if not response.is_closed:
                    async for chunk in response.aiter_raw():
                        body.add(chunk)
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._connection.lost(error) from None
        return read_answer(request, response.status_code, response.headers, body.content)

    async def _list(self, listing: Listing[T], step: Step[T]) -> AsyncIterator[T]:
        from asyncio import sleep

        while step.request is not None:
            await sleep(step.pause)
            step = listing.send(await self._send(step.request))
            for item in step.items:
                yield item

"""What both clients share: the server's address, the caller, how an answer is read, and when a request is retried.

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
import urllib.request
import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx

from watchword import __version__
from watchword.basics.errors import Reason
from watchword.basics.names import DEFAULT_URL
from watchword.basics.secret import Secret
from watchword.client.errors import (
    BY_CODE,
    ProfileChoiceError,
    RequestRejected,
    ServerError,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    UnknownFields,
    Unreachable,
    WatchwordError,
)
from watchword.client.profiles import Profiles, choose_server, read_environment
from watchword.client.requests import GRAPHQL_PATH, ApiRequest

T = TypeVar("T")
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
        self._partial: dict[str, ApiRequest[Any]] = {}
        """Requests without the fields that this server does not know, by the whole document."""

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

    def verify_for(self, verify: ssl.SSLContext | bool) -> ssl.SSLContext | bool:
        """False for plain HTTP to this machine: to load the certificate authorities would take time."""
        return False if is_loopback(self.url) and not is_encrypted(self.url) else verify

    @contextmanager
    def proxy(self) -> Iterator[httpx.Proxy | None]:
        """The proxy that the environment names for the server. Errors with it are explained."""
        parts = urlsplit(self.url)
        proxies = urllib.request.getproxies()
        address = proxies.get(parts.scheme) or proxies.get("all")
        if is_loopback(self.url) or urllib.request.proxy_bypass(parts.netloc):
            address = None
        try:
            yield httpx.Proxy(address if "://" in address else f"http://{address}") if address else None
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

    def known(self, request: ApiRequest[T]) -> ApiRequest[T]:
        """The request without the fields that the server turned out not to know."""
        found = self._partial.get(request.query or "")
        return request if found is None else replace(request, query=found.query, is_partial=True)

    def without(self, request: ApiRequest[T], whole: ApiRequest[T], failure: UnknownFields) -> ApiRequest[T]:
        """The request without fields that the server does not know. Raises the failure if not enough is left."""
        left = request.without(failure.columns)
        if left is None or len(left.query or "") >= len(request.query or ""):
            raise failure
        self._partial[whole.query or ""] = left
        return left

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


class _Partial(dict[str, Any]):
    """An object of an answer to a partial request."""

    def __missing__(self, _: str) -> None:
        return None


def read_answer(request: ApiRequest[T], status: int, headers: Mapping[str, str], body: bytes | bytearray) -> T:
    """The result of a request. Raises the error that the answer stands for."""
    if request.read_headers is not None and status in {200, 204} and not body:
        try:
            return request.read_headers(headers)
        except KeyError:
            raise _unexpected(status, headers) from None
    try:
        answer = json.loads(body, object_hook=_Partial if request.is_partial else None)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        refused = _rejected(answer, status, headers)
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
        reason = str(details.pop("reason"))
        columns = _unknown_fields(answer.get("errors", [])) if reason == Reason.INVALID_DOCUMENT.word else ()
        rejected = (UnknownFields if columns else BY_CODE.get(code, RequestRejected))(
            str(message),
            code=code,
            reason=reason,
            details=details,
            request_id=headers.get("x-request-id"),
            retry_after=_seconds(headers.get("retry-after")),
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None
    if isinstance(rejected, UnknownFields):
        rejected.columns = columns
    return rejected


def _unknown_fields(errors: list[Mapping[str, Any]]) -> tuple[int, ...]:
    """Where the document has fields that the schema lacks; empty if it has another fault."""
    found = [error for error in errors if not str(error["message"]).startswith("Too many validation errors")]
    if not all(str(error["message"]).startswith("Cannot query field ") for error in found):
        return ()
    return tuple(int(error["locations"][0]["column"]) for error in found)


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


def environment_caller(options: dict[str, Any]) -> str:
    """The server's address, as the command line chooses it. Without a caller in `options`, the token is added."""
    environment = read_environment()
    profiles = Profiles(environment.folder)
    has_caller = bool(options.keys() & {"token", "actor"})
    chosen = choose_server(environment, profiles, has_caller=has_caller or environment.token is not None)
    if not has_caller:
        options["token"] = environment.token or (profiles.token(chosen.profile) if chosen.profile else None)
        if options["token"] is None:
            raise ProfileChoiceError("No credential. Set WATCHWORD_TOKEN, or sign in: watchword login")
    return chosen.url


def profile_caller(name: str) -> tuple[str, Secret[str]]:
    """The server's address and the token of a profile."""
    profiles = Profiles(read_environment().folder)
    profile = profiles.get(name)
    return profile.url, profiles.token(profile)

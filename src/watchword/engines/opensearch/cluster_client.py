"""HTTP client of a cluster: retries, several hosts, one deadline per request, and its errors as faults.

- A request that may be repeated is retried a few times with backoff. One that starts work is retried only if it was
  certainly not executed: the connection was refused, or the answer was 429 or 503.
- A host that fails is skipped for a while, unless all have failed.
- Credentials are revealed only into the header of a request. Redirects and proxies of the environment are ignored:
  either would send the credentials elsewhere. The size of an answer is bounded.

Answers by status:

    401, 403 without a block   the credentials are rejected: INDEX_UNAVAILABLE
    429, 502, 503, 504         retried, then INDEX_UNAVAILABLE
    other 4xx, write blocks    INDEX_REFUSED
    everything else            INDEX_UNAVAILABLE
"""

import asyncio
import base64
import random
import ssl
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import orjson

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.secret import Secret

TRIES = 4
FIRST_PAUSE = 0.1
SKIP_SECONDS = 10.0
MAX_BYTES = 64 * 1024 * 1024
TAG_HEADER = "X-Opaque-Id"
"""The cluster keeps this header with the tasks that a request starts."""
BLOCK = "cluster_block_exception"
NO_INDEX = "index_not_found_exception"
NO_RESOURCE = "resource_not_found_exception"
EXISTS = "resource_already_exists_exception"
_RETRIABLE = frozenset({429, 502, 503, 504})
_CONNECT_SHARE = 0.25
_MAX_CHARACTERS = 400
_KEPT = httpx.Limits(max_connections=32, max_keepalive_connections=16, keepalive_expiry=60)
# For requests that may not be repeated: the server may close a kept connection just then, and it would be unknown
# whether it read the request.
_FRESH = httpx.Limits(max_connections=8, max_keepalive_connections=0)


class Retry(Enum):
    ALWAYS = "executing it twice has the same effect"
    NOT_EXECUTED = "only if it was certainly not executed"
    NEVER = "one try"


def unavailable(why: str) -> Fault:
    return Fault(Reason.INDEX_UNAVAILABLE, "The search index did not answer in time.", why=_shortened(why))


def refused(why: str) -> Fault:
    return Fault(Reason.INDEX_REFUSED, "The search index rejected the request.", why=_shortened(why))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Around code that takes an answer apart: a malformed one makes the index unavailable. The same error anywhere else
    is a bug.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise unavailable(f"malformed answer about {what}: {type(error).__name__} {error}") from error


def describe_error(error: Any) -> str:
    """An error object of the cluster in one line, by its first root cause."""
    if not isinstance(error, dict):
        return _shortened(str(error))
    causes = error.get("root_cause") or [error]
    cause = causes[0] if isinstance(causes[0], dict) else error
    return _shortened(f"{cause.get('type', 'error')}: {cause.get('reason', 'no reason given')}")


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


class ClusterCredential(httpx.Auth):
    def __init__(self, user: str | None, password: Secret[str] | None, api_key: Secret[str] | None) -> None:
        if api_key is not None and (user is not None or password is not None):
            raise ValueError("Give user and password or api_key, not both.")
        if (user is None) != (password is None):
            raise ValueError("Give user and password together.")
        self._header: Secret[str] | None = None
        if api_key is not None:
            self._header = Secret(f"ApiKey {api_key.reveal()}")
        elif password is not None:
            pair = f"{user}:{password.reveal()}".encode()
            self._header = Secret(f"Basic {base64.b64encode(pair).decode()}")
        if self._header is not None and not all("\x20" <= one <= "\x7e" for one in self._header.reveal()):
            raise ValueError("api_key must be visible ASCII.")

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._header is not None:
            request.headers["Authorization"] = self._header.reveal()
        yield request


@dataclass(slots=True)
class ClusterHost:
    url: str
    skipped_until: float = 0.0


class ClusterRequest(NamedTuple):
    method: str
    path: str
    content: bytes | None
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    status: int
    content: bytes = field(repr=False)

    def error(self) -> tuple[str, str]:
        """The type of the error, and a description."""
        try:
            answer = orjson.loads(self.content)
        except orjson.JSONDecodeError:
            return "", ""
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            return str(error.get("type", "")), describe_error(error)
        return "", "" if error is None else str(error)

    @property
    def is_retriable(self) -> bool:
        """A full disk is a 429 too, with a block, but does not pass soon."""
        return self.status in _RETRIABLE and not (self.status == 429 and self.error()[0] == BLOCK)


class _NoAnswer(Exception):
    def __init__(self, why: str, *, sent: bool) -> None:
        """`sent`: the request may have been executed."""
        super().__init__(why)
        self.sent = sent


class ClusterClient:
    def __init__(
        self,
        hosts: tuple[str, ...],
        credential: ClusterCredential,
        tls: ssl.SSLContext | bool,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if not hosts:
            raise ValueError("hosts must name at least one address.")
        self._hosts = [ClusterHost(_checked(url)) for url in hosts]
        self._next = 0
        self._timeout = timeout
        self._clock = clock
        self._jitter = jitter
        options: dict[str, Any] = {
            "auth": credential,
            "verify": tls,
            "timeout": httpx.Timeout(timeout, connect=timeout * _CONNECT_SHARE),
            "trust_env": False,
            "follow_redirects": False,
            "headers": {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "watchword"},
        }
        self._kept = httpx.AsyncClient(limits=_KEPT, **options)
        self._fresh = httpx.AsyncClient(limits=_FRESH, **options)

    async def close(self) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lines: bytes | None = None,
        retry: Retry = Retry.ALWAYS,
        accept: tuple[str, ...] = (),
        within: float | None = None,
        tag: str | None = None,
    ) -> Any:
        """The content of the answer; None for errors of the accepted types. `tag` goes to the task this starts."""
        content = lines if lines is not None else None if body is None else orjson.dumps(body)
        headers = {} if tag is None else {TAG_HEADER: tag}
        if content is not None:
            headers["Content-Type"] = "application/json" if lines is None else "application/x-ndjson"
        answer = await self._retry(ClusterRequest(method, path, content, headers), retry, within or self._timeout)
        if answer.status < 300:
            try:
                found = orjson.loads(answer.content)
            except orjson.JSONDecodeError:
                raise unavailable(f"{method} {path}: the answer is not JSON") from None
            if not isinstance(found, dict):
                raise unavailable(f"{method} {path}: the answer is not an object")
            return found
        kind, description = answer.error()
        if kind in accept:
            return None
        why = f"{method} {path}: HTTP {answer.status} {description}"
        if answer.status == 401 or (answer.status == 403 and kind != BLOCK):
            raise Fault(
                Reason.INDEX_UNAVAILABLE,
                "The search index rejects the credentials of this service; its operator must correct them.",
                why=_shortened(why),
            )
        raise refused(why) if 400 <= answer.status < 500 else unavailable(why)

    async def _retry(self, request: ClusterRequest, retry: Retry, seconds: float) -> ClusterAnswer:
        """The first answer that is not retriable."""
        ends = self._clock() + seconds
        http = self._kept if retry is Retry.ALWAYS else self._fresh
        for number in range(1, TRIES + 1):
            host = self._choose_host()
            left = ends - self._clock()
            last = number == TRIES or retry is Retry.NEVER
            # Leave time for another host where this one hangs.
            share = left if last or len(self._hosts) == 1 or retry is not Retry.ALWAYS else left / 2
            try:
                answer = await self._send(http, host, request, share)
            except _NoAnswer as lost:
                problem, repeat = str(lost), retry is Retry.ALWAYS or not lost.sent
                host.skipped_until = self._clock() + SKIP_SECONDS
            else:
                if not answer.is_retriable:
                    host.skipped_until = 0.0
                    return answer
                problem, repeat = f"HTTP {answer.status}", retry is Retry.ALWAYS or answer.status in (429, 503)
                host.skipped_until = 0.0 if answer.status == 429 else self._clock() + SKIP_SECONDS
            pause = FIRST_PAUSE * 2 ** (number - 1) * (1 + self._jitter())
            if last or not repeat or self._clock() + pause >= ends:
                raise unavailable(f"{request.method} {request.path} at {host.url}: {problem}")
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _choose_host(self) -> ClusterHost:
        """Round robin over hosts that are not skipped. Where all are, the one that is due first."""
        now = self._clock()
        for _ in self._hosts:
            host = self._hosts[self._next % len(self._hosts)]
            self._next += 1
            if host.skipped_until <= now:
                return host
        return min(self._hosts, key=lambda host: host.skipped_until)

    async def _send(
        self, http: httpx.AsyncClient, host: ClusterHost, request: ClusterRequest, seconds: float
    ) -> ClusterAnswer:
        url = host.url + request.path
        try:
            async with (
                asyncio.timeout(seconds),
                http.stream(request.method, url, content=request.content, headers=request.headers) as answer,
            ):
                return ClusterAnswer(answer.status_code, await _read(answer))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _NoAnswer(_described(error), sent=False) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise _NoAnswer(_described(error), sent=True) from None


def _described(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:200]


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > MAX_BYTES:
            raise _NoAnswer(f"the answer has more than {MAX_BYTES:,} bytes", sent=True)
    return bytes(content)


def tls_context(ca_file: Path | None, *, verify: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError:  # includes ssl.SSLError
        raise OperatorError(f"{ca_file} must be a file that can be read, with certificates in PEM form.") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _checked(url: str) -> str:
    """Without a user: a log line with the address must not show a password."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        fine = False
    if not fine or parts.username is not None or parts.query or parts.fragment or "@" in url:
        raise ValueError("hosts must be addresses such as http://127.0.0.1:9200, without user and password.")
    return url.rstrip("/")

"""One request to the cluster, on whichever of its hosts answers, within one deadline.

- What may be repeated is repeated a few times, after pauses that double and differ. What may not (it starts work) is
  repeated only when it surely was not done: the connection was refused, or the answer was 429 or 503.
- A host that fails is left out for a while, unless all have failed.
- Credentials are revealed only into the header of a request. Redirects are not followed and the environment names no
  proxy, for either would carry them elsewhere. Of an answer, no more is read than a true one can have.
"""

import asyncio
import base64
import random
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import orjson

from watchword.domain.errors import Fault, OperatorError
from watchword.domain.secret import Secret
from watchword.engines.opensearch import refusals

TRIES = 4
FIRST_PAUSE = 0.1
LEFT_OUT = 10.0
"""Seconds for which a host that failed is not asked."""
MOST_BYTES = 64 * 1024 * 1024
TAG = "X-Opaque-Id"
"""The header that the cluster keeps with the tasks a request starts."""
_CONNECT_SHARE = 0.25
_KEPT = httpx.Limits(max_connections=32, max_keepalive_connections=16, keepalive_expiry=60)
# What may not be repeated goes over a connection of its own: a kept one may be closed just then by its other end, and
# nobody could say whether the request was read.
_FRESH = httpx.Limits(max_connections=8, max_keepalive_connections=0)


class Again(Enum):
    """When a request may be sent once more."""

    ALWAYS = "its effect is the same when it is done twice"
    UNDONE = "only where it surely was not done"
    NEVER = "one try"


class Credential(httpx.Auth):
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
class Host:
    url: str
    out_until: float = 0.0


class Hosts:
    """Round robin over those that are not left out; where all are, the one that comes back first."""

    def __init__(self, urls: tuple[str, ...], clock: Callable[[], float]) -> None:
        if not urls:
            raise ValueError("hosts must name at least one address.")
        self._hosts = [Host(_checked(url)) for url in urls]
        self._next = 0
        self._clock = clock

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def encrypted(self) -> bool:
        return any(host.url.startswith("https:") for host in self._hosts)

    def choose(self) -> Host:
        now = self._clock()
        for _ in self._hosts:
            host = self._hosts[self._next % len(self._hosts)]
            self._next += 1
            if host.out_until <= now:
                return host
        return min(self._hosts, key=lambda host: host.out_until)

    def leave_out(self, host: Host) -> None:
        host.out_until = self._clock() + LEFT_OUT


class Request(NamedTuple):
    method: str
    path: str
    content: bytes | None
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: bytes = field(repr=False)


class _Lost(Exception):
    """No answer came. `sent`: it may have been done all the same."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Wire:
    def __init__(
        self,
        hosts: tuple[str, ...],
        credential: Credential,
        tls: ssl.SSLContext | bool,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._hosts = Hosts(hosts, clock)
        self._timeout = timeout
        self._clock = clock
        self._jitter = jitter
        options: dict[str, Any] = {
            "auth": credential,
            "verify": tls if self._hosts.encrypted else False,
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
        again: Again = Again.ALWAYS,
        fine: tuple[str, ...] = (),
        within: float | None = None,
        tag: str | None = None,
    ) -> Any:
        """The answer's content. None where it is one of these errors, which are fine. A task that this starts carries
        the tag.
        """
        content = lines if lines is not None else None if body is None else orjson.dumps(body)
        headers = {} if tag is None else {TAG: tag}
        if content is not None:
            headers["Content-Type"] = "application/json" if lines is None else "application/x-ndjson"
        answer = await self._insist(Request(method, path, content, headers), again, within or self._timeout)
        if answer.status < 300:
            try:
                told = orjson.loads(answer.content)
            except orjson.JSONDecodeError:
                raise refusals.unavailable(f"{method} {path}: the answer is not JSON") from None
            if not isinstance(told, dict):
                raise refusals.unavailable(f"{method} {path}: the answer is no object")
            return told
        said = refusals.read(answer.status, answer.content)
        if said.type in fine:
            return None
        raise refusals.fault(said, f"{method} {path}")

    async def _insist(self, request: Request, again: Again, seconds: float) -> Answer:
        """The first answer that is not a request to come back later."""
        ends = self._clock() + seconds
        for number in range(1, TRIES + 1):
            host = self._hosts.choose()
            left = ends - self._clock()
            last = number == TRIES or again is Again.NEVER
            # With another host to turn to, one that hangs may not use up the time of all.
            share = left if last or len(self._hosts) == 1 or again is not Again.ALWAYS else left / 2
            answer: Answer | None = None
            try:
                answer = await self._send(self._kept if again is Again.ALWAYS else self._fresh, host, request, share)
            except _Lost as lost:
                self._hosts.leave_out(host)
                failure: Fault = refusals.unavailable(f"{request.method} {request.path} at {host.url}: {lost}")
                repeat = again is Again.ALWAYS or not lost.sent
            else:
                host.out_until = 0.0
                if not refusals.asks_to_come_back(answer.status, answer.content):
                    return answer
                if answer.status != 429:
                    self._hosts.leave_out(host)
                failure = refusals.unavailable(f"{request.method} {request.path} at {host.url}: HTTP {answer.status}")
                repeat = again is Again.ALWAYS or answer.status in (429, 503)
            pause = FIRST_PAUSE * 2 ** (number - 1) * (1 + self._jitter())
            if last or not repeat or self._clock() + pause >= ends:
                raise failure
            await asyncio.sleep(pause)
        raise AssertionError("the last try answers or raises")

    async def _send(self, http: httpx.AsyncClient, host: Host, request: Request, seconds: float) -> Answer:
        url = host.url + request.path
        try:
            async with (
                asyncio.timeout(seconds),
                http.stream(request.method, url, content=request.content, headers=request.headers) as answer,
            ):
                return Answer(answer.status_code, await _read(answer))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _Lost(_said(error), sent=False) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise _Lost(_said(error), sent=True) from None


def _said(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:200]


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > MOST_BYTES:
            raise _Lost(f"the answer has more than {MOST_BYTES:,} bytes", sent=True)
    return bytes(content)


def tls_context(ca_file: Path | None, *, verify: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError:  # which an error of TLS is too
        raise OperatorError(f"{ca_file} must be a file that can be read, with certificates in PEM form.") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _checked(url: str) -> str:
    """Without a user in it: whoever prints an address must not print a password."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        fine = False
    if not fine or parts.username is not None or parts.query or parts.fragment or "@" in url:
        raise ValueError("hosts must be addresses such as http://127.0.0.1:9200, without user and password.")
    return url.rstrip("/")

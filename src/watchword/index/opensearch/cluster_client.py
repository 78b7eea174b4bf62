"""HTTP client of a cluster: retries, several hosts, one deadline per request, and its errors as faults.

- A request that may be repeated is retried a few times with backoff. One that starts work is retried only if it was
  certainly not executed: the connection was refused, or the answer was 429 or 503.
- A host that fails is skipped for a while, unless all have failed.
- Credentials are revealed only into the header of a request. Redirects and proxies of the environment are ignored:
  either would send the credentials elsewhere. The size of an answer is bounded.

Answers by status:

    401, 403 without a block   the credentials are rejected: INDEX_UNAVAILABLE
    429, 502, 503, 504         retried, then INDEX_UNAVAILABLE
    404 for an index           asked again once the cluster has surely recovered its state
    other 4xx, write blocks    INDEX_REFUSED
    everything else            INDEX_UNAVAILABLE
"""

import asyncio
import base64
import random
import ssl
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.basics.secret import Secret

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
MAX_BULK_BYTES = 5_000_000
_BULK_FILTER = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
_LONGEST_BLOCK = 35.0
"""Seconds. A copy blocks writes to its source for at most thirty."""
_RETRIABLE = frozenset({429, 502, 503, 504})
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
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


def unavailable(cause: str) -> Fault:
    return Fault(Reason.INDEX_UNAVAILABLE, "The search index did not answer in time.", cause=_shortened(cause))


def refused(cause: str) -> Fault:
    return Fault(Reason.INDEX_REFUSED, "The search index rejected the request.", cause=_shortened(cause))


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


class ClusterClient:
    def __init__(
        self, hosts: tuple[str, ...], credential: ClusterCredential, tls: ssl.SSLContext | bool, timeout: float
    ) -> None:
        if not hosts:
            raise ValueError("hosts must name at least one address.")
        self._hosts = [ClusterHost(_checked(url)) for url in hosts]
        self._next = 0
        self._timeout = timeout
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
        seconds = within or self._timeout
        answer = await self._retry(method, path, content, headers, retry, seconds)
        if answer.status == 404 and answer.error()[0] == NO_INDEX:
            await self._check_recovered()
            answer = await self._retry(method, path, content, headers, retry, seconds)
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
        cause = f"{method} {path}: HTTP {answer.status} {description}"
        if answer.status == 401 or (answer.status == 403 and kind != BLOCK):
            raise Fault(
                Reason.INDEX_UNAVAILABLE,
                "The search index rejects the credentials of this service; its operator must correct them.",
                cause=_shortened(cause),
            )
        raise refused(cause) if 400 <= answer.status < 500 else unavailable(cause)

    async def _check_recovered(self) -> None:
        """A cluster that has just started knows no index until it has recovered its state."""
        answer = await self.ask("GET", "/_cluster/state/blocks?filter_path=blocks.global")
        with reading("the blocks of the cluster"):
            blocks = answer.get("blocks", {}).get("global", {}).values()
            passing = [block["description"] for block in blocks if block["retryable"]]
        if passing:
            raise unavailable(f"the cluster has just started: {', '.join(passing)}")

    async def _retry(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], retry: Retry, seconds: float
    ) -> ClusterAnswer:
        """The first answer that is not retriable."""
        ends = time.monotonic() + seconds
        http = self._kept if retry is Retry.ALWAYS else self._fresh
        for number in range(1, TRIES + 1):
            host = self._choose_host()
            left = ends - time.monotonic()
            last = number == TRIES or retry is Retry.NEVER
            # Leave time for another host where this one hangs.
            share = left if last or len(self._hosts) == 1 or retry is not Retry.ALWAYS else left / 2
            request = http.build_request(method, host.url + path, content=content, headers=headers)
            try:
                async with asyncio.timeout(share):
                    answer = await _send(http, request)
            except (httpx.HTTPError, TimeoutError) as error:
                problem = f"{type(error).__name__} {error}".strip()[:200]
                repeat = retry is Retry.ALWAYS or isinstance(error, _NOT_SENT)
                host.skipped_until = time.monotonic() + SKIP_SECONDS
            else:
                if not answer.is_retriable:
                    host.skipped_until = 0.0
                    return answer
                problem, repeat = f"HTTP {answer.status}", retry is Retry.ALWAYS or answer.status in (429, 503)
                host.skipped_until = 0.0 if answer.status == 429 else time.monotonic() + SKIP_SECONDS
            pause = FIRST_PAUSE * 2 ** (number - 1) * random.uniform(1, 2)  # noqa: S311 - not for secrets
            if last or not repeat or time.monotonic() + pause >= ends:
                raise unavailable(f"{method} {path} at {host.url}: {problem}")
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _choose_host(self) -> ClusterHost:
        """Round robin over hosts that are not skipped. Where all are, the one that is due first."""
        now = time.monotonic()
        for _ in self._hosts:
            host = self._hosts[self._next % len(self._hosts)]
            self._next += 1
            if host.skipped_until <= now:
                return host
        return min(self._hosts, key=lambda host: host.skipped_until)


async def _send(http: httpx.AsyncClient, request: httpx.Request) -> ClusterAnswer:
    answer = await http.send(request, stream=True)
    content = bytearray()
    try:
        async for chunk in answer.aiter_raw():
            content += chunk
            if len(content) > MAX_BYTES:
                raise httpx.ReadError(f"the answer has more than {MAX_BYTES:,} bytes")
    finally:
        await answer.aclose()
    return ClusterAnswer(answer.status_code, bytes(content))


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


def bulk_put(row_id: str, source: bytes) -> bytes:
    """A JSON string cannot contain line ends, so replacing them by blanks changes nothing."""
    line = source.replace(b"\n", b" ").replace(b"\r", b" ")
    return orjson.dumps({"index": {"_id": row_id}}) + b"\n" + line + b"\n"


def bulk_delete(row_id: str, routing: str | None) -> bytes:
    named = {"_id": row_id} if routing is None else {"_id": row_id, "routing": routing}
    return orjson.dumps({"delete": named}) + b"\n"


async def send_bulk(client: ClusterClient, address: str, entries: Iterable[bytes]) -> None:
    """Send lines of JSON in requests of bounded size, with an outcome per row.

    Rows that the cluster rejects for the moment are sent again. A write block is reported only while no row was
    written; after that the rest is sent again until it is written, so that a caller who retries can send all rows.
    """
    some_written = False
    for part in _parts(entries):
        left, number, waited = part, 0, 0.0
        while left:
            answer = await client.ask("POST", f"{address}?{_BULK_FILTER}", lines=b"".join(left))
            with reading("a bulk request"):
                again, blocked = _unwritten(answer, left)
            some_written = some_written or len(again) < len(left)
            if blocked and not some_written:
                cause = f"{address}: there is a write block"
                raise Fault(
                    Reason.INDEX_BLOCKED, "Writes to the index are blocked for a moment. Try again.", cause=cause
                )
            if waited > _LONGEST_BLOCK or (number >= TRIES and not blocked):
                raise refused(f"{len(again)} rows were not written by {address} after {number} tries")
            left = again
            if left:
                pause = min(1.0, FIRST_PAUSE * 2**number)
                number, waited = number + 1, waited + pause
                await asyncio.sleep(pause)


def _parts(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for entry in entries:
        if part and size + len(entry) > MAX_BULK_BYTES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry)
    if part:
        yield part


def _unwritten(answer: dict[str, Any], sent: list[bytes]) -> tuple[list[bytes], bool]:
    """Entries to send again, and whether a write block is the cause. INDEX_REFUSED where a row is rejected for good."""
    if not answer["errors"]:
        return [], False
    outcomes = [next(iter(item.values())) for item in answer["items"]]
    again, rejected, blocked = [], [], False
    for entry, outcome in zip(sent, outcomes, strict=True):
        error = outcome.get("error")
        # A full disk is a block with status 429.
        is_block = error is not None and error.get("type") == BLOCK and outcome["status"] == 403
        if is_block or outcome["status"] in (429, 503):
            again.append(entry)
            blocked = blocked or is_block
        elif error is not None:
            rejected.append(error)
    if rejected:
        first = describe_error(rejected[0])
        raise refused(f"{len(rejected)} of {len(sent)} rows were rejected; the first: {first}")
    return again, blocked

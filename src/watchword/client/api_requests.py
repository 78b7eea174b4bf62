"""Requests to the server and lists of several pages, without any input or output.

Reads are retried when no answer came or the server is unavailable. A change is retried only after a 503 of the server
itself, which means that nothing was changed. It is never retried after a lost connection, because the change may have
been made. A request with an Idempotency-Key is retried after any of these failures: the server carries it out once.
"""

import json
import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from watchword.client.errors import (
    BY_TYPE,
    BadRequest,
    Refused,
    ServerError,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WatchwordError,
    error_type,
)
from watchword.client.records import Json, R, record, selection

T = TypeVar("T")
P = TypeVar("P")
GRAPHQL_PATH = "/api/graphql"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
MAX_BYTES = 32 * 1024 * 1024
"""Of an answer. The largest real one, a page of 1,000 records, has a tenth of that."""
PAGE_SIZE = 1_000
MAX_STEPS_BACK = 100
_GATEWAY = {502: "bad gateway", 503: "unavailable", 504: "gateway timeout"}


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """One request and how to read its answer. The content may hold a secret, so `repr` hides it."""

    read: Callable[[Any], T]
    method: str = "POST"
    path: str = GRAPHQL_PATH
    content: bytes | None = field(default=None, repr=False)
    changes: bool = False
    public: bool = False
    """No credential is needed or sent."""
    key: str | None = None
    """The Idempotency-Key."""
    media: str = JSON
    read_headers: Callable[[Mapping[str, str]], T] | None = None
    """Reads an answer without a body; None if the answer must have one."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Python arguments by GraphQL field, where the name of the argument depends on the method."""


def ask(
    call: str,
    kind: type[R],
    variables: Mapping[str, Any] | None = None,
    *,
    mutation: bool = False,
    changes: bool | None = None,
    arguments: Mapping[str, str] | None = None,
) -> ApiRequest[R]:
    """A GraphQL request that answers with a record."""
    read = lambda found: record(kind, found)  # noqa: E731 - a one-line reader
    return ask_raw(call, read, variables, selection(kind), mutation=mutation, changes=changes, arguments=arguments)


def ask_raw(
    call: str,
    read: Callable[[Any], T],
    variables: Mapping[str, Any] | None = None,
    selected: str = "",
    *,
    mutation: bool = False,
    changes: bool | None = None,
    key: str | None = None,
    arguments: Mapping[str, str] | None = None,
    nullable: bool = False,
) -> ApiRequest[T]:
    """A GraphQL request for one field, such as `getPolicy(urn: $urn)`, whose value `read` gets. The keys of `variables`
    name a variable and its type, such as `urn: String!`. A mutation `changes` something unless that is False.
    """
    given = {name.partition(":")[0]: value for name, value in (variables or {}).items()}
    declared = "(" + ", ".join(f"${name}" for name in variables) + ")" if variables else ""
    body = f"{{ {selected} }}" if selected else ""
    document = f"{'mutation' if mutation else 'query'} {declared} {{ {call} {body} }}"

    def read_data(answer: Json) -> T:
        (value,) = answer["data"].values()
        if value is None and not nullable:
            raise TypeError("null without an error")
        return read(value)

    # Not escaped: escapes are longer, and the server limits them. The server rejects lone surrogates.
    text = json.dumps({"query": document, "variables": given}, ensure_ascii=False)
    return ApiRequest(
        read_data,
        content=text.encode("utf-8", "surrogatepass"),
        changes=mutation if changes is None else changes,
        key=key,
        arguments=arguments or {},
    )


def require_true(found: Any) -> None:
    """Read a mutation that answers with true."""
    if found is not True:
        raise ValueError("neither done nor refused")


class AnswerBody:
    """Collects and decompresses an answer, up to the limit."""

    def __init__(self, encoding: str) -> None:
        if encoding not in {"", "identity", "gzip"}:
            raise UnexpectedAnswer(
                "The answer has a content encoding that was not asked for. Is this Watchword's address?"
            )
        self._decompressor = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        self._received = 0
        self.content = bytearray()

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
        refused = _refused(answer, status, headers)
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


def _refused(answer: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Refused | None:
    """Read the three forms of an error: GraphQL's, OAuth's, and that of all other addresses."""
    try:
        if "errors" in answer:
            first = answer["errors"][0]
            message, details = first["message"], dict(first["extensions"])
        elif isinstance(answer.get("error"), str):
            message = answer["error_description"]
            details = {"type": error_type(status), "code": status, "reason": answer["error"]}
        else:
            details = dict(answer["error"])
            message = details.pop("message")
        kind = BY_TYPE.get(details.pop("type"), Refused)
        return kind(
            str(message),
            code=int(details.pop("code")),
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


class Retries:
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
        asked = failure.retry_after if isinstance(failure, Refused) else None
        pause = self._pause if asked is None else asked
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


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list, and the length of the whole list."""

    items: tuple[T, ...]
    total: int


@dataclass(frozen=True, slots=True)
class _CursorPage(Generic[T]):
    items: tuple[T, ...]
    cursor: str | None


class Listing(ABC, Generic[P, T]):
    """A list that takes several requests. A client sends `next_request` until that is None."""

    next_request: ApiRequest[P] | None
    pause: float = 0.0
    """Seconds to wait before each request but the first."""

    @abstractmethod
    def take(self, page: P) -> list[T]:
        """The items of the page that are new. Then `next_request` is the next one, or None at the end."""


class OffsetListing(Listing[ResultPage[T], T]):
    """A list read by offset while others may change it. Items that stay in the list are given exactly once.

    Each page starts with the last item of the page before. If it does not, items before the offset were removed, and
    the listing steps back. Items given before are skipped. Every order stays the same meanwhile, except the order by
    last use. After 100 steps back the listing goes on without this check, so that it ends.
    """

    def __init__(
        self, fetch: Callable[[int, int], ApiRequest[ResultPage[T]]], key: Callable[[T], str], page_size: int
    ) -> None:
        """`fetch` makes the request for (start, count); `key` identifies an item."""
        if page_size < 2:
            raise ValueError("page_size must be 2 or more.")
        self._fetch = fetch
        self._key = key
        self._size = page_size
        self._start = 0
        self._step = page_size
        self._steps_back = 0
        self._given: set[str] = set()
        self.next_request = fetch(0, page_size)

    def take(self, page: ResultPage[T]) -> list[T]:
        if self._may_have_missed(page) and self._steps_back < MAX_STEPS_BACK:
            self._go_to(max(0, self._start - self._step))
            self._steps_back += 1
            self._step *= 2
            return []
        self._step = self._size
        new = [item for item in page.items if self._key(item) not in self._given]
        self._given.update(map(self._key, new))
        if len(page.items) < self._size:
            self.next_request = None
        else:
            self._go_to(self._start + len(page.items) - 1)
        return new

    def _may_have_missed(self, page: ResultPage[T]) -> bool:
        return self._start > 0 and not (page.items and self._key(page.items[0]) in self._given)

    def _go_to(self, start: int) -> None:
        self._start = start
        self.next_request = self._fetch(start, self._size)


class CursorListing(Listing[_CursorPage[R], R]):
    """A list of records in which each answer has a cursor to the next page."""

    def __init__(self, call: str, input_type: str, items: str, kind: type[R], wanted: Json) -> None:
        def read(found: Json) -> _CursorPage[R]:
            return _CursorPage(tuple(record(kind, item) for item in found[items]), found["cursor"])

        def fetch(cursor: str | None) -> ApiRequest[_CursorPage[R]]:
            variables = {f"input: {input_type}": {**wanted, "cursor": cursor}}
            return ask_raw(f"{call}(input: $input)", read, variables, f"cursor {items} {{ {selection(kind)} }}")

        self._fetch = fetch
        self.next_request = fetch(None)

    def take(self, page: _CursorPage[R]) -> list[R]:
        self.next_request = None if page.cursor is None else self._fetch(page.cursor)
        return list(page.items)


class Polling(Listing[T, T]):
    """Sends the same request until its answer is final. Gives every answer, the final one included."""

    def __init__(self, request: ApiRequest[T], is_final: Callable[[T], bool], every: float) -> None:
        if not every > 0:
            raise ValueError("every must be more than 0 seconds.")
        self._is_final = is_final
        self.pause = every
        self.next_request = request

    def take(self, page: T) -> list[T]:
        if self._is_final(page):
            self.next_request = None
        return [page]


def page_request(
    call: str,
    input_type: str,
    items: str,
    kind: type[R],
    wanted: Json,
    arguments: Mapping[str, str] | None = None,
) -> ApiRequest[ResultPage[R]]:
    """A request for one page of records."""

    def read(found: Json) -> ResultPage[R]:
        return ResultPage(tuple(record(kind, item) for item in found[items]), found["total"])

    selected = f"total {items} {{ {selection(kind)} }}"
    return ask_raw(f"{call}(input: $input)", read, {f"input: {input_type}": wanted}, selected, arguments=arguments)


def list_records(
    call: str, input_type: str, items: str, kind: type[R], page_size: int, key: str = "urn", **wanted: Any
) -> OffsetListing[R]:
    """A list of records that `key` identifies."""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[R]]:
        return page_request(call, input_type, items, kind, {"start": start, "count": count, **wanted})

    return OffsetListing(fetch, lambda item: str(getattr(item, key)), page_size)

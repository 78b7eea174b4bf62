"""One call on the wire, without any input or output: what to send, what the answer means, whether to try again.

Reads are tried again when no answer came or the server could not answer now. A change is tried again only when the
server itself said 503, which is its word that nothing was changed. It is never tried again after a lost connection:
the change may have been made. What is sent under an Idempotency-Key may be tried again after anything of this kind,
because it is made once, however often it is asked for.
"""

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from watchword.client.errors import (
    BY_TYPE,
    Refused,
    ServerError,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WatchwordError,
    of_code,
)

T = TypeVar("T")
GRAPHQL = "/api/graphql"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
MOST_BYTES = 32 * 1024 * 1024
"""Of an answer. The longest true one, a page of 1,000 records, has a tenth of it."""
_GATEWAY = {502: "bad gateway", 503: "unavailable", 504: "gateway timeout"}


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """One request and how to read its answer. Its content may be a secret, so that it is not shown."""

    read: Callable[[Any], T]
    method: str = "POST"
    path: str = GRAPHQL
    content: bytes | None = field(default=None, repr=False)
    changes: bool = False
    public: bool = False
    """Needs no credential, so that none is sent."""
    key: str | None = None
    """The Idempotency-Key it is sent under."""
    media: str = JSON
    """Of the content."""
    bare: Callable[[Mapping[str, str]], T] | None = None
    """How to read an answer that has no body, by its headers; None where it must have one."""


def ask(
    document: str,
    read: Callable[[Any], T],
    variables: Mapping[str, Any] | None = None,
    *,
    changes: bool = False,
    key: str | None = None,
) -> ApiRequest[T]:
    """A GraphQL call of one root field, whose value `read` gets."""
    return _call(document, lambda data: read(_there(data)), variables, changes=changes, key=key)


def ask_maybe(document: str, read: Callable[[Any], T], variables: Mapping[str, Any]) -> ApiRequest[T | None]:
    """The same for a field that may be null without anything being wrong."""
    return _call(document, lambda data: None if (value := _only(data)) is None else read(value), variables)


def done(found: Any) -> None:
    """For a field that is true when it was done."""
    if found is not True:
        raise ValueError("neither done nor refused")


def _call(
    document: str,
    read: Callable[[Any], T],
    variables: Mapping[str, Any] | None,
    *,
    changes: bool = False,
    key: str | None = None,
) -> ApiRequest[T]:
    # As it is: escapes are longer, and the server counts them. Half of a pair, which is no text, it refuses itself.
    text = json.dumps({"query": document, "variables": variables or {}}, ensure_ascii=False)
    content = text.encode("utf-8", "surrogatepass")
    return ApiRequest(lambda answer: read(answer["data"]), content=content, changes=changes, key=key)


def _only(data: Mapping[str, Any]) -> Any:
    (value,) = data.values()
    return value


def _there(data: Mapping[str, Any]) -> Any:
    value = _only(data)
    if value is None:
        raise TypeError("null without an error")
    return value


class Body:
    """The body of an answer as it comes in, unpacked, and never more of it than an answer can have."""

    def __init__(self, encoding: str) -> None:
        if encoding not in {"", "identity", "gzip"}:
            raise UnexpectedAnswer("The answer is packed in a way that was not asked for. Is this Watchword's address?")
        self._unpacker = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        self._came = 0
        self.content = bytearray()

    def add(self, chunk: bytes) -> None:
        self._came += len(chunk)
        if self._unpacker is not None:
            try:
                chunk = self._unpacker.decompress(chunk, MOST_BYTES + 1 - len(self.content))
            except zlib.error:
                raise UnexpectedAnswer("The answer cannot be unpacked. Is this Watchword's address?") from None
        self.content += chunk
        if max(self._came, len(self.content)) > MOST_BYTES:
            raise UnexpectedAnswer(
                f"The answer has more than {MOST_BYTES:,} bytes, as none of Watchword's has. Is this its address?"
            )


def read(call: ApiRequest[T], status: int, headers: Mapping[str, str], body: bytes | bytearray) -> T:
    """The call's result, or the error that the answer stands for."""
    if call.bare is not None and status in {200, 204} and not body:
        try:
            return call.bare(headers)
        except KeyError:
            raise _not_ours(status, headers) from None
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        refusal = _refusal(answer, status, headers)
        if refusal is not None:
            raise refusal
        if status == 200:
            try:
                return call.read(answer)
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
                pass
    raise _not_ours(status, headers)


def _refusal(answer: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Refused | None:
    """The three shapes of an error: GraphQL's, OAuth's, and that of all other addresses."""
    try:
        if "errors" in answer:
            first = answer["errors"][0]
            message, details = first["message"], dict(first["extensions"])
        elif isinstance(answer.get("error"), str):
            message = answer["error_description"]
            details = {"type": of_code(status), "code": status, "reason": answer["error"]}
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


def _not_ours(status: int, headers: Mapping[str, str]) -> WatchwordError:
    if status in _GATEWAY:
        return Unreachable(f"A gateway answered {status} ({_GATEWAY[status]}) in place of Watchword.")
    if 300 <= status < 400:
        where = headers.get("location", "another address")
        return UnexpectedAnswer(f"The answer is a redirect to {where[:200]}, which is not followed. Use that address.")
    return UnexpectedAnswer(f"The answer ({status}) is not one of Watchword's. Is this its address?")


class Tries:
    """How often one call is tried. Random pauses keep many clients from coming back at the same moment."""

    def __init__(self, call: ApiRequest[Any], retries: int, jitter: Callable[[], float] = random.random) -> None:
        self._call = call
        self._left = retries
        self._pause = FIRST_PAUSE
        self._jitter = jitter

    def pause_after(self, failure: WatchwordError) -> float | None:
        """Seconds to wait before the next try; None when there is to be none."""
        if self._left <= 0 or not self._may_repeat(failure):
            return None
        asked = failure.retry_after if isinstance(failure, Refused) else None
        pause = self._pause if asked is None else asked
        if pause > LONGEST_PAUSE:
            return None
        self._left -= 1
        self._pause *= 2
        return pause * (1 + self._jitter() / 2)

    def _may_repeat(self, failure: WatchwordError) -> bool:
        if isinstance(failure, Unreachable):
            return self._call.key is not None or not self._call.changes
        if isinstance(failure, Throttled):
            return failure.retry_after is not None  # too early, and nothing was changed
        return isinstance(failure, Unavailable) or (isinstance(failure, ServerError) and self._call.key is not None)

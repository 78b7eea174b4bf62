"""How a method of the client describes its request, and how both clients get that method from one function.

A function here makes a request or a listing and does no input or output. The decorator of a method lets a client send
it: `Client` returns the result, or an iterator over a list; `AsyncClient` returns an awaitable, or an asynchronous
iterator.
"""

import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast, overload

from watchword.basics.times import SPAN_FORMS, parse_span, written_iso
from watchword.client.errors import ARGUMENTS
from watchword.client.records import Json, R, camel_case, record, selection

if TYPE_CHECKING:
    from watchword.client.http_clients import AsyncClient, Client

A = ParamSpec("A")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
GRAPHQL_PATH = "/api/graphql"
PAGE_SIZE = 1_000
_PAGE_SIZE = {"count": "page_size"}
_GRAPHQL_NAMES = {argument: graphql for graphql, argument in ARGUMENTS.items()}
_RULE_DURATIONS = frozenset({"keep", "removeAfter"})
MAX_STEPS_BACK = 100


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """One request and how to read its answer. The content may hold a secret, so `repr` hides it."""

    read: Callable[[Any], T]
    path: str = GRAPHQL_PATH
    content: bytes | None = field(default=None, repr=False)
    """The body of a POST; None for a GET."""
    changes: bool = False
    public: bool = False
    """No credential is needed or sent."""
    key: str | None = None
    """The Idempotency-Key."""
    media: str = "application/json"
    read_headers: Callable[[Mapping[str, str]], T] | None = None
    """Reads an answer without a body; None if the answer must have one."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Python arguments by GraphQL field, where the name of the argument depends on the method."""


class Step(NamedTuple, Generic[T]):
    """The new items of a list, and the request for its next page; None at the end."""

    items: Sequence[T]
    request: ApiRequest[Any] | None
    pause: float = 0.0
    """Seconds to wait before the request."""


Listing = Generator[Step[T], Any, None]
"""A list that takes several requests. A client sends each request, and the page back into the generator."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list, and the length of the whole list."""

    items: tuple[T, ...]
    total: int


def list_by_offset(
    fetch: Callable[[int, int], ApiRequest[ResultPage[T]]], key: Callable[[T], str], page_size: int
) -> Listing[T]:
    """List by offset while others may change the list. Items that stay in the list are given exactly once.

    Each page starts with the last item of the page before. If it does not, items before the offset were removed, and
    the listing steps back. Items given before are skipped. Every order stays the same meanwhile, except the order by
    last use. After 100 steps back the listing continues without this check, so that it ends.

    `fetch` makes the request for (start, count); `key` identifies an item.
    """
    if page_size < 2:
        raise ValueError("page_size must be 2 or more.")
    start, step, steps_back = 0, page_size, 0
    given: set[str] = set()
    new: list[T] = []
    is_last = False
    while not is_last:
        request = fetch(start, page_size)
        page: ResultPage[T] = yield Step(new, replace(request, arguments={**_PAGE_SIZE, **request.arguments}))
        may_have_missed = start > 0 and not (page.items and key(page.items[0]) in given)
        if may_have_missed and steps_back < MAX_STEPS_BACK:
            new, start = [], max(0, start - step)
            steps_back, step = steps_back + 1, step * 2
            continue
        new = [item for item in page.items if key(item) not in given]
        given.update(map(key, new))
        start, step = start + len(page.items) - 1, page_size
        is_last = len(page.items) < page_size
    yield Step(new, None)


def list_by_cursor(
    call: str, items: str, kind: type[R], input_type: str, wanted: Json, names: Mapping[str, str] | None = None
) -> Listing[R]:
    """Each answer has a cursor to the next page."""

    def read(found: Json) -> tuple[list[R], str | None]:
        return [record(kind, item) for item in found[items]], found["cursor"]

    page: list[R] = []
    cursor = None
    while True:
        variables = {f"input: {input_type}": {**wanted, "cursor": cursor}}
        selected = f"cursor {items} {{ {selection(kind)} }}"
        request = ask(call, read, variables, selected=selected, arguments={**_PAGE_SIZE, **(names or {})})
        page, cursor = yield Step(page, request)
        if cursor is None:
            break
    yield Step(page, None)


def ask(
    call: str,
    kind: Callable[..., T],
    variables: Mapping[str, Any] | None = None,
    *,
    selected: str = "",
    part: str | None = None,
    mutation: bool = False,
    changes: bool | None = None,
    key: str | None = None,
    arguments: Mapping[str, str] | None = None,
    nullable: bool = False,
) -> ApiRequest[T]:
    """A GraphQL request for one field, such as `getPolicy`. `kind` is a record, or reads the value of the field from
    JSON, or that of its `part`. The keys of `variables` name an argument and its type, such as `urn: String!`. A
    mutation `changes` something unless that is False.
    """
    given = {name.partition(":")[0]: value for name, value in (variables or {}).items()}
    declared = "(" + ", ".join(f"${name}" for name in variables) + ")" if variables else ""
    passed = "(" + ", ".join(f"{name}: ${name}" for name in given) + ")" if given else ""
    read: Callable[[Any], T] = kind
    if is_dataclass(kind):
        record_type = cast("Any", kind)
        read, selected = partial(record, record_type), selection(record_type)
    if part is not None:
        selected = f"{part} {{ {selected} }}" if selected else part
    body = f"{{ {selected} }}" if selected else ""
    document = f"{'mutation' if mutation else 'query'} {declared} {{ {call}{passed} {body} }}"

    def read_data(answer: Json) -> T:
        (value,) = answer["data"].values()
        if value is None and nullable:
            return cast("T", None)
        if value is None:
            raise TypeError("null without an error")
        return read(value if part is None else value[part])

    # Not escaped: escapes are longer, and the server limits them. The server rejects lone surrogates.
    text = json.dumps({"query": document, "variables": given}, ensure_ascii=False)
    return ApiRequest(
        read_data,
        content=text.encode("utf-8", "surrogatepass"),
        changes=mutation if changes is None else changes,
        key=key,
        arguments=arguments or {},
    )


class _Request(Protocol[A, T_co]):
    """The type of a method that sends one request."""

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[A, T_co]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[A, Coroutine[Any, Any, T_co]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, A], Any]: ...


class _Listing(Protocol[A, T_co]):
    """The type of a method that goes through a list."""

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[A, Iterator[T_co]]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[A, AsyncIterator[T_co]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, A], Any]: ...


def sends(make: Callable[Concatenate[Any, A], ApiRequest[T]]) -> _Request[A, T]:
    def method(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> Any:
        return self._send(make(self, *args, **kwargs))

    return cast("_Request[A, T]", _described(method, make))


def lists(make: Callable[Concatenate[Any, A], Listing[T]]) -> _Listing[A, T]:
    def method(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> Any:
        listing = make(self, *args, **kwargs)
        return self._list(listing, next(listing))  # the first step checks the arguments

    return cast("_Listing[A, T]", _described(method, make))


def _described(method: Any, make: Callable[..., Any]) -> Any:
    """Give a method the name, docstring and parameters of the function that it wraps."""
    method.__name__, method.__qualname__, method.__doc__ = make.__name__, make.__qualname__, make.__doc__
    method.__signature__ = inspect.signature(make).replace(return_annotation=inspect.Signature.empty)
    return method


def ask_tuple(call: str, kind: type[R], variables: Json | None = None) -> ApiRequest[tuple[R, ...]]:
    return ask(call, lambda found: tuple(record(kind, one) for one in found), variables, selected=selection(kind))


def page(
    call: str, items: str, kind: type[R], input_type: str, wanted: Json, names: Mapping[str, str] | None = None
) -> ApiRequest[ResultPage[R]]:
    def read(found: Json) -> ResultPage[R]:
        return ResultPage(tuple(record(kind, item) for item in found[items]), found["total"])

    selected = f"total {items} {{ {selection(kind)} }}"
    return ask(call, read, {f"input: {input_type}": wanted}, selected=selected, arguments=names)


def list_records(
    call: str,
    items: str,
    kind: type[R],
    input_type: str,
    page_size: int,
    *,
    key: Sequence[str] = ("urn",),
    names: Mapping[str, str] | None = None,
    **wanted: Any,
) -> Listing[R]:
    """List records that the fields of `key` identify."""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[R]]:
        return page(call, items, kind, input_type, {"start": start, "count": count, **wanted}, names)

    return list_by_offset(fetch, lambda item: " ".join(str(getattr(item, name)) for name in key), page_size)


def require_true(found: Any) -> None:
    """Read a mutation that answers with true."""
    if found is not True:
        raise ValueError("neither done nor refused")


def ignore(_: object) -> None:
    """Read an answer whose content does not matter."""


def iso(argument: str, span: timedelta | str | None) -> str | None:
    """A duration as the API takes it. The server rejects text that is none."""
    if isinstance(span, timedelta):
        return f"PT{int(span.total_seconds())}S"
    if span is None:
        return None
    if not isinstance(span, str):
        raise TypeError(f"{argument} must be a timedelta or a text such as {SPAN_FORMS}.")
    milliseconds = parse_span(span)
    return span if milliseconds is None else written_iso(milliseconds)


def named(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a method, as `locals()` has them, under their GraphQL names."""
    return {_GRAPHQL_NAMES.get(name, camel_case(name)): value for name, value in arguments.items() if name != "self"}


def word_lists(**given: Iterable[str] | None) -> dict[str, list[str]]:
    """The lists that are given, by the GraphQL names of the arguments."""
    lists = {name: as_list(name, words) for name, words in given.items() if words is not None}
    return {_GRAPHQL_NAMES.get(name, name): words for name, words in lists.items()}


def as_list(argument: str, words: Iterable[str]) -> list[str]:
    """A string is rejected: it would be taken as a list of its characters."""
    if isinstance(words, str):
        raise ValueError(f"{argument} must be a list, such as ['{words}'].")  # noqa: TRY004 - as for all arguments
    return list(words)


def rule_input(rule: Json) -> dict[str, Any]:
    """As GraphQL names the mode."""
    sent = {name: iso(name, value) if name in _RULE_DURATIONS else value for name, value in rule.items()}
    mode = sent.get("mode")
    return {**sent, "mode": mode.upper()} if isinstance(mode, str) else sent

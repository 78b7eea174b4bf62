"""One request to the server, and how its answer is read. Nothing here sends it: see `asynchronous/`."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlencode

from watchword.basics.times import SPAN_FORMS, parse_span, written_iso
from watchword.client.records import Json, R, camel_case, record, selection

T = TypeVar("T")
GRAPHQL_PATH = "/api/graphql"
_RULE_DURATIONS = frozenset({"keep", "removeAfter"})
_EMPTY = re.compile(r"\{\s*\}")


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """One request and how to read its answer. The variables and the form may hold a secret, so `repr` hides them."""

    read: Callable[[Any], T]
    path: str = GRAPHQL_PATH
    query: str | None = None
    """A GraphQL document, on one line."""
    variables: Json = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    changes: bool = False
    public: bool = False
    """No credential is needed or sent."""
    key: str | None = None
    """The Idempotency-Key."""
    read_headers: Callable[[Mapping[str, str]], T] | None = None
    """Reads an answer without a body; None if the answer must have one."""
    is_partial: bool = False
    """Fields are left out that the server does not know. They are read as None."""

    @property
    def media(self) -> str:
        return "application/json" if self.form is None else "application/x-www-form-urlencoded"

    @property
    def content(self) -> bytes | None:
        """The body of a POST; None for a GET."""
        if self.form is not None:
            return urlencode(self.form).encode()
        if self.query is None:
            return None
        # Not escaped: escapes are longer, and the server limits them. The server rejects lone surrogates.
        text = json.dumps({"query": self.query, "variables": self.variables}, ensure_ascii=False)
        return text.encode("utf-8", "surrogatepass")

    def without(self, columns: Iterable[int]) -> "ApiRequest[T] | None":
        """The request without the fields at these columns; None if no field would be left somewhere."""
        query = self.query or ""
        for column in sorted(columns, reverse=True):
            query = query[: column - 1] + _after_field(query[column - 1 :])
        return None if _EMPTY.search(query) else replace(self, query=query, is_partial=True)


def _after_field(text: str) -> str:
    """What follows the field that the text begins with, and its selection."""
    rest = re.sub(r"\w+\s*", "", text, count=1)
    depth = 0
    for place, character in enumerate(rest if rest.startswith("{") else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[place + 1 :]
    return rest


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list, and the length of the whole list."""

    items: tuple[T, ...]
    total: int


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

    def read_data(answer: Json) -> T:
        (value,) = answer["data"].values()
        if value is None and nullable:
            return cast("T", None)
        if value is None:
            raise TypeError("null without an error")
        return read(value if part is None else value[part])

    return ApiRequest(
        read_data,
        query=f"{'mutation' if mutation else 'query'} {declared} {{ {call}{passed} {body} }}",
        variables=given,
        changes=mutation if changes is None else changes,
        key=key,
    )


def ask_tuple(call: str, kind: type[R], variables: Json | None = None) -> ApiRequest[tuple[R, ...]]:
    return ask(call, lambda found: tuple(record(kind, one) for one in found), variables, selected=selection(kind))


def ask_page(call: str, items: str, kind: type[R], input_type: str, wanted: Json) -> ApiRequest[ResultPage[R]]:
    def read(found: Json) -> ResultPage[R]:
        return ResultPage(tuple(record(kind, item) for item in found[items]), found["total"])

    selected = f"total {items} {{ {selection(kind)} }}"
    return ask(call, read, {f"input: {input_type}": wanted}, selected=selected)


def ask_cursor(
    call: str, items: str, kind: type[R], input_type: str, wanted: Json
) -> ApiRequest[tuple[Sequence[R], str | None]]:
    """A page and the cursor to the next one."""

    def read(found: Json) -> tuple[Sequence[R], str | None]:
        return [record(kind, item) for item in found[items]], found["cursor"]

    return ask(call, read, {f"input: {input_type}": wanted}, selected=f"cursor {items} {{ {selection(kind)} }}")


def post_form(path: str, form: Mapping[str, str], read: Callable[[Any], T], **how: Any) -> ApiRequest[T]:
    """A request of the OAuth addresses. It needs no credential but what is in the form."""
    return ApiRequest(read, path, form=form, public=True, **how)


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


def named(**given: Any) -> dict[str, Any]:
    """Arguments under their names in GraphQL."""
    return {camel_case(name): value for name, value in given.items()}


def word_lists(**given: Iterable[str] | None) -> dict[str, list[str]]:
    """The lists that are given, under their names in GraphQL."""
    return {camel_case(name): as_list(name, words) for name, words in given.items() if words is not None}


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

"""Shapes: a new request each time, compared with a normal request; and those normal requests."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.cases import LIST
from bench.population import Holder

GRAPHQL = "/api/graphql"
INTROSPECT = "/oauth2/introspect"
STATUS = "/operations?action=getEsTaskStatus"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
NORMALS = {
    "list": "own list of 20",
    "first": "own list of 20, document first seen",
    "page": "a page of 1,000",
    "search": "one CONTAIN through all tokens",
    "end": "100 ids to end, a dry run",
    "auth": "verify",
    "form": "introspect one's own",
    "status": "status of a task",
    "console": "the console's page",
}
"""The kinds of normal requests, and what stands for each."""
END = "mutation ($input: RevokeAccessTokensInput!) { revokeAccessTokens(input: $input) { count } }"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Callers:
    """An actor with own tokens, and one with every privilege."""

    plain: Holder
    root: Holder


Make = Callable[[Callers], bytes]


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    normal: str
    """Of which kind it is."""
    make: Make
    """The whole request."""
    never_whole: bool = False
    """Its body never comes: answered when the time for it is over."""


def http(
    method: str, path: str, headers: list[tuple[str, str]], body: bytes = b"", announced: int | None = None
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers)]
    if method == "POST":
        lines.append(f"Content-Length: {len(body) if announced is None else announced}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def bearer(holder: Holder) -> tuple[str, str]:
    return "Authorization", f"Bearer {holder.token}"


def posted(holder: Holder, body: bytes, path: str = GRAPHQL, kind: str = JSON) -> bytes:
    return http("POST", path, [bearer(holder), ("Content-Type", kind)], body)


def ask(holder: Holder, text: str, variables: Any = None) -> bytes:
    return posted(holder, json.dumps({"query": text, "variables": variables or {}}).encode())


def ask_first(holder: Holder, text: str, variables: Any = None) -> bytes:
    """As a document that was never seen, by a comment of its own."""
    return ask(holder, f"{text} #{next(_numbers)}", variables)


def posting(body: bytes, path: str = GRAPHQL, kind: str = JSON, *, root: bool = False) -> Make:
    return lambda c: posted(c.root if root else c.plain, body, path, kind)


def getting(path: str, headers: list[tuple[str, str]], *, named: bool = True) -> Make:
    """`named`: with a bearer that is good."""
    return lambda c: http("GET", path, [*([bearer(c.plain)] if named else []), *headers])


def sending(headers: list[tuple[str, str]], *, named: bool = True) -> Make:
    """To GraphQL, with an empty ask."""
    return lambda c: http("POST", GRAPHQL, [*([bearer(c.plain)] if named else []), *headers], b"{}")


def own(holder: Holder, *filters: Any, **more: Any) -> Any:
    mine = {"field": "ownerUrn", "value": holder.actor}
    return {"input": {"start": 0, "count": 20, "filters": [mine, *filters], **more}}


def ids(count: int) -> Any:
    return {"input": {"ids": [f"{number:043}=" for number in range(count)]}}


def normal_requests() -> dict[str, Shape]:
    one = {"field": "name", "condition": "CONTAIN", "value": "zz"}
    made: dict[str, Make] = {
        "list": lambda c: ask(c.plain, LIST, own(c.plain)),
        "first": lambda c: ask_first(c.plain, LIST, own(c.plain)),
        "page": lambda c: ask(c.root, LIST, {"input": {"count": 1_000}}),
        "search": lambda c: ask(c.root, LIST, {"input": {"filters": [one]}}),
        "end": lambda c: ask(c.plain, END, ids(100)),
        "auth": lambda c: http("GET", "/auth", [bearer(c.plain)]),
        "form": lambda c: posted(c.root, b"token=" + c.root.token.encode(), INTROSPECT, FORM),
        "status": lambda c: posted(c.root, b'{"task": "node:1"}', STATUS),
        "console": lambda _: http("GET", "/", []),
    }
    return {kind: Shape(NORMALS[kind], kind, make) for kind, make in made.items()}

"""Filters and orders: of one's own hundred tokens, and through all there are."""

from collections.abc import Iterator
from typing import Any

from bench.cases import LIST
from bench.expensive.shape import END, Shape, ask, own

_EVENTS = "query ($input: ListEventsInput) { listEvents(input: $input) { events { at actorUrn action target } } }"
_LISTS = (
    "query ($input: ListAccessTokensInput) {"
    + " ".join(f"a{number}: listAccessTokens(input: $input) {{ total }}" for number in range(20))
    + "}"
)


def _texts(field: str, condition: str, filters: int, values: int, length: int) -> list[Any]:
    """Such as no token matches, so that none is spared the rest of them."""
    return [
        {
            "field": field,
            "condition": condition,
            "values": [f"{number}-{value}-".ljust(length, "a") for value in range(values)],
            "negated": True,
        }
        for number in range(filters)
    ]


def _numbers(condition: str, values: list[str]) -> list[Any]:
    return [{"field": "createdAt", "condition": condition, "values": values, "negated": True}]


def _filters() -> Iterator[tuple[str, list[Any]]]:
    yield "8 filters of a value of 100", _texts("urn", "CONTAIN", 8, 1, 100)
    yield "8 values of 600, CONTAIN", _texts("urn", "CONTAIN", 1, 8, 600)
    yield "8 values of 600, START_WITH", _texts("urn", "START_WITH", 1, 8, 600)
    yield "8 values of 600, END_WITH", _texts("urn", "END_WITH", 1, 8, 600)
    yield "8 values of 600, IEQUAL", _texts("urn", "IEQUAL", 1, 8, 600)
    yield "299 values of 160, IN", _texts("urn", "IN", 1, 299, 160)
    yield "19 filters of 15 values, IN", _texts("urn", "IN", 19, 15, 100)
    yield "19 filters, EXISTS", [{"field": "lastNetwork", "condition": "EXISTS", "negated": True}] * 19
    yield "8 numbers", _numbers("GREATER_THAN", [str(9 * 10**15 + number) for number in range(8)])
    yield "299 durations, IN", _numbers("IN", [f"P{number}DT{number % 24}H" for number in range(299)])
    yield "49 filters of a value of 100", _texts("urn", "CONTAIN", 49, 1, 100)
    yield "50 values of 100, CONTAIN", _texts("urn", "CONTAIN", 1, 50, 100)
    yield "50 values of 100, START_WITH", _texts("urn", "START_WITH", 1, 50, 100)
    yield "50 values of 100, END_WITH", _texts("urn", "END_WITH", 1, 50, 100)
    yield "50 values of 100, IEQUAL", _texts("urn", "IEQUAL", 1, 50, 100)
    yield "49 filters of a value of 900", _texts("name", "CONTAIN", 49, 1, 900)
    yield "49 filters of 20 values of 900", _texts("urn", "CONTAIN", 49, 20, 900)
    yield "999 values of 900, CONTAIN", _texts("urn", "CONTAIN", 1, 999, 900)
    yield "999 values of 900, IN", _texts("urn", "IN", 1, 999, 900)
    yield "49 filters of 20 values, IN", _texts("urn", "IN", 49, 20, 60)
    yield "49 filters of 50 values", _texts("urn", "CONTAIN", 49, 50, 6)
    yield "49 filters, EXISTS", [{"field": "lastNetwork", "condition": "EXISTS", "negated": True}] * 49
    yield "50 numbers", _numbers("GREATER_THAN", [str(9 * 10**15 + number) for number in range(50)])
    yield "999 numbers", _numbers("GREATER_THAN", [str(9 * 10**15 + number) for number in range(999)])
    yield "999 durations, IN", _numbers("IN", [f"P{number}DT{number % 24}H" for number in range(999)])


def searches() -> Iterator[Shape]:
    for name, filters in _filters():
        yield _own(name, filters)
    for start in (1_000_000, 2**31 - 1):
        yield _own(f"from {start:,} on", [], start=start)
    yield _own("by lastActivityAt", [], sort={"field": "lastActivityAt"})
    for name, filters in _filters():
        yield _all(name, {"filters": filters})
    for field in ("createdAt", "lastUsedAt", "lastActivityAt", "useCount", "name", "actorUrn", "ownerUrn", "id"):
        yield _all(f"by {field}", {"sort": {"field": field, "order": "ASCENDING"}})
    yield _all("from 80,000 on", {"start": 80_000})
    yield _all("from 80,000 on, by name", {"start": 80_000, "sort": {"field": "name"}})
    yield _all("from 1,000,000 on", {"start": 1_000_000})
    yield _all("the last 1,000 of them, by name", {"start": 80_000, "count": 1_000, "sort": {"field": "name"}})
    hard = {"input": {"filters": _texts("urn", "CONTAIN", 4, 2, 100)}}
    yield Shape("all: 20 lists of 4 filters of 2 values", "search", lambda c: ask(c.root, _LISTS, hard))
    by_name = {"input": {"sort": {"field": "name"}}}
    yield Shape("all: 20 lists by name", "search", lambda c: ask(c.root, _LISTS, by_name))
    yield Shape("to end, dry: 4 filters of 2 values", "search", lambda c: ask(c.root, END, hard))
    every = {"input": {"all": True, "filters": [{"field": "urn", "condition": "CONTAIN", "value": "urn"}]}}
    yield Shape("to end, dry: all there are", "search", lambda c: ask(c.root, END, every))
    words = {
        "actorUrns": [f"urn:li:corpuser:{n:0480}" for n in range(100)],
        "targets": [f"{n:0500}" for n in range(100)],
    }
    yield Shape(
        "events: 200 words of 500", "list", lambda c: ask(c.root, _EVENTS, {"input": {"count": 1_000, **words}})
    )
    yield Shape("events: 1,000", "page", lambda c: ask(c.root, _EVENTS, {"input": {"count": 1_000}}))


def _own(name: str, filters: list[Any], **more: Any) -> Shape:
    return Shape(f"own: {name}", "list", lambda c: ask(c.plain, LIST, own(c.plain, *filters, **more)))


def _all(name: str, given: Any) -> Shape:
    return Shape(f"all: {name}", "search", lambda c: ask(c.root, LIST, {"input": {"count": 20, **given}}))

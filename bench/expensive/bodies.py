"""Bodies: JSON and forms, large, deep and of many members."""

import json
from collections.abc import Iterator

from bench.cases import LIST
from bench.expensive.shape import END, FORM, GRAPHQL, INTROSPECT, JSON, STATUS, Shape, ask, bearer, http, ids, posting

_QUERY = b'{"query": "{ me { __typename } }", "x": '
_KEYS = ",".join(f'"k{number}": 1' for number in range(80_000))


def bodies() -> Iterator[Shape]:
    yield from _asks()
    yield from _variables()
    yield from _forms()
    yield from _operations()
    headers = [("Content-Type", JSON)]
    yield Shape(
        "a body that never comes", "list", lambda c: http("POST", GRAPHQL, [bearer(c.plain), *headers], b"", 9), True
    )


def _asks() -> Iterator[Shape]:
    for name, body in (
        ("1 MiB of blanks", b" " * 1_048_576),
        ("more than 1 MiB", b"x" * 1_048_577),
        ("1 MiB that is no JSON", b'{"query": "' + b"x" * 1_048_000),
        ("an array in an array, 500,000 deep", b"[" * 524_288 + b"]" * 524_288),
        ("an array in an array, 1,000 deep", _QUERY + b"[" * 1_000 + b"]" * 1_000 + b"}"),
        ("80,000 keys", _QUERY + b"{" + _KEYS.encode() + b"}}"),
        ("one key 80,000 times", _QUERY + b"1" + b',"k": 1' * 80_000 + b"}"),
        ("500,000 empty lists", _QUERY + b"[" + b",".join([b"[]"] * 340_000) + b"]}"),
        ("a number of a million digits", _QUERY + b"9" * 1_000_000 + b"}"),
        ("170,000 escapes", _QUERY + b'"' + b"\\u00e9" * 170_000 + b'"}'),
        ("a document of 1 MB", b'{"query": "' + b"x" * 1_000_000 + b'"}'),
    ):
        yield Shape(name, "list", posting(body))


def _variables() -> Iterator[Shape]:
    query = b'{"query": ' + json.dumps(LIST).encode() + b', "variables": '
    for name, given in (
        ("80,000 unknown variables", "{" + _KEYS + "}"),
        ("an input of 80,000 unknown fields", '{"input": {' + _KEYS + "}}"),
        ("an input of 19,000 unknown fields", '{"input": {' + ",".join(f'"k{n}": 1' for n in range(19_000)) + "}}"),
        ("an input in an input, 450 deep", '{"input": ' + '{"filters": [' * 450 + "1" + "]}" * 450 + "}"),
        ("50,000 filters", '{"input": {"filters": [' + ",".join(['{"field":"name"}'] * 50_000) + "]}}"),
        ("9,000 filters", '{"input": {"filters": [' + ",".join(['{"field":"name"}'] * 9_000) + "]}}"),
        ("400,000 numbers for filters", '{"input": {"filters": [' + ",".join("1" * 400_000) + "]}}"),
        ("19,000 numbers for filters", '{"input": {"filters": [' + ",".join("1" * 19_000) + "]}}"),
        ("a filter of 200,000 values", _one(",".join(['"a"'] * 200_000))),
        ("a filter of 19,000 values", _one(",".join(['"a"'] * 19_000))),
        ("a value of 900,000 characters", _one('"' + "x" * 900_000 + '"')),
        ("a count of 900,000 digits", '{"input": {"count": ' + "9" * 900_000 + "}}"),
    ):
        yield Shape(name, "list", posting(query + given.encode() + b"}"))
    yield Shape("2,000 ids to end, a dry run (100 normal ones)", "end", lambda c: ask(c.plain, END, ids(2_000)))
    yield Shape("19,000 ids to end, a dry run", "end", lambda c: ask(c.plain, END, ids(19_000)))


def _one(values: str) -> str:
    return '{"input": {"filters": [{"field": "name", "values": [' + values + "]}]}}"


def _forms() -> Iterator[Shape]:
    for name, form in (
        ("a form of 6,000 parameters", b"&".join(b"k%d=1" % number for number in range(6_000))),
        ("a form of 100,000 parameters", b"&".join(b"k%d=1" % number for number in range(100_000))),
        ("a form of 64 kB of escapes", b"token=" + b"%41" * 21_000),
        ("a form of 64 kB of plus", b"token=" + b"+" * 64_000),
        ("a form of 64 kB of &", b"&" * 64_000),
        ("a form with a token of 64 kB", b"token=" + b"x" * 64_000),
        ("a form with a token of 64 kB of dots", b"token=" + b"x." * 32_000),
    ):
        yield Shape(name, "form", posting(form, INTROSPECT, FORM, root=True))


def _operations() -> Iterator[Shape]:
    for name, body in (
        ("a task of 900,000 letters", b'{"task": "' + b"n" * 900_000 + b':1"}'),
        ("a task of 900,000 digits", b'{"task": "n:' + b"9" * 900_000 + b'"}'),
        ("a task of 900,000 colons", b'{"task": "' + b":" * 900_000 + b'"}'),
        ("a task's number of 900,000 digits", b'{"nodeId": "n", "taskId": ' + b"9" * 900_000 + b"}"),
        ("a task among 80,000 keys", b"{" + _KEYS.encode() + b"}"),
    ):
        yield Shape(name, "status", posting(body, STATUS, root=True))
    aspect = b'{"entityType": "a", "aspect": "' + b"x" * 900_000 + b'", "endTimeMillis": 1}'
    path = "/operations?action=truncateTimeseriesAspect"
    yield Shape("an aspect of 900,000 letters", "status", posting(aspect, path, root=True))
    many = "/operations?" + "&".join(["action=getEsTaskStatus"] * 300)
    yield Shape("300 actions", "status", posting(b"{}", many, root=True))

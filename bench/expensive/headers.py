"""Headers and addresses: many, long, and built to be looked through more than once."""

from collections.abc import Iterator

from bench.expensive.shape import JSON, Shape, getting, sending

_KIND = ("Content-Type", JSON)
_COOKIES = ("a=b;", ";", "=", '"', 'a="b\\;')


_MOST = 31_000
"""Bytes of one header: with the others of the request, just below the limit."""


def _filled(text: str) -> str:
    return (text * _MOST)[:_MOST]


def headers() -> Iterator[Shape]:
    for name, sent in (
        ("90 more headers", [(f"X-H{number}", "x") for number in range(90)]),
        ("200 more headers", [(f"X-H{number}", "x") for number in range(200)]),
        ("a header 90 times", [("X-H", "x")] * 90),
        ("31 kB of a header", [("X-H", _filled("x"))]),
        ("200 kB of a header", [("X-H", "x" * 200_000)]),
        ("31 kB of hops", [("X-Forwarded-For", _filled("127.0.0.1,"))]),
        ("31 kB of hops that are no addresses", [("X-Forwarded-For", _filled("1,"))]),
        ("31 kB of empty hops", [("X-Forwarded-For", _filled(","))]),
        ("31 kB of hops in 90 lines", [("X-Forwarded-For", ",".join(["127.0.0.1"] * 32))] * 90),
        ("31 kB of a request id", [("X-Request-Id", _filled("x"))]),
        ("31 kB of cookies at /auth", [("Cookie", _filled("a=b;"))]),
    ):
        yield Shape(name, "auth", getting("/auth", sent))
    for name, token in (
        ("a bearer of 8 kB", "x" * 8_180),
        ("a bearer of 8 kB of dots", "." * 8_180),
        ("a bearer after 8 kB of blanks", " " * 8_100 + "x"),
        ("31 kB of a bearer", _filled("x")),
    ):
        yield Shape(name, "auth", getting("/auth", [("Authorization", f"Bearer {token}")], named=False))
    for name, header, value in (
        ("an Idempotency-Key", "Idempotency-Key", "x"),
        ("Accept, of commas", "Accept", ","),
        ("Accept, of types", "Accept", "a/b;q=0.1,"),
        ("Accept-Encoding at GraphQL, of commas", "Accept-Encoding", ","),
    ):
        yield Shape(f"31 kB of {name}", "list", sending([_KIND, (header, _filled(value))]))
    for name, value in (("with parameters", ";a=b"), ("of blanks", " ")):
        yield Shape(f"31 kB of Content-Type, {name}", "list", sending([("Content-Type", f"{JSON};{_filled(value)}x")]))
    for name, sent in (
        ("an actor", [("X-Service-Actor", "urn:li:corpuser:" + _filled("x"))]),
        ("an actor, of colons", [("X-Service-Actor", "urn" + _filled(":"))]),
        ("an Origin", [("X-Service-Actor", "urn:li:corpuser:a"), ("Origin", _filled("x"))]),
        *((f"cookies {text}", [("X-Watchword-Console", "1"), ("Cookie", _filled(text))]) for text in _COOKIES),
    ):
        yield Shape(f"31 kB of {name}", "list", sending([_KIND, *sent], named=False))
    for header, text in (
        ("Accept-Encoding", ","),
        ("Accept-Encoding", "x;q=0.5,"),
        ("If-None-Match", ","),
        ("If-None-Match", '"x",'),
        ("Cookie", "a=b;"),
        ("Cookie", ";"),
        ("Accept-Language", "a,"),
        ("Range", "0-1,"),
    ):
        yield Shape(f"31 kB of {header} {text}", "console", getting("/", [(header, _filled(text))], named=False))


def addresses() -> Iterator[Shape]:
    held = "watchword.privilege=GENERATE_PERSONAL_ACCESS_TOKENS"
    for name, path in (
        ("a path of 8 kB", "/" + "x" * 8_000),
        ("a path of 8,000 slashes", "/" * 8_000),
        ("a path of 2,700 escapes", "/api/" + "%41" * 2_700),
        ("/gms 2,000 times", "/gms" * 2_000 + "/auth"),
        ("a path of 60 kB below /auth", "/auth/" + "x." * 30_000),
        ("a path of 200 kB below /auth", "/auth/" + "x" * 200_000),
        ("1,200 privileges that are held", "/auth?" + "&".join([held] * 1_200)),
        ("3,000 scopes that are not held", "/auth?" + "&".join(["watchword.scope=a"] * 3_000)),
        ("3,000 times how to say yes", "/auth?" + "&".join(["watchword.status=200"] * 3_000)),
        ("a query of 60,000 &", "/auth?" + "&" * 60_000),
        ("a query of 20,000 escapes", "/auth?" + "%77" * 20_000),
        ("20,000 parameters of others", "/auth?" + "&".join(["%61"] * 15_000)),
    ):
        yield Shape(name, "auth", getting(path, []))
    yield Shape("/metrics again and again, without a token", "auth", getting("/metrics", [], named=False))

"""Headers and addresses: many, long, and built to be looked through more than once."""

from collections.abc import Iterator

from bench.expensive.shape import JSON, Shape, getting, sending

_KIND = ("Content-Type", JSON)


def headers() -> Iterator[Shape]:
    for name, sent in (
        ("90 more headers", [(f"X-H{number}", "x") for number in range(90)]),
        ("200 more headers", [(f"X-H{number}", "x") for number in range(200)]),
        ("a header 90 times", [("X-H", "x")] * 90),
        ("a header of 200 kB", [("X-H", "x" * 200_000)]),
        ("a header of 300 kB", [("X-H", "x" * 300_000)]),
        ("10,000 hops", [("X-Forwarded-For", ",".join(["127.0.0.1"] * 10_000))]),
        ("100,000 hops that are no addresses", [("X-Forwarded-For", ",".join(["1"] * 100_000))]),
        ("200,000 empty hops", [("X-Forwarded-For", "," * 200_000)]),
        ("90 lines of 200 hops", [("X-Forwarded-For", ",".join(["127.0.0.1"] * 200))] * 90),
        ("a request id of 200 kB", [("X-Request-Id", "x" * 200_000)]),
    ):
        yield Shape(name, "auth", getting("/auth", sent))
    for name, token in (
        ("a bearer of 8 kB", "x" * 8_180),
        ("a bearer of 8 kB of dots", "." * 8_180),
        ("a bearer after 8 kB of blanks", " " * 8_100 + "x"),
        ("a bearer of 200 kB", "x" * 200_000),
    ):
        yield Shape(name, "auth", getting("/auth", [("Authorization", f"Bearer {token}")], named=False))
    for name, header, value in (
        ("an Idempotency-Key of 200 kB", "Idempotency-Key", "x" * 200_000),
        ("an Accept of 200,000 commas", "Accept", "," * 200_000),
        ("an Accept of 20,000 types", "Accept", ",".join(["a/b;q=0.1"] * 20_000)),
    ):
        yield Shape(name, "list", sending([_KIND, (header, value)]))
    for name, value in (("50,000 parameters", ";a=b" * 50_000), ("200 kB of blanks", "; " + " " * 200_000 + "x")):
        yield Shape(f"a Content-Type with {name}", "list", sending([("Content-Type", JSON + value)]))
    for name, sent in (
        ("an actor of 200 kB", [("X-Service-Actor", "urn:li:corpuser:" + "x" * 200_000)]),
        ("an actor of 200,000 colons", [("X-Service-Actor", "urn" + ":" * 200_000)]),
        ("an Origin of 200 kB", [("X-Service-Actor", "urn:li:corpuser:a"), ("Origin", "x" * 200_000)]),
    ):
        yield Shape(name, "list", sending([_KIND, *sent], named=False))


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

"""The store in a database: whether it can be used, what it is, what it would lose, and whether its clock is ours."""

from collections.abc import Iterator

from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.domain.store_urls import PostgresUrl
from watchword.settings import Settings
from watchword.stores.postgres.glance import DatabaseGlance

APART_MS = 5_000
LANES = 2
"""Connections of a worker besides its pool."""


def database(settings: Settings, place: PostgresUrl, seen: DatabaseGlance) -> Iterator[Diagnostic]:
    if seen.problem is not None:
        sentence, _, fix = seen.problem.partition(". ")
        yield bad("store", sentence.rstrip("."), fix or "See WATCHWORD_DATABASE_URL, and the server's log.")
        return
    where = f"{place}, schema {place.schema}"
    if not seen.version:
        fix = "It is made by the first start: watchword serve"
        yield warn("store", f"there is none at {where}; PostgreSQL {seen.server} answers", fix)
    elif seen.version < seen.latest:
        fix = "The next start brings it up to date, or: watchword db migrate"
        yield warn("store", f"{where} is of schema version {seen.version}, this Watchword's is {seen.latest}", fix)
    else:
        what = f"is of schema version {seen.version}, on PostgreSQL {seen.server}, and takes writes"
        yield ok("store", f"{where} {what}; tokens not revoked: {seen.tokens:,}")
    yield from _durable(seen)
    yield from _connections(settings, seen)
    if seen.open_to_all:
        fix = f"Close it: REVOKE CONNECT ON DATABASE {place.database} FROM PUBLIC"
        yield warn("store", "every role of the server may connect to the database, and hold up its writes", fix)


def _durable(seen: DatabaseGlance) -> Iterator[Diagnostic]:
    for name in seen.unsafe:
        fix = f"Set it: ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"
        yield warn("store", f"{name} is off: what was committed may be lost with the machine", fix)


def _connections(settings: Settings, seen: DatabaseGlance) -> Iterator[Diagnostic]:
    wanted = settings.workers * (settings.database_pool + LANES)
    if wanted > seen.most_connections:
        fix = "Raise max_connections (or the role's or database's limit), or lower WATCHWORD_DATABASE_POOL."
        yield warn(
            "store", f"this instance may want {wanted} connections, and {seen.most_connections} can be had in all", fix
        )


def database_clock(seen: DatabaseGlance) -> Iterator[Diagnostic]:
    if seen.problem is not None:
        return
    if abs(seen.ahead_ms) > APART_MS:
        ahead = "ahead of" if seen.ahead_ms > 0 else "behind"
        what = (
            f"the database's is {abs(seen.ahead_ms) / 1000:,.0f} s {ahead} this machine's; tokens end by the database's"
        )
        yield warn("clock", what, "Keep both set by NTP.")
    else:
        yield ok("clock", "it fits the database's, by which tokens end")

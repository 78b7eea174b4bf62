"""Many tokens in a store, quickly: for tests and benches that must know what size costs."""

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from watchword.admin.tables import POSTGRES_TOTALS
from watchword.database.postgres.hosts import connect as connect_to_database
from watchword.database.sqlite.connections import STORE_FILE, connect
from watchword.database.urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.stores import prepare

DAY = 86_400_000
REVOKED_EVERY = 10

_READY = "CREATE TEMP TABLE ready (id, name, actor, made, end, revoked)"
_TOKENS = """
INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, revoked_at)
SELECT id, 'PERSONAL', name, NULL, actor, actor, made, end, revoked FROM temp.ready ORDER BY actor, id
"""
_MADE_LATER = """SELECT type, name, sql FROM sqlite_master
WHERE type IN ('index', 'trigger') AND tbl_name = 'tokens' AND sql IS NOT NULL"""
_TOTALS = """INSERT INTO token_totals
SELECT 'all', '', count(*) FROM tokens WHERE revoked_at IS NULL HAVING count(*)
UNION ALL SELECT 'actor', actor_urn, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY actor_urn
UNION ALL SELECT 'owner', owner_urn, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY owner_urn"""
_EVENTS = """
INSERT INTO events (at, actor, action, target, peer, request_id, detail)
SELECT revoked_at, owner_urn, 'token.revoked', id, 'fill', '', '{}' FROM tokens WHERE revoked_at IS NOT NULL
"""


_COLUMNS = ("id", "type", "name", "actor_urn", "owner_urn", "created_at", "expires_at", "revoked_at")
_DATABASE_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename = 'tokens' AND indexname <> 'tokens_pkey'
"""


def filled_id(number: int) -> str:
    """The id of the token of this number: of the true form, and always the same. Neighbours lie near each other in
    the index, which makes filling quick and changes nothing for whoever looks one up.
    """
    return b64encode(number.to_bytes(4, "big") + hashlib.sha256(b"%d" % number).digest()[4:]).decode()


def filled_actor(number: int, actors: int) -> str:
    return f"urn:li:corpuser:filled{number % actors:05}"


def is_revoked(number: int) -> bool:
    return number % REVOKED_EVERY == REVOKED_EVERY - 1


def fill(
    place: Path | StoreUrl, count: int, *, now: int, actors: int = 1_000, id_of: Callable[[int], str] = filled_id
) -> None:
    """Make the store and put `count` tokens into it, a tenth of them revoked. The tokens end a day to a year from
    `now`.
    """
    if isinstance(place, PostgresUrl):
        prepare(place)
        asyncio.run(_fill_database(place, count, now, actors, id_of))
    else:
        _fill_file(place.path if isinstance(place, SqliteUrl) else place, count, now, actors, id_of)


async def _fill_database(place: PostgresUrl, count: int, now: int, actors: int, id_of: Callable[[int], str]) -> None:
    connection = await connect_to_database(place)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute("ALTER TABLE tokens DISABLE TRIGGER USER")
            indexes = await connection.fetch(_DATABASE_INDEXES, place.schema)
            for name, _ in indexes:  # recreated at the end, which is faster than updating them
                await connection.execute(f"DROP INDEX {name}")
            rows = (
                (token, "PERSONAL", name, actor, owner, made, end, revoked)
                for token, name, actor, owner, made, end, revoked in _rows(count, now, actors, id_of)
            )
            await connection.copy_records_to_table("tokens", records=rows, columns=_COLUMNS, schema_name=place.schema)
            for _, index in indexes:
                await connection.execute(index)
            await connection.execute("ALTER TABLE tokens ENABLE TRIGGER USER")
            await connection.execute(POSTGRES_TOTALS)
            await connection.execute(_EVENTS)
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        connection.terminate()


def _fill_file(path: Path, count: int, now: int, actors: int, id_of: Callable[[int], str]) -> None:
    """In the order of their ids, as the table lies; what is kept in step row by row when rows come one by one, indexes
    and totals, is made at the end. It is not durable until then, and need not be.
    """
    STORE_FILE.prepare(path)
    with closing(connect(path, busy_ms=2_000)) as file:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", "cache_size = -500000"):
            file.execute(f"PRAGMA {pragma}")
        file.execute("BEGIN")
        later: list[Any] = file.execute(_MADE_LATER).fetchall()
        for kind, name, _ in later:
            file.execute(f"DROP {kind} {name}")
        file.execute(_READY)
        file.executemany(
            "INSERT INTO temp.ready VALUES (?, ?, ?, ?, ?, ?)",
            (
                (token, name, actor, made, end, revoked)
                for token, name, actor, _, made, end, revoked in _rows(count, now, actors, id_of)
            ),
        )
        file.execute(_TOKENS)
        file.execute("DROP TABLE temp.ready")
        file.execute(_EVENTS)
        file.execute(_TOTALS)
        for _, _, sql in later:
            file.execute(sql)
        file.execute("COMMIT")
        file.execute("PRAGMA journal_mode = WAL")


def _rows(count: int, now: int, actors: int, id_of: Callable[[int], str]) -> Iterator[tuple[Any, ...]]:
    for number in range(count):
        actor = filled_actor(number, actors)
        end = now + DAY + 364 * DAY * (count - number) // count
        yield id_of(number), f"token {number}", actor, actor, now - DAY, end, now if is_revoked(number) else None

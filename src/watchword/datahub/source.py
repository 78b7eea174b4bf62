"""Read DataHub's table `metadata_aspect_v2`, from MySQL, MariaDB, PostgreSQL or an export file. Nothing is written.

A run reads one snapshot: a read-only transaction, or the file as it was read into a temporary SQLite database, which
bounds the memory and sorts the rows. The drivers are imported for the source that needs them.
"""

import asyncio
import json
import sqlite3
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from watchword.basics.errors import OperatorError
from watchword.datahub.rules import ASPECTS, AspectRow, DataHubSource
from watchword.setting_values import DataHubDatabase, DataHubFile, DataHubUrl

BATCH = 500
CONNECT_SECONDS = 10
READ_SECONDS = 600
"""How long a statement may take, and how long the database waits for us."""
_COUNT = "SELECT count(*) FROM metadata_aspect_v2 WHERE urn LIKE {} AND aspect = {} AND version = 0"
# By the bytes of the urn, as the store orders token ids, whatever the collation of the table is.
_ROWS = """
SELECT urn, aspect, metadata FROM metadata_aspect_v2 WHERE urn LIKE {} AND aspect IN ({}) AND version = 0
ORDER BY {}, aspect"""


@asynccontextmanager
async def open_source(url: DataHubUrl) -> AsyncIterator[DataHubSource]:
    if isinstance(url, DataHubFile):
        with closing(sqlite3.connect("", check_same_thread=False)) as database:
            _load(database, url)
            yield _DbApiSource(database, "?", "urn")
    elif url.scheme == "mysql":
        async with _mysql(url) as source:
            yield source
    else:
        async with _postgres(url) as source:
            yield source


@dataclass(frozen=True, slots=True)
class _DbApiSource:
    """For drivers of Python's database API, which block. They run in threads, one at a time."""

    _connection: Any
    _mark: str
    """The driver's placeholder."""
    _order: str
    """By the bytes of the urn."""

    async def count(self, prefix: str, aspect: str) -> int:
        def count() -> int:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute(_COUNT.format(self._mark, self._mark), (f"{prefix}%", aspect))
                return int(cursor.fetchall()[0][0])

        return await asyncio.to_thread(count)

    async def rows(self, prefix: str) -> AsyncIterator[list[AspectRow]]:
        marks = ", ".join([self._mark] * len(ASPECTS[prefix]))
        statement = _ROWS.format(self._mark, marks, self._order)
        with closing(self._connection.cursor()) as cursor:
            await asyncio.to_thread(cursor.execute, statement, (f"{prefix}%", *ASPECTS[prefix]))
            while batch := await asyncio.to_thread(cursor.fetchmany, BATCH):
                yield [AspectRow(*row) for row in batch]


def _load(database: sqlite3.Connection, file: DataHubFile) -> None:
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute(
        """CREATE TABLE metadata_aspect_v2 (
            urn TEXT, aspect TEXT, version INTEGER, metadata TEXT, PRIMARY KEY (urn, aspect)) WITHOUT ROWID"""
    )
    insert = "INSERT INTO metadata_aspect_v2 VALUES (?, ?, 0, ?)"
    try:
        database.executemany(insert, _lines(file))
    except sqlite3.IntegrityError:
        raise OperatorError(f"{file} has two rows with the same urn and aspect. Export it again.") from None
    except OSError as error:
        raise OperatorError(f"{file} cannot be read: {error.strerror}.") from None


def _lines(file: DataHubFile) -> Iterator[tuple[str, str, str]]:
    """The rows of version 0, the current one, that are imported."""
    wanted = tuple(ASPECTS.items())
    with sys.stdin.buffer if str(file.path) == "-" else file.path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                urn, aspect, metadata = row["urn"], row["aspect"], row["metadata"]
                current = row.get("version", 0) == 0
                found = any(urn.startswith(prefix) and aspect in aspects for prefix, aspects in wanted)
                text = metadata if isinstance(metadata, str) else json.dumps(metadata)
                f"{urn}{aspect}{text}".encode()  # a lone surrogate is an error
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise OperatorError(
                    f"{file}, line {number}: this is not a row of metadata_aspect_v2 as JSON, with urn, aspect and "
                    "metadata. Nothing was changed. Export it again."
                ) from None
            if current and found:
                yield urn, aspect, text


@asynccontextmanager
async def _mysql(url: DataHubDatabase) -> AsyncIterator[DataHubSource]:
    import pymysql
    from pymysql.cursors import SSCursor

    def connect() -> Any:
        made = pymysql.connect(
            host=url.host,
            port=url.port,
            user=url.user,
            password="" if url.password is None else url.password.reveal(),
            database=url.database,
            charset="utf8mb4",
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            ssl=_tls(dict(url.options)),
            cursorclass=SSCursor,  # rows come as they are read, not all at once
        )
        with made.cursor() as cursor:
            cursor.execute(f"SET SESSION net_write_timeout = {READ_SECONDS:d}")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        return made

    try:
        connection = await asyncio.to_thread(connect)
        try:
            yield _DbApiSource(connection, "%s", "CAST(urn AS BINARY)")
        finally:
            connection.close()  # the cursor stays open: to close it would read the remaining rows first
    except (pymysql.MySQLError, OSError) as error:
        text = error.args[-1] if error.args else type(error).__name__
        raise _unreadable(url, text) from None


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    mode = options.get("sslmode", "disable")
    if mode in ("disable", "prefer"):
        return None
    context = ssl.create_default_context(cafile=options.get("sslrootcert"))
    context.check_hostname = mode == "verify-full"
    if mode == "require" and "sslrootcert" not in options:
        context.verify_mode = ssl.CERT_NONE
    if "sslcert" in options:
        context.load_cert_chain(options["sslcert"], options.get("sslkey"))
    return context


@asynccontextmanager
async def _postgres(url: DataHubDatabase) -> AsyncIterator[DataHubSource]:
    import asyncpg

    from watchword.database.postgres.errors import DRIVER_ERRORS
    from watchword.database.postgres.hosts import tls

    try:
        connection = await asyncpg.connect(
            host=url.host,
            port=url.port,
            user=url.user,
            password=None if url.password is None else url.password.reveal(),
            database=url.database,
            ssl=tls(dict(url.options)),
            timeout=CONNECT_SECONDS,
            command_timeout=READ_SECONDS,
        )
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                yield _PostgresSource(connection)
        finally:
            connection.terminate()
    except DRIVER_ERRORS as error:
        raise _unreadable(url, str(error) or type(error).__name__) from None


class _PostgresSource:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def count(self, prefix: str, aspect: str) -> int:
        return int(await self._connection.fetchval(_COUNT.format("$1", "$2"), f"{prefix}%", aspect))

    async def rows(self, prefix: str) -> AsyncIterator[list[AspectRow]]:
        names = ", ".join(f"${number}" for number in range(2, len(ASPECTS[prefix]) + 2))
        statement = _ROWS.format("$1", names, 'urn COLLATE "C"')
        cursor = await self._connection.cursor(statement, f"{prefix}%", *ASPECTS[prefix])
        while batch := await cursor.fetch(BATCH):
            yield [AspectRow(*row) for row in batch]


def _unreadable(url: DataHubDatabase, cause: object) -> OperatorError:
    return OperatorError(f"DataHub's database {url} cannot be read: {cause}. Nothing was revoked. Check the address.")

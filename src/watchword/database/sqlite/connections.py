"""Connections to the store's file."""

from pathlib import Path
from typing import Any

import apsw

from watchword.basics.errors import Fault, Reason
from watchword.database.migrations import migrations
from watchword.database.sqlite import file as sqlite_file
from watchword.database.sqlite.file import BUSY_MS, SqliteFormat

# On a large file each write touches other pages. With SQLite's default of 1,000 pages the writer would stop for a
# checkpoint every few commits.
CHECKPOINT_PAGES = 4_000
LOG_MIB = 64

STORE_FILE = SqliteFormat(
    name="store",
    application_id=0x57575744,  # "WWWD"
    migrations=tuple(migration.sql for migration in migrations("sqlite")),
    unavailable=Reason.STORE_UNAVAILABLE,
    repair="Restore a backup.",
    assurance="Nothing was changed.",
    pragmas=("foreign_keys = ON", "trusted_schema = OFF"),
)


def store_fault(error: apsw.Error) -> Fault:
    return STORE_FILE.fault(error)


def connect(path: Path, *, busy_ms: int = BUSY_MS, read_only: bool = False, cache_mib: int = 8) -> apsw.Connection:
    connection = sqlite_file.connect(
        path, busy_ms=busy_ms, cache_mib=cache_mib, checkpoint_pages=CHECKPOINT_PAGES, log_mib=LOG_MIB
    )
    connection.execute("PRAGMA foreign_keys = ON")
    # Plans do not depend on bound values. Otherwise SQLite, which looks at a bound LIMIT, plans each list again: 25 of
    # 92 µs for 20 tokens.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.create_scalar_function("unicode_lower", _unicode_lower, 1, deterministic=True)
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def folded(column: str) -> str:
    """SQL that lowers the case. SQLite's `lower` knows ASCII only; ours blocks the event loop for each row."""
    return f"iif(octet_length({column}) = length({column}), lower({column}), unicode_lower({column}))"


def _unicode_lower(*values: Any) -> Any:
    (value,) = values
    return value.lower() if isinstance(value, str) else value

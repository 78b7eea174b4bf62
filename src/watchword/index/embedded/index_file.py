"""The embedded index's SQLite file: schema, migrations, connections, and what its errors mean.

- A row's `place` is the number of its index and a number within that index. Every write of a row takes a new place, so
  a place stands for one version of one row, and rows written after a moment are a range of the primary key.
- Triggers keep `rows` and `bytes` of an index.
- Numbers of indices and tasks are never reused.
- A change of the schema is a further file in `sql`. A released file is never edited.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import apsw

from watchword.basics.errors import Fault, Reason
from watchword.database.sqlite import file as sqlite_file
from watchword.database.sqlite.file import SqliteFormat, open_read_only

_SQL = files("watchword.index.embedded") / "sql"
_STEPS = [entry.name for entry in _SQL.iterdir() if entry.name.endswith(".sql")]
BUSY_SECONDS = 5.0
POLL_SECONDS = 0.001
_PLACE_BITS = 40  # 10^12 writes per index, 8 million indices
LOG_MIB = 16
NODE_BYTES = 16  # 22 characters, as search engines' node ids have


def place(index: int, number: int) -> int:
    return (index << _PLACE_BITS) + number


INDEX_FILE = SqliteFormat(
    name="search index",
    application_id=0x57575749,  # "WWWI"
    migrations=tuple((_SQL / name).read_text() for name in sorted(_STEPS)),
    unavailable=Reason.INDEX_UNAVAILABLE,
    repair="Put a backup of the file back, or move the file away and load the rows again.",
    pragmas=("auto_vacuum = INCREMENTAL",),  # takes effect only before the first page is written
)


def prepare(path: Path) -> str:
    """Create the file if it is missing and migrate it; return the id of its node."""
    try:
        INDEX_FILE.prepare(path)
    except Fault as fault:
        if isinstance(fault.__cause__, apsw.NotADBError):
            raise INDEX_FILE.foreign(path) from None
        raise
    try:
        with closing(connect(path)) as connection:
            if connection.execute("SELECT node FROM meta").get is None:
                connection.execute("INSERT OR IGNORE INTO meta VALUES (1, ?)", (secrets.token_urlsafe(NODE_BYTES),))
            node: str = connection.execute("SELECT node FROM meta").get
            return node
    except apsw.Error as error:
        raise INDEX_FILE.fault(error) from error


def describe(path: Path) -> str:
    """Describe the file in a few words. Changes nothing."""
    try:
        with closing(open_read_only(path)) as connection:
            version = INDEX_FILE.version(connection)
            indices = connection.execute("SELECT count(*) FROM indices").get if version else 0
    except apsw.NotADBError:
        raise INDEX_FILE.foreign(path) from None
    except apsw.Error as error:
        raise INDEX_FILE.fault(error) from error
    return f"embedded, version {version}, indices: {indices}"


def connect(path: Path, *, cache_mib: int = 4, checkpoint_pages: int = 16_000) -> apsw.Connection:
    """The engine's process checkpoints sooner than other processes, so that they seldom have to."""
    connection = sqlite_file.connect(path, cache_mib=cache_mib, checkpoint_pages=checkpoint_pages, log_mib=LOG_MIB)
    connection.set_busy_handler(_poll_for_lock())
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _poll_for_lock() -> Callable[[int], bool]:
    """Polls often: the engine's process leaves short gaps between its transactions."""
    since = 0.0

    def poll(tries: int) -> bool:
        nonlocal since
        if tries == 0:
            since = time.monotonic()
        time.sleep(POLL_SECONDS)
        return time.monotonic() - since < BUSY_SECONDS

    return poll

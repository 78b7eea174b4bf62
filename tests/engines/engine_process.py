"""Start, kill and inspect the embedded engine's process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from watchword.index.embedded.index_file import connect

COMMAND = (sys.executable, "-m", "watchword.index.embedded.process")


def start(path: Path, parent: int | None = None) -> "subprocess.Popen[bytes]":
    """It exits with this process, or with the given parent."""
    command = [*COMMAND, str(path), str(parent or os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


@contextmanager
def working(path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    process = start(path)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def look(path: Path, query: str, *bound: Any) -> list[Any]:
    """Fetch one row by position or by column name."""
    with closing(connect(path)) as file:
        return file.execute(query, bound[0] if bound and isinstance(bound[0], dict) else bound).fetchall()


def problems(path: Path) -> list[Any]:
    """SQLite integrity errors and indices with wrong counters."""
    wrong = [row for row in look(path, "PRAGMA integrity_check") if row != ("ok",)]
    return wrong + look(
        path,
        """SELECT i.name, i.rows, i.bytes FROM indices i WHERE (i.rows, i.bytes) <>
           (SELECT count(*), ifnull(sum(length(d.source) + length(d.id)), 0) FROM documents d
            WHERE d.index_number = i.number)""",
    )

"""Bare inserts, in a process of its own: `python -m bench.inserts FILE SECONDS`. A row, a commit, and the next.

The file is in the mode of Watchword's own, WAL and `synchronous=FULL`, with its size of checkpoints and of cache. Rows
are as wide as tokens, under ids that lie anywhere. Prints JSON: commits, seconds, processor seconds, times of commits.
"""

import json
import os
import statistics
import sys
import time
from base64 import b64encode
from contextlib import closing
from pathlib import Path

import apsw

from watchword.database.sqlite.connections import connect

COLUMNS = "id, type, name, actor_urn, owner_urn, created_at, expires_at, created_with"
INSERT = f"INSERT INTO tokens ({COLUMNS}) VALUES (?, 'PERSONAL', ?, ?, ?, ?, ?, ?)"
_SCHEMA = """SELECT sql FROM sqlite_master WHERE tbl_name = 'tokens' AND sql IS NOT NULL AND type IN ('table', ?)
ORDER BY type = 'index'"""


def make(path: Path, store: Path, *, indexed: bool) -> None:
    """Only the table of tokens, as it is in a store: with its indexes or without; without triggers."""
    with closing(apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)) as file:
        statements = [sql for (sql,) in file.execute(_SCHEMA, ("index" if indexed else "table",))]
    with closing(apsw.Connection(str(path))) as file:
        for statement in statements:
            file.execute(statement)


def main(path: str, seconds: str) -> None:
    actor = "urn:li:corpuser:filled00000"
    took: list[float] = []
    with closing(connect(Path(path), busy_ms=2_000, cache_mib=32)) as file:
        now = time.time_ns() // 1_000_000
        began, used = time.perf_counter(), time.process_time()
        before = began
        while before - began < float(seconds):
            made_with = b64encode(os.urandom(32)).decode()
            row = (b64encode(os.urandom(32)).decode(), f"b {len(took)}", actor, actor, now, now + 86_400_000, made_with)
            file.execute("BEGIN IMMEDIATE")
            file.execute(INSERT, row)
            file.execute("COMMIT")
            after = time.perf_counter()
            took.append((after - before) * 1000)
            before = after
        wall, cpu = before - began, time.process_time() - used
    cuts = statistics.quantiles(took, n=100)
    print(json.dumps({"commits": len(took), "seconds": wall, "cpu": cpu, "p50_ms": cuts[49], "p99_ms": cuts[98]}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The store's file as a stranger reads it: by the standard library, beside the running server."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.server import Server
from tests.support.waiting import SECONDS
from watchword.basics.names import SYSTEM_ACTOR


class Happened(NamedTuple):
    """One event, in the order of its commit."""

    seq: int
    actor: str
    bearer: str | None
    action: str
    target: str


def look(server: Server, query: str, *bound: Any) -> list[Any]:
    with closing(sqlite3.connect(f"file:{_file(server)}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(query, bound).fetchall()


# Refusals are written apart from the request that was refused, so they tell nothing of what a request changed.
CHANGES = "SELECT * FROM events WHERE action NOT IN ('access.denied', 'authentication.failed')"


def events(server: Server, after: int = 0) -> list[Happened]:
    """The events of changes."""
    query = f"SELECT seq, actor, bearer_id, action, target FROM ({CHANGES}) WHERE seq > ? ORDER BY seq"
    return [Happened(*row) for row in look(server, query, after)]


def last_event(server: Server) -> int:
    seq: int = look(server, "SELECT ifnull(max(seq), 0) FROM events")[0][0]
    return seq


@contextmanager
def locked(server: Server, how: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
    """Hold the write lock, as a backup tool or a forgotten shell would."""
    with closing(sqlite3.connect(_file(server), isolation_level=None, timeout=10)) as connection:
        connection.execute(f"BEGIN {how}")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")


def stored(server: Server) -> dict[str, int]:
    """How many rows each table of the store has: equal before and after means that no request stored anything. The
    service itself writes events at any time, as of a use of a token by an earlier test.
    """
    tables = {name: name for name in ("tokens", "policies", "groups", "group_members", "actors", "keys")}
    tables["events"] = f"({CHANGES} AND actor <> '{SYSTEM_ACTOR}')"
    return {name: look(server, f"SELECT count(*) FROM {table}")[0][0] for name, table in tables.items()}


def change_store(server: Server, statement: str, *values: Any) -> None:
    """What only time or a fault would do to the store otherwise."""
    with closing(sqlite3.connect(_file(server), timeout=SECONDS)) as connection, connection:
        connection.execute(statement, values)


def touch(server: Server) -> None:
    """Commit a change that means nothing, so that no reader can answer from what it read before."""
    change_store(server, "UPDATE probes SET at = ifnull(at, 0) + 1")


def assert_sound(server: Server) -> None:
    """`db check` finds nothing, and tokens and their events are one."""
    checked = server.command_line("db", "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    made = "SELECT target FROM events WHERE action IN ('token.created', 'token.derived', 'token.rotated')"
    assert look(server, f"SELECT id FROM tokens WHERE id NOT IN ({made})") == []
    assert look(server, f"SELECT * FROM ({made}) WHERE target NOT IN (SELECT id FROM tokens)") == []


def _file(server: Server) -> Path:
    return server.data_dir / "watchword.db"

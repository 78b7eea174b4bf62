"""A store of an older version: only `serve` and `db migrate` migrate it, and both say so."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import sql

from tests.support.postgres import Home
from tests.support.server import ADMIN, Server, watchword
from watchword.stores.sql import latest, migrations
from watchword.stores.sqlite.connections import STORE_FILE

REFUSED = (["keys", "list"], ["keys", "rotate"], ["token", "create", "--local", "--actor", ADMIN])
HARMLESS = (["db", "check"], ["doctor"])


class OlderStore:
    """A store as the previous version left it."""

    def __init__(self, folder: Path, database: Home | None) -> None:
        self.server = Server(folder, env=database.env if database else {})
        self._database = database
        self.dialect = "postgres" if database else "sqlite"
        self.env = database.env if database else {}
        self.server.data_dir.mkdir(mode=0o700)
        *older, _ = migrations(self.dialect)
        if database is None:
            assert self.run("keys", "master", str(self.server.data_dir / "master.key"), here=False).returncode == 0
            (self.server.data_dir / "watchword.db").touch(mode=0o600)
            with closing(self._file()) as file:
                for migration in older:
                    file.executescript(migration.sql)
                file.execute(f"PRAGMA user_version = {older[-1].number}")
                file.execute(f"PRAGMA application_id = {STORE_FILE.application_id}")
            return
        with database.address.connect() as connection, connection.transaction():
            schema = sql.Identifier(database.schema)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            connection.execute(sql.SQL("SET LOCAL search_path = {}").format(schema))
            connection.execute(
                "CREATE TABLE migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
            )
            for migration in older:
                connection.execute(migration.sql.encode())
                connection.execute("INSERT INTO migrations VALUES (%s, %s, 0)", (migration.number, migration.name))

    @property
    def version(self) -> int:
        if self._database is not None:
            number: int = self._database.look("SELECT max(number) FROM migrations")[0][0]
        else:
            with closing(self._file()) as file:
                (number,) = file.execute("PRAGMA user_version").fetchone()
        return number

    def run(self, *words: str, here: bool = True) -> subprocess.CompletedProcess[str]:
        return self.server.command_line(*words, env=self.env) if here else watchword(*words)

    def _file(self) -> sqlite3.Connection:
        return sqlite3.connect(self.server.data_dir / "watchword.db")


@pytest.fixture(params=["sqlite", "postgres"])
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OlderStore]:
    database = request.getfixturevalue("database") if request.param == "postgres" else None
    store = OlderStore(tmp_path / "s", database)
    yield store
    store.server.stop()
    store.server.http.close()


def test_only_db_migrate_migrates_and_says_so(older: OlderStore) -> None:
    now = latest(older.dialect)
    for words in REFUSED:
        done = older.run(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"has schema {now - 1}; this Watchword needs {now}. Nothing was changed." in done.stderr
        assert done.stderr.endswith("run: watchword db migrate\n")
        assert older.version == now - 1
    for words in HARMLESS:
        assert "watchword db migrate" in older.run(*words).stdout
        assert older.version == now - 1
    assert older.run("db", "migrate").stdout == f"Migrated the database from schema {now - 1} to {now}.\n"
    assert older.version == now


def test_serve_migrates_and_says_so(older: OlderStore) -> None:
    now = latest(older.dialect)
    said = f"Migrated the database from schema {now - 1} to {now}.\n"
    assert older.server.start().out.read_text().startswith(said)
    assert older.version == now

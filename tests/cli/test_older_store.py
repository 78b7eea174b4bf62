"""A store of an older version: only `serve` and `db migrate` migrate it, and both say so."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.newer_watchword import NEWER, newer_watchword
from tests.support.postgres import Home
from tests.support.server import ADMIN, Server

REFUSED = (["key", "list"], ["key", "rotate"], ["token", "create", "--local", "--actor", ADMIN])
HARMLESS = (["db", "check"], ["doctor"])


class OlderStore:
    """A store of the version before that of the commands that are run on it."""

    def __init__(self, folder: Path, database: Home | None) -> None:
        env = database.env if database else {}
        self._database = database
        self.env = {**env, **newer_watchword(folder / "newer")}
        self.server = Server(folder, env=self.env)
        assert self.server.command_line("db", "migrate", env=env).returncode == 0

    @property
    def version(self) -> int:
        if self._database is not None:
            number: int = self._database.look("SELECT max(number) FROM migrations")[0][0]
        else:
            with closing(self._file()) as file:
                (number,) = file.execute("PRAGMA user_version").fetchone()
        return number

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.server.command_line(*words, env=self.env)

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
    for words in REFUSED:
        done = older.run(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"has schema {NEWER - 1}; this Watchword needs {NEWER}. Nothing was changed." in done.stderr
        assert done.stderr.endswith("run: watchword db migrate\n")
        assert older.version == NEWER - 1
    for words in HARMLESS:
        assert "watchword db migrate" in older.run(*words).stdout
        assert older.version == NEWER - 1
    assert older.run("db", "migrate").stdout == f"Migrated the database from schema {NEWER - 1} to {NEWER}.\n"
    assert older.version == NEWER


def test_serve_migrates_and_says_so(older: OlderStore) -> None:
    said = f"Migrated the database from schema {NEWER - 1} to {NEWER}.\n"
    assert older.server.start().out.read_text().startswith(said)
    assert older.version == NEWER

"""The next signing key: stored sealed, and the only future key that a stolen store reveals."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.in_process import watchword

ACCEPT = "--accept-revived-tokens"


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("settled") / "data"
    for words in (("db", "migrate"), ("key", "list")):
        assert watchword(*words, "--data-dir", str(data)).returncode == 0
    return data


@pytest.fixture
def folder(settled: Path, tmp_path: Path) -> Path:
    """A copy of a test's own."""
    return Path(shutil.copytree(settled, tmp_path / "data"))


def rotated(data: Path) -> str:
    """Return the id of the key that signs after a rotation."""
    assert watchword("key", "rotate", "--data-dir", str(data)).returncode == 0
    kid: str = json.loads(watchword("key", "list", "--json", "--data-dir", str(data)).stdout)[0]["kid"]
    return kid


def change(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "watchword.db")) as store, store:
        store.execute(statement)


def test_copied_store_and_master_key_reveal_only_one_next_key(folder: Path, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen"
    shutil.copytree(folder, stolen)
    assert rotated(stolen) == rotated(folder)
    assert rotated(stolen) != rotated(folder)


def test_older_store_gets_a_next_key(folder: Path) -> None:
    change(folder, "DELETE FROM next_key")
    first, second = rotated(folder), rotated(folder)
    assert first != second
    done = watchword("db", "check", "--data-dir", str(folder))
    assert (done.returncode, "BAD" in done.stdout) == (0, False)


def test_another_master_key_seals_no_next_key(folder: Path, tmp_path: Path) -> None:
    change(folder, "DELETE FROM next_key")
    other = tmp_path / "other.key"
    assert watchword("key", "new-master", str(other)).returncode == 0
    done = watchword("key", "rotate", "--data-dir", str(folder), "--master-key-file", str(other))
    assert (done.returncode, "another master key" in done.stderr) == (1, True)
    with closing(sqlite3.connect(folder / "watchword.db")) as store:
        assert store.execute("SELECT count(*) FROM next_key").fetchone() == (0,)


def test_unreadable_next_key_stops_open_copy_and_restore(folder: Path, tmp_path: Path) -> None:
    change(folder, "UPDATE next_key SET sealed_private = zeroblob(60)")
    backup, copy = tmp_path / "b.db", tmp_path / "copy.db"
    assert watchword("db", "backup", str(backup), "--data-dir", str(folder)).returncode == 0
    for words in (
        ("key", "list"),
        ("doctor",),
        ("db", "restore", str(backup), ACCEPT),
        ("db", "copy", "--from", f"sqlite:///{folder / 'watchword.db'}", "--to", f"sqlite:///{copy}"),
    ):
        done = watchword(*words, "--data-dir", str(folder))
        assert done.returncode == 1, words
        assert "another master key" in done.stdout + done.stderr, words
    assert not copy.exists()

"""`db backup`: a consistent snapshot under load; FILE is complete or absent."""

import asyncio
import fcntl
import json
import os
import pty
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.fill import fill
from tests.support.concurrent_load import ConcurrentLoad
from tests.support.disks import small_disk
from tests.support.server import ADMIN, Server, watchword
from tests.support.waiting import SECONDS, until
from watchword.admin.backup import back_up
from watchword.admin.check import check
from watchword.database.urls import SqliteUrl

MakeServer = Callable[..., Server]
QUIET = {"WATCHWORD_ACCESS_LOG": "off"}


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def folder(with_token: Path, tmp_path: Path) -> Path:
    """A data folder whose store holds a token."""
    return shutil.copytree(with_token, tmp_path / "d")


def back_up_to(file: Path, data_dir: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return watchword("db", "backup", str(file), "--data-dir", str(data_dir), *flags)


def read(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def take_backups_under_load(make_server: MakeServer, folder: Path, rounds: int) -> None:
    """Check that each backup has everything answered before it began, and that `db check` finds nothing."""
    server = make_server("--workers", "2", env=QUIET)
    for number in range(rounds):
        with ConcurrentLoad(server, clients=6) as load:
            load.until_answered()
            created = [token_id for own in load._own for token_id in list(own.created)]
            revoked = [token_id for own in load._own for token_id in list(own.revoked)]
            file = folder / f"{number}.db"
            done = server.command_line("db", "backup", str(file), "--json")
            seen = load.created_so_far
            until(lambda seen=seen: load.created_so_far > seen, "the storm goes on")  # type: ignore[misc]
        assert done.returncode == 0, done.stderr
        assert load.answers.refused == []
        held = dict(read(file, "SELECT id, revoked_at IS NOT NULL FROM tokens"))
        assert [token_id for token_id in created if token_id not in held] == []
        assert [token_id for token_id in revoked if not held[token_id]] == []
        made = {row[0] for row in read(file, "SELECT target FROM events WHERE action = 'token.created'")}
        assert made == set(held)
        assert json.loads(done.stdout)["tokens"] == len(held)
        assert_clean(file, folder / f"clean{number}")


def assert_clean(file: Path, folder: Path) -> None:
    """Run `db check` on a copy: it would switch the file itself to WAL mode."""
    folder.mkdir(mode=0o700)
    shutil.copy(file, folder / "watchword.db")
    checked = watchword("db", "check", "--data-dir", str(folder))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_backup_under_load_holds_everything_answered_before_it_began_and_nothing_half(
    make_server: MakeServer, tmp_path: Path
) -> None:
    take_backups_under_load(make_server, tmp_path, rounds=3)


@pytest.mark.soak
def test_sixty_backups_under_load_hold_everything_answered_before_they_began(
    make_server: MakeServer, tmp_path: Path
) -> None:
    take_backups_under_load(make_server, tmp_path, rounds=60)


def test_writes_are_answered_between_the_steps_of_a_backup_which_never_begins_again(
    make_server: MakeServer, tmp_path: Path
) -> None:
    data = tmp_path / "server0" / "data"
    fill(data / "watchword.db", 20_000, now=now())
    server = make_server(env=QUIET)
    steps: list[tuple[int, int]] = []
    with ConcurrentLoad(server, clients=4) as load:
        load.until_answered()

        def written_meanwhile(done: int, total: int) -> None:
            assert not steps or done > steps[-1][0], "it began again"
            steps.append((done, total))
            seen = load.created_so_far
            until(lambda: load.created_so_far > seen, "a creation is answered between two steps")

        store = SqliteUrl(data / "watchword.db")
        made = asyncio.run(back_up(store, tmp_path / "b.db", now(), force=False, progress=written_meanwhile))
    assert load.answers.refused == []
    assert len(steps) > 5
    assert {total for _, total in steps} == {steps[-1][0]}
    assert all(problem is None for _, problem in check(SqliteUrl(tmp_path / "b.db")))
    assert made.contents.tokens < 20_000 + load.created_so_far


def test_backup_is_one_file_for_its_owner_alone(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    target.mkdir()
    before = os.umask(0)
    try:
        assert back_up_to(target / "b.db", folder).returncode == 0
    finally:
        os.umask(before)
    assert names(target) == ["b.db"]
    assert stat.S_IMODE((target / "b.db").stat().st_mode) == 0o600
    assert read(target / "b.db", "PRAGMA journal_mode") == [("delete",)]


def test_backup_says_its_size_its_tokens_and_that_the_master_key_is_not_in_it(folder: Path, tmp_path: Path) -> None:
    done = back_up_to(tmp_path / "b.db", folder)
    assert done.returncode == 0
    assert f"{(tmp_path / 'b.db').stat().st_size / 1_000_000:.1f} MB" in done.stdout
    assert "1 token (1 live)" in done.stdout
    assert f"master key is NOT in it. Back up {folder / 'master.key'} too" in done.stdout
    assert done.stderr == ""


def test_backup_tells_the_same_as_json(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.db"
    told = json.loads(back_up_to(file, folder, "--json").stdout)
    assert told.pop("lastChange") <= now()
    assert told == {
        "file": str(file),
        "bytes": file.stat().st_size,
        "schemaVersion": read(file, "PRAGMA user_version")[0][0],
        "tokens": 1,
        "live": 1,
        "masterKey": str(folder / "master.key"),
        "masterKeyIncluded": False,
        "masterKeyOpens": True,
    }


def test_backup_says_when_the_key_beside_it_is_another(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    assert watchword("key", "new-master", str(other)).returncode == 0
    said = back_up_to(tmp_path / "b.db", folder, "--master-key-file", str(other)).stdout
    assert f"{other} is ANOTHER" in said
    said = back_up_to(tmp_path / "c.db", folder, "--master-key-file", str(tmp_path / "none.key")).stdout
    assert "Back up the key that the service runs with too" in said


def test_backup_shows_its_progress_on_a_terminal(folder: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "watchword", "db", "backup", str(tmp_path / "b.db"), "--data-dir", str(folder)]
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=SECONDS, check=False)
    os.close(theirs)
    shown = os.read(ours, 65_536)
    os.close(ours)
    assert done.returncode == 0
    assert b"Copying" in shown
    assert b"Wrote" in done.stdout


def test_existing_file_is_replaced_only_with_force(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.db"
    file.write_text("mine")
    refused = back_up_to(file, folder)
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert file.read_text() == "mine"
    assert back_up_to(file, folder, "--force").returncode == 0
    assert read(file, "SELECT count(*) FROM tokens") == [(1,)]


@pytest.mark.parametrize("name", ["watchword.db", "watchword.db-wal", "watchword.db-shm", "master.key", "link", "hard"])
def test_store_and_its_key_are_never_overwritten_by_a_backup(folder: Path, name: str) -> None:
    (folder / "link").symlink_to("watchword.db")
    (folder / "hard").hardlink_to(folder / "watchword.db")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = back_up_to(folder / name, folder, "--force")
    assert done.returncode == 1
    assert "FILE must not be" in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("where", ["none/b.db", "."])
def test_target_that_is_no_file_in_a_folder_is_rejected(folder: Path, tmp_path: Path, where: str) -> None:
    done = back_up_to(tmp_path / where, folder)
    assert done.returncode == 1
    assert "FILE must" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert names(tmp_path) == ["d"]


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing"])
@pytest.mark.parametrize("flags", [(), ("--force",)], ids=["", "forced"])
def test_backup_never_replaces_a_special_file(folder: Path, tmp_path: Path, kind: str, flags: tuple[str, ...]) -> None:
    target = tmp_path / "b.db"
    if kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to("elsewhere")
        if kind == "link":
            (tmp_path / "elsewhere").write_text("precious")
    before = names(tmp_path)
    done = back_up_to(target, folder, *flags)
    assert done.returncode == 1
    assert "FILE must be a new or a regular file" in done.stderr
    assert names(tmp_path) == before
    assert target.is_fifo() or target.is_symlink()


def test_mistyped_data_folder_is_not_backed_up(tmp_path: Path) -> None:
    done = back_up_to(tmp_path / "b.db", tmp_path / "typo")
    assert done.returncode == 1
    assert "There is no store at" in done.stderr
    assert names(tmp_path) == []


def test_unsound_store_makes_no_backup(folder: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(folder / "watchword.db")) as file, file:
        file.execute("UPDATE token_totals SET total = total + 1")
    done = back_up_to(tmp_path / "b.db", folder)
    assert done.returncode == 1
    assert "the total of tokens equals the number of tokens" in done.stderr
    assert names(tmp_path) == ["d"]


def test_target_without_room_is_left_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path / "full" / "watchword.db", 5_000, now=now())
    with small_disk(tmp_path / "small", megabytes=1) as disk:
        done = back_up_to(disk / "b.db", tmp_path / "full")
        assert done.returncode == 1
        assert "no space for the backup" in done.stderr
        assert names(disk) == []


def test_backup_leaves_the_draft_of_another_that_is_under_way_alone(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / ".b.db.0123456789abcdef.draft"
    other.mkdir(mode=0o700)
    held = os.open(other, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert back_up_to(tmp_path / "b.db", folder).returncode == 0
    os.close(held)
    assert names(tmp_path) == [other.name, "b.db", "d"]


def test_leftovers_of_a_killed_backup_do_not_affect_the_next(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    target.mkdir()
    (target / ".b.db.0123456789abcdef.draft").mkdir(mode=0o700)
    for ending in ("", "-wal", "-shm", "-journal"):
        (target / ".b.db.0123456789abcdef.draft" / f"draft.db{ending}").write_bytes(b"half" * 5_000)
    assert back_up_to(target / "b.db", folder).returncode == 0
    assert names(target) == ["b.db"]
    assert_clean(target / "b.db", tmp_path / "clean")


def test_token_of_a_backup_is_known_to_a_server_on_it(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    made = server.create(ADMIN)
    assert server.command_line("db", "backup", str(tmp_path / "b.db")).returncode == 0
    other = tmp_path / "server1" / "data"
    other.mkdir(parents=True, mode=0o700)
    shutil.copy(tmp_path / "b.db", other / "watchword.db")
    shutil.copy(server.data_dir / "master.key", other / "master.key")
    assert make_server().verify(made["accessToken"]).status_code == 204

"""`db restore` rejections change nothing; a service and a restore exclude each other."""

import fcntl
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.support.server import ADMIN, watchword
from tests.support.story import ACCEPT, REVOKE_ALL, BackupHistory, contents, kept_of
from tests.support.waiting import SECONDS, until


def test_restore_is_rejected_while_the_service_runs(story: BackupHistory) -> None:
    story.server.start()
    done = story.restore(REVOKE_ALL)
    assert done.returncode == 1
    assert "Stop it first" in done.stderr
    assert story.verdicts() == [204, 401, 401, 204]
    assert kept_of(story.server) == []


def test_restore_is_rejected_while_another_program_has_the_store_open(story: BackupHistory) -> None:
    with closing(sqlite3.connect(story.server.data_dir / "watchword.db")) as other:
        other.execute("SELECT count(*) FROM tokens").fetchall()
        done = story.restore(REVOKE_ALL)
    assert done.returncode == 1
    assert "Another process has the store" in done.stderr
    assert kept_of(story.server) == []


def test_log_without_its_store_is_not_taken_for_the_restored_ones(story: BackupHistory) -> None:
    story.server.start().create(ADMIN)
    story.server.kill()
    (story.server.data_dir / "watchword.db").unlink()
    done = story.restore(REVOKE_ALL)
    assert done.returncode == 1
    assert "watchword.db-wal" in done.stderr
    assert not (story.server.data_dir / "watchword.db").exists()


def edited(*statements: str) -> Callable[[Path], None]:
    def harm(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return harm


def truncated(file: Path) -> None:
    with file.open("r+b") as half:
        half.truncate(file.stat().st_size // 2)


def overwritten(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.seek(file.stat().st_size // 2)
        damaged.write(b"\xa5" * 20_000)


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "is empty": (lambda file: file.write_bytes(b""), "is not one"),
    "is no database": (lambda file: file.write_bytes(b"no database" * 900), "is not one"),
    "is another program's": (edited("PRAGMA application_id = 77"), "is not one"),
    "is newer": (edited("PRAGMA user_version = 99"), "schema version 99"),
    "is cut in half": (truncated, "b.db"),
    "is overwritten": (overwritten, "b.db"),
    "has a wrong total": (edited("UPDATE token_totals SET total = 77 WHERE kind = 'all'"), "the total of tokens"),
    "has a trigger of a stranger": (
        edited("CREATE TRIGGER t AFTER INSERT ON tokens BEGIN DELETE FROM events; END"),
        "was changed: its tables are not those",
    ),
    "has a trigger under a name of SQLite's own": (
        edited(
            "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM tokens; END",
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET name = 'sqlite_stat_evil', sql = replace(sql, ' t ', ' sqlite_stat_evil ') "
            "WHERE name = 't'",
        ),
        "was changed: its tables are not those",
    ),
    "has a policy that cannot be read": (
        edited("UPDATE policies SET privileges = '[\"RULE_THE_WORLD\"]'"),
        "every policy can be read",
    ),
    "has a log beside it": (lambda file: Path(f"{file}-wal").write_bytes(b"x"), "FILE must be complete"),
    "is not there": (Path.unlink, "There is no file"),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("flags", [(), (ACCEPT,)], ids=["asked", "chosen"])
def test_file_is_rejected_and_nothing_changed_when_it(story: BackupHistory, harm: str, flags: tuple[str, ...]) -> None:
    spoil, said = HARMS[harm]
    spoil(story.file)
    before = contents(story.server.data_dir)
    done = story.restore(*flags)
    assert done.returncode == 1, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert contents(story.server.data_dir) == before


def test_store_is_not_restored_from_itself(story: BackupHistory) -> None:
    file = story.server.data_dir / "watchword.db"
    done = story.server.command_line("db", "restore", str(file), ACCEPT)
    assert done.returncode == 1
    assert "not the store itself" in done.stderr


@pytest.mark.parametrize("flags", [(), (REVOKE_ALL,)], ids=["asked", "chosen"])
def test_backup_sealed_with_another_master_key_is_rejected(
    story: BackupHistory, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    assert watchword("db", "migrate", "--data-dir", str(tmp_path / "other")).returncode == 0
    done = watchword("db", "restore", str(story.file), "--data-dir", str(tmp_path / "other"), *flags)
    assert done.returncode == 1
    assert "another master key" in done.stderr
    assert sorted(p.name for p in (tmp_path / "other").iterdir()) == ["master.key", "watchword.db"]


def test_restore_without_a_master_key_makes_neither_key_nor_store(story: BackupHistory, tmp_path: Path) -> None:
    done = watchword("db", "restore", str(story.file), "--data-dir", str(tmp_path / "other"), REVOKE_ALL)
    assert done.returncode == 1
    assert "There is no master key" in done.stderr
    assert not (tmp_path / "other").exists()


def test_start_during_a_restore_waits_before_it_opens_the_store(story: BackupHistory) -> None:
    gate, store = (story.server.data_dir / name for name in ("run/lock", "watchword.db"))
    with gate.open("w") as held, story.server.err.open("ab") as err:
        fcntl.flock(held, fcntl.LOCK_EX)
        starting = subprocess.Popen(story.server.command, stdout=err, stderr=err)
        try:
            until(lambda: str(gate) in files_of(starting), "it waits at the gate")
            assert str(store) not in files_of(starting)
        finally:
            starting.kill()
            starting.wait(SECONDS)


def files_of(process: subprocess.Popen[bytes]) -> list[str]:
    return [file.path for file in psutil.Process(process.pid).open_files()]

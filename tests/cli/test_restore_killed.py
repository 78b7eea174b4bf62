"""`db restore` killed at any moment leaves the old store or the new one, complete."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.store_file import look, stored
from tests.support.story import REVOKE_ALL, BackupHistory, kept_of
from tests.support.system import need_program
from tests.support.waiting import SECONDS


def restore_killed_at(story: BackupHistory, call: str, number: int, choice: str = REVOKE_ALL) -> bool:
    """Return whether the command was killed at the n-th of these system calls; else it succeeded."""
    program = need_program("strace", "strace")
    trace = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    words = ["db", "restore", str(story.file), choice, "--data-dir", str(story.server.data_dir)]
    command = [program, "-f", "-o", "/dev/null", *trace, sys.executable, "-m", "watchword", *words]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode in {0, -signal.SIGKILL, 128 + signal.SIGKILL}, done.stderr
    return done.returncode != 0


def change_in_the_log(story: BackupHistory) -> None:
    """Write a change that is only in the store's WAL, as a killed server leaves it."""
    work = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1])\n"
    work += "c.execute('UPDATE probes SET at = 1'); c.commit(); os._exit(0)"
    subprocess.run([sys.executable, "-c", work, story.server.data_dir / "watchword.db"], check=True)
    assert (story.server.data_dir / "watchword.db-wal").stat().st_size > 0


def outcome(story: BackupHistory) -> str:
    """Return which store is in place; check that it is sound and has no WAL of the other."""
    checked = story.server.command_line("db", "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    restored = look(story.server, "SELECT count(*) FROM events WHERE action = 'store.restored'")[0][0]
    revoked = look(story.server, "SELECT count(*) FROM tokens WHERE revoked_at IS NOT NULL")[0][0]
    assert (restored, revoked, stored(story.server)["tokens"]) in {(0, 2, 4), (1, 3, 3)}
    return "new" if restored else "old"


MOMENTS = [
    ("sendfile", 1, "old"),
    ("pwrite64", 1, "old"),
    ("pwrite64", 12, "old"),
    ("fsync", 1, "old"),
    ("linkat,link", 1, "old"),
    ("fsync", 2, "old"),
    ("rename,renameat,renameat2", 1, "old"),
    ("fsync", 3, "new"),
]


@pytest.mark.parametrize(("call", "number", "left"), MOMENTS)
def test_restore_killed_at_any_moment_leaves_the_old_store_or_the_new_one(
    story: BackupHistory, call: str, number: int, left: str
) -> None:
    change_in_the_log(story)
    assert restore_killed_at(story, call, number)
    assert outcome(story) == left
    assert story.restore(REVOKE_ALL).returncode == 0
    names = {path.name for path in story.server.data_dir.iterdir() if "before-restore" not in path.name}
    assert {name for name in names if not name.startswith("index.db")} == {"watchword.db", "master.key", "run"}
    assert outcome(story) == "new"
    assert [path for path in kept_of(story.server) if path.samefile(story.server.data_dir / "watchword.db")] == []


@pytest.mark.soak
@pytest.mark.parametrize("call", ["pwrite64", "fsync,fdatasync", "unlink", "openat", "fcntl"])
def test_restore_killed_at_each_of_its_calls_leaves_the_old_store_or_the_new_one(
    lived: BackupHistory, tmp_path: Path, call: str
) -> None:
    step = 40 if call in {"openat", "fcntl"} else 5
    number, killed = 1, True
    while killed:
        story = lived.copied(tmp_path / str(number))
        killed = restore_killed_at(story, call, number)
        assert outcome(story) == "new" or killed
        shutil.rmtree(tmp_path / str(number))
        number += step

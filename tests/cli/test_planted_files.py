"""Files planted by another user, and secrets readable by other users."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, CREATE_POLICY, Server, watchword
from tests.support.system import need_program, need_root

NO_ACTOR = 65_534
PRECIOUS = "precious"
PASSWORD = "hunter2-is-seen-by-all"


@pytest.fixture
def data(with_token: Path, tmp_path: Path) -> Path:
    return shutil.copytree(with_token, tmp_path / "data")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text(PRECIOUS)
    return file


def shared_folder(tmp_path: Path, mode: int = 0o1777, owner: int = 0, group: int = 0) -> Path:
    need_root("to make files of another user")
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, owner, group)
    folder.chmod(mode)
    return folder


def names_taken(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run a command; list the names that it opened, created or renamed in the folder, as strace reports them."""
    log = folder.parent / "trace"
    calls = "trace=open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat"
    strace = need_program("strace", "strace")
    command = [strace, "-f", "-s", "4096", "-e", calls, "-o", str(log), sys.executable, "-m", "watchword"]
    clean = without_settings()
    done = subprocess.run([*command, *words], capture_output=True, text=True, env=clean, check=False)
    return done, set(re.findall(rf'"{re.escape(str(folder))}/([^"/]+)', log.read_text()))


def test_planted_drafts_neither_overwrite_a_file_nor_give_away_a_backup(
    data: Path, victim: Path, tmp_path: Path
) -> None:
    shared = shared_folder(tmp_path)
    (shared / ".one.db.draft").symlink_to(victim)
    planted = shared / ".two.db.draft"
    planted.touch()
    planted.chmod(0o666)
    for path in (shared / ".one.db.draft", planted):
        os.chown(path, NO_ACTOR, NO_ACTOR, follow_symlinks=False)
    for name in ("one.db", "two.db"):
        done, names = names_taken(shared, "db", "backup", str(shared / name), "--data-dir", str(data))
        assert done.returncode == 0, done.stderr
        made = (shared / name).stat()
        assert (made.st_uid, made.st_mode & 0o777) == (os.geteuid(), 0o600)
        # No predictable name: each is the backup's own or random.
        assert all(one == name or re.fullmatch(rf"\.{name}\.[0-9a-f]{{16}}\.draft", one) for one in names), names
    assert victim.read_text() == PRECIOUS
    assert planted.stat().st_size == 0
    assert sorted(path.name for path in shared.iterdir()) == [".one.db.draft", ".two.db.draft", "one.db", "two.db"]


@pytest.mark.parametrize(
    ("mode", "owner", "below", "says"),
    [
        (0o777, 0, "", "Every user may replace files"),
        (0o770, 0, "", f"Group {NO_ACTOR} may replace files"),
        (0o755, NO_ACTOR, "", "could replace files in it"),
        (0o755, NO_ACTOR, "sub", "could replace files in it"),
        (0o777, 0, "sub/sub", "Every user may replace files"),
    ],
    ids=["for everybody", "for a group", "of another user", "below another user's", "below one for everybody"],
)
def test_no_backup_is_written_where_another_user_can_replace_it(
    data: Path, tmp_path: Path, mode: int, owner: int, below: str, says: str
) -> None:
    shared = shared_folder(tmp_path, mode, owner, group=NO_ACTOR)
    inner = shared / below
    inner.mkdir(mode=0o700, parents=True, exist_ok=True)
    (tmp_path / "link").symlink_to(inner)
    for folder in (inner, tmp_path / "link"):
        done = watchword("db", "backup", str(folder / "b.db"), "--data-dir", str(data))
        assert (done.returncode, done.stdout) == (1, "")
        assert says in done.stderr
        assert f"folder {shared} " in done.stderr
    assert list(inner.iterdir()) == []


@pytest.mark.parametrize(("mode", "group"), [(0o1770, NO_ACTOR), (0o770, 0)], ids=["sticky", "the user's own group"])
def test_backup_is_written_where_a_group_cannot_replace_it(data: Path, tmp_path: Path, mode: int, group: int) -> None:
    shared = shared_folder(tmp_path, mode, group=group)
    done = watchword("db", "backup", str(shared / "b.db"), "--data-dir", str(data))
    assert done.returncode == 0, done.stderr


def test_planted_link_is_followed_by_no_lock_and_no_new_store(data: Path, victim: Path, tmp_path: Path) -> None:
    assert watchword("db", "backup", str(tmp_path / "b.db"), "--data-dir", str(data)).returncode == 0
    (data / "run").mkdir(exist_ok=True)
    (data / "run" / "lock").unlink(missing_ok=True)
    (data / "run" / "lock").symlink_to(victim)
    choice = "--revoke-all-issued-before-now"
    assert watchword("db", "restore", str(tmp_path / "b.db"), choice, "--data-dir", str(data)).returncode == 1
    assert victim.read_text() == PRECIOUS
    (data / "watchword.db").unlink()
    (data / "watchword.db").symlink_to(tmp_path / "elsewhere.db")
    assert watchword("db", "migrate", "--data-dir", str(data)).returncode == 1
    assert not (tmp_path / "elsewhere.db").exists()


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["serve", "--database-url", f"postgresql://ww:{PASSWORD}@db/ww"], "WATCHWORD_DATABASE_URL_FILE"),
        (["doctor", "--database-url", f"postgresql://ww:{PASSWORD}@db"], "WATCHWORD_DATABASE_URL_FILE"),
        (["index", "load", "--demo", "--index-url", f"http://ww:{PASSWORD}@db:9200"], "WATCHWORD_INDEX_URL_FILE"),
        (["db", "copy", "--from", "sqlite:///a", "--to", f"postgresql://ww:{PASSWORD}@db/ww"], "~/.pgpass"),
        (["db", "copy", "--from", f"postgresql://db/ww?password={PASSWORD}", "--to", "sqlite:///a"], "PGPASSFILE"),
        (["whoami", "--url", f"http://ww:{PASSWORD}@127.0.0.1", "--as", ADMIN], "without a password"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_password_in_a_flag_is_rejected(words: list[str], instead: str, tmp_path: Path) -> None:
    done = watchword(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert instead in done.stderr
    assert PASSWORD not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_exported_policies_hold_no_control_that_turns_the_direction_of_writing(
    server: Server, victim: Path, tmp_path: Path
) -> None:
    wanted = {
        "type": "PLATFORM",
        "name": "turned",
        "state": "ACTIVE",
        "description": "pay \u202eecila\u2066 \u200f\u2028 end",
        "privileges": ["VIEW_AUDIT_LOG"],
        "actors": {"users": [ADMIN]},
    }
    made = server.ask(CREATE_POLICY, {"input": wanted}, actor=ADMIN)["createPolicy"]
    how = ("--url", server.url, "--as", ADMIN)
    printed = watchword("policy", "export", *how)
    assert printed.returncode == 0, printed.stderr
    assert r"pay \u202eecila\u2066 \u200f" in printed.stdout
    assert not re.search("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", printed.stdout)
    file = tmp_path / "policies.yaml"
    assert watchword("policy", "export", str(file), *how).returncode == 0
    assert file.read_text() == printed.stdout
    applied = watchword("policy", "apply", str(file), "--dry-run", *how)
    assert '"pay' not in applied.stdout  # escaped text is read back unchanged
    (tmp_path / "link.yaml").symlink_to(victim)
    refused = watchword("policy", "export", str(tmp_path / "link.yaml"), *how)
    assert (refused.returncode, victim.read_text()) == (1, PRECIOUS)
    server.withdraw(made)

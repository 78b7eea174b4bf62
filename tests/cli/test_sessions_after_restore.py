"""A restored or copied store has no sessions."""

import subprocess
from pathlib import Path

from tests.support.browsing import Browser, reason_of
from tests.support.postgres import Home
from tests.support.server import ADMIN, Server, watchword
from tests.support.store_file import look
from tests.support.story import ACCEPT, QUIET, BackupHistory

COUNT = "SELECT count(*) FROM sessions"


def test_restored_store_has_no_sessions(any_story: BackupHistory) -> None:
    story = any_story
    with story.server as server:
        browser = Browser(server).signed_in(token=story.tokens[0]["accessToken"])
        assert browser.post().status_code == 200
        made = story.command("db", "backup", str(story.file), "--force")
        assert made.returncode == 0, made.stderr
    assert story.look(COUNT) == [(1,)]
    done = story.restore(ACCEPT)
    assert done.returncode == 0, done.stderr
    assert story.look(COUNT) == [(0,)]
    story.assert_sound()
    story.server.start()
    assert reason_of(browser.post()) == (401, "session_over")
    assert browser.signed_in(token=story.tokens[0]["accessToken"]).post().status_code == 200
    browser.close()


def test_copied_store_has_no_sessions(tmp_path: Path, database: Home) -> None:
    with Server(tmp_path / "s", env=QUIET) as server:
        browser = Browser(server).signed_in(token=server.create(ADMIN)["accessToken"])
        browser.close()
    assert look(server, COUNT) == [(1,)]
    key, back = server.data_dir / "master.key", tmp_path / "back.db"
    there = _copy(f"sqlite:///{server.data_dir / 'watchword.db'}", database.url, key, "--to-schema", database.schema)
    assert there.returncode == 0, there.stderr
    assert database.look(COUNT) == [(0,)]
    again = _copy(database.url, f"sqlite:///{back}", key, "--from-schema", database.schema)
    assert again.returncode == 0, again.stderr


def _copy(source: str, target: str, key: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return watchword("db", "copy", "--from", source, "--to", target, "--master-key-file", str(key), *flags)


def test_check_finds_a_session_that_cannot_be(any_story: BackupHistory) -> None:
    with any_story.server as server:
        Browser(server).signed_in(token=any_story.tokens[0]["accessToken"]).close()
    assert any_story.command("db", "check").returncode == 0
    for change in ("actor_urn = 'urn:li:corpuser:other'", f"actor_urn = '{ADMIN}', ends_at = created_at - 1"):
        any_story.change(f"UPDATE sessions SET {change}")
        checked = any_story.command("db", "check")
        assert checked.returncode == 1, change
        assert "every session has the actor of its token" in checked.stdout

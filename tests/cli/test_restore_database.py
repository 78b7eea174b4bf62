"""`db backup`, `restore` and `check` on PostgreSQL with several instances."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_backup import assert_clean, read
from tests.support.concurrent_load import ConcurrentLoad
from tests.support.disks import small_disk
from tests.support.killing import RUNNING, killed_at, until_left_alone
from tests.support.postgres import PROMPT, Home
from tests.support.server import ADMIN, Server, watchword
from tests.support.story import ACCEPT, QUIET, REVOKE_ALL, BackupHistory
from tests.support.waiting import SECONDS, until

MakeServer = Callable[..., Server]


def back_up_under_load(server: Server, database: Home, file: Path) -> None:
    """Check that the backup has everything answered before it began."""
    with ConcurrentLoad(server, clients=6) as load:
        load.until_answered()
        created = [token_id for own in load._own for token_id in list(own.created)]
        revoked = [token_id for own in load._own for token_id in list(own.revoked)]
        done = server.command_line("db", "backup", str(file), "--json", env=database.env)
    assert done.returncode == 0, done.stderr
    assert load.answers.refused == []
    held = dict(read(file, "SELECT id, revoked_at IS NOT NULL FROM tokens"))
    assert [token_id for token_id in created if token_id not in held] == []
    assert [token_id for token_id in revoked if not held[token_id]] == []
    made = {row[0] for row in read(file, "SELECT target FROM events WHERE action = 'token.created'")}
    assert made == set(held)
    assert json.loads(done.stdout)["tokens"] == len(held)


def test_backup_of_a_database_under_load_holds_everything_answered_before_it_began(
    make_server: MakeServer, database: Home, tmp_path: Path
) -> None:
    server = make_server("--workers", "2", "--local-mode", "on", env=QUIET | database.env)
    back_up_under_load(server, database, tmp_path / "b.db")
    assert_clean(tmp_path / "b.db", tmp_path / "clean")


@pytest.mark.soak
def test_thirty_backups_of_a_database_under_load_hold_everything_answered_before_they_began(
    make_server: MakeServer, database: Home, tmp_path: Path
) -> None:
    server = make_server("--workers", "2", "--local-mode", "on", env=QUIET | database.env)
    for number in range(30):
        back_up_under_load(server, database, tmp_path / f"{number}.db")
        assert_clean(tmp_path / f"{number}.db", tmp_path / f"clean{number}")


def test_backup_of_a_database_is_restored_into_a_file(database_story: BackupHistory, tmp_path: Path) -> None:
    story, key = database_story, database_story.env["WATCHWORD_MASTER_KEY_FILE"]
    data = tmp_path / "f" / "data"
    flags = ("--data-dir", str(data), "--master-key-file", key)
    done = watchword("db", "restore", str(story.file), ACCEPT, *flags)
    assert done.returncode == 0, done.stderr
    with Server(tmp_path / "f", env={"WATCHWORD_MASTER_KEY_FILE": key}) as server:
        story.server = server
        assert story.verdicts() == [204, 204, 401, 401]


def test_backup_of_a_file_is_restored_into_a_database(story: BackupHistory, database: Home, tmp_path: Path) -> None:
    shutil.copy(story.server.data_dir / "master.key", database.key_file)
    asked = watchword("db", "restore", str(story.file), env=database.env)
    assert asked.returncode == 2
    assert "is unknown, there is no store at postgresql://" in asked.stderr
    done = watchword("db", "restore", str(story.file), ACCEPT, env=database.env)
    assert done.returncode == 0, done.stderr
    with Server(tmp_path / "p", env=QUIET | database.env) as server:
        story.server = server
        assert story.verdicts() == [204, 204, 401, 401]


def test_restore_is_rejected_while_an_instance_runs_and_names_where(database_story: BackupHistory) -> None:
    story = database_story
    story.server.start()
    assert story.verdicts() == [204, 401, 401, 204]
    assert story.home is not None
    held = f"""SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND (classid::bigint << 32 | objid::bigint) = {RUNNING}"""
    address, schema = story.home.address, story.home.schema
    until(lambda: address.ask(held, schema) == [(2,)], "both of its connections are open")
    done = story.restore(REVOKE_ALL)
    assert done.returncode == 1
    assert "Stop every instance" in done.stderr
    assert "2 connections from 127.0.0.1" in done.stderr
    assert story.verdicts() == [204, 401, 401, 204]
    assert kept_of(story) == []


def kept_of(story: BackupHistory) -> list[str]:
    assert story.home is not None
    rows = story.home.look(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", f"{story.home.schema}\\_before\\_%"
    )
    return [name for (name,) in rows]


def test_schema_that_was_there_is_kept_and_is_put_back_by_its_name(database_story: BackupHistory) -> None:
    story = database_story
    assert story.home is not None
    before = story.look("SELECT id, revoked_at FROM tokens ORDER BY id")
    done = story.restore(REVOKE_ALL, "--json")
    (kept,) = kept_of(story)
    assert json.loads(done.stdout)["kept"] == kept
    assert re.fullmatch(rf"{story.home.schema}_before_\d{{8}}t\d{{9}}z", kept)
    assert story.look("SELECT count(*) FROM tokens WHERE revoked_at IS NULL") == [(0,)]
    schema = story.home.schema
    story.home.address.ask(f"ALTER SCHEMA {schema} RENAME TO {schema}_away")
    story.home.address.ask(f"ALTER SCHEMA {kept} RENAME TO {schema}")
    story.home.address.ask(f"DROP SCHEMA {schema}_away CASCADE")
    assert story.look("SELECT id, revoked_at FROM tokens ORDER BY id") == before
    story.server.start()
    assert story.verdicts() == [204, 401, 401, 204]
    story.server.create(ADMIN)
    story.assert_sound()


@pytest.mark.parametrize("number", [15, 70])
def test_restore_killed_in_the_middle_leaves_the_old_store(database_story: BackupHistory, number: int) -> None:
    story = database_story
    assert story.home is not None
    before = story.look("SELECT id, revoked_at FROM tokens ORDER BY id")
    words = ["db", "restore", str(story.file), REVOKE_ALL, "--data-dir", str(story.server.data_dir)]
    assert killed_at(number, words, story.env)
    until_left_alone(story.home)
    assert story.look("SELECT id, revoked_at FROM tokens ORDER BY id") == before
    assert kept_of(story) == []
    done = story.restore(REVOKE_ALL)
    assert done.returncode == 0, done.stderr
    story.assert_sound()


def test_schema_of_another_program_is_not_replaced(story: BackupHistory, database: Home) -> None:
    database.address.ask(f"CREATE SCHEMA {database.schema}")
    database.look("CREATE TABLE precious (a int)")
    shutil.copy(story.server.data_dir / "master.key", database.key_file)
    done = watchword("db", "restore", str(story.file), ACCEPT, env=database.env)
    assert done.returncode == 1
    assert "holds tables of another program" in done.stderr
    assert database.look("SELECT * FROM precious") == []


def test_backup_sealed_with_another_master_key_is_not_restored_into_a_database(
    story: BackupHistory, database: Home
) -> None:
    done = watchword("db", "restore", str(story.file), ACCEPT, env=database.env)
    assert done.returncode == 1
    assert "another master key" in done.stderr
    assert database.address.ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", database.schema) == []


def test_restore_without_room_for_its_copy_of_the_backup_changes_nothing(story: BackupHistory, database: Home) -> None:
    shutil.copy(story.server.data_dir / "master.key", database.key_file)
    with small_disk(story.server.folder / "small", megabytes=1) as disk:
        (disk / "filler").write_bytes(b"x" * 1_000_000)
        done = watchword("db", "restore", str(story.file), ACCEPT, env=database.env | {"TMPDIR": str(disk)})
    assert done.returncode == 1
    assert "no space for the restore in" in done.stderr
    assert "TMPDIR" in done.stderr
    assert database.address.ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", database.schema) == []


def test_instance_that_starts_during_a_restore_waits_for_its_end(database_story: BackupHistory) -> None:
    story = database_story
    assert story.home is not None
    waits = f"""SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND (classid::bigint << 32 | objid::bigint) = {RUNNING}"""
    with story.server.out.open("ab") as out, story.home.connect() as other:
        other.execute(f"SELECT pg_advisory_lock({RUNNING})".encode(), [story.home.schema])
        seen = story.server.out.stat().st_size
        starting = subprocess.Popen(story.server.command, stdout=out, stderr=out, env=story.server._env)
        try:
            until(lambda: bool(other.execute(waits.encode(), [story.home.schema]).fetchall()), "it waits")  # type: ignore[union-attr]
            assert b"listens at" not in story.server.out.read_bytes()[seen:]
            other.execute(f"SELECT pg_advisory_unlock({RUNNING})".encode(), [story.home.schema])
            until(lambda: b"listens at" in story.server.out.read_bytes()[seen:], "it listens")
            assert story.verdicts() == [204, 401, 401, 204]
        finally:
            starting.terminate()
            starting.wait(SECONDS)


def test_instance_that_reconnects_during_a_restore_rejects_requests(database_story: BackupHistory) -> None:
    story = database_story
    assert story.home is not None
    schema = story.home.schema
    story.server._env |= PROMPT
    story.server.start()
    assert story.verdicts() == [204, 401, 401, 204]
    lanes = f"""pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'
        AND (classid::bigint << 32 | objid::bigint) = hashtextextended('watchword/running/{schema}', 0))"""
    with story.home.connect() as other:

        def is_ours() -> bool:
            story.home.address.terminate_backends(lanes)  # type: ignore[union-attr]
            return other.execute(f"SELECT pg_try_advisory_lock({RUNNING})".encode(), [schema]).fetchone() == (True,)

        until(is_ours, "the lock is ours while it has no lane")
        assert story.verdicts() == [503, 503, 503, 503]
    until(lambda: story.verdicts() == [204, 401, 401, 204], "it answers again")


HARMS = {
    "every trigger is enabled": "ALTER TABLE tokens DISABLE TRIGGER USER",
    "every policy can be read": "UPDATE policies SET privileges = '[\"RULE_THE_WORLD\"]' WHERE urn LIKE '%root%'",
    "every name can be searched without regard to case": "UPDATE tokens SET name = 'Ä'",
    "the total of tokens equals the number of tokens": "UPDATE token_totals SET total = total + 1 WHERE kind = 'all'",
    "the totals per owner equal the number of tokens": "DELETE FROM token_totals WHERE kind = 'owner'",
    "the sizes of groups equal the number of members": "INSERT INTO groups (urn, name, members) VALUES ('g', 'g', 7)",
    "every revocation has its event": "DELETE FROM events WHERE action = 'token.revoked'",
    "exactly one key is in use": "UPDATE keys SET retired_at = 1",
    "the next key has not signed yet, and there is a key in use": "UPDATE next_key SET kid = (SELECT kid FROM keys)",
}


def test_check_names_broken_rules_in_a_database(database_story: BackupHistory) -> None:
    story = database_story
    assert story.home is not None
    sound = story.command("db", "check")
    assert sound.returncode == 0, sound.stdout
    for harm in HARMS.values():
        story.home.look(harm)
    found = story.command("db", "check")
    assert found.returncode == 1
    bad = [line.removeprefix("BAD ").strip() for line in found.stdout.splitlines() if line.startswith("BAD")]
    assert {line.partition(":")[0] for line in bad} == set(HARMS)
    refused = story.command("db", "backup", str(story.file), "--force")
    assert refused.returncode == 1
    assert "breaks the rule" in refused.stderr


@pytest.mark.parametrize("verb", ["check", "backup"])
def test_database_without_a_store_is_neither_checked_nor_backed_up(database: Home, tmp_path: Path, verb: str) -> None:
    words = [str(tmp_path / "b.db")] if verb == "backup" else []
    done = watchword("db", verb, *words, env=database.env)
    assert done.returncode == 1
    assert "There is no store at postgresql://" in done.stderr
    assert not (tmp_path / "b.db").exists()

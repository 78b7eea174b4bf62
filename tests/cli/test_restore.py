"""`db restore`: the effect of each choice on tokens, the report, and the kept store."""

import json
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.concurrent_load import ConcurrentLoad
from tests.support.newer_watchword import newer_watchword
from tests.support.server import ADMIN, Server, watchword
from tests.support.store_file import CHANGES, assert_sound, change_store, look, stored
from tests.support.story import ACCEPT, LATER, QUIET, REVOKE_ALL, BackupHistory, contents, kept_of

MakeServer = Callable[..., Server]


@pytest.mark.parametrize("flags", [(), (REVOKE_ALL, ACCEPT)])
def test_restore_without_a_choice_prints_token_counts_and_changes_nothing(
    story: BackupHistory, flags: tuple[str, ...]
) -> None:
    before = contents(story.server.data_dir)
    done = story.restore(*flags)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"{REVOKE_ALL} (revokes all 2 tokens not revoked yet (2 live)" in done.stderr
    assert f"{ACCEPT} (1 of them, revoked since, are valid again)" in done.stderr
    assert done.stdout == ""
    assert contents(story.server.data_dir) == before


def test_restore_counts_are_printed_as_json_while_the_service_runs(any_story: BackupHistory) -> None:
    any_story.server.start()
    done = any_story.restore("--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["tokens"], told["live"]) == (3, 2)
    assert told["revived"] == [any_story.ended]
    assert (told["unknown"], told["unknownLive"]) == (1, 1)


def test_revoke_all_revokes_every_token_of_the_backup(any_story: BackupHistory) -> None:
    done = any_story.restore(REVOKE_ALL)
    assert done.returncode == 0, done.stderr
    assert "Revoked now: all 2 tokens not revoked yet (2 live)" in done.stdout
    assert "now unknown: 1 (1 live)" in done.stdout
    any_story.server.start()
    assert any_story.verdicts() == [401, 401, 401, 401]
    reasons = [any_story.server.verify(token["accessToken"]).json()["error"]["reason"] for token in any_story.tokens]
    assert reasons == ["token_revoked"] * 3 + ["invalid_token"]
    any_story.assert_sound()
    assert any_story.server.tokens()["total"] == 0
    new = any_story.server.create(ADMIN)
    assert any_story.server.verify(new["accessToken"]).status_code == 204


def test_first_choice_spares_no_token_that_only_this_clock_calls_expired(story: BackupHistory) -> None:
    """As seen by a machine whose clock is ahead."""
    for file in (story.file, story.server.data_dir / "watchword.db"):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE tokens SET expires_at = 1000")
    done = story.restore(REVOKE_ALL)
    assert "Revoked now: all 2 tokens not revoked yet (0 live)" in done.stdout, done.stderr
    assert look(story.server.start(), "SELECT count(*) FROM tokens WHERE revoked_at IS NULL") == [(0,)]
    assert_sound(story.server)


def test_store_behind_a_link_is_restored_where_it_lies(story: BackupHistory, tmp_path: Path) -> None:
    data = story.server.data_dir
    (tmp_path / "disk").mkdir(mode=0o700)
    (data / "watchword.db").rename(tmp_path / "disk" / "store.db")
    (data / "watchword.db").symlink_to(tmp_path / "disk" / "store.db")
    done = story.restore(REVOKE_ALL)
    assert done.returncode == 0, done.stderr
    assert (data / "watchword.db").is_symlink()
    assert not (tmp_path / "disk" / "store.db").is_symlink()
    (kept,) = (tmp_path / "disk").glob("store.db.before-restore-*")
    assert kept.is_file()


def test_accepted_revived_tokens_work_and_are_listed(any_story: BackupHistory) -> None:
    done = any_story.restore(ACCEPT)
    assert done.returncode == 0, done.stderr
    assert f"valid again: 1.\n  {any_story.ended}\n" in done.stdout
    assert any_story.before not in done.stdout
    any_story.server.start()
    assert any_story.verdicts() == [204, 204, 401, 401]
    any_story.assert_sound()


def test_terminal_is_shown_twenty_revived_tokens_and_json_all_of_them(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(env=QUIET)
    made = [server.create(ADMIN)["metadata"]["id"] for _ in range(23)]
    file = tmp_path / "b.db"
    assert server.command_line("db", "backup", str(file)).returncode == 0
    for token_id in made:
        server.revoke(token_id)
    server.stop()
    asked = server.command_line("db", "restore", str(file), "--json")
    told = server.command_line("db", "restore", str(file), ACCEPT).stdout
    assert sorted(json.loads(asked.stdout)["revived"]) == sorted(made)
    assert len([line for line in told.splitlines() if line.strip() in made]) == 20
    assert "and 3 more" in told


def test_restore_tells_of_suspensions_policies_memberships_and_keys_that_it_undoes(any_story: BackupHistory) -> None:
    server = any_story.server.start()
    server.set_status(LATER, "SUSPENDED")
    server.grant(LATER)
    group = server.ask('mutation { createGroup(input: {name: "g"}) }', actor=ADMIN)["createGroup"]
    add = "mutation ($g: String!, $u: [String!]!) { addGroupMembers(input: {groupUrn: $g, userUrns: $u}) }"
    server.ask(add, {"g": group, "u": [LATER]}, actor=ADMIN)
    assert any_story.command("key", "rotate").returncode == 0
    server.stop()
    told = json.loads(any_story.restore(ACCEPT, "--json").stdout)
    assert told["suspensions"] == [LATER]
    undone = ("policiesChanged", "membershipsChanged", "signingKeysLost")
    assert [told[word] for word in undone] == [1, 1, 1]


def test_restored_store_makes_a_next_key_of_its_own(any_story: BackupHistory) -> None:
    """The backup's may have signed since, and lay about with it."""
    ((backed_up,),) = any_story.look("SELECT kid FROM next_key")
    assert any_story.restore(ACCEPT).returncode == 0
    any_story.server.start()
    ((kept,),) = any_story.look("SELECT kid FROM next_key")
    published = [key["kid"] for key in any_story.server.http.get("/.well-known/jwks.json").json()["keys"]]
    assert kept in published
    assert backed_up not in published


@pytest.mark.parametrize(("choice", "revoked", "revived"), [(REVOKE_ALL, 2, 0), (ACCEPT, 0, 1)])
def test_restore_leaves_its_event_and_one_for_each_revocation(
    any_story: BackupHistory, choice: str, revoked: int, revived: int
) -> None:
    last = any_story.look("SELECT max(seq) FROM events")[0][0]
    assert any_story.restore(choice).returncode == 0
    after = any_story.look(f"SELECT action FROM ({CHANGES}) AS changes WHERE seq > {last} ORDER BY seq")
    assert [action for (action,) in after] == ["token.revoked"] * revoked + ["store.restored"]
    (row,) = any_story.look("SELECT actor, target, detail FROM events WHERE action = 'store.restored'")
    detail = json.loads(row[2])
    assert row[:2] == ("urn:li:corpuser:__system", "b.db")
    assert (detail["choice"], detail["revoked"], detail["revived"]) == (choice[2:], revoked, revived)


def test_after_a_restore_no_version_and_no_event_number_comes_a_second_time(any_story: BackupHistory) -> None:
    query = "SELECT policy_version, (SELECT max(seq) FROM events) FROM state"
    any_story.server.start()
    for _ in range(3):
        any_story.server.grant(LATER)
    any_story.server.stop()
    ((version, last),) = any_story.look(query)
    assert any_story.restore(ACCEPT).returncode == 0
    ((version_after, last_after),) = any_story.look(query)
    assert version_after > version
    assert last_after > last


def test_after_a_restore_no_mail_delivery_or_run_has_a_number_that_was_used(story: BackupHistory) -> None:
    tables = ("mails", "operations", "retention_runs", "webhook_deliveries")
    for number, table in enumerate(tables, 100):
        change_store(story.server, f"DELETE FROM sqlite_sequence WHERE name = '{table}'")
        change_store(story.server, f"INSERT INTO sqlite_sequence (name, seq) VALUES ('{table}', {number})")
    assert story.restore(ACCEPT).returncode == 0
    last = "SELECT name, seq FROM sqlite_sequence WHERE name <> 'events' ORDER BY name"
    assert look(story.server, last) == list(zip(tables, range(100, 104), strict=True))


def test_store_that_was_there_is_kept_as_one_file_and_can_be_put_back(story: BackupHistory) -> None:
    before = stored(story.server)
    told = json.loads(story.restore(REVOKE_ALL, "--json").stdout)
    (kept,) = kept_of(story.server)
    assert told["kept"] == str(kept)
    assert re.fullmatch(r"watchword\.db\.before-restore-\d{8}T\d{6}\.\d{3}Z", kept.name)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert story.server.command_line("db", "restore", str(kept), ACCEPT).returncode == 0
    after = stored(story.server)
    assert after == before
    story.server.start()
    assert story.verdicts() == [204, 401, 401, 204]


def test_kept_store_includes_the_wal_of_a_killed_server(story: BackupHistory) -> None:
    story.server.start().create(ADMIN)
    story.server.kill()
    assert (story.server.data_dir / "watchword.db-wal").stat().st_size > 0
    assert story.restore(REVOKE_ALL).returncode == 0
    (kept,) = kept_of(story.server)
    with closing(sqlite3.connect(f"file:{kept}?mode=ro&immutable=1", uri=True)) as file:
        assert file.execute("SELECT count(*) FROM tokens").fetchone() == (5,)
    story.server.start()
    assert story.verdicts() == [401] * 4


def test_restore_without_a_current_store_cannot_count_revived_tokens(story: BackupHistory, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)
    shutil.copy(story.server.data_dir / "master.key", fresh / "master.key")
    words = ("db", "restore", str(story.file), "--data-dir", str(fresh))
    asked, done = watchword(*words), watchword(*words, ACCEPT)
    assert asked.returncode == 2
    assert "is unknown, there is no store" in asked.stderr
    assert done.returncode == 0
    assert "is unknown, there is no store" in done.stdout
    assert "holds 2 live tokens" in done.stdout
    assert watchword("db", "check", "--data-dir", str(fresh)).returncode == 0


def test_damaged_store_is_replaced_only_by_a_flag_and_kept(story: BackupHistory) -> None:
    file = story.server.data_dir / "watchword.db"
    file.write_bytes(b"damage" * 3_000)
    refused = story.restore(REVOKE_ALL)
    assert refused.returncode == 1
    assert "Holds, deleted accounts, suspensions and links cannot be carried over: the store at" in refused.stderr
    assert file.read_bytes() == b"damage" * 3_000
    done = story.restore(REVOKE_ALL, "--without-current-store")
    assert done.returncode == 0, done.stderr
    assert "Carried over: no holds, deleted accounts, suspensions and links, the store at" in done.stdout
    (kept,) = kept_of(story.server)
    assert kept.read_bytes() == b"damage" * 3_000
    story.server.start()
    assert story.verdicts() == [401] * 4


def test_older_backup_is_migrated_on_the_way_and_a_newer_one_refused(story: BackupHistory, tmp_path: Path) -> None:
    newer = newer_watchword(tmp_path / "newer")
    version: int = look(story.server, "PRAGMA user_version")[0][0]
    older = story.file.read_bytes()
    done = story.restore(REVOKE_ALL, env=newer)
    assert done.returncode == 0, done.stderr
    assert story.file.read_bytes() == older
    assert look(story.server, "PRAGMA user_version") == [(version + 1,)]
    assert story.server.command_line("db", "check", env=newer).returncode == 0
    assert story.server.command_line("db", "backup", str(tmp_path / "ahead.db"), env=newer).returncode == 0
    refused = story.server.command_line("db", "restore", str(tmp_path / "ahead.db"), REVOKE_ALL)
    assert refused.returncode == 1
    assert f"schema version {version + 1}" in refused.stderr


def test_backup_taken_under_load_restores_clean_with_every_answered_revocation(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server(env=QUIET)
    file = tmp_path / "b.db"
    with ConcurrentLoad(server, clients=6) as load:
        load.until_answered()
        assert server.command_line("db", "backup", str(file)).returncode == 0
    server.stop()
    told = json.loads(server.command_line("db", "restore", str(file), ACCEPT, "--json").stdout)
    assert set(told["revived"]) <= load.answers.revoked | load.answers.in_doubt
    server.start()
    assert_sound(server)
    verdicts = {i: server.verify(token).status_code for i, token in load.answers.created.items()}
    assert [i for i in told["revived"] if verdicts.get(i, 204) != 204] == []
    assert [i for i in load.answers.revoked if verdicts[i] == 204 and i not in told["revived"]] == []

"""The SQLite file: creation, migrations, permissions, checks and driver errors."""

import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from tests.contract.harness import ADMIN, PLENTY, SYSTEM, Run, key, record
from tests.support.backends import AdjustableClock
from tests.support.faults import fault_of
from tests.support.waiting import SECONDS
from watchword.admin.check import check
from watchword.authority.policies import PolicySource, default_policies, root_policy
from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.database.migrations import latest, migrations
from watchword.database.sqlite.connections import STORE_FILE, connect, store_fault
from watchword.database.urls import SqliteUrl
from watchword.journal.events import EventSearch
from watchword.stores.sqlite import open_store
from watchword.tokens.filters import Search
from watchword.tokens.rules import Issue

ERRORS = sorted(
    (
        kind
        for kind in vars(apsw).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__.startswith("apsw")
    ),
    key=lambda kind: kind.__name__,
)
LATEST = latest("sqlite")
OUTAGES = {
    "AbortError",
    "BusyError",
    "CantOpenError",
    "CorruptError",
    "FullError",
    "IOError",
    "InterruptError",
    "LockedError",
    "NoLFSError",
    "NoMemError",
    "NotADBError",
    "PermissionsError",
    "ProtocolError",
    "ReadOnlyError",
}
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
PREPARE = """
import sys, pathlib
from watchword.database.sqlite.connections import STORE_FILE
sys.stdin.readline()
print(*STORE_FILE.prepare(pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    before = os.umask(0o077)
    yield tmp_path / "data" / "watchword.db"
    os.umask(before)


def test_driver_raises_the_known_errors() -> None:
    assert len(ERRORS) > 35
    assert {kind.__name__ for kind in ERRORS} >= OUTAGES


@pytest.mark.parametrize("kind", ERRORS)
def test_every_driver_error_becomes_a_fault(kind: type[apsw.Error]) -> None:
    fault = store_fault(kind("UNIQUE constraint failed: tokens.id"))
    expected = Reason.STORE_UNAVAILABLE if kind.__name__ in OUTAGES else Reason.INTERNAL
    assert isinstance(fault, Fault)
    assert fault.reason is expected
    assert "tokens" not in fault.message
    assert kind.__name__ not in fault.message
    assert fault.cause is not None
    assert kind.__name__ in fault.cause


def test_missing_file_is_created_and_migrated(path: Path) -> None:
    assert STORE_FILE.prepare(path) == (0, LATEST)
    assert STORE_FILE.prepare(path) == (LATEST, LATEST)


def test_empty_file_is_migrated(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert STORE_FILE.prepare(path) == (0, LATEST)


def test_only_the_owner_can_read_the_file_and_its_companions(path: Path, run: Run) -> None:
    before = os.umask(0)
    try:
        STORE_FILE.prepare(path)
        store = open_store(path, AdjustableClock())
        run(store.probe())
        made = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
        run(store.close())
    finally:
        os.umask(before)
    assert made == {"watchword.db": 0o600, "watchword.db-wal": 0o600, "watchword.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_commit_is_durable_when_it_returns(path: Path) -> None:
    STORE_FILE.prepare(path)
    with closing(connect(path, busy_ms=0)) as file:
        assert file.execute("PRAGMA journal_mode").get == "wal"
        assert file.execute("PRAGMA synchronous").get == 2
        assert file.execute("PRAGMA foreign_keys").get == 1


def test_file_of_a_newer_version_is_rejected(path: Path) -> None:
    STORE_FILE.prepare(path)
    with closing(apsw.Connection(str(path))) as file:
        file.execute(f"PRAGMA user_version = {LATEST + 1}")
    with pytest.raises(OperatorError) as caught:
        STORE_FILE.prepare(path)
    assert f"has schema version {LATEST + 1}" in str(caught.value)
    assert f"up to {LATEST}" in str(caught.value)


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (x)", "PRAGMA user_version = 1"])
def test_file_of_another_program_is_rejected_unchanged(path: Path, statement: str) -> None:
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as file:
        file.execute("PRAGMA application_id = 77")
        file.execute(statement)
    before = path.read_bytes()
    with pytest.raises(OperatorError, match="not a Watchword store"):
        STORE_FILE.prepare(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_file_that_is_not_a_database_is_rejected_unchanged(path: Path) -> None:
    path.parent.mkdir()
    before = random.Random(1).randbytes(8_192)
    path.write_bytes(before)
    fault = fault_of(lambda: STORE_FILE.prepare(path))
    assert fault.reason is Reason.STORE_UNAVAILABLE
    assert "damaged" in fault.message
    assert path.read_bytes() == before


def test_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(OperatorError, match="data"):
        STORE_FILE.prepare(tmp_path / "data" / "watchword.db")


@pytest.mark.parametrize("round_", range(3))
def test_concurrent_processes_prepare_one_new_file(path: Path, round_: int) -> None:
    command = [sys.executable, "-c", PREPARE, str(path)]
    started = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in range(4)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=SECONDS) for process in started]
    assert [process.returncode for process in started] == [0] * 4, ended
    assert all(out.split()[1] == str(LATEST) for out, _ in ended)
    assert all(problem is None for _, problem in check(SqliteUrl(path)))


def test_file_that_another_process_creates_meanwhile_is_not_foreign(path: Path) -> None:
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as looking:

        def create_table_meanwhile(_: apsw.Cursor, sql: str, __: object) -> bool:
            if "sqlite_master" in sql:
                with suppress(apsw.BusyError), closing(apsw.Connection(str(path))) as making:
                    making.execute("CREATE TABLE tokens (id)")
            return True

        looking.exec_trace = create_table_meanwhile
        assert STORE_FILE.version(looking) == 0


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in migrations("sqlite")] == list(range(1, LATEST + 1))


def test_schema_of_a_new_file_equals_the_migrations(path: Path) -> None:
    STORE_FILE.prepare(path)
    with closing(connect(path, busy_ms=0)) as file, closing(apsw.Connection(":memory:")) as said:
        for migration in migrations("sqlite"):
            said.execute(migration.sql)
        assert file.execute(SCHEMA).fetchall() == said.execute(SCHEMA).fetchall()


def test_failed_migration_changes_nothing(path: Path) -> None:
    """The file has our application id and version 0, but also a conflicting table."""
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as file:
        file.execute("PRAGMA application_id = 0x57575744")
        file.execute("CREATE TABLE events (x)")
    assert fault_of(lambda: STORE_FILE.prepare(path)).reason is Reason.INTERNAL
    with closing(apsw.Connection(str(path))) as file:
        assert file.execute("PRAGMA user_version").get == 0
        assert [row[1] for row in file.execute(SCHEMA)] == ["events"]


def test_file_of_the_first_version_is_migrated_with_its_rows(
    path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    STORE_FILE.prepare(path)
    ahead = replace(STORE_FILE, migrations=(*STORE_FILE.migrations, "ALTER TABLE policies ADD COLUMN ahead TEXT"))
    with closing(connect(path, busy_ms=0)) as file:
        columns = "urn, name, state, privileges, users, groups, all_users, source"
        for urn, source in (("urn:li:servicePolicy:root", "SERVICE"), ("urn:li:servicePolicy:x", "API")):
            row = (urn, "p", "ACTIVE", '["VIEW_AUDIT_LOG"]', "[]", "[]", 1, source)
            file.execute(f"INSERT INTO policies ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        file.execute("INSERT INTO events VALUES (1, 5, 'a', NULL, 'policy.created', 't', 'p', 'r', '{}')")
        one = record(1)
        file.execute(
            "INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (one.id, one.type.value, one.name, one.description, one.actor_urn, one.owner_urn, one.created_at, None),
        )
    assert ahead.prepare(path) == (LATEST, LATEST + 1)
    store = open_store(path, AdjustableClock())
    kept = {policy.urn: policy.source for policy in run(store.policies()).policies}
    assert kept == {"urn:li:servicePolicy:root": PolicySource.SERVICE, "urn:li:servicePolicy:x": PolicySource.API}
    assert [event.target for event in run(store.events(EventSearch())).events] == ["t"]
    assert run(store.get_token(one.id)) == one._replace(expires_at=None)
    assert run(store.search(Search())).total == 1
    run(store.close())
    monkeypatch.setattr("watchword.admin.check.STORE_FILE", ahead)
    assert [problem for _, problem in check(SqliteUrl(path)) if problem] == []


def test_check_passes_on_a_store_in_use(path: Path, run: Run) -> None:
    STORE_FILE.prepare(path)
    clock = AdjustableClock()
    store = open_store(path, clock)
    run(store.settle_keys(b"salt", key(1), key(2)))
    run(store.apply_start(root_policy(ADMIN), default_policies()))
    for number in range(20):
        run(store.add_token(SYSTEM, record(number), Issue("kid-1", PLENTY)))
    for number in range(0, 20, 3):
        run(store.revoke_token(SYSTEM, record(number).id, None))
    run(store.close())
    verdicts = list(check(SqliteUrl(path)))
    assert len(verdicts) >= 9
    assert all(problem is None for _, problem in verdicts), verdicts


@pytest.mark.parametrize(
    ("damage", "law"),
    [
        ("UPDATE token_totals SET total = total + 1 WHERE kind = 'all'", "the total of tokens"),
        ("UPDATE token_totals SET total = total + 1 WHERE kind = 'actor'", "the totals per actor"),
        ("DELETE FROM token_totals WHERE kind = 'owner'", "the totals per owner"),
        ("DELETE FROM events WHERE action = 'token.revoked'", "every revocation has its event"),
        ("UPDATE events SET action = 'token.revoked' WHERE action = 'token.created'", "every revocation event"),
        ("UPDATE keys SET retired_at = 1", "exactly one key"),
        (
            "INSERT INTO policies VALUES ('x', 'x', NULL, 'ACTIVE', '[\"NO\"]', '[]', '[]', 0, 'API', NULL, '[]')",
            "every policy can be read",
        ),
        (
            "INSERT INTO policies VALUES ('x', 'x', NULL, 'ACTIVE', '[', '[]', '[]', 0, 'API', NULL, '[]')",
            "every policy can be read",
        ),
        (
            "INSERT INTO policies VALUES ('x', 'x', NULL, 'ACTIVE', '[]', '[]', '[]', 0, 'API', NULL, '[')",
            "every policy can be read",
        ),
        ("UPDATE tokens SET type = 'ODD'", "every token and actor can be read"),
        ("INSERT INTO groups (urn, name, members) VALUES ('urn:li:corpGroup:x', 'x', 3)", "the sizes of groups"),
        ("UPDATE next_key SET kid = 'kid-1'", "the next key has not signed yet"),
        ("UPDATE state SET sealed_salt = NULL", "the next key has not signed yet, and there is a key in use"),
    ],
)
def test_check_finds_broken_rules(path: Path, run: Run, damage: str, law: str) -> None:
    STORE_FILE.prepare(path)
    store = open_store(path, AdjustableClock())
    run(store.settle_keys(b"salt", key(1), key(2)))
    run(store.add_token(SYSTEM, record(1), Issue("kid-1", PLENTY)))
    run(store.add_token(SYSTEM, record(2), Issue("kid-1", PLENTY)))
    run(store.revoke_token(SYSTEM, record(2).id, None))
    run(store.close())
    with closing(connect(path, busy_ms=0)) as file:
        file.execute(damage)
    broken = [name for name, problem in check(SqliteUrl(path)) if problem is not None]
    assert any(name.startswith(law) for name in broken), broken


def test_database_rejects_the_undo_of_a_revocation(path: Path, run: Run) -> None:
    STORE_FILE.prepare(path)
    store = open_store(path, AdjustableClock())
    run(store.settle_keys(b"salt", key(1), key(2)))
    run(store.add_token(SYSTEM, record(1), Issue("kid-1", PLENTY)))
    run(store.revoke_token(SYSTEM, record(1).id, None))
    run(store.close())
    with closing(connect(path, busy_ms=0)) as file:
        for statement in ("UPDATE tokens SET revoked_at = NULL", "UPDATE tokens SET revoked_at = 5"):
            with pytest.raises(apsw.ConstraintError, match="stays revoked"):
                file.execute(statement)


def test_token_ids_are_unique_across_actors(path: Path, run: Run) -> None:
    STORE_FILE.prepare(path)
    store = open_store(path, AdjustableClock())
    run(store.settle_keys(b"salt", key(1), key(2)))
    run(store.add_token(SYSTEM, record(1), Issue("kid-1", PLENTY)))
    run(store.close())
    again = "INSERT INTO tokens SELECT * FROM (SELECT * FROM tokens)"
    with closing(connect(path, busy_ms=0)) as file:
        file.execute("CREATE TEMP TABLE other AS SELECT * FROM tokens")
        file.execute("UPDATE temp.other SET actor_urn = 'urn:li:corpuser:other'")
        for statement in (again, "INSERT INTO tokens SELECT * FROM temp.other"):
            with pytest.raises(apsw.ConstraintError, match="a token with this id"):
                file.execute(statement)


def test_locked_file_rejects_writes_and_answers_reads(path: Path, run: Run) -> None:
    STORE_FILE.prepare(path)
    store = open_store(path, AdjustableClock())
    run(store.settle_keys(b"salt", key(1), key(2)))
    with closing(connect(path, busy_ms=0)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        fault = fault_of(lambda: run(store.add_token(SYSTEM, record(1), Issue("kid-1", PLENTY))))
        assert fault.reason is Reason.STORE_UNAVAILABLE
        assert run(store.get_token(record(1).id)) is None
        holder.execute("ROLLBACK")
    run(store.add_token(SYSTEM, record(1), Issue("kid-1", PLENTY)))
    assert run(store.get_token(record(1).id)) == record(1)
    run(store.close())


def test_missing_file_is_not_replaced_by_an_empty_one(path: Path) -> None:
    STORE_FILE.prepare(path)
    path.rename(path.with_name("away.db"))
    with pytest.raises(Fault) as missed:
        open_store(path, AdjustableClock())
    assert missed.value.reason is Reason.STORE_UNAVAILABLE
    assert not path.exists()

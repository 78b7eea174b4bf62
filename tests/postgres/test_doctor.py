"""`doctor` on PostgreSQL reports the state of the database and changes nothing."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.postgres import LOCKED, PASSWORD, Cluster, Home, home
from tests.support.server import ADMIN, watchword
from watchword.admin.doctor import diagnose
from watchword.admin.rules import Diagnostic, Level
from watchword.basics.times import system_clock
from watchword.database.migrations import latest
from watchword.settings import load


@pytest.fixture(scope="module")
def prepared_store(durable_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A store with one token on a durable server."""
    folder = tmp_path_factory.mktemp("settled")
    with home(durable_cluster, folder) as made:
        for words in (("db", "migrate"), ("token", "create", "--local", "--actor", ADMIN)):
            done = watchword(*words, "--data-dir", str(folder / "data"), env=made.env)
            assert done.returncode == 0, done.stderr
        yield made


def doctor(env: dict[str, str], folder: Path, *flags: str) -> tuple[int, list[dict[str, str]], str]:
    (folder / "data").mkdir(mode=0o700, exist_ok=True)
    words = ("doctor", "--json", "--data-dir", str(folder / "data"), "--port", str(free_port()), *flags)
    done = watchword(*words, env=env)
    assert done.stderr == ""
    found: list[dict[str, str]] = json.loads(done.stdout)
    assert all(finding["fix"] for finding in found if finding["level"] != "ok")
    return done.returncode, found, done.stdout


def problems(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(f["level"], f["about"]) for f in found if f["level"] != "ok"]


def messages_about(found: list[dict[str, str]], about: str) -> str:
    return " / ".join(f"{f['level']} {f['what']}. {f['fix'] or ''}" for f in found if f["about"] == about)


def database_content(database: Home) -> Any:
    tables = ("state", "tokens", "keys", "next_key", "events", "policies", "probes", "migrations")
    return [database.look(f"SELECT *, xmin::text FROM {table} ORDER BY 1") for table in tables]


def test_healthy_store_is_ok_and_unchanged(prepared_store: Home, tmp_path: Path) -> None:
    before = database_content(prepared_store)
    code, found, _ = doctor(prepared_store.env, tmp_path)
    assert (code, problems(found)) == (0, [])
    store = messages_about(found, "store")
    assert f"schema {prepared_store.schema} has schema version {latest('postgres')}, on PostgreSQL 1" in store
    assert "accepts writes; tokens not revoked: 1" in store
    assert "opens the store's salt and signing keys (2)" in messages_about(found, "keys")
    assert "agrees with the database's clock" in messages_about(found, "clock")
    assert "local mode is off" in messages_about(found, "exposure")
    assert database_content(prepared_store) == before


def test_doctor_creates_nothing_before_the_first_start(database: Home, tmp_path: Path) -> None:
    code, found, _ = doctor(database.env, tmp_path)
    assert code == 0
    assert "The first start creates it" in messages_about(found, "store")
    assert database.address.ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", database.schema) == []


def test_fsync_off_is_a_warning(database: Home, tmp_path: Path) -> None:
    code, found, _ = doctor(database.env, tmp_path)
    assert code == 0
    assert (
        "warn fsync is off: a crash of the machine may lose committed changes. Set it: ALTER SYSTEM"
        in messages_about(found, "store")
    )


def test_too_many_connections_are_a_warning(prepared_store: Home, tmp_path: Path) -> None:
    code, found, _ = doctor(prepared_store.env, tmp_path, "--workers", "6")
    assert (code, problems(found)) == (0, [("warn", "store")])
    assert "may open 60 connections; the database allows 57" in messages_about(found, "store")
    assert "WATCHWORD_DATABASE_POOL" in messages_about(found, "store")


def test_wrong_master_key_is_bad(prepared_store: Home, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    watchword("key", "new-master", str(other))
    code, found, _ = doctor(prepared_store.env | {"WATCHWORD_MASTER_KEY_FILE": str(other)}, tmp_path)
    assert (code, problems(found)) == (1, [("BAD", "keys")])
    assert "another master key" in messages_about(found, "keys")


def test_newer_schema_version_is_bad(prepared_store: Home, tmp_path: Path) -> None:
    prepared_store.look("INSERT INTO migrations VALUES (4711, 'later', 0)")
    try:
        code, found, _ = doctor(prepared_store.env, tmp_path)
    finally:
        prepared_store.look("DELETE FROM migrations WHERE number = 4711")
    assert (code, problems(found)) == (1, [("BAD", "store")])
    assert "4711" in messages_about(found, "store")


def test_missing_privilege_is_bad_and_hides_the_password(prepared_store: Home, tmp_path: Path) -> None:
    env = prepared_store.env | {"WATCHWORD_DATABASE_URL": prepared_store.address.url(user=LOCKED, password=PASSWORD)}
    code, found, text = doctor(env, tmp_path)
    assert (code, problems(found)) == (1, [("BAD", "store")])
    assert f"{LOCKED} lacks a privilege" in messages_about(found, "store")
    assert PASSWORD not in text
    assert "correct%20" not in text


def test_unreachable_server_is_bad(database: Home, tmp_path: Path) -> None:
    env = database.env | {"WATCHWORD_DATABASE_URL": f"postgresql://ww:{PASSWORD.split('/')[0]}@127.0.0.1:1/ww"}
    code, found, text = doctor(env, tmp_path)
    assert code == 1
    assert "BAD PostgreSQL at 127.0.0.1:1 cannot be reached. Start it, or see" in messages_about(found, "store")
    assert PASSWORD.split("/")[0] not in text


@pytest.mark.parametrize(("apart", "level"), [(60_000, Level.WARN), (-60_000, Level.WARN), (500, Level.OK)])
def test_clock_difference_is_a_warning(prepared_store: Home, apart: int, level: Level, tmp_path: Path) -> None:
    settings = load({"data_dir": str(tmp_path / "data"), "port": str(free_port())}, prepared_store.env)
    behind = diagnose(settings, lambda: system_clock() - apart, lambda: "", dict, None, running=False)
    found: list[Diagnostic] = list(behind)
    (clock,) = [finding for finding in found if finding.about == "clock"]
    assert clock.level is level
    if level is Level.WARN:
        # The response time may reduce the measured difference.
        assert re.search(rf"\b(5\d|60) s {'ahead of' if apart > 0 else 'behind'} this machine's", clock.what)


def test_public_connect_privilege_is_a_warning(prepared_store: Home, tmp_path: Path) -> None:
    prepared_store.address.ask("GRANT CONNECT ON DATABASE ww TO PUBLIC")
    try:
        code, found, _ = doctor(prepared_store.env, tmp_path)
    finally:
        prepared_store.address.ask("REVOKE CONNECT ON DATABASE ww FROM PUBLIC")
    assert (code, problems(found)) == (0, [("warn", "store")])
    assert "REVOKE CONNECT ON DATABASE ww FROM PUBLIC" in messages_about(found, "store")

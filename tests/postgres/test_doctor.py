"""`doctor` on a database: what it is, what it would lose, whether it can be used; it changes nothing."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.postgres import LOCKED, PASSWORD, Cluster, Home, home
from tests.support.server import ADMIN, watchword
from watchword.doctor import diagnose
from watchword.domain.errors import Diagnostic, Level
from watchword.settings import load
from watchword.stores.migrations import latest
from watchword.wiring import system_clock


@pytest.fixture(scope="module")
def settled(careful: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A store with one token on a server that loses nothing."""
    folder = tmp_path_factory.mktemp("settled")
    with home(careful, folder) as made:
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


def troubles(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(f["level"], f["about"]) for f in found if f["level"] != "ok"]


def said(found: list[dict[str, str]], about: str) -> str:
    return " / ".join(f"{f['level']} {f['what']}. {f['fix'] or ''}" for f in found if f["about"] == about)


def whole(database: Home) -> Any:
    tables = ("state", "tokens", "keys", "next_key", "events", "policies", "probes", "migrations")
    return [database.look(f"SELECT *, xmin::text FROM {table} ORDER BY 1") for table in tables]


def test_a_healthy_store_is_all_ok_and_left_as_it_was(settled: Home, tmp_path: Path) -> None:
    before = whole(settled)
    code, found, _ = doctor(settled.env, tmp_path)
    assert (code, troubles(found)) == (0, [])
    store = said(found, "store")
    assert f"schema {settled.schema} has schema version {latest('postgres')}, on PostgreSQL 1" in store
    assert "accepts writes; tokens not revoked: 1" in store
    assert "opens the store's salt and signing keys (2)" in said(found, "keys")
    assert "agrees with the database's clock" in said(found, "clock")
    assert "local mode is off" in said(found, "exposure")
    assert whole(settled) == before


def test_before_the_first_start_it_warns_and_makes_nothing(database: Home, tmp_path: Path) -> None:
    code, found, _ = doctor(database.env, tmp_path)
    assert code == 0
    assert "The first start creates it" in said(found, "store")
    assert database.address.ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", database.schema) == []


def test_a_server_that_does_not_flush_is_warned_of(database: Home, tmp_path: Path) -> None:
    code, found, _ = doctor(database.env, tmp_path)
    assert code == 0
    assert "warn fsync is off: a crash of the machine may lose committed changes. Set it: ALTER SYSTEM" in said(
        found, "store"
    )


def test_more_connections_than_can_be_had_are_warned_of(settled: Home, tmp_path: Path) -> None:
    code, found, _ = doctor(settled.env, tmp_path, "--workers", "6")
    assert (code, troubles(found)) == (0, [("warn", "store")])
    assert "may open 60 connections; the database allows 57" in said(found, "store")
    assert "WATCHWORD_DATABASE_POOL" in said(found, "store")


def test_another_master_key_is_bad(settled: Home, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    watchword("keys", "master", str(other))
    code, found, _ = doctor(settled.env | {"WATCHWORD_MASTER_KEY_FILE": str(other)}, tmp_path)
    assert (code, troubles(found)) == (1, [("BAD", "keys")])
    assert "another master key" in said(found, "keys")


def test_a_store_of_a_newer_version_is_bad(settled: Home, tmp_path: Path) -> None:
    settled.look("INSERT INTO migrations VALUES (4711, 'later', 0)")
    try:
        code, found, _ = doctor(settled.env, tmp_path)
    finally:
        settled.look("DELETE FROM migrations WHERE number = 4711")
    assert (code, troubles(found)) == (1, [("BAD", "store")])
    assert "4711" in said(found, "store")


def test_a_lacking_right_is_bad_and_no_password_is_shown(settled: Home, tmp_path: Path) -> None:
    env = settled.env | {"WATCHWORD_DATABASE_URL": settled.address.url(user=LOCKED, password=PASSWORD)}
    code, found, text = doctor(env, tmp_path)
    assert (code, troubles(found)) == (1, [("BAD", "store")])
    assert f"{LOCKED} lacks a privilege" in said(found, "store")
    assert PASSWORD not in text
    assert "correct%20" not in text


def test_a_server_that_is_away_is_bad_at_once(database: Home, tmp_path: Path) -> None:
    env = database.env | {"WATCHWORD_DATABASE_URL": f"postgresql://ww:{PASSWORD.split('/')[0]}@127.0.0.1:1/ww"}
    code, found, text = doctor(env, tmp_path)
    assert code == 1
    assert "BAD PostgreSQL at 127.0.0.1:1 cannot be reached. Start it, or see" in said(found, "store")
    assert PASSWORD.split("/")[0] not in text


@pytest.mark.parametrize(("apart", "level"), [(60_000, Level.WARN), (-60_000, Level.WARN), (500, Level.OK)])
def test_a_clock_that_is_far_from_the_databases_is_warned_of(
    settled: Home, apart: int, level: Level, tmp_path: Path
) -> None:
    settings = load({"data_dir": str(tmp_path / "data"), "port": str(free_port())}, settled.env)
    found: list[Diagnostic] = list(diagnose(settings, lambda: system_clock() - apart, lambda: "", None, running=False))
    (clock,) = [finding for finding in found if finding.about == "clock"]
    assert clock.level is level
    if level is Level.WARN:
        # Less what the answer took, which may be no difference.
        assert re.search(rf"\b(5\d|60) s {'ahead of' if apart > 0 else 'behind'} this machine's", clock.what)


def test_a_database_that_every_role_may_connect_to_is_warned_of(settled: Home, tmp_path: Path) -> None:
    settled.address.ask("GRANT CONNECT ON DATABASE ww TO PUBLIC")
    try:
        code, found, _ = doctor(settled.env, tmp_path)
    finally:
        settled.address.ask("REVOKE CONNECT ON DATABASE ww FROM PUBLIC")
    assert (code, troubles(found)) == (0, [("warn", "store")])
    assert "REVOKE CONNECT ON DATABASE ww FROM PUBLIC" in said(found, "store")

"""The PostgreSQL that tests stand on: real, durable when its processes are killed, and gone with the run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.pages import ROOT
from tests.support.postgres import (
    DEBIAN,
    KINDS_IN_TURN,
    LOCKED,
    PASSWORD,
    USER,
    Address,
    Cluster,
    Home,
    SharedClusters,
    home,
    own_cluster,
    programs,
)
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.soak  # tests of what tests use


@pytest.fixture(params=KINDS_IN_TURN)
def shared(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Address:
    return shared_clusters.of(request.param)


def fill(cluster: Address, count: int = 10) -> None:
    cluster.ask(f"CREATE TABLE rows AS SELECT n FROM generate_series(1, {count}) AS n")


def rows(cluster: Address) -> int:
    count: int = cluster.ask("SELECT count(*) FROM rows")[0][0]
    return count


def test_a_server_is_of_the_version_of_its_programs(shared: Address) -> None:
    said = subprocess.run([programs(shared.kind) / "postgres", "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"\d+\.\d+", said.stdout)
    assert version is not None
    assert shared.ask("SHOW server_version")[0][0].startswith(version[0])
    if shared.kind != DEBIAN:
        assert version[0].split(".")[0] == shared.kind.rpartition("-")[2]


@pytest.mark.parametrize("kind", KINDS_IN_TURN)
def test_a_killed_server_comes_back_at_its_address_with_what_was_committed(kind: str, tmp_path: Path) -> None:
    with own_cluster(tmp_path, kind) as cluster:
        fill(cluster)
        with cluster.connect() as idle:
            cluster.kill()
            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="refused"):
            cluster.connect()
        cluster.start()
        assert rows(cluster) == 10


@pytest.mark.parametrize("immediate", [False, True], ids=["in-order", "at-once"])
def test_a_restarted_server_has_ended_its_connections_and_kept_its_rows(immediate: bool, tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        fill(cluster)
        with cluster.connect() as idle:
            cluster.restart(immediate=immediate)
            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
        assert rows(cluster) == 10


def test_a_paused_server_answers_nothing_on_old_and_new_connections_until_it_is_resumed(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster, cluster.connect() as old:
        cluster.pause()
        old.pgconn.send_query(b"SELECT 7")
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(cluster.url(), connect_timeout=2)  # as little as it takes
        old.pgconn.consume_input()
        assert old.pgconn.is_busy()
        cluster.resume()
        answer = old.pgconn.get_result()
        assert old.pgconn.get_result() is None
        assert answer is not None
        assert answer.get_value(0, 0) == b"7"
        assert cluster.ask("SELECT 1") == [(1,)]


def test_a_paused_server_can_be_killed_and_started_again(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        fill(cluster)
        cluster.pause()
        cluster.kill()
        assert rows(cluster.start()) == 10


def test_terminated_connections_are_gone_and_others_are_not(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        named = [cluster.connect(application_name=name) for name in ("one", "two", "two", "two")]
        assert cluster.terminate_backends("application_name = 'two'", some=2) == 2
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('one', 'two')"
        assert cluster.ask(left) == [(2,)]
        assert named[0].execute("SELECT 1").fetchall() == [(1,)]
        assert cluster.terminate_backends() >= 2  # who has just hung up may be among them
        assert cluster.ask(left) == [(0,)]
        for connection in named:
            connection.close()


@pytest.mark.parametrize("kind", KINDS_IN_TURN)
def test_a_standby_follows_takes_no_writes_and_takes_them_once_promoted(kind: str, tmp_path: Path) -> None:
    with own_cluster(tmp_path, kind) as primary:
        standby = primary.standby(tmp_path / "standby.log")
        try:
            fill(primary)
            until(lambda: standby.ask("SELECT to_regclass('rows') IS NOT NULL") == [(True,)], "it followed")
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                standby.ask("INSERT INTO rows VALUES (0)")
            primary.kill()
            standby.promote()
            standby.ask("INSERT INTO rows VALUES (0)")
            assert rows(standby) == 11
        finally:
            standby.remove()


def test_the_locked_role_needs_its_password_and_may_not_make_a_schema(postgres: Address) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.url(user=LOCKED, password="wrong"))
    with psycopg.connect(postgres.url(user=LOCKED, password=PASSWORD)) as connection:
        assert connection.execute("SELECT current_user").fetchall() == [(LOCKED,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE SCHEMA mine")


def test_homes_keep_apart_and_leave_nothing_behind(postgres: Address, database: Home, tmp_path: Path) -> None:
    def schemas(*names: str) -> int:
        query = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = ANY(%s)"
        count: int = postgres.ask(query, list(names))[0][0]
        return count

    with home(postgres, tmp_path) as other:
        for at in (database, other):
            with at.connect() as connection:
                connection.execute(f"CREATE SCHEMA {at.schema}".encode())
                connection.execute("CREATE TABLE things (n int)")
        other.look("INSERT INTO things VALUES (1)")
        assert other.look("SELECT n FROM things WHERE n = %s", 1) == [(1,)]
        assert database.look("SELECT n FROM things") == []
        assert other.key_file.stat().st_mode & 0o777 == 0o600
        assert other.key_file.read_bytes() != database.key_file.read_bytes()
        assert schemas(database.schema, other.schema) == 2
    assert schemas(database.schema, other.schema) == 1


STARTED = """
import sys, os, signal, pathlib
from tests.support.postgres import Cluster
cluster = Cluster(pathlib.Path(sys.argv[1])).make().start()
if sys.argv[2] == "paused":
    cluster.pause()
print(cluster.process.pid, cluster.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_server_and_its_files_are_gone_when_the_run_that_started_it_is_killed(state: str, tmp_path: Path) -> None:
    programs(DEBIAN)  # skips where it cannot be had
    clean = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    command = [sys.executable, "-c", STARTED, str(tmp_path / "log"), state]
    ran = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False, timeout=4 * SECONDS)
    assert ran.returncode == -9, ran.stderr
    pid, folder = ran.stdout.split()
    until(lambda: not Path(folder).exists(), "its files are gone")
    until(lambda: not psutil.pid_exists(int(pid)), "its process is gone")

    def of_it() -> list[int]:
        """Its watcher among them, who ends after it has removed the files."""
        return [p.pid for p in psutil.process_iter(["cmdline"]) if folder in " ".join(p.info["cmdline"] or [])]

    until(lambda: of_it() == [], "every process of it is gone")


def test_a_removed_server_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        assert isinstance(cluster, Cluster)
        assert cluster.process is not None
        processes = [psutil.Process(cluster.process.pid), *psutil.Process(cluster.process.pid).children()]
        assert len(processes) > 3
        assert cluster.ask("SELECT current_user") == [(USER,)]
    assert not cluster.folder.exists()
    until(lambda: not any(p.is_running() for p in processes), "every process of it is gone")

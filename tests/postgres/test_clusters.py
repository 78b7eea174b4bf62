"""The PostgreSQL clusters used by tests: durable after a kill and removed with the test run."""

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

pytestmark = pytest.mark.soak  # tests of test support


@pytest.fixture(params=KINDS_IN_TURN)
def shared(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Address:
    return shared_clusters.of(request.param)


def fill(cluster: Address, count: int = 10) -> None:
    cluster.ask(f"CREATE TABLE rows AS SELECT n FROM generate_series(1, {count}) AS n")


def rows(cluster: Address) -> int:
    count: int = cluster.ask("SELECT count(*) FROM rows")[0][0]
    return count


def test_cluster_has_the_version_of_its_programs(shared: Address) -> None:
    said = subprocess.run([programs(shared.kind) / "postgres", "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"\d+\.\d+", said.stdout)
    assert version is not None
    assert shared.ask("SHOW server_version")[0][0].startswith(version[0])
    if shared.kind != DEBIAN:
        assert version[0].split(".")[0] == shared.kind.rpartition("-")[2]


@pytest.mark.parametrize("kind", KINDS_IN_TURN)
def test_killed_cluster_restarts_with_committed_rows(kind: str, tmp_path: Path) -> None:
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
def test_restarted_cluster_closes_connections_and_keeps_rows(immediate: bool, tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        fill(cluster)
        with cluster.connect() as idle:
            cluster.restart(immediate=immediate)
            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
        assert rows(cluster) == 10


def test_paused_cluster_does_not_answer_until_resumed(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster, cluster.connect() as old:
        cluster.pause()
        old.pgconn.send_query(b"SELECT 7")
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(cluster.url(), connect_timeout=2)  # the minimum
        old.pgconn.consume_input()
        assert old.pgconn.is_busy()
        cluster.resume()
        answer = old.pgconn.get_result()
        assert old.pgconn.get_result() is None
        assert answer is not None
        assert answer.get_value(0, 0) == b"7"
        assert cluster.ask("SELECT 1") == [(1,)]


def test_paused_cluster_can_be_killed_and_restarted(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        fill(cluster)
        cluster.pause()
        cluster.kill()
        assert rows(cluster.start()) == 10


def test_terminate_backends_ends_only_matching_connections(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        named = [cluster.connect(application_name=name) for name in ("one", "two", "two", "two")]
        assert cluster.terminate_backends("application_name = 'two'", some=2) == 2
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('one', 'two')"
        assert cluster.ask(left) == [(2,)]
        assert named[0].execute("SELECT 1").fetchall() == [(1,)]
        assert cluster.terminate_backends() >= 2  # closing connections may be included
        assert cluster.ask(left) == [(0,)]
        for connection in named:
            connection.close()


@pytest.mark.parametrize("kind", KINDS_IN_TURN)
def test_standby_is_read_only_until_promoted(kind: str, tmp_path: Path) -> None:
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


def test_locked_role_needs_a_password_and_cannot_create_schemas(postgres: Address) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.url(user=LOCKED, password="wrong"))
    with psycopg.connect(postgres.url(user=LOCKED, password=PASSWORD)) as connection:
        assert connection.execute("SELECT current_user").fetchall() == [(LOCKED,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE SCHEMA mine")


def test_homes_are_isolated_and_removed(postgres: Address, database: Home, tmp_path: Path) -> None:
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
def test_cluster_is_removed_when_its_test_run_is_killed(state: str, tmp_path: Path) -> None:
    programs(DEBIAN)  # skips if not installed
    clean = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    command = [sys.executable, "-c", STARTED, str(tmp_path / "log"), state]
    ran = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False, timeout=4 * SECONDS)
    assert ran.returncode == -9, ran.stderr
    pid, folder = ran.stdout.split()
    until(lambda: not Path(folder).exists(), "its files are gone")
    until(lambda: not psutil.pid_exists(int(pid)), "its process is gone")

    def processes_of_cluster() -> list[int]:
        """Includes its watcher, which exits after removing the files."""
        return [p.pid for p in psutil.process_iter(["cmdline"]) if folder in " ".join(p.info["cmdline"] or [])]

    until(lambda: processes_of_cluster() == [], "every process of it is gone")


def test_removed_cluster_leaves_no_process_or_file(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as cluster:
        assert isinstance(cluster, Cluster)
        assert cluster.process is not None
        processes = [psutil.Process(cluster.process.pid), *psutil.Process(cluster.process.pid).children()]
        assert len(processes) > 3
        assert cluster.ask("SELECT current_user") == [(USER,)]
    assert not cluster.folder.exists()
    until(lambda: not any(p.is_running() for p in processes), "every process of it is gone")

"""Starting on a database: concurrently, while the database starts, and with older schemas."""

import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.newer_watchword import NEWER, newer_watchword
from tests.support.postgres import Home, own_cluster
from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, Server, watchword
from tests.support.waiting import SECONDS, until
from watchword.database.migrations import latest

Make = Callable[..., Server]
VERSION = latest("postgres")


def test_concurrent_starts_on_an_empty_database_migrate_once(database: Home, tmp_path: Path) -> None:
    servers = [Server(tmp_path / f"server{n}", env=database.env) for n in range(4)]
    clean = without_settings() | database.env
    commands = [
        [sys.executable, "-m", "watchword", "db", "migrate", "--data-dir", str(tmp_path / f"data{n}")] for n in range(6)
    ]
    migrations = [
        subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.start(), servers))
        said = [process.communicate(timeout=SECONDS) for process in migrations]
        assert [process.returncode for process in migrations] == [0] * 6
        assert {err for _, err in said} == {""}
        assert {out.split(" schema ")[0] for out, _ in said} <= {"The database has", "Created the database with"}
        assert sum("Made" in out for out, _ in said) <= 1
        applied = database.look("SELECT number, count(*) FROM migrations GROUP BY number ORDER BY number")
        assert applied == [(number, 1) for number in range(1, VERSION + 1)]
        assert database.look("SELECT count(*) FROM keys") == [(1,)]
        assert database.look("SELECT count(*) FROM next_key") == [(1,)]
        made = "SELECT target FROM events WHERE action = 'policy.created'"
        policies = database.look(made)
        assert len(policies) == len(set(policies)) > 0
        done = watchword("token", "create", "--local", "--data-dir", str(tmp_path / "data"), env=database.env)
        assert [server.verify(done.stdout.strip()).status_code for server in servers] == [204] * 4
    finally:
        for process in migrations:
            process.kill()
            process.wait()
        for server in servers:
            server.stop()
            server.http.close()


def test_start_output_shows_local_mode_off_and_a_working_example(
    database: Home, make_server: Make, tmp_path: Path
) -> None:
    server = make_server(env=database.env)
    lines = server.out.read_text()
    assert f"  store       postgresql://ww@{database.address.host}/ww\n" in lines
    assert "  local mode  off: WATCHWORD_DATABASE_URL names a database that other instances share\n" in lines
    assert server.post("{ me { corpUser { urn } } }", actor=ADMIN).status_code == 401
    (example,) = re.findall(r"^  (watchword token create .*)$", lines, re.MULTILINE)
    done = watchword(*shlex.split(example)[1:], env=database.env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.verify(done.stdout.strip()).status_code == 204


def test_start_waits_for_a_starting_database(tmp_path: Path) -> None:
    with own_cluster(tmp_path / "late") as cluster, ConnectionCounter() as witness:
        cluster.stop()
        env = Home(cluster, tmp_path).env
        env["WATCHWORD_DATABASE_URL"] = f"postgresql://ww@{witness.host},{cluster.host}/ww?sslmode=disable"
        done: list[subprocess.CompletedProcess[str]] = []
        words = ("db", "migrate", "--data-dir", str(tmp_path / "data"))
        starting = threading.Thread(target=lambda: done.append(watchword(*words, env=env)))
        starting.start()
        # A second connection here means that the other host was tried too.
        until(lambda: witness.knocks >= 2 or not starting.is_alive(), "it knocks again")
        cluster.start()
        starting.join()
    assert (done[0].returncode, done[0].stderr) == (0, "")
    assert done[0].stdout == f"Created the database with schema {VERSION}.\n"


def test_store_of_the_version_before_is_migrated_with_its_rows(
    database: Home, make_server: Make, tmp_path: Path
) -> None:
    first = make_server("--local-mode", "on", env=database.env)
    token = first.create(ADMIN)["accessToken"]
    first.stop()
    newer = {**database.env, **newer_watchword(tmp_path / "newer")}
    refused = first.command_line("db", "check", env=newer)
    assert (refused.returncode, f"version {VERSION}; run: watchword db migrate" in refused.stdout) == (1, True)
    migrated = first.command_line("db", "migrate", env=newer)
    assert (migrated.stdout, migrated.stderr) == (f"Migrated the database from schema {VERSION} to {NEWER}.\n", "")
    checked = first.command_line("db", "check", env=newer)
    assert checked.returncode == 0, checked.stdout
    assert make_server("--local-mode", "on", env=newer).verify(token).status_code == 204


class ConnectionCounter:
    """A host that is not a database and counts connections."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.knocks = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._answer, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _answer(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                self.knocks += 1
                caller.close()

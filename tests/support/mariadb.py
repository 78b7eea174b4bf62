"""Real MariaDB: one server shared by a whole test run, ended with it (`keeper.py`); a database for each test."""

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.system import need_program
from tests.support.waiting import until

KEEPER = ROOT / "tests/support/keeper.py"
USER, PASSWORD = "datahub", "correct horse/battery?staple"
# Nothing is flushed: tests kill processes, not the machine.
SETTINGS = (
    "--bind-address=127.0.0.1", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=32M", "--performance-schema=off", "--skip-name-resolve",
)  # fmt: skip


class Mariadb:
    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self, database: str | None = None) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database=database, charset="utf8mb4",
            autocommit=True, connect_timeout=60,
        )  # fmt: skip

    @contextmanager
    def database(self) -> Iterator[str]:
        name = f"t{uuid.uuid4().hex[:12]}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
            try:
                yield name
            finally:
                cursor.execute(f"DROP DATABASE {name}")


def shared_mariadb(factory: pytest.TempPathFactory) -> Mariadb:
    """The run's server: the worker that first needs one starts it."""
    server, base = need_program("mariadbd", "mariadb-server"), factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    said = shared / "mariadb.port"
    with (shared / "mariadb.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not said.exists():
            said.write_text(str(_start(server, shared / "mariadb.log")))
    return Mariadb(int(said.read_text()))


def _start(server: str, log: Path) -> int:
    who = "mysql" if os.geteuid() == 0 else ""
    folder, port = Path(tempfile.mkdtemp(prefix="watchword-mariadb-", dir="/tmp")), free_port()
    data, first = folder / "data", folder / "first.sql"
    reader = f"{USER}@'127.0.0.1'"
    first.write_text(f"CREATE USER {reader} IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO {reader};\n")
    if who:
        for path in (folder, first):
            shutil.chown(path, who, pwd.getpwnam(who).pw_gid)
    made = subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
         "--skip-test-db", "--skip-name-resolve", *([f"--user={who}"] if who else [])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    keeper = [sys.executable, "-I", "-S", str(KEEPER), str(run), str(folder), who]
    command = [server, "--no-defaults", f"--datadir={data}", f"--port={port}", f"--socket={folder}/socket",
               f"--init-file={first}", *SETTINGS]  # fmt: skip
    with log.open("ab") as out:
        process = subprocess.Popen(
            keeper + command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )

    def answers() -> bool:
        assert process.poll() is None, f"MariaDB did not start:\n{log.read_text()}"
        with suppress(pymysql.MySQLError), Mariadb(port).connect():
            return True
        return False

    until(answers, "MariaDB answers")
    process.returncode = 0  # its watcher ends it with the run
    return port

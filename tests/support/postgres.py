"""Real PostgreSQL: one server shared by a whole test run, or one of a test's own; and homes in it, a schema each.

No server outlives the run: each is watched by a process that ends it with the one in which pytest itself runs, however
that ends (`keeper.py`). Files are not flushed to disk: tests kill processes, not the machine.
"""

import fcntl
import functools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.support.clients import client_env
from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.system import install, missing
from tests.support.waiting import SECONDS, until, until_gone

DEBIAN = "postgres-debian"
OLDEST, TOO_OLD = "postgres-14", "postgres-13"
KINDS = (DEBIAN, "postgres-18")
KINDS_IN_TURN = (DEBIAN, pytest.param("postgres-18", marks=pytest.mark.soak))
KEEPER = ROOT / "tests/support/keeper.py"
FETCH = ROOT / "scripts/old-postgres"

USER = DATABASE = "ww"
LOCKED = "locked"
"""A role that needs `PASSWORD`, and may do nothing but what a test grants it."""
PASSWORD = "correct horse/battery?staple"

HBA = f"""\
host all         {LOCKED} 127.0.0.1/32 scram-sha-256
host all         all      127.0.0.1/32 trust
host replication all      127.0.0.1/32 trust
"""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "fsync": "off",
    "log_line_prefix": "%m [%p] %a ",
}

PATIENT = {"WATCHWORD_DATABASE_TIMEOUT": "20"}
"""For a service on a machine that may stop it for seconds; a test that is about the bound itself has `PROMPT`."""
PROMPT = {"WATCHWORD_DATABASE_TIMEOUT": "2"}

_run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@functools.cache
def programs(kind: str) -> Path:
    """The folder of initdb and postgres; skips, or fails when strict, where they cannot be had."""
    if kind == DEBIAN:
        if not _debian() and os.geteuid() == 0 and shutil.which("apt-get"):
            install("postgresql")
        return _debian() or missing("needs PostgreSQL: apt-get install postgresql")
    if kind in (OLDEST, TOO_OLD):
        done = subprocess.run([FETCH, "fetch", kind], capture_output=True, text=True, check=False)
        return ROOT / ".nodes" / kind / "bin" if done.returncode == 0 else missing(done.stderr.strip())
    found = next(client_env("postgres").glob("lib/python*/site-packages/*/pginstall18/bin"), None)
    return found or missing(f"needs the programs of {kind}, which scripts/client-env postgres did not bring")


def _debian() -> Path | None:
    """Of the newest version: `pg_config` names another folder without the package for developers."""
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((path.parent for path in found), key=lambda bin_: float(bin_.parent.name), default=None)


@functools.cache
def runs_as() -> str:
    """Who runs it when we are root, as which it refuses to run; empty when we are not."""
    if os.geteuid() != 0:
        return ""
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


class Address:
    """A running server, wherever it was started, and what tests say to it past the service."""

    def __init__(self, kind: str, port: int, database: str = DATABASE) -> None:
        self.kind = kind
        self.port = port
        self.database = database

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, *, user: str = USER, password: str | None = None, database: str = "", query: str = "") -> str:
        who = user if password is None else f"{user}:{quote(password, safe='')}"
        return f"postgresql://{who}@{self.host}/{database or self.database}" + (f"?{query}" if query else "")

    def connect(self, schema: str | None = None, **how: Any) -> psycopg.Connection:
        """By a driver that is not the service's; each statement commits by itself."""
        if schema is not None:
            how["options"] = f"-c search_path={schema}"
        return psycopg.connect(self.url(), autocommit=True, connect_timeout=int(SECONDS), **how)

    def ask(self, query: str, *bound: Any, schema: str | None = None) -> list[Any]:
        """The rows of one statement on a connection of its own; none for a statement that gives none."""
        with self.connect(schema) as connection:
            answer = connection.execute(query.encode(), bound or None)
            return answer.fetchall() if answer.description else []

    def terminate_backends(self, where: str = "true", *, some: int | None = None) -> int:
        """End the connections of clients, as an operator would: all for which this holds of `pg_stat_activity`, or
        some of them at random. Returns how many there were.
        """
        chosen = f"""SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'
            AND pid <> pg_backend_pid() AND ({where}) ORDER BY random() LIMIT {"ALL" if some is None else some}"""
        # Ten seconds are how long it waits for each to be gone.
        return len(self.ask(f"SELECT pg_terminate_backend(pid, 10000) FROM ({chosen}) AS chosen"))


class Cluster(Address):
    """A server of a test's own. Starting it again keeps data and port."""

    def __init__(
        self, out: Path, kind: str = DEBIAN, *, dies_with: int = _run, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(kind, free_port())
        self.out = out
        self.folder = _folder()
        self.data = self.folder / "data"
        self._dies_with = dies_with
        self._settings = SETTINGS | dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None

    def make(self) -> Self:
        """An empty one, with the roles and the database that tests use."""
        words = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        self.run("initdb", "-D", str(self.data), *words)
        self.run(
            "postgres", "--single", "-j", "-D", str(self.data), "postgres",
            stdin=f"CREATE DATABASE {DATABASE};\n\nCREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}';\n\n"
                  f"REVOKE CONNECT ON DATABASE {DATABASE} FROM PUBLIC;\n\n"
                  f"GRANT CONNECT ON DATABASE {DATABASE} TO {LOCKED};\n\n",
        )  # fmt: skip
        (self.data / "pg_hba.conf").write_text(HBA)
        return self

    def run(self, program: str, *words: str, stdin: str | None = None) -> None:
        """One of its own programs, as the user who may."""
        who: dict[str, Any] = {"user": runs_as(), "group": _group(), "extra_groups": []} if runs_as() else {}
        done = subprocess.run(
            [programs(self.kind) / program, *words],
            input=stdin, cwd=self.folder, env=_surroundings(), capture_output=True, text=True, check=False, **who,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} failed:\n{done.stdout}{done.stderr}"

    def start(self, **settings: str) -> Self:
        """Start it, with these settings from now on, and wait until it answers."""
        assert self.process is None, "it runs already"
        self._settings |= settings
        # Whoever had this process id when it was killed is gone, for we waited; by now it may be somebody else's.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        flags = [flag for name, value in self._settings.items() for flag in ("-c", f"{name}={value}")]
        server = [str(programs(self.kind) / "postgres"), "-D", str(self.data), "-p", str(self.port), *flags]
        keeper = [sys.executable, "-I", "-S", str(KEEPER), str(self._dies_with), str(self.folder), runs_as()]
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(
                keeper + server, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_surroundings(),
                start_new_session=True,
            )  # fmt: skip
        until(self._answers, f"{self.kind} answers")
        return self

    def stop(self, *, immediate: bool = False, seconds: float = 2 * SECONDS) -> None:
        """Shut it down, its clients with it: in order, or at once and without a checkpoint."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._signal_all(signal.SIGCONT)  # a paused one would not hear it
            self.process.wait(seconds)
            self.process = None

    def restart(self, *, immediate: bool = False) -> None:
        self.stop(immediate=immediate)
        self.start()

    def standby(self, out: Path) -> "Cluster":
        """Another server that follows this one and accepts no writes until it is promoted; remove it in the end."""
        other = Cluster(out, self.kind, dies_with=self._dies_with)
        other.run("pg_basebackup", "-d", self.url(), "-D", str(other.data), "-R", "-c", "fast", "--no-sync")
        return other.start()

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def kill(self) -> None:
        """`kill -9` for every process of it, at once."""
        if self.process is not None:
            everybody = self._signal_all(signal.SIGSTOP)  # so that none is born meanwhile, and none orphaned
            for process in everybody:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait(SECONDS)
            self.process = None
            until_gone(everybody, SECONDS)

    def pause(self) -> None:
        """`SIGSTOP` for every process of it: once this returns it takes connections, in the kernel, and answers
        none.
        """
        everybody = self._signal_all(signal.SIGSTOP)
        until(lambda: all(map(_is_still, everybody)), "every process of it is stopped")

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def remove(self) -> None:
        try:
            self.stop(immediate=True, seconds=5)  # which, unlike a kill, gives its shared memory back
        except subprocess.TimeoutExpired:
            self.kill()  # it waits a minute for whoever connects while it ends, and says nothing
        shutil.rmtree(self.folder)

    def disown(self) -> None:
        """Leave it to its watcher: it is ended by the run's end, not by its object's."""
        assert self.process is not None
        self.process.returncode = 0  # or the object would complain at its end that the process goes on
        self.process = None

    def _signal_all(self, which: signal.Signals) -> list[psutil.Process]:
        """The one that makes the others comes first, so that there are no more than those found then."""
        assert self.process is not None, "it does not run"
        postmaster = psutil.Process(self.process.pid)
        with suppress(psutil.NoSuchProcess):
            postmaster.send_signal(which)
        if which is signal.SIGSTOP:
            until(lambda: _is_still(postmaster), "the postmaster is stopped")
        children = []
        with suppress(psutil.NoSuchProcess):
            children = postmaster.children()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.send_signal(which)
        return [postmaster, *children]

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.kind} did not start:\n{self.out.read_text()}"
        with suppress(psycopg.OperationalError), self.connect():
            return True
        return False


def _is_still(process: psutil.Process) -> bool:
    try:
        return bool(process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE})
    except psutil.NoSuchProcess:
        return True


def _folder() -> Path:
    """A folder that whoever runs the server reaches and owns, which pytest's own folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="watchword-postgres-", dir=None if not runs_as() else "/tmp"))
    if runs_as():
        shutil.chown(folder, runs_as(), _group())
    return folder


def _group() -> int:
    return pwd.getpwnam(runs_as()).pw_gid


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "WATCHWORD_"))}


@contextmanager
def own_cluster(folder: Path, kind: str = DEBIAN, **settings: str) -> Iterator[Cluster]:
    """A server that a test may kill, pause and start again, with these settings; its log stays in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder / "postgres.log", kind, settings=settings)
    try:
        yield cluster.make().start()
    finally:
        cluster.remove()


class SharedClusters:
    """The run's servers: whichever worker first needs one starts it, and it serves them all until the run ends."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        base = factory.getbasetemp()
        self._folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @functools.cache  # noqa: B019  # one object a run
    def of(self, kind: str) -> Address:
        said = self._folder / f"{kind}.port"
        with (self._folder / f"{kind}.turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not said.exists():
                cluster = Cluster(self._folder / f"{kind}.log", kind).make().start()
                cluster.disown()
                said.write_text(str(cluster.port))
        return Address(kind, int(said.read_text()))

    @functools.cache  # noqa: B019  # one object a run
    def apart(self, kind: str) -> Address:
        """The same in a database of this process: what the server counts of it is of nobody else."""
        address, name = self.of(kind), f"ww_{os.getpid()}"
        address.ask(f"CREATE DATABASE {name} TEMPLATE template0")
        return Address(kind, address.port, name)


class Home:
    """Where one service keeps its things: a schema of its own, which the service makes, and a master key."""

    def __init__(self, address: Address, folder: Path, *, user: str = USER, password: str | None = None) -> None:
        self.address = address
        self.schema = f"t{uuid.uuid4().hex[:12]}"
        self.url = address.url(user=user, password=password)
        folder.mkdir(parents=True, exist_ok=True)
        self.key_file = folder / f"{self.schema}.key"
        self.key_file.touch(0o600)
        self.key_file.write_bytes(b64encode(os.urandom(32)) + b"\n")

    @property
    def env(self) -> dict[str, str]:
        """For `Server` and `watchword()`: a service that keeps its things here."""
        return {
            "WATCHWORD_DATABASE_URL": self.url,
            "WATCHWORD_DATABASE_SCHEMA": self.schema,
            "WATCHWORD_MASTER_KEY_FILE": str(self.key_file),
            **PATIENT,
        }

    def connect(self) -> psycopg.Connection:
        return self.address.connect(self.schema)

    def look(self, query: str, *bound: Any) -> list[Any]:
        """Rows of its tables, read past the service; `%s` stands for what is bound."""
        return self.address.ask(query, *bound, schema=self.schema)

    def drop(self) -> None:
        """Waits for no lock for long: who still holds one is a test that left something running."""
        with self.address.connect() as connection:
            connection.execute("SET lock_timeout = '60s'")
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))


@contextmanager
def home(address: Address, folder: Path, **who: Any) -> Iterator[Home]:
    made = Home(address, folder, **who)
    try:
        yield made
    finally:
        made.drop()

"""A store with a past: a backup was made of it, and then it went on."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support.postgres import Home, programs
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store, look

QUIET = {"WATCHWORD_ACCESS_LOG": "off"}
REVOKE_ALL = "--revoke-all-issued-before-now"
ACCEPT = "--accept-revived-tokens"
LATER = "urn:li:corpuser:later"


class BackupHistory:
    """A server whose store went on after a backup was made: one token revoked, one made. In a file, or in a home."""

    def __init__(self, folder: Path, home: Home | None = None) -> None:
        self.home = home
        self.env = {} if home is None else home.env
        flags = () if home is None else ("--local-mode", "on")
        self.server = Server(folder, *flags, env=QUIET | self.env)
        self.file = folder / "b.db"
        self.tokens: list[Any] = []

    def create(self) -> None:
        """Once for a whole run, which may last for hours; so its tokens do too."""
        with self.server as server:
            server.grant(LATER)
            self.tokens = [server.create(ADMIN, duration="ONE_MONTH") for _ in range(3)]
            server.revoke(self.before)
            done = self.command("db", "backup", str(self.file))
            assert done.returncode == 0, done.stderr
            server.revoke(self.ended)
            self.tokens.append(server.create(LATER, duration="ONE_MONTH"))

    def copied(self, folder: Path) -> "BackupHistory":
        shutil.copytree(self.server.folder, folder)
        copy = BackupHistory(folder)
        copy.tokens = self.tokens
        return copy

    def copied_to(self, folder: Path, home: Home) -> "BackupHistory":
        """Of one in a home: into another of the same server, as it lies there."""
        assert self.home is not None
        shutil.copytree(self.server.folder, folder)
        shutil.copy(self.home.key_file, home.key_file)
        _clone(self.home, home)
        copy = BackupHistory(folder, home)
        copy.tokens = self.tokens
        return copy

    @property
    def ended(self) -> str:
        """The id of the token that was revoked after the backup."""
        return self._id(1)

    @property
    def before(self) -> str:
        """The id of the token that was revoked before the backup."""
        return self._id(2)

    def _id(self, index: int) -> str:
        token_id: str = self.tokens[index]["metadata"]["id"]
        return token_id

    def restore(self, *flags: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.command("db", "restore", str(self.file), *flags, env=env)

    def command(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.server.command_line(*words, env=self.env | (env or {}))

    def assert_sound(self) -> None:
        """`db check` finds nothing, and tokens and their events are one."""
        checked = self.command("db", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        made = self.look("SELECT target FROM events WHERE action = 'token.created' ORDER BY 1")
        assert made == self.look("SELECT id FROM tokens ORDER BY 1")

    def look(self, query: str) -> list[Any]:
        """Rows of the store's tables, read past the service."""
        return look(self.server, query) if self.home is None else self.home.look(query)

    def change(self, statement: str) -> None:
        """Change its tables past the service."""
        if self.home is None:
            change_store(self.server, statement)
        else:
            with self.home.connect() as connection:
                connection.execute(statement.encode())

    def verdicts(self) -> list[int]:
        """Of the token that was live all the time, the ones revoked after and before the backup, the one made after."""
        return [self.server.verify(token["accessToken"]).status_code for token in self.tokens]


def _clone(old: Home, new: Home) -> None:
    """By PostgreSQL's own programs. The names of schemas are such that they occur nowhere else."""
    dump, load = (programs(old.address.kind) / name for name in ("pg_dump", "psql"))
    told = subprocess.run([dump, "-n", old.schema, old.url], capture_output=True, text=True, check=True)
    script = told.stdout.replace(old.schema, new.schema)
    subprocess.run([load, "-qv", "ON_ERROR_STOP=1", new.url], input=script, text=True, check=True, capture_output=True)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the locks of `run`, with what is in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def kept_of(server: Server) -> list[Path]:
    return sorted(server.data_dir.glob("watchword.db.before-restore-*"))

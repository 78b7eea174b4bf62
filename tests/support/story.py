"""A store with a past: a backup was made of it, and then it went on."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support.server import ADMIN, Server

QUIET = {"WATCHWORD_ACCESS_LOG": "off"}
REVOKE_ALL = "--revoke-all-issued-before-now"
ACCEPT = "--accept-revived-tokens"
LATER = "urn:li:corpuser:later"


class Story:
    """A server whose store went on after a backup was made: one token revoked, one made."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, env=QUIET)
        self.file = folder / "b.db"
        self.tokens: list[Any] = []

    def live_through(self) -> None:
        with self.server as server:
            server.grant(LATER)
            self.tokens = [server.create(ADMIN) for _ in range(3)]
            server.revoke(self.before)
            assert server.command_line("db", "backup", str(self.file)).returncode == 0
            server.revoke(self.ended)
            self.tokens.append(server.create(LATER))

    def copied(self, folder: Path) -> "Story":
        shutil.copytree(self.server.folder, folder)
        copy = Story(folder)
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

    def restore(self, *flags: str, **how: Any) -> subprocess.CompletedProcess[str]:
        return self.server.command_line("db", "restore", str(self.file), *flags, **how)

    def verdicts(self) -> list[int]:
        """Of the token that was live all the time, the ones revoked after and before the backup, the one made after."""
        return [self.server.verify(token["accessToken"]).status_code for token in self.tokens]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the locks of `run`, with what is in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def kept_of(server: Server) -> list[Path]:
    return sorted(server.data_dir.glob("watchword.db.before-restore-*"))

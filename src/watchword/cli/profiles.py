"""Profiles: the servers a user has signed in to, each with its token, in files that only their owner can read.

`profiles.json` holds the servers' addresses and the current profile. Each token has a file beside it, which can be
rotated like any token file. Files are replaced in one step. A file that others can read is rejected, because its token
may have leaked.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from watchword.cli.run import WrongUse
from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret
from watchword.files import draft, publish

MAX_FILE_BYTES = 1024 * 1024
Publish = Callable[[], object]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")
_NO_HOME = "There is no home folder for profiles. Set HOME or XDG_CONFIG_HOME, or use WATCHWORD_TOKEN."


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    url: str


@dataclass(slots=True)
class _ProfilesFile:
    current: str | None = None
    urls: dict[str, str] = field(default_factory=dict)


def same_server(url: str, other: str) -> bool:
    return url.rstrip("/") == other.rstrip("/")


def _default_name(url: str) -> str:
    """The host, and the port unless it is the scheme's default."""
    if url.startswith("unix:"):
        return "unix"
    parts = urlsplit(url)
    host = re.sub(r"[^A-Za-z0-9._-]", "-", parts.hostname or "").strip("-._") or "server"
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, default_port) else f"{host}:{parts.port}"


def check_profile_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongUse("--profile must be 1 to 100 letters, digits and . _ : @ -, and begin with a letter or digit.")
    return name


class Profiles:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def names(self) -> list[str]:
        return sorted(self._read().urls)

    @property
    def current(self) -> str | None:
        return self._read().current

    def all(self) -> list[Profile]:
        return [Profile(name, url) for name, url in sorted(self._read().urls.items())]

    def get(self, name: str) -> Profile:
        urls = self._read().urls
        if name not in urls:
            known = f"Profiles: {', '.join(sorted(urls))}." if urls else "There are no profiles."
            raise WrongUse(f"There is no profile {name}. {known} Create it: watchword login --profile {name}")
        return Profile(name, urls[name])

    def for_url(self, url: str) -> Profile | None:
        """The profile of a server: the current one, or the only one."""
        stored = self._read()
        found = [name for name, known in sorted(stored.urls.items()) if same_server(known, url)]
        if len(found) > 1 and stored.current not in found:
            raise WrongUse(f"There are several profiles for {url}: {', '.join(found)}. Choose one with --profile.")
        name = stored.current if stored.current in found else next(iter(found), None)
        return None if name is None else Profile(name, stored.urls[name])

    def name_for(self, url: str) -> str:
        """A name from the address; with a number where another server has that name."""
        urls, name = self._read().urls, _default_name(url)
        names = [name[:95], *(f"{name[:95]}-{number}" for number in range(2, len(urls) + 3))]
        taken_by_it = (one for one in names if same_server(urls.get(one, ""), url))
        return next(taken_by_it, None) or next(one for one in names if one not in urls)

    def token_file(self, profile: Profile) -> Path:
        return self._existing_folder / f"{profile.name}.token"

    def token(self, profile: Profile) -> Secret[str]:
        content = _read_private(self.token_file(profile), 0o077, "600")
        if content is None or not content.strip():
            raise OperatorError(
                f"The token of profile {profile.name} is missing. "
                f"Sign in again: watchword login --profile {profile.name}"
            )
        # Read again: another process may just have given the name to another server, whose token this would be.
        if not same_server(self._read().urls.get(profile.name, ""), profile.url):
            raise OperatorError(f"Another process just changed profile {profile.name}. Run the command again.")
        return Secret(content.decode("utf-8", "replace").strip())

    def store(self, profile: Profile, token: Secret[str]) -> None:
        """Store it as the current profile. If this is interrupted, no token is left under another server's name."""
        file = self.token_file(profile)
        with self._locked() as stored:
            before = stored.urls.get(profile.name, profile.url)
            stored.urls[profile.name] = profile.url
            stored.current = profile.name
            with _drafted(file, token.reveal() + "\n") as put_token, self._drafted(stored) as put_profiles:
                if not same_server(before, profile.url):
                    file.unlink(missing_ok=True)
                put_profiles()
                put_token()

    def use(self, name: str) -> None:
        with self._locked() as stored:
            stored.current = name
            with self._drafted(stored) as put:
                put()

    def remove(self, profile: Profile) -> None:
        """Delete the token first, so that an interrupted removal leaves no secret."""
        with self._locked() as stored:
            self.token_file(profile).unlink(missing_ok=True)
            stored.urls.pop(profile.name, None)
            if stored.current == profile.name:
                stored.current = None
            with self._drafted(stored) as put:
                put()

    @property
    def _existing_folder(self) -> Path:
        if self._folder is None:
            raise OperatorError(_NO_HOME)
        return self._folder

    def _read(self) -> _ProfilesFile:
        if self._folder is None:
            return _ProfilesFile()
        path = self._folder / "profiles.json"
        content = _read_private(path, 0o022, "600")
        if content is None:
            return _ProfilesFile()
        try:
            found = json.loads(content)
            urls = {str(name): str(one["url"]) for name, one in found["profiles"].items()}
            current = found["current"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise OperatorError(
                f"{path} is not a profiles file. Remove it and sign in again: watchword login"
            ) from None
        valid = {name: url for name, url in urls.items() if _NAME.fullmatch(name)}
        return _ProfilesFile(current if current in urls else None, valid)

    @contextmanager
    def _locked(self) -> Iterator[_ProfilesFile]:
        """The profiles, locked against other processes."""
        folder = self._existing_folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _reject_open(folder, os.fstat(opened), 0o022, "700")
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield self._read()
            os.fsync(opened)
        finally:
            os.close(opened)

    def _drafted(self, stored: _ProfilesFile) -> AbstractContextManager[Publish]:
        content = {"current": stored.current, "profiles": {name: {"url": url} for name, url in stored.urls.items()}}
        return _drafted(self._existing_folder / "profiles.json", json.dumps(content, indent=2) + "\n")


@contextmanager
def _drafted(path: Path, text: str) -> Iterator[Publish]:
    """Write a draft beside the file; calling what this yields replaces the file in one step."""
    with draft(path, text.encode()) as written:
        yield lambda: publish(written, path)


def _read_private(path: Path, forbidden: int, mode: str) -> bytes | None:
    """The content of a file that only its owner can use; None where there is none, or no readable home folder."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        status = os.fstat(opened)
        _reject_open(path, status, forbidden, mode)
        return os.read(opened, MAX_FILE_BYTES) if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(opened)


def _reject_open(path: Path, status: os.stat_result, forbidden: int, mode: str) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise OperatorError(f"{path} belongs to another user ({status.st_uid}) and is not used.")
    if status.st_mode & forbidden:
        what = "read" if forbidden & 0o044 else "change"
        raise OperatorError(
            f"Others can {what} {path} (mode {stat.S_IMODE(status.st_mode):04o}), so it is not used. "
            f"Restrict it: chmod {mode} {path}"
        )

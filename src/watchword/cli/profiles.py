"""Profiles: the servers that one has signed in at, each with its token, in files for their owner alone.

`profiles.json` says where each server is and which profile is meant where none is named; a token lies beside it in a
file of its own, which can be rotated like any other. Files are replaced in one step. What others can read is not used:
a token in it may be anybody's by now.
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

from watchword.cli.streams import WrongUse
from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret
from watchword.files import draft, publish

LONGEST_FILE = 1024 * 1024
Put = Callable[[], object]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")
_NO_HOME = "There is no home folder to keep profiles in. Set HOME or XDG_CONFIG_HOME, or use WATCHWORD_TOKEN."


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    url: str


@dataclass(slots=True)
class _Kept:
    current: str | None = None
    urls: dict[str, str] = field(default_factory=dict)


def same(url: str, other: str) -> bool:
    return url.rstrip("/") == other.rstrip("/")


def _name_for(url: str) -> str:
    """The host, and the port where it is not the usual one."""
    if url.startswith("unix:"):
        return "unix"
    parts = urlsplit(url)
    host = re.sub(r"[^A-Za-z0-9._-]", "-", parts.hostname or "").strip("-._") or "server"
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, usual) else f"{host}:{parts.port}"


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
            known = f"There are: {', '.join(sorted(urls))}." if urls else "There is none."
            raise WrongUse(f"There is no profile {name}. {known} Make it: watchword login --profile {name}")
        return Profile(name, urls[name])

    def for_url(self, url: str) -> Profile | None:
        """The profile of a server: the current one, or the only one."""
        kept = self._read()
        found = [name for name, known in sorted(kept.urls.items()) if same(known, url)]
        if len(found) > 1 and kept.current not in found:
            raise WrongUse(f"There are several profiles for {url}: {', '.join(found)}. Name one by --profile.")
        name = kept.current if kept.current in found else next(iter(found), None)
        return None if name is None else Profile(name, kept.urls[name])

    def name_for(self, url: str) -> str:
        """A name by its address; with a number where that is another server's, which keeps its place."""
        urls, name = self._read().urls, _name_for(url)
        names = [name[:95], *(f"{name[:95]}-{number}" for number in range(2, len(urls) + 3))]
        own = (one for one in names if same(urls.get(one, ""), url))
        return next(own, None) or next(one for one in names if one not in urls)

    def token_file(self, profile: Profile) -> Path:
        return self._there / f"{profile.name}.token"

    def own_token_file(self, profile: Profile | None) -> Path:
        """The file, when it may be used."""
        assert profile is not None
        self.token(profile)
        return self.token_file(profile)

    def token(self, profile: Profile) -> Secret[str]:
        content = _private(self.token_file(profile), 0o077, "600")
        if content is None or not content.strip():
            raise OperatorError(
                f"The token of profile {profile.name} is not there any more. "
                f"Sign in again: watchword login --profile {profile.name}"
            )
        # Looked at once more: meanwhile the name may have been given to another server, and this is the token for that.
        if not same(self._read().urls.get(profile.name, ""), profile.url):
            raise OperatorError(f"Profile {profile.name} has just become another server's. Run the command again.")
        return Secret(content.decode("utf-8", "replace").strip())

    def keep(self, profile: Profile, token: Secret[str]) -> None:
        """It is the current one from now on. Wherever this is broken off, no token lies under the name of a server that
        is not its own.
        """
        file = self.token_file(profile)
        with self._changing() as kept:
            before = kept.urls.get(profile.name, profile.url)
            kept.urls[profile.name] = profile.url
            kept.current = profile.name
            with _ready(file, token.reveal() + "\n") as put_token, self._ready(kept) as put_profiles:
                if not same(before, profile.url):
                    file.unlink(missing_ok=True)
                put_profiles()
                put_token()

    def use(self, name: str) -> None:
        with self._changing() as kept:
            kept.current = name
            with self._ready(kept) as put:
                put()

    def remove(self, profile: Profile) -> None:
        """The token first: what is left over of a removal that was broken off is no secret."""
        with self._changing() as kept:
            self.token_file(profile).unlink(missing_ok=True)
            kept.urls.pop(profile.name, None)
            if kept.current == profile.name:
                kept.current = None
            with self._ready(kept) as put:
                put()

    @property
    def _there(self) -> Path:
        if self._folder is None:
            raise OperatorError(_NO_HOME)
        return self._folder

    def _read(self) -> _Kept:
        if self._folder is None:
            return _Kept()
        path = self._folder / "profiles.json"
        content = _private(path, 0o022, "600")
        if content is None:
            return _Kept()
        try:
            told = json.loads(content)
            urls = {str(name): str(one["url"]) for name, one in told["profiles"].items()}
            current = told["current"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise OperatorError(f"{path} cannot be understood. Remove it, and sign in again: watchword login") from None
        return _Kept(current if current in urls else None, {n: u for n, u in urls.items() if _NAME.fullmatch(n)})

    @contextmanager
    def _changing(self) -> Iterator[_Kept]:
        """What is kept, held against others who change it."""
        folder = self._there
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _refuse_open(folder, os.fstat(opened), 0o022, "700")
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield self._read()
            os.fsync(opened)
        finally:
            os.close(opened)

    def _ready(self, kept: _Kept) -> AbstractContextManager[Put]:
        told = {"current": kept.current, "profiles": {name: {"url": url} for name, url in kept.urls.items()}}
        return _ready(self._there / "profiles.json", json.dumps(told, indent=2) + "\n")


@contextmanager
def _ready(path: Path, text: str) -> Iterator[Put]:
    """A file that is written already, and what puts it in its place: whole, or not at all, also where a file of that
    name is a link to one that others can read.
    """
    with draft(path, text.encode()) as written:
        yield lambda: publish(written, path)


def _private(path: Path, forbidden: int, mode: str) -> bytes | None:
    """The content of a file that its owner alone may touch; None where there is none. A service may run without a home
    that it can look into.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        seen = os.fstat(opened)
        _refuse_open(path, seen, forbidden, mode)
        return os.read(opened, LONGEST_FILE) if stat.S_ISREG(seen.st_mode) else b""
    finally:
        os.close(opened)


def _refuse_open(path: Path, seen: os.stat_result, forbidden: int, mode: str) -> None:
    if seen.st_uid not in (os.geteuid(), 0):
        raise OperatorError(f"{path} belongs to somebody else (user {seen.st_uid}), and is not used.")
    if seen.st_mode & forbidden:
        what = "read" if forbidden & 0o044 else "change"
        raise OperatorError(
            f"Others can {what} {path} (mode {stat.S_IMODE(seen.st_mode):04o}), so that it is not used. "
            f"Take that away: chmod {mode} {path}"
        )

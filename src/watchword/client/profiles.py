"""Where the server is and who calls: the environment, and the profiles that `watchword login` stores.

`profiles.json` has the server of each profile and the name of the current profile. Each token is in a file beside it,
which can be rotated like any token file. Files are replaced in one step. A file that other users can read or write is
not used, because they could have read or replaced the token.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from watchword.basics.files import draft, publish
from watchword.basics.names import DEFAULT_URL
from watchword.basics.secret import Secret
from watchword.client.errors import ProfileChoiceError, ProfileError

MAX_FILE_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")
_NO_HOME = "There is no home folder for profiles. Set HOME or XDG_CONFIG_HOME, or use WATCHWORD_TOKEN."


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    url: str | None
    token: Secret[str] | None
    profile: str | None
    folder: Path | None
    """Where the profiles are; None without a home folder."""
    has_display: bool = False


def read_environment(environment: Mapping[str, str] = os.environ) -> ClientEnvironment:
    token = environment.get("WATCHWORD_TOKEN")
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path's raises without a home
    config = Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config")
    return ClientEnvironment(
        url=environment.get("WATCHWORD_URL") or None,
        token=Secret(token.strip()) if token else None,
        profile=environment.get("WATCHWORD_PROFILE") or None,
        folder=config / "watchword" if config.is_absolute() else None,
        has_display=any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")),
    )


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class ChosenServer:
    """The server to use, and the profile whose token is sent to it; no profile if the caller is given otherwise."""

    url: str
    profile: Profile | None = None


def choose_server(
    environment: ClientEnvironment,
    profiles: "Profiles",
    *,
    has_caller: bool,
    url: str | None = None,
    profile: str | None = None,
) -> ChosenServer:
    """The server by `url` or `profile`, WATCHWORD_URL, the profile in use, or the default, in this order. A profile's
    token is sent to that profile's server only.
    """
    if profile is not None:
        named = profiles.get(profile)
        if url is not None and not same_server(url, named.url):
            raise ProfileChoiceError(
                f"--url and --profile name two servers: profile {profile} is for {named.url}. Give one."
            )
        return ChosenServer(named.url, named)
    where = url or environment.url
    if where is None and (name := environment.profile or profiles.current) is not None:
        named = profiles.get(name)
        return ChosenServer(named.url, None if has_caller else named)
    where = where or DEFAULT_URL
    if has_caller:
        return ChosenServer(where)
    if environment.profile is not None and same_server((named := profiles.get(environment.profile)).url, where):
        return ChosenServer(where, named)
    return ChosenServer(where, profiles.for_url(where))


@dataclass(slots=True)
class _ProfilesFile:
    current: str | None = None
    urls: dict[str, str] = field(default_factory=dict)


def same_server(url: str, other: str) -> bool:
    return url.rstrip("/") == other.rstrip("/")


def is_profile_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


class Profiles:
    """The profiles in a folder."""

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
            raise ProfileChoiceError(f"There is no profile {name}. {known} Create it: watchword login --profile {name}")
        return Profile(name, urls[name])

    def for_url(self, url: str) -> Profile | None:
        """The profile of a server: the current one, or the only one."""
        stored = self._read()
        found = [name for name, known in sorted(stored.urls.items()) if same_server(known, url)]
        if len(found) > 1 and stored.current not in found:
            names = ", ".join(found)
            raise ProfileChoiceError(
                f"There are several profiles for {url}: {names}. Choose one with --profile or WATCHWORD_PROFILE."
            )
        name = stored.current if stored.current in found else next(iter(found), None)
        return None if name is None else Profile(name, stored.urls[name])

    def name_for(self, url: str) -> str:
        """A name for a new profile: the server's host, with a number if another server has that name."""
        urls, name = self._read().urls, _default_name(url)
        names = [name[:95], *(f"{name[:95]}-{number}" for number in range(2, len(urls) + 3))]
        known = (one for one in names if same_server(urls.get(one, ""), url))
        return next(known, None) or next(one for one in names if one not in urls)

    def token_file(self, profile: Profile) -> Path:
        return self._existing_folder / f"{profile.name}.token"

    def token(self, profile: Profile) -> Secret[str]:
        content = _read_private(self.token_file(profile), 0o077, "600")
        if content is None or not content.strip():
            raise ProfileError(
                f"The token of profile {profile.name} is missing. "
                f"Sign in again: watchword login --profile {profile.name}"
            )
        # Checked after the read: another process may have given the name, and so this token, to another server.
        if not same_server(self._read().urls.get(profile.name, ""), profile.url):
            raise ProfileError(f"Another process just changed profile {profile.name}. Run the command again.")
        return Secret(content.decode("utf-8", "replace").strip())

    def store(self, profile: Profile, token: Secret[str]) -> None:
        """Store a profile and make it the current one. Interrupted at any point, no token is under the name of another
        server.
        """
        file = self.token_file(profile)
        with self._locked() as stored, draft(file, f"{token.reveal()}\n".encode()) as written:
            has_moved = not same_server(stored.urls.get(profile.name, profile.url), profile.url)
            stored.urls[profile.name] = profile.url
            stored.current = profile.name
            self._write(stored, without=file if has_moved else None)
            publish(written, file)

    def use(self, name: str) -> None:
        """Make a profile the current one."""
        with self._locked() as stored:
            stored.current = name
            self._write(stored)

    def remove(self, profile: Profile) -> None:
        """Remove the token first, so that an interrupted removal leaves no secret behind."""
        with self._locked() as stored:
            self.token_file(profile).unlink(missing_ok=True)
            stored.urls.pop(profile.name, None)
            if stored.current == profile.name:
                stored.current = None
            self._write(stored)

    @property
    def _existing_folder(self) -> Path:
        if self._folder is None:
            raise ProfileError(_NO_HOME)
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
            raise ProfileError(f"{path} is not a profiles file. Remove it and sign in again: watchword login") from None
        return _ProfilesFile(
            current if current in urls else None, {n: u for n, u in urls.items() if is_profile_name(n)}
        )

    @contextmanager
    def _locked(self) -> Iterator[_ProfilesFile]:
        """The stored profiles, locked against changes by other processes."""
        folder = self._existing_folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _reject_open(folder, os.fstat(opened), 0o022, "700")
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield self._read()
        finally:
            os.close(opened)

    def _write(self, stored: _ProfilesFile, *, without: Path | None = None) -> None:
        """`without` is a token file to remove once nothing but a rename is left to do: the disk may be full."""
        path = self._existing_folder / "profiles.json"
        content = {"current": stored.current, "profiles": {name: {"url": url} for name, url in stored.urls.items()}}
        with draft(path, f"{json.dumps(content, indent=2)}\n".encode()) as written:
            if without is not None:
                without.unlink(missing_ok=True)
            publish(written, path)


def _default_name(url: str) -> str:
    """The host, and the port if it is not the default one."""
    if url.startswith("unix:"):
        return "unix"
    parts = urlsplit(url)
    host = re.sub(r"[^A-Za-z0-9._-]", "-", parts.hostname or "").strip("-._") or "server"
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, default) else f"{host}:{parts.port}"


def _read_private(path: Path, forbidden: int, mode: str) -> bytes | None:
    """The content of a file that only its owner may access; None if there is none, or the home is not accessible."""
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
        raise ProfileError(f"{path} belongs to another user ({status.st_uid}) and is not used.")
    if status.st_mode & forbidden:
        what = "read" if forbidden & 0o044 else "change"
        raise ProfileError(
            f"Others can {what} {path} (mode {stat.S_IMODE(status.st_mode):04o}), so it is not used. "
            f"Restrict it: chmod {mode} {path}"
        )

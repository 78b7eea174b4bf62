"""A token kept in a file, replaced there by its successor: broken off at any moment, the file has one that works.

Until the file is replaced, in one step, it has the old token, which goes on. From then on it has the successor, which
is used at once, so that the old one's grace begins; if that cannot be done, its first user does it. A successor that
the server refuses is taken out again. The successor is asked for under a key made of the old token: who begins again
within a day, here or with a copy of the file elsewhere, gets the same one.
"""

import errno
import fcntl
import os
import re
import shutil
import ssl
import stat
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Self

from watchword.client.connection import DEFAULT_URL
from watchword.client.errors import Conflict, Unauthenticated, Unauthorized, WatchwordError
from watchword.client.records import NewToken, TokenInfo
from watchword.client.sync import Client
from watchword.domain.errors import Reason
from watchword.domain.secret import Secret
from watchword.files import create, draft_name

LONGEST_FILE = 65_536
NO_TOKEN = "The file must hold a token and nothing else."  # noqa: S105 - a sentence
_TOKEN = re.compile(rb"\s*([\x21-\x7e]+)\s*")
_SHAPE = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SUFFIX = ".watchword"
Span = timedelta | str | None


@dataclass(frozen=True, slots=True)
class RotatedFile:
    """The file that was replaced, and the record of the token in it."""

    path: str
    metadata: TokenInfo
    problem: str | None
    """Why the successor could not be used yet; None: it was, and the old token's grace has begun."""


def rotate_file(
    path: str | os.PathLike[str],
    url: str = DEFAULT_URL,
    *,
    overlap: Span = None,
    grace: Span = None,
    asked_by: Client | None = None,
    timeout: float = 30.0,
    retries: int = 2,
    verify: ssl.SSLContext | bool = True,
) -> RotatedFile:
    """Rotate the token in a file, which must hold it and nothing else. Mode, owner and access lists stay as they are.
    It asks for its own successor, unless a client of somebody else's is given, as it must be for a token whose limits
    keep it from that.
    """
    real = Path(os.path.realpath(path))

    def client(token: Secret[str]) -> Client:
        return Client(url, token=token, timeout=timeout, retries=retries, verify=verify)

    with _Folder(real.parent) as folder, _Place(real, folder) as place:
        old = place.token
        if not _SHAPE.fullmatch(old.reveal()):
            raise ValueError(NO_TOKEN)  # somebody else's secret goes nowhere
        with client(old) if asked_by is None else nullcontext(asked_by) as asking:
            found = asking.find_token(old)
            made = None if found.awaits_first_use else _successor(asking, found, old, overlap, grace)
        if made is not None:
            place.put(made.token)
        with client(old if made is None else made.token) as user:
            problem = _use(user)
            if made is not None and problem is None:
                with suppress(WatchwordError):  # its limits may keep it from looking at itself
                    made = NewToken(made.token, user.get_token(made.metadata.id))
        if isinstance(problem, Unauthenticated) and made is not None:
            place.put(old)
            raise problem
        metadata = found if made is None else made.metadata
        return RotatedFile(str(real), metadata, None if problem is None else str(problem))


def read_token_file(path: str | os.PathLike[str]) -> Secret[str]:
    """The token in a file that holds it and nothing else."""
    return _token_in(_read(Path(os.path.realpath(path)))[0])


def _successor(asking: Client, found: TokenInfo, old: Secret[str], overlap: Span, grace: Span) -> NewToken:
    key = sha256(b"watchword rotate_file\0" + old.reveal().encode()).hexdigest()
    try:
        return asking.rotate_token(found.id, overlap=overlap, grace=grace, key=key)
    except Conflict as conflict:
        if conflict.reason != Reason.KEY_REUSED.word:
            raise
    # Asked for before with another overlap or grace, or that successor is dead: this is a rotation of its own.
    return asking.rotate_token(found.id, overlap=overlap, grace=grace)


def _use(client: Client) -> WatchwordError | None:
    try:
        client.verify_token()
    except WatchwordError as error:
        # A token for another audience is live, and this was a use of it.
        is_used = isinstance(error, Unauthorized) and error.reason == Reason.WRONG_AUDIENCE.word
        return None if is_used else error
    return None


class _Folder:
    """The folder of the file, held against others who do the same; where it cannot be held, the key keeps them
    together.
    """

    def __init__(self, path: Path) -> None:
        self._opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.is_held = False

    def __enter__(self) -> Self:
        with suppress(OSError):
            fcntl.flock(self._opened, fcntl.LOCK_EX)
            self.is_held = True
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._opened)

    def keep(self) -> None:
        """What was renamed in it stays so, also after a loss of power."""
        os.fsync(self._opened)


class _Place:
    """The file, with room beside it for what is to take its place: made first, so that no token is asked for that
    could not be kept.
    """

    def __init__(self, path: Path, folder: _Folder) -> None:
        self._path = path
        self._folder = folder
        self._before, self._seen = _read(path)
        self.token = _token_in(self._before)

    def __enter__(self) -> Self:
        if self._folder.is_held:
            self._clear_away()
        self._make_room()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._opened)
        self._beside.unlink(missing_ok=True)

    def put(self, token: Secret[str]) -> None:
        """Nothing less than the whole of it is ever in the file."""
        content = self._before.replace(self.token.reveal().encode(), token.reveal().encode())
        if os.write(self._opened, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        os.fsync(self._opened)
        now, seen = _read(self._path)
        if (now, seen.st_ino) != (self._before, self._seen.st_ino):
            raise OSError(f"{self._path} was changed by somebody else meanwhile, and was left as it is.")
        self._beside.rename(self._path)
        self._folder.keep()
        self._before, self._seen = _read(self._path)
        self.token = token
        os.close(self._opened)
        self._make_room()

    def _make_room(self) -> None:
        self._beside = draft_name(self._path, _SUFFIX)
        self._opened = create(self._beside)
        try:
            made = os.fstat(self._opened)
            if (made.st_uid, made.st_gid) != (self._seen.st_uid, self._seen.st_gid):
                os.fchown(self._opened, self._seen.st_uid, self._seen.st_gid)
            shutil.copystat(self._path, self._beside)
            os.utime(self._beside)
        except BaseException:
            self.__exit__()
            raise

    def _clear_away(self) -> None:
        """What somebody who was killed left behind: a token nobody needs."""
        ours = re.compile(re.escape(f".{self._path.name}.") + "[0-9a-f]{16}" + re.escape(_SUFFIX))
        for entry in self._path.parent.iterdir():
            if ours.fullmatch(entry.name):
                entry.unlink(missing_ok=True)


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    """Opened without waiting, for nobody may ever write to what is not a file."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode):
            raise ValueError("The file must be a regular one.")
        if seen.st_nlink > 1:
            raise ValueError("The file has more than one name (hard links), and the others would keep the old token.")
        return os.read(opened, LONGEST_FILE + 1), seen
    finally:
        os.close(opened)


def _token_in(content: bytes) -> Secret[str]:
    found = _TOKEN.fullmatch(content)
    if found is None or len(content) > LONGEST_FILE:
        raise ValueError(NO_TOKEN)
    return Secret(found[1].decode())

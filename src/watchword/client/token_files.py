"""A token in a file: rotated in place, and renewed before it expires.

`rotate_file` replaces the file in one step. Interrupted at any moment, it leaves a token in the file that works. Before
the replacement that is the old token. After it, it is the successor, which is used once, so that the grace period of
the old token starts. If the server rejects the successor, the old token is put back. The idempotency key of the
rotation is made from the old token: a second attempt within a day, also with a copy of the file elsewhere, gets the
same successor.
"""

import errno
import fcntl
import logging
import os
import re
import shutil
import ssl
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Self

from watchword.basics.errors import Reason
from watchword.basics.files import create, draft_name, publish
from watchword.basics.names import DEFAULT_URL
from watchword.basics.secret import Secret
from watchword.client.answers import NewToken, TokenInfo
from watchword.client.errors import Conflict, Unauthenticated, Unauthorized, WatchwordError
from watchword.client.records import read_claims
from watchword.client.synchronous.client import Client

MAX_FILE_BYTES = 65_536
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 3_600.0
NO_TOKEN = "The file must hold a token and nothing else."  # noqa: S105 - a sentence
Span = timedelta | str | None
_TOKEN = re.compile(rb"\s*([\x21-\x7e]+)\s*")
_TOKEN_FORM = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SUFFIX = ".watchword"
_log = logging.getLogger("watchword.client")


@dataclass(frozen=True, slots=True)
class RotatedFile:
    """A token file that was rotated, and the record of the token in it."""

    path: str
    metadata: TokenInfo
    problem: str | None
    """Why the successor could not be used yet; None if it was, and the grace period of the old token has started."""


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
    """Rotate the token in a file that holds nothing else. Mode, owner and access lists of the file stay the same. The
    token requests its own successor, unless a client is given as `asked_by`; a token whose limits do not allow that
    needs one.
    """
    real = Path(os.path.realpath(path))

    def client(token: Secret[str]) -> Client:
        return Client(url, token=token, timeout=timeout, retries=retries, verify=verify)

    with _locked(real.parent) as is_locked, _Replacement(real, is_locked=is_locked) as file:
        old = file.token
        if not _TOKEN_FORM.fullmatch(old.reveal()):
            raise ValueError(NO_TOKEN)  # never send another kind of secret to the server
        with client(old) if asked_by is None else nullcontext(asked_by) as asking:
            found = asking.tokens.find(old)
            if found.allowed_networks is not None:
                with client(old) as holder:
                    _need_network(found.allowed_networks, holder)
            new = None if found.awaits_first_use else _successor(asking, found, old, overlap, grace)
        if new is not None:
            file.put(new.token)
        with client(old if new is None else new.token) as user:
            problem = _use(user)
            if new is not None and problem is None:
                with suppress(WatchwordError):  # its limits may not allow it to read its own record
                    new = NewToken(new.token, user.tokens.get(new.metadata.id))
        if isinstance(problem, Unauthenticated) and new is not None:
            file.put(old)
            raise problem
        metadata = found if new is None else new.metadata
        return RotatedFile(str(real), metadata, None if problem is None else str(problem))


class TokenFile:
    """A token in a file that is renewed in time. Give it to a client as `token`.

        token = TokenFile("/etc/shop/token", "https://tokens.example.org")
        with Client("https://tokens.example.org", token=token) as watchword: ...

    The file is read before each request, so that a rotation by another process is noticed. The token is rotated when
    `after` of its lifetime has passed: a share between 0 and 1, or an age. A token without an expiry is rotated by age
    only. The token must be allowed to request its own successor. If it cannot be renewed, the old token stays in use
    while it is valid, `problem` says why, and the rotation is retried later.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        url: str = DEFAULT_URL,
        *,
        after: float | timedelta = 2 / 3,
        overlap: Span = None,
        grace: Span = None,
        timeout: float = 30.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        if not (after > timedelta(0) if isinstance(after, timedelta) else 0 < after < 1):
            raise ValueError("after must be a share of the token's lifetime between 0 and 1, or a timedelta.")
        self._path = Path(path)
        self._url = url
        self._after = after
        self._options = {"overlap": overlap, "grace": grace, "timeout": timeout, "verify": verify}
        self._renewing = threading.Lock()
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self.problem: str | None = None
        """Why the last renewal failed."""

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    def read(self) -> Secret[str]:
        """Get the token to use now. Takes as long as a rotation when one is due."""
        token = _read_token(self._path)
        if not self.is_due(token) or not self._renewing.acquire(blocking=False):
            return token  # if another thread renews it, this one continues with the old token
        try:
            self._renew()
        finally:
            self._renewing.release()
        return _read_token(self._path)

    def is_due(self, token: Secret[str]) -> bool:
        """Whether the token is to be renewed now."""
        claims = read_claims(token)
        if claims is None or time.monotonic() < self._not_before:
            return False
        if isinstance(self._after, timedelta):
            return datetime.now(UTC) - claims.issued_at >= self._after
        return claims.elapsed_share() >= self._after

    def _renew(self) -> None:
        try:
            rotated = rotate_file(self._path, self._url, **self._options)  # type: ignore[arg-type]
        except (WatchwordError, OSError, ValueError) as error:
            self.problem = str(error)
            self._not_before = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            _log.warning("cannot renew the token in %s: %s", self._path, error)
        else:
            self.problem = rotated.problem
            self._pause = FIRST_PAUSE
            _log.info("renewed the token in %s", self._path)


def _successor(asking: Client, found: TokenInfo, old: Secret[str], overlap: Span, grace: Span) -> NewToken:
    key = sha256(b"watchword rotate_file\0" + old.reveal().encode()).hexdigest()
    try:
        return asking.tokens.rotate(found.id, overlap=overlap, grace=grace, idempotency_key=key)
    except Conflict as conflict:
        if conflict.reason != Reason.IDEMPOTENCY_KEY_REUSED.word:
            raise
    # The key was used with another overlap or grace period, or that successor is revoked: start a new rotation.
    return asking.tokens.rotate(found.id, overlap=overlap, grace=grace)


def _need_network(networks: Sequence[str], old: Client) -> None:
    """Fail before a successor is created that could not be verified from here."""
    if not isinstance(_use(old), Unauthenticated):
        return
    raise WatchwordError(
        f"The token is limited to the networks {', '.join(networks)}, and the server does not accept it "
        "from here: a successor could not be verified. Nothing was changed. Rotate it from one of those networks."
    )


def _use(client: Client) -> WatchwordError | None:
    try:
        client.tokens.verify()
    except WatchwordError as error:
        # A token for another audience is valid, and this was a use of it.
        is_used = isinstance(error, Unauthorized) and error.reason == Reason.WRONG_AUDIENCE.word
        return None if is_used else error
    return None


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock the folder of the file against other rotations, and say whether that was possible. If not, they get the same
    successor by the idempotency key.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    is_locked = False
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
            is_locked = True
        yield is_locked
    finally:
        os.close(opened)


class _Replacement:
    """The file and a new file beside it that will replace it. The new file is created first, so that no token is
    requested that could not be stored.
    """

    def __init__(self, path: Path, *, is_locked: bool) -> None:
        self._path = path
        self._before, self._status = _read_regular(path)
        self.token = _token_in(self._before)
        if is_locked:
            self._remove_leftovers()
        self._create()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._opened)
        self._beside.unlink(missing_ok=True)

    def put(self, token: Secret[str]) -> None:
        content = self._before.replace(self.token.reveal().encode(), token.reveal().encode())
        if os.write(self._opened, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        os.fsync(self._opened)
        now, status = _read_regular(self._path)
        if (now, status.st_ino) != (self._before, self._status.st_ino):
            raise OSError(f"Another program changed {self._path} meanwhile. It was left unchanged.")
        publish(self._beside, self._path)
        self._before, self._status = _read_regular(self._path)
        self.token = token
        os.close(self._opened)
        self._create()

    def _create(self) -> None:
        self._beside = draft_name(self._path, _SUFFIX)
        self._opened = create(self._beside)
        try:
            new = os.fstat(self._opened)
            if (new.st_uid, new.st_gid) != (self._status.st_uid, self._status.st_gid):
                os.fchown(self._opened, self._status.st_uid, self._status.st_gid)
            shutil.copystat(self._path, self._beside)
            os.utime(self._beside)
        except BaseException:
            self.__exit__()
            raise

    def _remove_leftovers(self) -> None:
        """Remove the files that a killed process left beside this one."""
        ours = re.compile(re.escape(f".{self._path.name}.") + "[0-9a-f]{16}" + re.escape(_SUFFIX))
        for entry in self._path.parent.iterdir():
            if ours.fullmatch(entry.name):
                entry.unlink(missing_ok=True)


def _read_token(path: Path) -> Secret[str]:
    return _token_in(_read_regular(Path(os.path.realpath(path)))[0])


def _read_regular(path: Path) -> tuple[bytes, os.stat_result]:
    """Opened without blocking: a pipe may never get a writer."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("The file must be a regular file.")
        if status.st_nlink > 1:
            raise ValueError("The file has more than one name (hard links). The others would keep the old token.")
        return os.read(opened, MAX_FILE_BYTES + 1), status
    finally:
        os.close(opened)


def _token_in(content: bytes) -> Secret[str]:
    found = _TOKEN.fullmatch(content)
    if found is None or len(content) > MAX_FILE_BYTES:
        raise ValueError(NO_TOKEN)
    return Secret(found[1].decode())

"""Files that we write: for their owner alone, whole or not there, never through what another user put in the way.

A file is written beside its place under a random name that nothing had before (`O_EXCL`, `O_NOFOLLOW`), flushed, and
then gets its name in one step. What a library opens by name is written in a new folder of the same kind.
"""

import fcntl
import grp
import os
import pwd
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from watchword.domain.errors import OperatorError

_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _SAFELY
_ENDING = ".draft"


def create(path: Path, mode: int = 0o600) -> int:
    """A new file, open for writing. Raises where anything has that name, be it a link that leads nowhere."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, mode)


def draft_name(path: Path, ending: str = "") -> Path:
    """A name beside this one that nobody can guess."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{ending}")


@contextmanager
def draft(path: Path, content: bytes, mode: int = 0o600) -> Iterator[Path]:
    """The content in a file beside the path, flushed, for `publish` or a link. Removed afterwards unless renamed."""
    beside = draft_name(path)
    opened = create(beside, mode)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def publish(written: Path, path: Path) -> None:
    """Give a flushed file its name. A link that has the name is replaced and not followed."""
    written.rename(path)
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file that holds no secret, with the mode that the user's umask gives."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OperatorError(f"FILE must be a new or a regular file; {path} is a link, a device or a folder.")
    with draft(path, text.encode(), 0o666) as written:
        publish(written, path)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """A file that is there only to be locked."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | _SAFELY, 0o600)


def make_private(path: Path) -> int:
    """Make a file that stays, with its folder, unless it is there; returns its mode. It may be a link of its owner's,
    but nothing is made where a link leads.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        opened = create(path)
    except FileExistsError:
        opened = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return os.fstat(opened).st_mode
    finally:
        os.close(opened)


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """A new folder beside the path, for its owner alone, until the block ends. Removes those of killed processes."""
    _refuse_unsafe(path.parent)
    _remove_abandoned(path)
    folder, held = _new_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _refuse_unsafe(folder: Path) -> None:
    """Who may rename the folder, what is in it or a folder above it, could put a file of theirs in the place of a
    draft. A link is judged by its owner, and what it leads to by the same rule.
    """
    named, real = folder.absolute(), folder.resolve()
    for path in dict.fromkeys((named, *named.parents, real, *real.parents)):
        seen = path.lstat()
        if seen.st_uid not in (os.geteuid(), 0):
            raise OperatorError(
                f"The folder {path} belongs to another user ({user_name(seen.st_uid)}), who could replace what is "
                "written there. Run this as that user, or name a folder of your own."
            )
        if stat.S_ISLNK(seen.st_mode) or seen.st_mode & stat.S_ISVTX:
            continue
        mode = f"mode {stat.S_IMODE(seen.st_mode):04o}"
        if seen.st_mode & stat.S_IWOTH:
            raise OperatorError(
                f"Every user may replace files in the folder {path} ({mode}). "
                f"Run: chmod o-w {path}, or name another folder."
            )
        if seen.st_mode & stat.S_IWGRP and not _is_private_group(seen.st_gid, seen.st_uid):
            raise OperatorError(
                f"Group {seen.st_gid} may replace files in the folder {path} ({mode}). "
                f"Run: chmod g-w {path}, or name another folder."
            )


def _is_private_group(group: int, owner: int) -> bool:
    """Whether the owner alone is in it, as where each user has a group of the same name and a umask of 002."""
    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(owner)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and user.pw_gid == group and set(found.gr_mem) <= {user.pw_name}


def owner_in_the_way(path: Path) -> tuple[Path, str] | None:
    """The nearest part of a path that this user may look at, and its owner, if that is another user."""
    for part in (path, *path.absolute().parents):
        with suppress(OSError):
            owner = part.stat().st_uid
            return None if owner == os.geteuid() else (part, user_name(owner))
    return None


def user_name(uid: int) -> str:
    """As the machine knows the user, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _new_folder(path: Path) -> tuple[Path, int]:
    while True:
        folder = draft_name(path, _ENDING)
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # taken for an abandoned one before it was locked
            held = os.open(folder, _FOLDER)
            _is_locked(held)
            if folder.exists():
                return folder, held
            os.close(held)


def _remove_abandoned(path: Path) -> None:
    ours = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{16}" + re.escape(_ENDING))
    for folder in path.parent.iterdir():
        if ours.fullmatch(folder.name):
            with suppress(OSError):
                opened = os.open(folder, _FOLDER)
                try:
                    seen = os.fstat(opened)
                    private = seen.st_uid == os.geteuid() and stat.S_IMODE(seen.st_mode) == 0o700
                    if private and _is_locked(opened):
                        shutil.rmtree(folder)
                finally:
                    os.close(opened)


def _is_locked(descriptor: int) -> bool:
    """Whether we have the lock now; some file systems give none for a folder."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

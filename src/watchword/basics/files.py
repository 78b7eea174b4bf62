"""Write files: readable by their owner only, complete or not at all, never through a link of another user.

A file is written beside its path under a new random name (`O_EXCL`, `O_NOFOLLOW`), flushed and renamed. A file that a
library opens by name is written in a new private folder.
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
from functools import lru_cache
from pathlib import Path

from watchword.basics.errors import OperatorError

_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _SAFELY
_ENDING = ".draft"
_trusted_group: int | None = None


def trust_group(group: int | None) -> None:
    """The members of this group count as this user, in this process and its forks: see `WATCHWORD_TRUSTED_GROUP`."""
    global _trusted_group  # noqa: PLW0603 - every check of a file in this process has one rule
    _trusted_group = group


def open_bits(seen: os.stat_result, bits: int = 0o077) -> int:
    """Those of the bits by which other users have access to a file."""
    return seen.st_mode & bits & (0o707 if seen.st_gid == _trusted_group else 0o777)


def close_advice(path: Path, seen: os.stat_result) -> str:
    """What to do about such a file."""
    group = seen.st_gid
    advice = f"Run: chmod 600 {path}"
    if open_bits(seen, 0o007) or group not in {os.getegid(), *os.getgroups()} - {0}:
        return advice
    return f"{advice}, or set WATCHWORD_TRUSTED_GROUP={group} if that group is this service's alone (a pod's fsGroup)."


def create(path: Path, mode: int = 0o600) -> int:
    """A new file, open for writing. Raises if the name exists, even as a dangling link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, mode)


def draft_name(path: Path, ending: str = "") -> Path:
    """A random name beside this one."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{ending}")


@contextmanager
def draft(path: Path, content: bytes, mode: int = 0o600) -> Iterator[Path]:
    """A flushed file beside the path, to be renamed by `publish` or linked. It is deleted at the end of the block."""
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
    """Rename a flushed file. A link of that name is replaced and not followed."""
    written.rename(path)
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file without secrets, with the mode of the user's umask."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OperatorError(f"FILE must be a new or a regular file; {path} is a link, a device or a folder.")
    with draft(path, text.encode(), 0o666) as written:
        publish(written, path)


def sync(path: Path) -> None:
    """Flush a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | _SAFELY, 0o600)


def make_private(path: Path) -> os.stat_result:
    """Create a file and its folder if they are missing; return the status of the file. It may be a link, but the target
    of a link is never created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        opened = create(path)
    except FileExistsError:
        opened = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return os.fstat(opened)
    finally:
        os.close(opened)


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """A new private folder beside the path until the block ends. Removes those of killed processes."""
    _require_safe(path.parent)
    _remove_abandoned(path)
    folder, held = _new_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _require_safe(folder: Path) -> None:
    """A user who may rename the folder, a file in it or a folder above it could replace a draft by another file. For a
    link its owner counts, and its target too.
    """
    named, real = folder.absolute(), folder.resolve()
    for path in dict.fromkeys((named, *named.parents, real, *real.parents)):
        seen = path.lstat()
        if seen.st_uid not in (os.geteuid(), 0):
            raise OperatorError(
                f"The folder {path} belongs to another user ({user_name(seen.st_uid)}), who could replace "
                "files in it. Run this as that user, or name another folder."
            )
        if stat.S_ISLNK(seen.st_mode) or seen.st_mode & stat.S_ISVTX:
            continue
        is_open = seen.st_mode & stat.S_IWOTH
        if is_open or group_may_write(seen):
            who, right = ("Every user", "o-w") if is_open else (f"Group {seen.st_gid}", "g-w")
            raise OperatorError(
                f"{who} may replace files in the folder {path} (mode {stat.S_IMODE(seen.st_mode):04o}). "
                f"Run: chmod {right} {path}, or name another folder."
            )


def group_may_write(seen: os.stat_result) -> bool:
    """Whether a group can that has other members than the owner."""
    return bool(open_bits(seen, stat.S_IWGRP)) and not _is_private_group(seen.st_gid, seen.st_uid)


def _is_private_group(group: int, owner: int) -> bool:
    """Whether the owner is the only member, as where each user has a group of the same name and umask 002."""
    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(owner)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and user.pw_gid == group and set(found.gr_mem) <= {user.pw_name}


def owner_in_the_way(path: Path) -> tuple[Path, str] | None:
    """The nearest part of a path that this user may see, and its owner, if that is another user."""
    for part in (path, *path.absolute().parents):
        with suppress(OSError):
            owner = part.stat().st_uid
            return None if owner == os.geteuid() else (part, user_name(owner))
    return None


@lru_cache(64)
def user_name(uid: int) -> str:
    """The name of the user, or the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _new_folder(path: Path) -> tuple[Path, int]:
    while True:
        folder = draft_name(path, _ENDING)
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another process took it for an abandoned one before it was locked
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
                    private = seen.st_uid == os.geteuid() and not open_bits(seen)
                    if private and _is_locked(opened):
                        shutil.rmtree(folder)
                finally:
                    os.close(opened)


def _is_locked(descriptor: int) -> bool:
    """Whether we have the lock now. Some file systems cannot lock a folder."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

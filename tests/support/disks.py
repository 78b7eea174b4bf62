"""Disks of a test's own: a small one, and one whose power can be cut. Needs root; leaves nothing behind."""

import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.system import missing, need_program, need_root
from tests.support.waiting import until

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = 2
_TURN = Path(tempfile.gettempdir(), "watchword-test-disks.lock")


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    need_root("to mount a small tmpfs")
    mount = need_program("mount", "mount")
    folder.mkdir(parents=True)
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        missing(f"tmpfs cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        unmount(folder)


@contextmanager
def no_disk_in_use() -> Iterator[None]:
    """For whoever makes a namespace of mounts: it would have a copy of each, and a disk that a copy keeps in use is,
    after its power was cut, found by the next mount as it was left.
    """
    with _TURN.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


class FallibleDisk:
    """ext4 on a loop device. `cut_power` loses everything that was not flushed, with its writers still running."""

    def __init__(self, folder: Path, megabytes: int = 96) -> None:
        need_root("to mount a file system")
        self._mount = need_program("mount", "mount")
        make = need_program("mkfs.ext4", "e2fsprogs")
        folder.mkdir(parents=True)
        self.path = folder / "disk"
        self.path.mkdir()
        self._image = folder / "image"
        with self._image.open("wb") as image:
            image.truncate(megabytes * 1024 * 1024)
        subprocess.run([make, "-q", "-F", self._image], check=True, capture_output=True)
        self._turn = _TURN.open("w")
        fcntl.flock(self._turn, fcntl.LOCK_SH)
        done = self._try_mount()
        if done.returncode != 0:
            self._turn.close()
            missing(f"loop devices cannot be had: {done.stderr.strip()}")

    def cut_power(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        finally:
            os.close(descriptor)

    def power_on(self) -> None:
        """Once its users are gone: mount it again as it was found on the disk."""
        unmount(self.path)
        done = self._try_mount()
        assert done.returncode == 0, done.stderr

    def remove(self) -> None:
        if os.path.ismount(self.path):
            unmount(self.path)
        self._image.unlink()
        self._turn.close()

    def _try_mount(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._mount, "-o", "loop", self._image, self.path], capture_output=True, text=True, check=False
        )


def unmount(folder: Path) -> None:
    """A killed process may need a moment until its files are closed; the last resort detaches the mount."""
    said = ""

    def is_gone() -> bool:
        nonlocal said
        done = subprocess.run(["umount", folder], capture_output=True, text=True, check=False)
        said = done.stderr
        return done.returncode == 0

    try:
        until(is_gone, "nobody uses the disk")
    except AssertionError:
        subprocess.run(["umount", "-l", folder], check=False)
        raise AssertionError(said) from None

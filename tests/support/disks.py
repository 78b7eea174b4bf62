"""Disks of a test's own: a small one, and one whose power can be cut. Needs root; leaves nothing behind."""

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.system import missing, need_program, need_root

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = 2


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
        done = self._try_mount()
        if done.returncode != 0:
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

    def _try_mount(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._mount, "-o", "loop", self._image, self.path], capture_output=True, text=True, check=False
        )


def unmount(folder: Path) -> None:
    """A killed process may need a moment until its files are closed; the last resort detaches the mount."""
    for _ in range(100):
        done = subprocess.run(["umount", folder], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.05)
    subprocess.run(["umount", "-l", folder], check=False)
    raise AssertionError(done.stderr)

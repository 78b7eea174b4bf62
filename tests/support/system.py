"""Parts of the machine that tests need: found, installed when that is possible, else skipped, or failed when strict."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

STRICT = os.environ.get("WATCHWORD_TEST_STRICT") == "1"


def missing(reason: str) -> NoReturn:
    """Skip with a reason that says what to install; fail instead where nothing may be silently green."""
    if STRICT:
        pytest.fail(f"strict: {reason}")
    pytest.skip(reason)


def need_root(why: str) -> None:
    if os.geteuid() != 0:
        missing(f"needs root: {why}")


def need_program(name: str, package: str) -> str:
    """The path of a program, installed from Debian's package when it is not there and we are root."""
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install(package)
        found = shutil.which(name)
    if found is None:
        missing(f"needs {name}: apt-get install {package}")
    return found


def install(package: str) -> None:
    with Path(tempfile.gettempdir(), "watchword-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]  # another program may be installing too
        for command in ([*apt, "update"], [*apt, "install", "-y", package]):
            subprocess.run(command, env=environment, capture_output=True, check=False)

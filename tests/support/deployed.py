"""The service as it is deployed: from packages, in an environment of its own, under a systemd or a root of its own.

Nothing is changed in what the project ships but ports and the places of files.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.clients import client_env
from tests.support.disks import no_disk_in_use
from tests.support.pages import ROOT
from tests.support.system import missing, need_root
from tests.support.waiting import SECONDS, until, until_gone

DEPLOY = ROOT / "deploy"
BOOT = ROOT / "tests/support/boot.sh"
UNIT = "watchword.service"
TARGETS = ("basic", "network-online", "shutdown", "sysinit", "multi-user")


def make_packages(folder: Path, project: Path = ROOT, **env: str) -> tuple[Path, Path]:
    """Wheel and source distribution."""
    client_env("packages")  # skips where it cannot be had
    done = subprocess.run(
        [sys.executable, str(project / "scripts/dist"), "--folder", str(folder)],
        capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, source = sorted(folder.iterdir())
    return wheel, source


def environment_of(wheel: Path, folder: Path, python: str = "") -> Path:
    """What deploy.md has one make in /opt/watchword: the locked packages by their hashes, and the wheel."""
    uv = str(Path(sys.executable).with_name("uv"))
    install = f"{uv} pip install --quiet --no-deps --python {folder}"
    for command in (
        f"{uv} venv --quiet --relocatable --python {python or _system_python()} {folder}",
        f"{install} --require-hashes -r {ROOT / 'requirements/run.lock'}",
        f"{install} {wheel}",
        f"{folder / 'bin/python'} -m compileall -q {folder / 'lib'}",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    return folder


def _system_python() -> str:
    """One that other users reach: not below somebody's home."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        if python.startswith(("/root", "/home", "/tmp")) or not os.access(python, os.X_OK):
            continue
        asked = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(asked, check=False).returncode == 0:
            return python
    return missing("needs Python 3.11 or later outside of a home: apt-get install python3")


@contextmanager
def systemd(units: Path, environment: Path) -> Iterator[psutil.Process]:
    """A real systemd, the first process of a machine of its own, that starts the unit; yields it."""
    need_root("systemd is started in namespaces of its own")
    if not Path("/lib/systemd/systemd").exists():
        missing("needs systemd: apt-get install systemd")
    for name in TARGETS:
        (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    (units / "test.target").write_text(f"[Unit]\nDefaultDependencies=no\nWants={UNIT}\n")
    group = _cgroups() / f"watchword-test-{os.getpid()}"
    group.mkdir()
    enter = f"echo $$ > {group}/cgroup.procs && exec unshare --pid --fork --mount --uts --ipc --cgroup --mount-proc"
    with (units / "boot.log").open("wb") as log, no_disk_in_use():
        outer = subprocess.Popen(
            ["sh", "-c", f"{enter} --kill-child sh {BOOT} {units} {environment}"], stdout=log, stderr=log
        )
        # What is made first within the namespaces.
        until(lambda: (units / "console.log").exists() or outer.poll() is not None, "it has namespaces of its own")
    try:
        yield psutil.Process(outer.pid)
    finally:
        inner = psutil.Process(outer.pid).children(recursive=True)
        outer.kill()
        outer.wait()
        until_gone(inner)
        until(lambda: _is_removed(group), "nobody is left in its group")


def _is_removed(group: Path) -> bool:
    """Not while somebody is in it or below it who is just ending."""
    for folder in [*sorted((one for one in group.rglob("*") if one.is_dir()), reverse=True), group]:
        with suppress(OSError):
            folder.rmdir()
    return not group.exists()


def _cgroups() -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(place, os.W_OK):
            return Path(place)
    return missing("needs cgroups of version 2, mounted and writable")

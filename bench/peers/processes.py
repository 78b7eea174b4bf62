"""Peers are had by package name within a bounded time, kept in `.peers`, and run on the servers' core."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx
import psutil

from bench.contenders import ROOT, SERVER_CORE

MADE = ROOT / ".peers"
STOP_SECONDS = 20.0


class NotInstalled(Exception):
    """A sentence: why this peer cannot be had on this machine."""


def had(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of `.peers`, made once; it counts as whole only when it is."""
    folder = MADE / name
    mark = MADE / f"{name}.made"
    MADE.mkdir(exist_ok=True)
    with (MADE / f"{name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            mark.touch()
    return folder


def program(name: str, package: str) -> str:
    """Of the system; from Debian's package when it is missing and we are root."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        surroundings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "-y", package]):
            asked = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *words]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(asked, env=surroundings, capture_output=True, check=False, timeout=300)
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"{name} is missing: apt-get install {package}")
    return found


def run(command: Sequence[str | Path], folder: Path, seconds: float, **environment: str) -> str:
    """What it prints; a peer whose command fails or takes longer is not here."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{name} {command[1]} took longer than {seconds:.0f} seconds.") from None
    if done.returncode != 0:
        said = done.stdout.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotInstalled(f"{name} {command[1]} failed: {said[-1]}")
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running:
    """A peer's server and what it started, until the end of the block: on the servers' core, where it starts too unless
    it is `slow` to.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        url: str,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        *,
        slow: bool = False,
    ) -> None:
        self._command = [*([] if slow else ["taskset", "-c", SERVER_CORE]), *map(str, command)]
        self._folder = folder
        self._url = url
        self._seconds = seconds
        self._environment = environment or {}
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                httpx.get(self._url, timeout=10)
            except httpx.TransportError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    said = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
                    raise NotInstalled(f"It did not start within {self._seconds:.0f} seconds: {said[-1]}") from None
                time.sleep(0.1)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        """Ask the process to stop; kill its group if it does not."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def settle(self) -> None:
        """All its threads on the servers' core from now on."""
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        for process in (main, *main.children(recursive=True)):
            asked = ["taskset", "-a", "-c", "-p", SERVER_CORE, str(process.pid)]
            subprocess.run(asked, capture_output=True, check=True)

    def cpu_seconds(self) -> float:
        assert self._process is not None
        return cpu_seconds(self._process.pid)


def cpu_seconds(pid: int) -> float:
    """What a process and all it started have used so far."""
    main = psutil.Process(pid)
    used = 0.0
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def json_headers(**headers: str) -> Mapping[str, str]:
    return {"Content-Type": "application/json", **headers}

"""The embedded index's own process, `python -m watchword.engines.embedded.process PATH [PARENT]`, and what keeps it
running.

Of all processes started on one file one works; the others wait for its lock. The process has the lowest processor and
disk priority, exits with the process that started it (PARENT), and may be killed at any moment.
"""

import ctypes
import fcntl
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import apsw
import orjson

from watchword.domain.errors import Fault, OperatorError
from watchword.engines.embedded.deletions import DeletionWorker
from watchword.engines.embedded.index_file import INDEX_FILE, prepare
from watchword.files import open_lock

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
STEADY_SECONDS = 10.0
STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IOPRIO_WHO_PROCESS, _IOPRIO_IDLE = 1, 3 << 13


class EngineProcess:
    """Starts the process, restarts it when it dies, stops it at the end. One for each server, not for each worker.

    A thread starts it and stays alive: the kernel kills a process with a parent-death signal when the thread that
    started it ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_running, name="watchword-index-process", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None:
            process.terminate()
            self._thread.join(STOP_SECONDS)
            process.kill()
        self._thread.join()

    @property
    def pid(self) -> int | None:
        """None before the first start and between two."""
        with self._lock:
            process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def _keep_running(self) -> None:
        # The started process inherits the mask: Ctrl-C stops the server, which then stops the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            process = self._start()
            if process is None:
                return
            process.wait()
            if time.monotonic() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE
            if self._stopping.wait(pause):
                return
            pause = min(LONGEST_PAUSE, pause * 2)

    def _start(self) -> subprocess.Popen[bytes] | None:
        # -P: imports no module from the current folder.
        command = [sys.executable, "-P", "-m", "watchword.engines.embedded.process", str(self._path), str(os.getpid())]
        with self._lock:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own module
            return self._process


def main(path: Path, parent: int | None = None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if parent is not None:
        _exit_with(parent)
    _lower_priority()
    try:
        prepare(path)
        # The kernel releases the lock of a process that dies.
        fcntl.flock(open_lock(path.with_name(path.name + ".lock")), fcntl.LOCK_EX)
        DeletionWorker(path, lambda: time.time_ns() // 1_000_000, _log).run()
    except OperatorError as error:
        _log(str(error))
    except (Fault, apsw.Error) as error:
        fault = error if isinstance(error, Fault) else INDEX_FILE.fault(error)
        _log(fault.cause or fault.message)
    sys.exit(1)


def _log(message: str) -> None:
    """A line in the log of the process that started this one."""
    line = {"event": f"search index: {message}", "level": "warning", "timestamp": datetime.now(UTC).isoformat()}
    sys.stderr.buffer.write(orjson.dumps(line) + b"\n")
    sys.stderr.buffer.flush()


def _lower_priority() -> None:
    os.nice(19)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_IDLE)


def _exit_with(parent: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

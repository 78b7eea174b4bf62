"""The embedded index's own process, a fork of the server named `watchword-index`, and what keeps it running. By hand:
`python -m watchword.index.embedded.process PATH [PARENT]`.

Of all processes started on one file one works; the others wait for its lock. The process has the lowest processor and
disk priority, exits with the process that started it (PARENT), and may be killed at any moment.
"""

import ctypes
import fcntl
import gc
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Self

import apsw
import orjson

from watchword.basics.errors import Fault, OperatorError
from watchword.basics.files import open_lock
from watchword.index.embedded.deletions import DeletionWorker
from watchword.index.embedded.index_file import INDEX_FILE, prepare

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
STEADY_SECONDS = 10.0
STOP_SECONDS = 5.0
PROCESS_NAME = "watchword-index"
MAX_FILES = 1 << 16
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IOPRIO_WHO_PROCESS, _IOPRIO_IDLE = 1, 3 << 13
_FORK = multiprocessing.get_context("fork")


class EngineProcess:
    """Starts the process, restarts it when it dies, stops it at the end. One for each server, not for each worker.

    A thread starts it and stays alive: the kernel kills a process with a parent-death signal when the thread that
    started it ends. The process is a fork, which loads nothing: a new interpreter takes half the time of a whole start.
    A process that forks may not have the file open, because SQLite's locks do not survive a fork.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started, self._stopping = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._process: ForkProcess | None = None
        self._thread = threading.Thread(target=self._keep_running, name="watchword-index-process", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()  # so that the first fork happens while no other thread runs
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
        """None between two."""
        with self._lock:
            process = self._process
        return None if process is None or process.exitcode is not None else process.pid

    def _keep_running(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            process = self._start()
            self._started.set()
            if process is None:
                return
            process.join()
            if time.monotonic() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE
            if self._stopping.wait(pause):
                return
            pause = min(LONGEST_PAUSE, pause * 2)

    def _start(self) -> ForkProcess | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            self._process = _FORK.Process(target=_run_fork, args=(self._path, os.getpid()))
            gc.freeze()  # a collection would write to the memory that the two share, and so copy it
            # Until the fork has handlers of its own, those of the server would take its signals.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            try:
                self._process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return self._process


def _run_fork(path: Path, parent: int) -> None:
    """Keeps the server's memory, which the two share, and none of its files and signal handlers."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which then stops this process
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.closerange(3, MAX_FILES)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, PROCESS_NAME.encode(), 0, 0, 0)
    main(path, parent)


def main(path: Path, parent: int | None = None) -> None:
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

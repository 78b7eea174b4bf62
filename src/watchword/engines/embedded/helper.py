"""Keeps the engine's process running for as long as it is needed: started, started again when it died, stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
STEADY_SECONDS = 10.0
STOP_SECONDS = 5.0

_PROCESS = "watchword.engines.embedded.process"


class Helper:
    """To be held by one process for each server, not by each of its workers.

    It is started by a thread of its own, which stays: the kernel ends a process that wants to die with its parent when
    the thread that started it ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="watchword-index-helper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Of the process as it is now; None before the first and between two."""
        with self._lock:
            process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def _keep(self) -> None:
        # What this thread does not hear, the process it starts does not hear either, from its first moment on: a key
        # that interrupts us reaches it too, and we say when it is over.
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

    def _start(self) -> "subprocess.Popen[bytes] | None":
        # -P: nothing in the folder it happens to be started in is taken for a module.
        command = [sys.executable, "-P", "-m", _PROCESS, str(self._path), str(os.getpid())]
        with self._lock:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own module
            return self._process

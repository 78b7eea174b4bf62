"""System calls of a running process made to fail, or counted, by strace."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.system import missing, need_program, need_root
from tests.support.waiting import SECONDS, until


@contextmanager
def strace(pid: int, log: Path, *flags: str) -> Iterator[Path]:
    """Attached to all threads of the process while the block runs; the calls it saw are in the log."""
    need_root("to trace another process")
    program = need_program("strace", "strace")
    said = log.with_suffix(".said")
    with said.open("wb") as err:
        tracer = subprocess.Popen([program, "-f", "-o", log, *flags, "-p", str(pid)], stderr=err)
    try:
        until(lambda: "attached" in said.read_text() or tracer.poll() is not None, "strace has attached")
        if tracer.poll() is not None:
            missing(f"strace cannot attach here: {said.read_text().strip()}")
        yield log
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(SECONDS)


@contextmanager
def failing(pid: int, log: Path, calls: str, error: str) -> Iterator[Path]:
    """While the block runs, these system calls of the process fail with this error."""
    with strace(pid, log, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"):
        yield log

"""A `watchword` command, or another program, at a terminal: a pseudo-terminal of a size, with somebody who types."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.support import preloaded
from tests.support.preloaded import ForkedProcess
from tests.support.waiting import SECONDS

WATCHWORD = (sys.executable, "-m", "watchword")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def _attach_terminal(terminal: int) -> None:
    """With an ear for Ctrl-C, to which a run that was started in the background is deaf, and its children with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.login_tty(terminal)


class StillRunning(AssertionError):
    """It has not ended; what it printed so far."""


class Terminal:
    def __init__(
        self,
        *words: str,
        columns: int = 100,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        """Without a program: `watchword`, forked from a process that has loaded it."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        left_out = ("WATCHWORD_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM", "CI")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        environment = {**clean, "TERM": "xterm-256color", **(env or {})}
        self.process = self._begin(slave, program, words, environment)
        os.close(slave)
        self.output = ""

    @staticmethod
    def _begin(
        slave: int, program: Sequence[str], words: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        if not program and preloaded.may_fork(environment):
            return preloaded.fork(words, stdin=slave, stdout=slave, stderr=slave, env=environment, terminal=True)
        return subprocess.Popen(
            [*(program or WATCHWORD), *words],
            env=environment,
            preexec_fn=lambda: _attach_terminal(slave),  # noqa: PLW1509 - a few system calls, no lock in them
        )

    def enter(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds: float = SECONDS) -> None:
        assert self.shows(text, seconds), f"it ended without {text!r}: {self.output}"

    def shows(self, text: str, seconds: float = SECONDS) -> bool:
        """Once it does; or that it has ended, and did not."""
        deadline = time.monotonic() + seconds
        while text not in self.output:
            is_late = time.monotonic() > deadline
            if not self._read(0.2):
                return text in self.output
            assert not is_late or text in self.output, self.output
        return True

    def interrupt(self) -> int:
        """Ctrl-C, and again if nothing comes of it: Python can miss one that comes just as it begins to read. Not soon:
        one that is already ending would be ended by the second in another way.
        """
        for _ in range(5):
            self.enter("\x03")
            try:
                return self.finish(seconds=20)
            except StillRunning:
                continue
        raise StillRunning(self.output)

    def finish(self, seconds: float = SECONDS) -> int:
        """Wait for its end; returns the exit code."""
        deadline = time.monotonic() + seconds
        is_late = False
        while self._read(0.2):
            if is_late:
                raise StillRunning(self.output)
            is_late = time.monotonic() > deadline
        return self.process.wait(SECONDS)

    @property
    def text(self) -> str:
        """What it printed, without colours."""
        return ESCAPES.sub("", self.output).replace("\r\n", "\n")

    def _read(self, seconds: float) -> bool:
        """Take what is there; False once the other side is closed."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            read = os.read(self._master, 65_536)
        except OSError:  # how Linux tells that nobody has the terminal open any more
            return False
        self.output += read.decode(errors="replace")
        return bool(read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

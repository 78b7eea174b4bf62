"""Standard input, output and error, which whoever starts a command may have closed.

What is closed is opened anew, so that no file or socket that is opened later takes its number and gets what is printed.
Reading or writing it then fails as anything that cannot be read or written does.
"""

import fcntl
import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

from watchword.domain.errors import OperatorError


class WrongUse(OperatorError):
    """The command cannot be meant as it was given; the sentence says how it could be."""


class NotWritten(OSError):
    """Standard output takes nothing, told apart from all other files that a command may write."""


class _Output(FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise NotWritten(error.errno, error.strerror) from None


def prepare() -> None:
    if sys.stdin is None:
        sys.stdin = os.fdopen(_opened(0, os.O_WRONLY), "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_opened(1, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:  # where a failure would be told: there is nobody to tell it to
        sys.stderr = os.fdopen(_opened(2, os.O_WRONLY), "w", closefd=False)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = TextIOWrapper(
            BufferedWriter(_Output(sys.stdout.fileno(), "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=sys.stdout.line_buffering or sys.stdout.write_through,  # the latter by PYTHONUNBUFFERED
        )


def _opened(number: int, mode: int) -> int:
    found = os.open(os.devnull, mode)
    if found != number:
        os.dup2(found, number)
        os.close(found)
    return number


def read_input(most: int | None = None) -> bytes:
    """What comes on standard input, and no more than that many bytes of it."""
    try:
        return sys.stdin.buffer.read(-1 if most is None else most)
    except OSError as error:
        raise WrongUse(f"Standard input cannot be read ({error.strerror}). Is it closed?") from None


def need_no_output() -> None:
    """For a service, which runs on whether anybody reads its first lines or not."""
    if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        silence()


def silence() -> None:
    """Nobody reads on, so that what is left in the buffer must not raise once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

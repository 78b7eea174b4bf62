"""The engine's process: `python -m watchword.engines.embedded.process PATH [PARENT]`.

Of all that are started on one file, one works; the others wait until it is gone, and one of them takes over. It is of
the lowest priority for processor and disk, dies with the process that started it (named as PARENT), and may be killed
at any moment.
"""

import ctypes
import fcntl
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
import orjson

from watchword.domain.errors import Fault, OperatorError
from watchword.engines.embedded.file import index_fault, prepare
from watchword.engines.embedded.worker import Worker
from watchword.files import open_lock

_SET_DEATH_SIGNAL = 1
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_THIS_PROCESS, _IDLE = 1, 3 << 13


def run(path: Path) -> None:
    """Work on the tasks of this index for ever, as soon as nobody else does."""
    _give_way()
    prepare(path)
    with _alone(path):
        Worker(path, _clock, complain).run()


def complain(sentence: str) -> None:
    """A line in the log of whoever started it."""
    moment = datetime.now(UTC).isoformat()
    line = orjson.dumps({"event": f"search index: {sentence}", "level": "warning", "timestamp": moment})
    sys.stderr.buffer.write(line + b"\n")
    sys.stderr.buffer.flush()


def _clock() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits, at no cost, while another process holds the lock; the kernel takes it from one that dies."""
    descriptor = open_lock(path.with_name(path.name + ".lock"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give_way() -> None:
    os.nice(19)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE)


def _die_with(parent: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    path, *parent = arguments
    if parent:
        _die_with(int(parent[0]))
    try:
        run(Path(path))
    except OperatorError as error:
        complain(str(error))
        sys.exit(1)
    except (Fault, apsw.Error) as error:
        fault = error if isinstance(error, Fault) else index_fault(error)
        complain(fault.why or fault.message)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])

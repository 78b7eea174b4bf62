"""Wait for conditions and for processes to exit."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

T = TypeVar("T")
SECONDS = 300.0  # generous, for a loaded machine


def until(true: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Wait until `true` returns True; fail with `what` at the deadline. Polls less and less often, and once more after
    the deadline, in case this process was stopped meanwhile.
    """
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        is_late = time.monotonic() > deadline
        if true():
            return
        assert not is_late, f"still not so after {seconds:g} seconds: {what}"
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def seen_in_time(watch: Callable[[int], T | None], *amounts: int) -> T:
    """Observe work while it runs. If it ends first, as on a loaded machine, try a larger amount."""
    for amount in amounts:
        seen = watch(amount)
        if seen is not None:
            return seen
    raise AssertionError(f"the work ended before it was observed, even with {amounts[-1]}")


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def until_gone(processes: Iterable[psutil.Process], seconds: float = SECONDS) -> None:
    left = list(processes)
    until(lambda: not any(map(is_alive, left)), "every process exits", seconds)

"""Waiting for what others do, and for processes to be gone."""

import time
from collections.abc import Callable, Iterable

import psutil

SECONDS = 30.0


def until(true: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Wait until it is true; fail with these words when it never is. Who asks again and again takes time from those
    who make it true: what takes long is asked for less often.
    """
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not true():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} seconds: {what}"
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def is_alive(process: psutil.Process) -> bool:
    """It may still do something: what has ended and waits to be reaped does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def until_gone(processes: Iterable[psutil.Process], seconds: float = SECONDS) -> None:
    left = list(processes)
    until(lambda: not any(map(is_alive, left)), "every one of the processes is gone", seconds)

"""Waiting for what others do, and for processes to be gone."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

T = TypeVar("T")
SECONDS = 300.0  # what takes a second on an idle machine may take a minute on one with too much to do


def until(true: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Wait until it is true; fail with these words when it never is. Who asks again and again takes time from those
    who make it true: what takes long is asked for less often. After the last moment it is looked once more, for we may
    have been stopped ourselves.
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
    """What was seen of work while it went on. Where it was over before, as on a machine that stopped us meanwhile,
    there is more to do the next time.
    """
    for amount in amounts:
        seen = watch(amount)
        if seen is not None:
            return seen
    raise AssertionError(f"it was over before it was seen, though there was {amounts[-1]} of it")


def is_alive(process: psutil.Process) -> bool:
    """It may still do something: what has ended and waits to be reaped does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def until_gone(processes: Iterable[psutil.Process], seconds: float = SECONDS) -> None:
    left = list(processes)
    until(lambda: not any(map(is_alive, left)), "every one of the processes is gone", seconds)

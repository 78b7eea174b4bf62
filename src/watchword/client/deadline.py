"""A deadline over a whole call, where httpx has one only for each read and write of it.

An asynchronous call is cut off from outside. A blocking one cannot be, so each of its reads is told how much of the
call's time is left: a server that sends a byte a second, or interim answers for ever, holds nobody up for longer.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx

_ends: ContextVar[float | None] = ContextVar("ends", default=None)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """What is read and written here by a client that keeps time must be done in so many seconds."""
    before = _ends.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(before)


def keep_time(http: httpx.Client) -> httpx.Client:
    """Put this in the place of what httpx reads by, which it hands no way to; a test holds it to that."""
    for transport in (http._transport, *http._mounts.values()):  # noqa: SLF001 - see above
        if transport is not None:
            pool: Any = transport._pool  # type: ignore[attr-defined]  # noqa: SLF001
            pool._network_backend = _Backend(pool._network_backend)  # noqa: SLF001
    return http


def _left(timeout: float | None) -> float | None:
    ends = _ends.get()
    if ends is None:
        return timeout
    left = ends - time.monotonic()
    if left <= 0:
        raise httpx.ReadTimeout("")
    return left if timeout is None else min(left, timeout)


class _Backend:
    """httpcore's network backend: opens streams."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, *args: Any, timeout: float | None = None, **how: Any) -> "_Stream":
        return _Stream(self._inner.connect_tcp(*args, timeout=_left(timeout), **how))

    def connect_unix_socket(self, *args: Any, timeout: float | None = None, **how: Any) -> "_Stream":
        return _Stream(self._inner.connect_unix_socket(*args, timeout=_left(timeout), **how))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream:
    """httpcore's network stream."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._inner.read(max_bytes, timeout=_left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=_left(timeout))

    def start_tls(self, *args: Any, timeout: float | None = None, **how: Any) -> "_Stream":
        return _Stream(self._inner.start_tls(*args, timeout=_left(timeout), **how))

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

"""Caches limited in bytes: what callers choose may be large."""

import threading
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

A = TypeVarTuple("A")
V = TypeVar("V")

CACHE_BYTES = 4 * 1024 * 1024


def cached_within(max_bytes: int = CACHE_BYTES) -> Callable[[Callable[[*A], V]], Callable[[*A], V]]:
    """Keeps the results of a function. Arguments and results are texts, and tuples and sets of them. The oldest go
    first.
    """

    def decorate(function: Callable[[*A], V]) -> Callable[[*A], V]:
        kept: dict[tuple[*A], V] = {}
        weights: deque[tuple[tuple[*A], int]] = deque()
        lock = threading.Lock()
        held = 0

        @wraps(function)
        def cached(*key: *A) -> V:
            nonlocal held
            try:
                return kept[key]
            except KeyError:
                made = function(*key)
            weight = _weight((key, made))
            with lock:
                if key not in kept:
                    kept[key] = made
                    weights.append((key, weight))
                    held += weight
                while held > max_bytes:
                    oldest, lost = weights.popleft()
                    del kept[oldest]
                    held -= lost
            return made

        return cached

    return decorate


def _weight(values: object) -> int:
    """Estimates the bytes. What argument and result share counts twice; anything but texts is shared by all."""
    if isinstance(values, tuple):
        total = 100 + 8 * len(values)
    elif isinstance(values, frozenset):
        total = 200 + 80 * len(values)
    else:
        return 50 + len(values) if isinstance(values, str) else 0
    for one in values:
        total += 50 + len(one) if one.__class__ is str else _weight(one)
    return total

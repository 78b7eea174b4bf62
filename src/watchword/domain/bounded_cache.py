"""Caches limited in bytes: what callers choose may be large."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

CACHE_BYTES = 4 * 1024 * 1024


def cached_within(
    weigh: Callable[[K], int], max_bytes: int = CACHE_BYTES
) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Keeps the results of a function of one argument. `weigh` estimates the bytes of argument and result; the oldest
    go first.
    """

    def decorate(function: Callable[[K], V]) -> Callable[[K], V]:
        kept: dict[K, V] = {}
        lock = threading.Lock()
        held = 0

        @wraps(function)
        def cached(key: K) -> V:
            nonlocal held
            try:
                return kept[key]
            except KeyError:
                made = function(key)
            with lock:
                if key not in kept:
                    kept[key] = made
                    held += weigh(key)
                while held > max_bytes:
                    oldest = next(iter(kept))
                    del kept[oldest]
                    held -= weigh(oldest)
            return made

        return cached

    return decorate


def weight_of_words(words: tuple[str, ...] | None) -> int:
    """Of a tuple and a set of them."""
    return 600 + sum(len(word) + 180 for word in words or ())


def weight_of_json(text: str | None) -> int:
    """Of a short JSON text and the objects parsed from it."""
    return 1_000 + 16 * len(text or "")

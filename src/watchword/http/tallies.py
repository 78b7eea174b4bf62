"""Tallies: numbers that every worker adds to its own file and any worker can read.

A worker's numbers are doubles in a memory-mapped file: adding to one is an assignment, needs no flush, and outlives
the worker. Which double means what stands in a second file, rewritten when a new name is first used.
prometheus-client's own multiprocess mode does the same at five times the cost (docs/decisions/metrics.md).
"""

import json
import mmap
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SLOTS = 8_192
UNNAMED = 64
"""Numbers behind the others that no name leads to: what finds no room adds to these, and nobody reads them."""
WIDTH = 8

Key = tuple[str, ...]


class Tally:
    """The numbers of one worker. `values[slot] += n` adds to one."""

    def __init__(self, folder: Path, name: str) -> None:
        self._names = folder / f"{name}.names"
        self._keys: list[tuple[Key, int]] = []
        self._used = 0
        file = os.open(folder / f"{name}.tally", os.O_RDWR | os.O_CREAT, 0o600)
        # Its room is taken now: on a disk that is full later, touching an empty page would end the process.
        size = (SLOTS + UNNAMED) * WIDTH
        os.posix_fallocate(file, 0, size)
        self.values = memoryview(mmap.mmap(file, size)).cast("d")
        os.close(file)

    def slots(self, key: Key, number: int = 1) -> int:
        """The first of so many numbers under this name; at most `UNNAMED` of them."""
        first = self._used
        if first + number > SLOTS:
            # Never met with the names we use. A full tally counts this name nowhere: it neither stops a request nor
            # adds to the numbers of another name.
            return SLOTS
        self._used += number
        self._keys.append((key, number))
        with suppress(OSError):
            draft = self._names.with_suffix(".draft")
            draft.write_text(json.dumps(self._keys))
            draft.replace(self._names)
        return first


def totals(folder: Path) -> dict[Key, list[float]]:
    """The sums over all workers that ever ran here, by name."""
    sums: dict[Key, list[float]] = defaultdict(list)
    for names in sorted(folder.glob("*.names")):
        for key, numbers in _read(names):
            known = sums[key]
            sums[key] = [a + b for a, b in zip(known, numbers, strict=True)] if known else numbers
    return sums


def _read(names: Path) -> Iterator[tuple[Key, list[float]]]:
    values = memoryview(names.with_suffix(".tally").read_bytes()).cast("d")
    first = 0
    for key, number in json.loads(names.read_text()):
        yield tuple(key), list(values[first : first + number])
        first += number

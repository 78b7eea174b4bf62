"""Metrics in Prometheus text, correct with several worker processes.

Each worker keeps its numbers as doubles in a memory-mapped file: an increment is an assignment, needs no flush, and
survives the worker. A second file names the doubles; it is rewritten when a new name is first used. Any worker can sum
all files. prometheus-client's multiprocess mode does the same at five times the cost (docs/decisions/metrics.md).
"""

import json
import mmap
import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RENDER_SECONDS = 1.0
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BOUNDS = [*(str(bound) for bound in BUCKETS), "+Inf"]
# A slot for each bucket and one for the sum.
_HISTOGRAM_SLOTS = len(_BOUNDS) + 1
_SUM = len(_BOUNDS)
SLOTS = 8_192
SPARE_SLOTS = 64
"""Unnamed slots at the end, which nothing reads: names that find no room write there."""
WIDTH = 8

Key = tuple[str, ...]

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "watchword_http_requests": ("Requests answered.", ("route", "status")),
    "watchword_verifications": ("Callers authenticated, by verdict.", ("verdict",)),
    "watchword_tokens_issued": ("Tokens issued.", ()),
    "watchword_tokens_revoked": ("Tokens revoked.", ()),
    "watchword_graphql_fallbacks": ("GraphQL operations executed by graphql-core, not the fast path.", ("cause",)),
}
_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "watchword_http_request_seconds": ("Time to answer.", ("route",)),
    "watchword_store_seconds": ("Time the store took.", ("operation",)),
}


class Metrics(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = CounterFile(folder, str(os.getpid()))
        self._values = self._file.values
        # The first slots of the names, by the arguments of the methods: one lookup per request builds no names.
        self._requests: dict[tuple[str, int, str | None], tuple[int, int, int]] = {}
        self._operations: dict[str, int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._text = b""
        self._rendered_at = float("-inf")
        self.timeline: Callable[[], int] = lambda: 0
        """Of the store's primary."""
        self.issued = self._counter("watchword_tokens_issued")
        self.revoked = self._counter("watchword_tokens_revoked")

    def request(self, route: str, status: int, verdict: str | None, seconds: float) -> None:
        """Counts a response, and the verdict of its authentication if there was one."""
        key = route, status, verdict
        slots = self._requests.get(key)
        if slots is None:
            slots = self._requests[key] = (
                self._file.slots(("watchword_http_requests", route, str(status))),
                self._file.slots(("watchword_http_request_seconds", route), _HISTOGRAM_SLOTS),
                self._file.slots(("watchword_verifications", verdict)) if verdict else -1,
            )
        counter, histogram, verdicts = slots
        values = self._values
        values[counter] += 1
        values[histogram + bisect_left(BUCKETS, seconds)] += 1
        values[histogram + _SUM] += seconds
        if verdict is not None:
            values[verdicts] += 1

    def graphql_fallback(self, cause: str, number: int = 1) -> None:
        self._values[self._file.slots(("watchword_graphql_fallbacks", cause))] += number

    def store(self, operation: str, seconds: float) -> None:
        histogram = self._operations.get(operation)
        if histogram is None:
            key = ("watchword_store_seconds", operation)
            histogram = self._operations[operation] = self._file.slots(key, _HISTOGRAM_SLOTS)
        self._values[histogram + bisect_left(BUCKETS, seconds)] += 1
        self._values[histogram + _SUM] += seconds

    def render(self) -> bytes:
        """Renders at most once a second: it takes as long as hundreds of verifications."""
        if time.monotonic() - self._rendered_at >= RENDER_SECONDS:
            self._text = generate_latest(self._registry)
            self._rendered_at = time.monotonic()
        return self._text

    def collect(self) -> Iterable[Metric]:
        """Called by prometheus-client."""
        sums = totals(self._folder)
        for name, (about, labels) in _COUNTERS.items():
            counter = CounterMetricFamily(name, about, labels=labels)
            for key, numbers in sums.items():
                if key[0] == name:
                    counter.add_metric(key[1:], numbers[0])
            yield counter
        for name, (about, labels) in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, about, labels=labels)
            for key, numbers in sums.items():
                if key[0] == name:
                    buckets = list(zip(_BOUNDS, accumulate(numbers[:_SUM]), strict=True))
                    histogram.add_metric(key[1:], buckets, numbers[_SUM])
            yield histogram
        about = "Timeline of PostgreSQL's primary; 0 on SQLite. A promotion of a standby begins a new one."
        yield GaugeMetricFamily("watchword_store_timeline", about, self.timeline())

    def _counter(self, name: str) -> Callable[[int], None]:
        slot = self._file.slots((name,))

        def count(number: int) -> None:
            self._values[slot] += number

        return count


class CounterFile:
    """The numbers of one worker. `values[slot] += n` adds to one."""

    def __init__(self, folder: Path, name: str) -> None:
        self._names = folder / f"{name}.names"
        self._first: dict[Key, int] = {}
        self._keys: list[tuple[Key, int]] = []
        self._used = 0
        file = os.open(folder / f"{name}.counters", os.O_RDWR | os.O_CREAT, 0o600)
        # Allocate now: on a disk that is full later, a write to a sparse page would kill the process.
        size = (SLOTS + SPARE_SLOTS) * WIDTH
        os.posix_fallocate(file, 0, size)
        self.values = memoryview(mmap.mmap(file, size)).cast("d")
        os.close(file)

    def slots(self, key: Key, number: int = 1) -> int:
        """The first of `number` slots of a name; at most SPARE_SLOTS."""
        if key in self._first:
            return self._first[key]
        # A full file does not count new names; it neither fails a request nor corrupts another name.
        if self._used + number > SLOTS:
            return SLOTS
        first = self._first[key] = self._used
        self._used += number
        self._keys.append((key, number))
        with suppress(OSError):
            new = self._names.with_suffix(".new")
            new.write_text(json.dumps(self._keys))
            new.replace(self._names)
        return first


def totals(folder: Path) -> dict[Key, list[float]]:
    """The sums over all workers that ran with this folder, by name."""
    sums: dict[Key, list[float]] = defaultdict(list)
    for names in sorted(folder.glob("*.names")):
        for key, numbers in _read(names):
            known = sums[key]
            sums[key] = [a + b for a, b in zip(known, numbers, strict=True)] if known else numbers
    return sums


def _read(names: Path) -> Iterator[tuple[Key, list[float]]]:
    values = memoryview(names.with_suffix(".counters").read_bytes()).cast("d")
    first = 0
    for key, number in json.loads(names.read_text()):
        yield tuple(key), list(values[first : first + number])
        first += number

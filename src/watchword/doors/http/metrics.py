"""Metrics in Prometheus text, right with several worker processes: prometheus-client writes what the tallies hold."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from watchword.doors.http.tallies import Tally, totals

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BOUNDS = [*(str(bound) for bound in BUCKETS), "+Inf"]
# A number for each bucket, one for what is beyond the last, and one for the sum.
_HISTOGRAM = len(_BOUNDS) + 1
_SUM = len(_BOUNDS)

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "watchword_http_requests": ("Requests answered.", ("route", "status")),
    "watchword_verifications": ("Callers verified, by verdict.", ("verdict",)),
    "watchword_tokens_issued": ("Tokens made.", ()),
    "watchword_tokens_revoked": ("Tokens revoked.", ()),
}
_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "watchword_http_request_seconds": ("Time to answer.", ("route",)),
    "watchword_store_seconds": ("Time the store took.", ("operation",)),
}


class Metrics(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tally = Tally(folder, str(os.getpid()))
        self._values = self._tally.values
        self._slots: dict[tuple[str, ...], int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self.issued = self._counter("watchword_tokens_issued")
        self.revoked = self._counter("watchword_tokens_revoked")

    def request(self, route: str, status: int, seconds: float) -> None:
        self._values[self._slot(("watchword_http_requests", route, str(status)))] += 1
        self._observe(("watchword_http_request_seconds", route), seconds)

    def verified(self, verdict: str) -> None:
        self._values[self._slot(("watchword_verifications", verdict))] += 1

    def store(self, operation: str, seconds: float) -> None:
        self._observe(("watchword_store_seconds", operation), seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Read by the library when it writes the text."""
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

    def _counter(self, name: str) -> Callable[[], None]:
        slot = self._slot((name,))

        def count() -> None:
            self._values[slot] += 1

        return count

    def _observe(self, key: tuple[str, ...], seconds: float) -> None:
        first = self._slots.get(key)
        if first is None:
            first = self._slots[key] = self._tally.slots(key, _HISTOGRAM)
        self._values[first + bisect_left(BUCKETS, seconds)] += 1
        self._values[first + _SUM] += seconds

    def _slot(self, key: tuple[str, ...]) -> int:
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._tally.slots(key)
        return slot

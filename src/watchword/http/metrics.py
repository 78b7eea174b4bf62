"""Metrics in Prometheus text, right with several worker processes: prometheus-client writes what the tallies hold."""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from watchword.http.tallies import Tally, totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RENDER_SECONDS = 1.0
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
        # Where each name's numbers begin, by what the callers say: one look a request, and no names put together.
        self._requests: dict[tuple[str, int, str | None], tuple[int, int, int]] = {}
        self._counters: dict[tuple[str, ...], int] = {}
        self._routes: dict[str, int] = {}
        self._operations: dict[str, int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._text = b""
        self._rendered_at = float("-inf")
        self.issued = self._counter("watchword_tokens_issued")
        self.revoked = self._counter("watchword_tokens_revoked")

    def request(self, route: str, status: int, verdict: str | None, seconds: float) -> None:
        """An answer, and the verdict on who asked, where it took one."""
        key = route, status, verdict
        slots = self._requests.get(key)
        if slots is None:
            slots = self._requests[key] = self._request_slots(route, status, verdict)
        counter, histogram, verdicts = slots
        values = self._values
        values[counter] += 1
        values[histogram + bisect_left(BUCKETS, seconds)] += 1
        values[histogram + _SUM] += seconds
        if verdict is not None:
            values[verdicts] += 1

    def store(self, operation: str, seconds: float) -> None:
        histogram = self._operations.get(operation)
        if histogram is None:
            key = ("watchword_store_seconds", operation)
            histogram = self._operations[operation] = self._tally.slots(key, _HISTOGRAM)
        self._values[histogram + bisect_left(BUCKETS, seconds)] += 1
        self._values[histogram + _SUM] += seconds

    def render(self) -> bytes:
        """At most once a second, whoever asks and however often: it takes as long as hundreds of verifications."""
        if time.monotonic() - self._rendered_at >= RENDER_SECONDS:
            self._text = generate_latest(self._registry)
            self._rendered_at = time.monotonic()
        return self._text

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

    def _counter(self, name: str) -> Callable[[int], None]:
        slot = self._tally.slots((name,))

        def count(number: int) -> None:
            self._values[slot] += number

        return count

    def _request_slots(self, route: str, status: int, verdict: str | None) -> tuple[int, int, int]:
        """The counter of this route and status, the histogram of the route, and the counter of the verdict."""
        if route not in self._routes:
            self._routes[route] = self._tally.slots(("watchword_http_request_seconds", route), _HISTOGRAM)
        counter = self._slot("watchword_http_requests", route, str(status))
        return counter, self._routes[route], self._slot("watchword_verifications", verdict) if verdict else -1

    def _slot(self, *key: str) -> int:
        if key not in self._counters:
            self._counters[key] = self._tally.slots(key)
        return self._counters[key]

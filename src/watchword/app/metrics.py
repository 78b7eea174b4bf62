"""Metrics in Prometheus text, correct with several worker processes.

Each worker keeps its numbers as doubles in a memory-mapped file: an increment is an assignment, needs no flush, and
survives the worker. A second file names the doubles; it is rewritten when a new name is first used. Any worker can sum
all files. prometheus-client's multiprocess mode does the same at five times the cost
(docs/decisions/logs-and-metrics.md).
A gauge is measured by one worker for all, and published in a file that every worker reads.
"""

import json
import mmap
import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from watchword import __version__
from watchword.basics.errors import SERVER_ERROR, UNAUTHENTICATED, UNAUTHORIZED, UNAVAILABLE, Reason
from watchword.notices.mail_rules import MAIL_RESULTS
from watchword.notices.webhook_rules import DeliveryCounts
from watchword.tokens.counts import EXPIRING_DAYS, UNUSED_DAYS, TokenCounts

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
    "watchword_errors": ("Errors in answers, by reason.", ("reason",)),
    "watchword_tokens_issued": ("Tokens issued.", ()),
    "watchword_tokens_revoked": ("Tokens revoked.", ()),
    "watchword_events_streamed": ("Events sent to the event stream.", ()),
    "watchword_deliveries": ("Attempts to deliver a webhook, by result.", ("result",)),
    "watchword_mails": ("Attempts to send a mail, by result.", ("result",)),
    "watchword_ignored_parameters": (
        "Query parameters at /auth that look like Watchword's without their prefix.",
        ("parameter",),
    ),
    "watchword_background_failures": ("Failures of background tasks, by task.", ("task",)),
    "watchword_graphql_fallbacks": ("GraphQL operations executed by graphql-core, not the fast path.", ("cause",)),
}
_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "watchword_http_request_seconds": ("Time to answer.", ("route",)),
    "watchword_store_seconds": ("Time the store took.", ("operation",)),
}
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "watchword_tokens_live": ("Live tokens: neither revoked nor expired, and their actor is not suspended.", ()),
    "watchword_tokens_suspended": ("Tokens neither revoked nor expired, of suspended actors. They are not live.", ()),
    "watchword_token_uses": ("Uses of all tokens, by UTC day.", ("day",)),
    "watchword_tokens_never_expiring": ("Live tokens that never expire.", ()),
    "watchword_tokens_expiring": ("Live tokens that expire within the days of the label.", ("days",)),
    "watchword_tokens_unused": ("Live tokens neither created nor used for the days of the label.", ("days",)),
    "watchword_deliveries_waiting": ("Deliveries of webhooks that wait.", ()),
    "watchword_deliveries_failing": ("Those of them whose receiver does not accept them.", ()),
    "watchword_webhooks_stopped": ("Webhooks that were stopped, or disabled by their receiver.", ()),
    "watchword_tokens_counted_timestamp_seconds": ("When the tokens were counted.", ("count",)),
    "watchword_store_reachable": ("Whether the last probe could write to the store.", ()),
    "watchword_build_info": ("The version that runs; always 1.", ("version",)),
    "watchword_store_timeline": (
        "Timeline of PostgreSQL's primary; 0 on SQLite. A promotion of a standby begins a new one.",
        (),
    ),
    "watchword_retention_waiting": ("Runs of retention rules that wait for approval.", ()),
    "watchword_retention_overdue": ("Series on which their retention rule has not succeeded for three periods.", ()),
    "watchword_retention_clock_jumped": ("1 while no run is planned because the clock jumped ahead.", ()),
    "watchword_mails_waiting": ("Mails that are due or wait for another attempt, counted once a minute.", ()),
}
# Alerts need a zero before the first of them.
_ALERTED = (UNAUTHENTICATED, UNAUTHORIZED, SERVER_ERROR, UNAVAILABLE)
_ZEROS = {
    "watchword_mails": MAIL_RESULTS,
    "watchword_ignored_parameters": ("scope", "privilege", "audience"),
    "watchword_deliveries": ("delivered", "failed"),
    "watchword_errors": tuple(reason.word for reason in Reason if reason.kind in _ALERTED),
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
        self._measured: Mapping[str, float] = {}
        self.mail = partial(self._add, "watchword_mails")
        self.delivery = partial(self._add, "watchword_deliveries")
        self.ignored_parameter = partial(self._add, "watchword_ignored_parameters")
        self.graphql_fallback = partial(self._add, "watchword_graphql_fallbacks")
        self.task_failure = partial(self._add, "watchword_background_failures")
        self.issued = self._counter("watchword_tokens_issued")
        self.revoked = self._counter("watchword_tokens_revoked")
        self.streamed = self._counter("watchword_events_streamed")
        for name, labels in _ZEROS.items():
            for label in labels:
                self._add(name, label, 0)

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

    def error(self, reason: Reason) -> None:
        self._add("watchword_errors", reason.word)

    def token_counts(self, counts: TokenCounts, used_yesterday: int, used_today: int) -> None:
        counted, now = "watchword_tokens_counted_timestamp_seconds", time.time()
        gauges: dict[Key, float] = {
            ("watchword_tokens_live",): counts.live,
            ("watchword_tokens_never_expiring",): counts.never_expiring,
            ("watchword_tokens_suspended",): counts.suspended,
            ("watchword_tokens_unused", str(UNUSED_DAYS)): counts.unused,
            ("watchword_token_uses", "yesterday"): used_yesterday,
            ("watchword_token_uses", "today"): used_today,
            (counted, "live"): now,
            (counted, "unused"): now,
        }
        within = zip(EXPIRING_DAYS, counts.expiring, strict=True)
        self.publish("tokens", gauges | {("watchword_tokens_expiring", str(days)): number for days, number in within})

    def publish(self, name: str, gauges: Mapping[Key, float]) -> None:
        """Replace the gauges that were published under this name. On a full disk the old ones stay."""
        with suppress(OSError):
            _replace(self._folder / f"{name}.gauges", list(gauges.items()))

    def delivery_counts(self, counts: DeliveryCounts) -> None:
        gauges: dict[Key, float] = {
            ("watchword_deliveries_waiting",): counts.waiting,
            ("watchword_deliveries_failing",): counts.failing,
            ("watchword_webhooks_stopped",): counts.stopped,
        }
        self.publish("deliveries", gauges)

    def store(self, operation: str, seconds: float) -> None:
        histogram = self._operations.get(operation)
        if histogram is None:
            key = ("watchword_store_seconds", operation)
            histogram = self._operations[operation] = self._file.slots(key, _HISTOGRAM_SLOTS)
        self._values[histogram + bisect_left(BUCKETS, seconds)] += 1
        self._values[histogram + _SUM] += seconds

    def render(self, measured: Mapping[str, float]) -> bytes:
        """With these gauges. Renders at most once a second: it takes as long as hundreds of verifications."""
        self._measured = measured
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
        gauges: list[tuple[Key, float]] = [((name,), value) for name, value in self._measured.items()]
        gauges.append((("watchword_build_info", __version__), 1))
        gauges += [(tuple(key), value) for file in self._folder.glob("*.gauges") for key, value in _load(file)]
        for name, (about, labels) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, about, labels=labels)
            for key, value in gauges:
                if key[0] == name:
                    gauge.add_metric(key[1:], value)
            yield gauge

    def _add(self, name: str, label: str, number: int = 1) -> None:
        self._values[self._file.slots((name, label))] += number

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
            _replace(self._names, self._keys)
        return first


def totals(folder: Path) -> dict[Key, list[float]]:
    """The sums over all workers that ran with this folder, by name."""
    sums: dict[Key, list[float]] = defaultdict(list)
    for names in sorted(folder.glob("*.names")):
        for key, numbers in _read(names):
            known = sums[key]
            sums[key] = [a + b for a, b in zip(known, numbers, strict=True)] if known else numbers
    return sums


def ignored_parameters(data_dir: Path) -> dict[str, int]:
    """How often the servers that run on this data folder ignored each parameter."""
    counts: dict[str, int] = {}
    for folder in (data_dir / "run").glob("*/"):
        for (name, *labels), numbers in totals(folder).items():
            if name == "watchword_ignored_parameters":
                counts[labels[0]] = counts.get(labels[0], 0) + int(numbers[0])
    return counts


def _read(names: Path) -> Iterator[tuple[Key, list[float]]]:
    values = memoryview(names.with_suffix(".counters").read_bytes()).cast("d")
    first = 0
    for key, number in _load(names):
        yield tuple(key), list(values[first : first + number])
        first += number


def _load(file: Path) -> list[Any]:
    loaded: list[Any] = json.loads(file.read_text())
    return loaded


def _replace(file: Path, content: list[Any]) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(file)

"""Metrics in Prometheus text, right with several worker processes.

prometheus-client's multiprocess mode keeps each worker's numbers in files of a shared folder, and whichever worker
is scraped adds them up. The folder must be named in the environment before the library is imported, so everything
here is made by `Metrics` at start, not at import.
"""

import os
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    def __init__(self, folder: Path) -> None:
        os.environ[FOLDER_VARIABLE] = str(folder)
        from prometheus_client import CollectorRegistry, Counter, Histogram
        from prometheus_client.multiprocess import MultiProcessCollector

        own: Any = CollectorRegistry()
        self._requests = Counter("watchword_http_requests", "Requests answered.", ("route", "status"), registry=own)
        self._latency = Histogram(
            "watchword_http_request_seconds", "Time to answer.", ("route",), buckets=BUCKETS, registry=own
        )
        self._verifications = Counter(
            "watchword_verifications", "Bearer verifications by verdict.", ("verdict",), registry=own
        )
        self._store = Histogram(
            "watchword_store_seconds", "Time the store took.", ("operation",), buckets=BUCKETS, registry=own
        )
        issued = Counter("watchword_tokens_issued", "Tokens made.", registry=own)
        revoked = Counter("watchword_tokens_revoked", "Tokens revoked.", registry=own)
        self.issued = issued.inc
        self.revoked = revoked.inc
        self._registry = CollectorRegistry()
        MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        # A child costs a look-up under a lock each time it is asked for by label; these are asked for once.
        self._children: dict[Any, Any] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        key = (route, status)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = (
                self._requests.labels(route, str(status)).inc,
                self._latency.labels(route).observe,
            )
        count, observe = found
        count()
        observe(seconds)

    def verified(self, verdict: str) -> None:
        self._child(("verdict", verdict), self._verifications, verdict).inc()

    def store(self, operation: str, seconds: float) -> None:
        self._child(("store", operation), self._store, operation).observe(seconds)

    def render(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    def _child(self, key: tuple[str, str], family: Any, label: str) -> Any:
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = family.labels(label)
        return found

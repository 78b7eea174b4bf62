"""Counter files give the same output as prometheus-client."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from watchword.app.metrics import BUCKETS, SLOTS, CounterFile, Metrics, totals

observations = st.lists(st.tuples(st.sampled_from(["read", "write", "scan"]), st.floats(0, 10)), max_size=30)


@settings(max_examples=50, deadline=None)
@given(seen=observations)
def test_histogram_output_matches_prometheus_client(tmp_path_factory: object, seen: list[tuple[str, float]]) -> None:
    folder = tmp_path_factory.mktemp("tally")  # type: ignore[attr-defined]
    metrics = Metrics(folder)
    registry = CollectorRegistry()
    reference = Histogram(
        "watchword_store_seconds", "Time the store took.", ("operation",), buckets=BUCKETS, registry=registry
    )
    for operation, seconds in seen:
        metrics.store(operation, seconds)
        reference.labels(operation).observe(seconds)

    assert lines(metrics.render({}), "watchword_store_seconds") == lines(
        generate_latest(registry), "watchword_store_seconds"
    )


def test_counter_output_matches_prometheus_client(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    registry = CollectorRegistry()
    reference = Counter("watchword_verifications", "Callers verified, by verdict.", ("verdict",), registry=registry)
    for route, status, verdict in (("/auth", 204, "accepted"), ("/auth", 401, "revoked"), ("/", 200, "accepted")):
        metrics.request(route, status, verdict, 0.001)
        reference.labels(verdict).inc()
    metrics.request("/config", 200, None, 0.001)

    name = "watchword_verifications_total"
    assert lines(metrics.render({}), name) == lines(generate_latest(registry), name)


def test_counters_of_several_workers_are_summed(tmp_path: Path) -> None:
    for name, amount in (("one", 2.0), ("two", 3.0), ("gone", 5.0)):
        tally = CounterFile(tmp_path, name)
        tally.slots(("filler", name))
        tally.values[tally.slots(("shared",))] += amount

    assert totals(tmp_path)[("shared",)] == [10.0]


def test_full_counter_file_ignores_new_names(tmp_path: Path) -> None:
    tally = CounterFile(tmp_path, "one")
    tally.slots(("large",), SLOTS - 1)
    for name in ("more", "still more"):
        first = tally.slots((name,), 15)
        for slot in range(first, first + 15):
            tally.values[slot] += 1
    tally.values[tally.slots(("last",))] += 1

    assert totals(tmp_path) == {("large",): [0.0] * (SLOTS - 1), ("last",): [1.0]}


def lines(text: bytes, name: str) -> set[str]:
    return {line for line in text.decode().splitlines() if line.startswith(name) and "_created" not in line}

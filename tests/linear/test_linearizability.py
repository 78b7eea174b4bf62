"""Every answer of every worker and instance is explained by one order of the calls."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.linear import rules
from tests.linear.checker import NO_ORDER, judge, report
from tests.linear.history import History, Kind, Verdict
from tests.linear.load import Load
from tests.linear.servers import QUIET, StaleServer, instances
from tests.support.postgres import Home
from tests.support.server import Server

MakeServer = Callable[..., Server]


def assert_linearizable(history: History) -> None:
    """Every call was answered, there are calls of every kind, and the checker finds no violation."""
    told = Counter(f"{c.kind.value} {c.outcome.verdict.value} {c.outcome.reason}" for c in history)
    print(f"{len(history)} calls", *sorted(told.items()), sep="\n  ")
    objections = judge(history)
    assert objections == [], report(history, objections)
    assert {c.outcome.reason for c in history if c.outcome.verdict is Verdict.UNKNOWN} == set()
    for kind in Kind:
        assert told[f"{kind.value} ok "] > 0, kind
    for refusal in ("token_revoked", "invalid_token"):
        assert told[f"verify refused {refusal}"] > 0


def assert_violation(servers: Sequence[Server]) -> None:
    """Run until a violation happens; the search finds the same as the simple rule."""
    deadline = time.monotonic() + 120
    with Load(servers) as load:
        while rules.ACCEPTED_AFTER_REVOKE not in {law for law, _ in rules.broken_rules(load.history)}:
            assert time.monotonic() < deadline, f"no objection to {len(load.history)} calls"
            time.sleep(0.5)  # checking takes time from the clients
    objections = judge(load.history)
    print(report(load.history, objections))
    quick = {one.calls[0].actor for one in objections if one.law == rules.ACCEPTED_AFTER_REVOKE}
    assert quick <= {one.calls[0].actor for one in objections if one.law == NO_ORDER}


def test_three_workers_on_sqlite_are_linearizable(make_server: MakeServer) -> None:
    server = make_server("--workers", "3", env=QUIET)
    assert_linearizable(Load([server]).run(5).history)


@pytest.mark.parametrize("seconds", [15, pytest.param(120, marks=pytest.mark.soak)])
def test_three_instances_on_postgresql_are_linearizable(database: Home, tmp_path: Path, seconds: int) -> None:
    with instances(database, tmp_path) as servers:
        assert_linearizable(Load(servers).run(seconds).history)


def test_cached_verdict_is_detected(tmp_path: Path) -> None:
    with StaleServer(tmp_path, "--workers", "3", env=QUIET) as server:
        assert_violation([server])


@pytest.mark.soak
def test_cached_verdict_of_one_instance_is_detected(database: Home, tmp_path: Path) -> None:
    with instances(database, tmp_path, count=2) as good, instances(database, tmp_path / "bad", StaleServer, 1) as bad:
        assert_violation([*good, *bad])

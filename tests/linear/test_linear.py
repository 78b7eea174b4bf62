"""Whatever clients do through whichever worker or instance, some one order of their calls explains every answer."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.linear import laws
from tests.linear.checker import NO_ORDER, judge, report
from tests.linear.history import History, Kind, Verdict
from tests.linear.load import Load
from tests.linear.servers import QUIET, StaleServer, instances
from tests.support.postgres import Home
from tests.support.server import Server

MakeServer = Callable[..., Server]


def assert_in_order(history: History) -> None:
    """Every call was answered, of every kind some, and the judge has no objection."""
    told = Counter(f"{c.kind.value} {c.outcome.verdict.value} {c.outcome.reason}" for c in history)
    print(f"{len(history)} calls", *sorted(told.items()), sep="\n  ")
    objections = judge(history)
    assert objections == [], report(history, objections)
    assert {c.outcome.reason for c in history if c.outcome.verdict is Verdict.UNKNOWN} == set()
    for kind in Kind:
        assert told[f"{kind.value} ok "] > 0, kind
    for refusal in ("token_revoked", "invalid_token"):
        assert told[f"verify refused {refusal}"] > 0


def assert_objected(servers: Sequence[Server]) -> None:
    """Sooner or later; and when it is, the search finds what the quick law found."""
    deadline = time.monotonic() + 120
    with Load(servers) as load:
        while laws.ACCEPTED_AFTER_REVOKE not in {law for law, _ in laws.broken_laws(load.history)}:
            assert time.monotonic() < deadline, f"no objection to {len(load.history)} calls"
            time.sleep(0.5)  # looking takes time from the clients
    objections = judge(load.history)
    print(report(load.history, objections))
    quick = {one.calls[0].actor for one in objections if one.law == laws.ACCEPTED_AFTER_REVOKE}
    assert quick <= {one.calls[0].actor for one in objections if one.law == NO_ORDER}


def test_three_workers_on_sqlite_answer_in_one_order(make_server: MakeServer) -> None:
    server = make_server("--workers", "3", env=QUIET)
    assert_in_order(Load([server]).run(5).history)


@pytest.mark.parametrize("seconds", [15, pytest.param(120, marks=pytest.mark.soak)])
def test_three_instances_on_postgresql_answer_in_one_order(database: Home, tmp_path: Path, seconds: int) -> None:
    with instances(database, tmp_path) as servers:
        assert_in_order(Load(servers).run(seconds).history)


def test_a_verdict_kept_for_a_moment_is_objected_to(tmp_path: Path) -> None:
    with StaleServer(tmp_path, "--workers", "3", env=QUIET) as server:
        assert_objected([server])


def test_a_verdict_kept_for_a_moment_by_one_of_three_instances_is_objected_to(database: Home, tmp_path: Path) -> None:
    with instances(database, tmp_path, count=2) as good, instances(database, tmp_path / "bad", StaleServer, 1) as bad:
        assert_objected([*good, *bad])

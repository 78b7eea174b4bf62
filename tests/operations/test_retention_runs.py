"""Retention rules that run by themselves, on real servers with a clock that the test moves."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import SetClock
from tests.support.indexed import DAY, Index, Series, times
from tests.support.server import ADMIN, Server, watchword
from tests.support.store_file import change_store
from tests.support.waiting import until

SET = "mutation ($input: RetentionRuleInput!) { setRetentionRule(input: $input) { series } }"
RUNS = """query ($series: String) { retentionRuns(input: {series: $series}) { total runs {
  number state dueAt requestedBy approvedBy plan { endTimeMillis rows rowsToDelete }
  operation { id state note } } } }"""
RUN = "mutation ($series: String!) { runRetention(series: $series) { state operation { id } } }"
CANCEL = "mutation ($id: String!) { cancelOperation(id: $id) { id } }"
MINUTE = 60


on_both_engines_in_the_soak = pytest.mark.parametrize(
    "index", ["embedded", pytest.param("opensearch-2", marks=pytest.mark.soak)], indirect=True
)


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    return SetClock(tmp_path / "clock")


@pytest.fixture
def timed(make_server: Callable[..., Server], index: Index, clock: SetClock) -> Series:
    """On a server of its own with two workers, each with its scheduler, that removes 400 rows a second."""
    return Series(make_server(*index.flags, "--workers", "2", "--index-rate", "400", env=clock.env), index, "")


def now() -> int:
    return time.time_ns() // 1_000_000


def name(series: Series) -> str:
    return f"{series.entity}.{series.aspect}"


def set_rule(series: Series, **fields: Any) -> None:
    rule = {"series": name(series), "keep": "P30D", "mode": "ENFORCE", "atMost": "100%", **fields}
    series.server.ask(SET, {"input": rule}, actor=ADMIN)


def runs(series: Series) -> list[Any]:
    found: list[Any] = series.server.ask(RUNS, {"series": name(series)}, actor=ADMIN)["retentionRuns"]["runs"]
    return found


@on_both_engines_in_the_soak
def test_missed_run_happens_once_and_goes_on_after_kill_9(timed: Series, clock: SetClock) -> None:
    start = now()
    # More than half stays, so that a cluster deletes too.
    rows = times(2_000, start - 10 * DAY, step=DAY // 100)
    timed.load(rows)
    set_rule(timed)
    server = timed.server
    server.stop()
    clock.advance(8 * DAY // 1_000)
    server.start()
    until(lambda: bool(runs(timed)), "the run is due")
    [run] = runs(timed)
    task, end = run["operation"]["id"], run["plan"]["endTimeMillis"]
    assert end <= now() + 8 * DAY - 30 * DAY
    until(lambda: timed.operation(task)["rowsDone"] > 0, "rows are removed")
    server.kill()
    change_store(server, "UPDATE operations SET held_until = 0")
    server.start()
    assert timed.over(task)["state"] == "DONE"
    assert timed.rows() == {one: row for one, row in rows.items() if row["timestampMillis"] > end}
    [again] = runs(timed)
    assert (again["number"], again["state"]) == (run["number"], "DONE")


@on_both_engines_in_the_soak
def test_run_pauses_outside_of_its_window_and_goes_on_in_the_next(timed: Series, clock: SetClock) -> None:
    start = now()
    # Three batches of a cluster.
    timed.load(times(2_500, start - 31 * DAY, step=1))
    opens, closes = (time.strftime("%H:%M", time.gmtime(time.time() + 60 * minutes)) for minutes in (-5, 3))
    set_rule(timed, window=f"{opens}-{closes}")
    ask = timed.server.ask
    started = ask(RUN, {"series": name(timed)}, actor=ADMIN)["runRetention"]
    task = started["operation"]["id"]
    until(lambda: timed.operation(task)["rowsDone"] > 0, "rows are removed")
    clock.advance(4 * MINUTE)
    until(lambda: "paused until" in (timed.operation(task)["note"] or ""), "the window is closed")
    left = len(timed.rows())
    paused = timed.operation(task)
    assert (paused["state"], paused["plan"]["strategy"]) == ("RUNNING", "DELETE_BY_QUERY")
    assert left > 0
    assert runs(timed)[0]["state"] == "RUNNING"
    clock.advance(DAY // 1_000 - 8 * MINUTE)
    until(lambda: timed.operation(task)["note"] is None, "the window is open")
    assert timed.over(task)["state"] == "DONE"
    assert timed.rows() == {}
    ran = watchword("retention", "run", name(timed), "--url", timed.server.url, "--as", ADMIN)
    assert ran.returncode == 1
    assert re.search(r"clock jumped ahead.*Try again in (59|60) minutes", ran.stderr), ran.stderr


def test_paused_run_can_be_cancelled(series: Series) -> None:
    series.load(times(10, now() - 31 * DAY, step=1))
    opens, closes = (time.strftime("%H:%M", time.gmtime(time.time() + 3_600 * hours)) for hours in (2, 3))
    set_rule(series, window=f"{opens}-{closes}")
    started = series.server.ask(RUN, {"series": name(series)}, actor=ADMIN)["runRetention"]
    task = started["operation"]["id"]
    until(lambda: "paused until" in (series.operation(task)["note"] or ""), "the window is closed")
    series.server.ask(CANCEL, {"id": task}, actor=ADMIN)
    assert series.over(task)["state"] == "CANCELLED"
    assert len(series.rows()) == 10


def test_run_waits_for_approval_and_again_when_it_has_grown(series: Series) -> None:
    start = now()
    series.load(times(10, start - 40 * DAY) | {"young": {"timestampMillis": start}})
    set_rule(series, atMost="20%")

    def retention(*words: str) -> tuple[int, str]:
        ran = watchword("retention", *words, "--url", series.server.url, "--as", ADMIN)
        return ran.returncode, ran.stdout + ran.stderr

    code, said = retention("run", name(series))
    assert code == 1
    assert "would remove 10 of 11 rows" in said
    assert "--approve" in said
    code, said = retention("plan", name(series))
    assert "would wait for approval" in said
    assert "xxxx" in said
    series.load({"late": {"timestampMillis": start - 35 * DAY}})
    code, said = retention("run", name(series), "--approve", "--yes", "--json")
    assert (code, '"WAITING"' in said) == (1, True)
    assert len(series.rows()) == 12
    assert retention("run", name(series), "--approve", "--yes")[0] == 0
    assert series.rows() == {"young": {"timestampMillis": start}}
    [run] = runs(series)
    assert (run["state"], run["requestedBy"], run["approvedBy"]) == ("DONE", ADMIN, ADMIN)
    code, said = retention("history", name(series))
    assert "DONE" in said

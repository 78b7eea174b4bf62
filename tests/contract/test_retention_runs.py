"""Runs of retention rules: each moment of a schedule once, on any number of instances, whatever the clock does."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.contract.harness import ADMIN, HOUR, MINUTE, SYSTEM, Run, StoreHarness, all_of
from tests.support.backends import NOW, StoreLocation
from tests.support.postgres import KINDS_IN_TURN as POSTGRES_KINDS
from tests.support.retention import INDEX, SERIES, ScheduledInstance, rule
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Reason
from watchword.basics.times import DAY
from watchword.index.embedded.engine import EmbeddedEngine, open_engine
from watchword.index.indices import Aspect, Row
from watchword.index.rules import State
from watchword.retention.rules import StoredRule
from watchword.retention.run_rules import PlannedRun, RunState, ShownRun, outcome
from watchword.stores.joined import Store

POSTGRES = POSTGRES_KINDS[0]
ASPECT = Aspect("dataset", "operation")
LEASE = 10_000
OTHER_SERIES, OTHER_INDEX = "dataset.profile", "dataset_profileaspect_v1"


@pytest.fixture
def engine(tmp_path: Path, run: Run) -> Iterator[EmbeddedEngine]:
    opened = open_engine(tmp_path / "index.sqlite3")
    yield opened
    run(opened.close())


def allowed(privilege: Privilege) -> None:
    """The caller may do everything."""


def put(harness: StoreHarness, **fields: Any) -> None:
    harness.run(harness.store.put_rule(SYSTEM, rule(**fields), allowed))


def fill(run: Run, engine: EmbeddedEngine, *times: int) -> None:
    run(engine.make(INDEX))
    run(engine.write(INDEX, [Row(json.dumps({"timestampMillis": at}).encode()) for at in times]))


def instance(
    harness: StoreHarness, engine: EmbeddedEngine, store: Store | None = None, **more: Any
) -> ScheduledInstance:
    return ScheduledInstance(store or harness.store, engine, harness.clock, **more)


def history(harness: StoreHarness) -> list[ShownRun]:
    """Oldest first."""
    return list(reversed(harness.run(harness.store.retention_runs(None, 0, 1_000)).rows))


def _millis(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1_000)


def states(harness: StoreHarness) -> list[str]:
    return [one.state for one in history(harness)]


def finish(harness: StoreHarness) -> None:
    """End the operation that was planned, as the supervisor would."""
    held = harness.run(harness.store.lease_operation(LEASE))
    assert held is not None
    harness.run(harness.store.save_operation(replace(held, state=State.DONE), 0))


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES], indirect=True)
def test_a_year_of_schedule_runs_each_moment_once(harness: StoreHarness, engine: EmbeddedEngine, other: Store) -> None:
    """In Berlin, by two instances: summer time comes and goes, both are off for a week, and the clock is set back."""
    zone = ZoneInfo("Europe/Berlin")
    put(harness, schedule="30 2 * * *", timeZone="Europe/Berlin")
    run, clock = harness.run, harness.clock
    pair = [instance(harness, engine), instance(harness, engine, other, name="two")]
    off = range(_millis(2026, 6, 10), _millis(2026, 6, 17))
    set_back = _millis(2026, 9, 1)
    for tick in range(2 * 365):
        if clock.now not in off:
            run(pair[tick % 2].tick())
        if tick % 20 == 0:
            assert run(all_of(one.tick() for one in pair)) == [None, None]
        if clock.now == set_back:
            clock.now -= 30 * HOUR
            for one in pair * 2:
                run(one.tick())
            clock.now += 30 * HOUR
        clock.now += 12 * HOUR
    moments = [datetime.fromtimestamp(one.run.due_at / 1_000, zone) for one in history(harness)]
    days = [moment.date() for moment in moments]
    assert len(set(days)) == len(days)
    missed = set(range(10, 17)) - {day.day for day in days if (day.year, day.month) == (2026, 6)}
    assert len(missed) == 6, "one run for the week off, late"
    assert len(days) == 365 - 6
    changed = {moment.date().isoformat(): f"{moment:%H:%M %z}" for moment in moments}
    assert changed.pop("2026-03-29") == "03:00 +0200", "02:30 is skipped"
    assert changed["2026-10-25"] == "02:30 +0200", "02:30 comes twice"
    assert {text[:5] for text in changed.values()} == {"02:30"}
    assert set(states(harness)) == {RunState.NOTHING_TO_REMOVE.value}


def test_due_run_removes_up_to_its_age_and_starts_one_operation(
    harness: StoreHarness, engine: EmbeddedEngine, other: Store, location: StoreLocation
) -> None:
    old, young = NOW - 400 * DAY, NOW - 10 * DAY
    fill(harness.run, engine, old, young, young)
    put(harness, schedule="0 1 * * *")
    pair = [instance(harness, engine), instance(harness, engine, other, name="two")]
    harness.run(all_of(one.tick() for one in pair))
    assert states(harness) == [], "no moment has come since the rule was set"
    harness.clock.now += HOUR
    harness.run(all_of(one.tick() for one in pair))
    [shown] = history(harness)
    assert shown.operation is not None
    plan = shown.operation.plan
    assert (plan.rows, plan.rows_to_delete, plan.until) == (3, 1, harness.clock.now - 365 * DAY)
    assert (shown.run.due_at, shown.run.requested_by) == (NOW + HOUR, SYSTEM.actor)
    planned = [event for event in location.events() if event.action == "operation.planned"]
    assert [event.detail["rule"] for event in planned] == [SERIES]
    # The next moment comes while the operation is active: it waits, and happens once.
    harness.clock.now += DAY
    for one in pair * 2:
        harness.run(one.tick())
    assert len(history(harness)) == 1
    finish(harness)
    for one in pair * 2:
        harness.run(one.tick())
    assert [one.run.due_at for one in history(harness)] == [NOW + HOUR, NOW + HOUR + DAY]


def test_idle_tick_reads_the_store_once_and_asks_no_index(harness: StoreHarness, tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "index.sqlite3")
    fill(harness.run, engine, NOW - 400 * DAY)
    put(harness, series="*", mode="report")
    one = instance(harness, engine)
    harness.clock.now += HOUR
    harness.run(one.tick())
    assert states(harness) == ["REPORTED"]
    harness.run(engine.close())
    harness.run(one.tick())
    assert one.problems == []


def test_limits_remove_the_oldest_rows_but_none_younger_than_keep(
    harness: StoreHarness, engine: EmbeddedEngine
) -> None:
    times = [NOW - day * DAY for day in (50, 40, 30, 20, 10)]
    fill(harness.run, engine, *times)
    planner = instance(harness, engine).planner

    def until(**fields: Any) -> tuple[int, int]:
        plan = harness.run(planner.plan(ASPECT, rule(**fields)))
        assert plan.until <= harness.clock.now - rule(**fields).keep
        return plan.until, plan.rows_to_delete

    assert until(keep="P1D", maxRows=3) == (times[1], 2)
    assert until(keep="P35D", maxRows=1) == (NOW - 35 * DAY, 2)
    assert until(keep="P1D", maxRows=5)[1] == 0
    assert until(keep="P1D", maxRows=4, removeAfter="P25D") == (NOW - 25 * DAY, 3)
    assert until(keep="P1D", maxRows=1, removeAfter="P45D") == (times[3], 4)
    assert until(keep="P1D", maxSize="1TB")[1] == 0


def test_run_beyond_its_limit_waits_and_starts_with_what_was_approved(
    harness: StoreHarness, engine: EmbeddedEngine, location: StoreLocation
) -> None:
    fill(harness.run, engine, NOW - 400 * DAY, NOW - 390 * DAY, NOW)
    put(harness, atMost="50%")
    one = instance(harness, engine)
    harness.clock.now += HOUR
    harness.run(one.tick())
    [waiting] = history(harness)
    assert waiting.state == "WAITING"
    number, by = waiting.run.number, harness.precondition(ADMIN)
    refused = harness.fault_of(harness.store.approve_run(by, number, 1))
    assert (refused.reason, refused.details["rows"]) == (Reason.RUN_GREW, 2)
    assert harness.fault_of(harness.store.approve_run(by, number + 1, 2)).reason is Reason.RUN_NOT_FOUND
    approved = harness.run(harness.store.approve_run(by, number, 2)).run
    # Meanwhile another old row was written: the plan has grown, and it asks again.
    fill(harness.run, engine, NOW - 380 * DAY)
    harness.run(one.tick())
    [again] = history(harness)
    assert again.state == "WAITING"
    assert again.run.approved_by is None
    assert again.run.plan is not None
    assert (again.run.plan.rows_to_delete, again.run.plan.until) == (3, approved.plan and approved.plan.until)
    harness.run(harness.store.approve_run(harness.precondition(ADMIN), number, 3))
    harness.run(one.tick())
    [started] = history(harness)
    assert started.operation is not None
    assert (started.state, started.run.approved_by) == ("PLANNED", ADMIN)
    assert harness.fault_of(harness.store.approve_run(by, number, 3)).reason is Reason.RUN_NOT_WAITING
    told = [event.action for event in location.events() if event.action.startswith("retention.app")]
    assert told == [f"retention.{word}" for word in ("approval_needed", "approved") * 2]


def test_waiting_run_ends_with_its_rule_and_with_the_next_run(harness: StoreHarness, engine: EmbeddedEngine) -> None:
    fill(harness.run, engine, NOW - 400 * DAY)
    put(harness)
    one = instance(harness, engine)
    for _ in range(2):
        harness.clock.now += DAY
        harness.run(one.tick())
    assert states(harness) == ["SUPERSEDED", "WAITING"]
    assert one.scheduler.numbers.waiting == 1
    put(harness, keep="P900D")
    waiting = history(harness)[-1].run
    refused = harness.fault_of(harness.store.approve_run(harness.precondition(), waiting.number, 1))
    assert refused.reason is Reason.RUN_NOT_WAITING
    harness.run(one.tick())
    assert states(harness) == ["SUPERSEDED"] * 2


def test_held_series_is_noted_and_nothing_starts(harness: StoreHarness, engine: EmbeddedEngine) -> None:
    fill(harness.run, engine, NOW - 400 * DAY)
    put(harness, atMost="100%")
    harness.run(harness.store.set_hold(SYSTEM, SERIES, "a dispute"))
    one = instance(harness, engine)
    harness.clock.now += DAY
    harness.run(one.tick())
    assert states(harness) == ["HELD"]
    stored = harness.run(one.stored_rule())
    plan = harness.run(one.planner.plan(ASPECT, stored.rule))
    by_hand = PlannedRun(ASPECT, stored, plan, outcome(stored.rule, plan), by_hand=True)
    refused = harness.fault_of(harness.store.add_run(harness.precondition(), by_hand))
    assert (refused.reason, refused.details["holdReason"]) == (Reason.SERIES_HELD, "a dispute")


def test_run_is_not_added_by_a_rule_that_has_changed_or_before_rows_are_old(
    harness: StoreHarness, engine: EmbeddedEngine
) -> None:
    fill(harness.run, engine, NOW - 400 * DAY)
    put(harness, atMost="100%")
    one = instance(harness, engine)
    stored = harness.run(one.stored_rule())
    plan = harness.run(one.planner.plan(ASPECT, stored.rule))
    early = PlannedRun(ASPECT, stored, replace(plan, until=plan.until + 1), RunState.STARTED)
    assert harness.fault_of(harness.store.add_run(SYSTEM, early)).reason is Reason.CONTENDED
    put(harness, keep="P366D", atMost="100%")
    assert harness.run(harness.store.add_run(SYSTEM, PlannedRun(ASPECT, stored, plan, RunState.STARTED))) is None
    assert harness.run(harness.store.operations(0, 1)).total == 0


def test_clock_that_jumps_ahead_plans_nothing_for_an_hour(
    harness: StoreHarness, engine: EmbeddedEngine, other: Store, location: StoreLocation
) -> None:
    fill(harness.run, engine, NOW)
    put(harness, atMost="100%")
    pair = [instance(harness, engine), instance(harness, engine, other, name="two")]
    for one in pair:
        harness.run(one.tick())
    harness.clock.now += 400 * DAY
    for one in pair:
        one.jumped = 400 * DAY
        harness.run(one.tick())
    harness.clock.now += HOUR - MINUTE
    for one in pair:
        harness.run(one.tick())
        assert one.scheduler.numbers.unsteady
    assert states(harness) == []
    jumps = [event.detail for event in location.events() if event.action == "retention.clock_jumped"]
    assert jumps == [{"seconds": 400 * DAY // 1_000}]
    # Set right again: nothing was removed.
    harness.clock.now -= 400 * DAY
    for one in pair:
        one.jumped = 0
    harness.clock.now += DAY
    harness.run(pair[0].tick())
    assert states(harness) == ["NOTHING_TO_REMOVE"]


def test_clock_that_jumps_between_ticks_or_while_runs_are_planned_ends_planning(
    harness: StoreHarness, engine: EmbeddedEngine
) -> None:
    def jump() -> None:
        harness.clock.now += 400 * DAY
        one.jumped += 400 * DAY

    old = NOW - 400 * DAY
    fill(harness.run, engine, old, NOW)
    harness.run(engine.make(OTHER_INDEX))
    for series in (SERIES, OTHER_SERIES):
        put(harness, series=series, atMost="100%")
    one = instance(harness, engine, on_start=jump)
    harness.run(one.tick())
    harness.clock.now += HOUR
    harness.run(one.tick())
    assert [run.run.series for run in history(harness)] == [SERIES], "the second was not planned"
    stored = harness.run(one.stored_rule())
    assert harness.fault_of(one.planner.plan(ASPECT, stored.rule)).reason is Reason.CLOCK_JUMPED
    harness.clock.now += HOUR
    assert harness.run(one.planner.plan(ASPECT, stored.rule)).rows_to_delete == 2, "it was steady for an hour"
    jump()
    refused = harness.fault_of(one.planner.plan(ASPECT, stored.rule))
    assert (refused.reason, refused.details["retryAfter"]) == (Reason.CLOCK_JUMPED, 3_600), "no tick has seen it"
    harness.run(one.tick())
    assert len([why for why in one.problems if "clock jumped" in why]) == 1
    assert len(history(harness)) == 1


def test_rule_that_ran_by_a_clock_ahead_is_overdue_until_then(harness: StoreHarness, engine: EmbeddedEngine) -> None:
    put(harness)
    harness.clock.now += 100 * DAY
    one = instance(harness, engine)
    harness.run(one.tick())
    assert (states(harness), one.scheduler.numbers.overdue) == (["NOTHING_TO_REMOVE"], 1)
    harness.run(one.tick())
    assert one.scheduler.numbers.overdue == 0
    harness.clock.now -= 90 * DAY
    harness.run(one.tick())
    assert (len(states(harness)), one.scheduler.numbers.overdue) == (1, 1)
    seen = harness.run(harness.store.retention_snapshot(""))
    shown = harness.run(one.planner.shown(ASPECT, None, seen.state, seen.runs[SERIES]))
    assert shown.next_due == history(harness)[0].run.due_at + DAY, "not tomorrow"


def test_run_by_hand_is_due_by_the_clock_of_its_plan(harness: StoreHarness, engine: EmbeddedEngine) -> None:
    put(harness)
    one = instance(harness, engine)
    stored = harness.run(one.stored_rule())
    plan = harness.run(one.planner.plan(ASPECT, stored.rule))
    by_hand = PlannedRun(ASPECT, stored, plan, outcome(stored.rule, plan), "", harness.clock.now, by_hand=True)
    harness.clock.now += 10 * DAY  # the database is ahead of the instance
    for _ in range(2):
        harness.run(harness.store.add_run(SYSTEM, by_hand))
    assert [run.run.due_at for run in history(harness)] == [NOW, NOW + 1]


def test_rule_without_success_for_three_periods_is_reported_once(
    harness: StoreHarness, engine: EmbeddedEngine, location: StoreLocation
) -> None:
    fill(harness.run, engine, NOW - 400 * DAY)
    put(harness)
    one = instance(harness, engine)

    def overdue() -> list[str]:
        return [event.target for event in location.events() if event.action == "retention.overdue"]

    for day in range(5):
        assert overdue() == ([SERIES] if day == 4 else [])
        harness.clock.now += DAY
        harness.run(one.tick())
    assert (overdue(), one.scheduler.numbers.overdue) == ([SERIES], 1)
    waiting = history(harness)[-1].run
    harness.run(harness.store.approve_run(harness.precondition(), waiting.number, 1))
    harness.run(one.tick())
    finish(harness)
    harness.run(one.tick())
    assert one.scheduler.numbers.overdue == 0
    assert overdue() == [SERIES]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_tick_leaves_the_event_loop_free_while_a_thousand_rules_are_read(
    harness: StoreHarness, engine: EmbeddedEngine
) -> None:
    """Their moments are computed once, not at every tick."""
    rules = [
        StoredRule(rule(series=f"dataset.a{number}", schedule="0 0 29 2 *"), None, NOW, ADMIN)
        for number in range(1_000)
    ]
    scheduler = instance(harness, engine).scheduler

    async def longest_pause() -> float:
        working = asyncio.ensure_future(scheduler._times_of(rules, harness.clock.now))
        longest = 0.0
        while not working.done():
            begin = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - begin)
        assert len(working.result()) == len(rules)
        return longest

    assert harness.run(longest_pause()) < 0.5
    computed = dict(scheduler._times)
    harness.clock.now += MINUTE
    harness.run(longest_pause())
    assert all(scheduler._times[key] is kept for key, kept in computed.items())


def test_rule_whose_time_zone_is_not_installed_does_not_stop_the_others(
    harness: StoreHarness, engine: EmbeddedEngine
) -> None:
    elsewhere = replace(rule(series=OTHER_SERIES), time_zone="Mars/Olympus")
    harness.run(harness.store.put_rule(SYSTEM, elsewhere, allowed))
    put(harness)
    one = instance(harness, engine)
    harness.clock.now += HOUR
    for _ in range(2):
        harness.run(one.tick())
    assert [run.run.series for run in history(harness)] == [SERIES]
    assert one.problems == ["The time zone Mars/Olympus is not installed on this server."]


def test_sizes_of_a_day_are_kept_once(harness: StoreHarness, engine: EmbeddedEngine, other: Store) -> None:
    fill(harness.run, engine, NOW, NOW)
    for store in (harness.store, other):
        harness.run(instance(harness, engine, store).tick())
    fill(harness.run, engine, NOW)
    harness.clock.now += DAY
    harness.run(instance(harness, engine).tick())
    found = harness.run(harness.store.series_sizes("", SERIES, 0))
    assert [(one.day, one.rows) for one in found] == [(NOW // DAY, 2), (NOW // DAY + 1, 3)]
    assert harness.run(harness.store.series_sizes("", None, NOW // DAY)) == found[1:]
    assert harness.run(harness.store.purge_sizes(NOW + DAY, 10)) == 1


def test_paused_operation_is_leased_from_its_moment_on_or_to_be_cancelled(
    harness: StoreHarness, engine: EmbeddedEngine
) -> None:
    fill(harness.run, engine, NOW - 400 * DAY)
    put(harness, atMost="100%", window="10:00-11:00")
    harness.clock.now += 2 * HOUR
    harness.run(instance(harness, engine).tick())
    run, store = harness.run, harness.store
    held = run(store.lease_operation(LEASE))
    assert held is not None
    assert (held.plan.window, held.plan.time_zone) == ("10:00-11:00", "UTC")
    run(store.save_operation(held, 0, harness.clock.now + HOUR))
    assert run(store.lease_operation(LEASE)) is None
    harness.clock.now += HOUR
    again = run(store.lease_operation(LEASE))
    assert again is not None
    run(store.save_operation(again, 0, harness.clock.now + HOUR))
    run(store.request_cancel(SYSTEM, held.number))
    cancelled = run(store.lease_operation(LEASE))
    assert cancelled is not None
    # A pause that was decided before the request is no longer one.
    run(store.save_operation(cancelled, 0, harness.clock.now + HOUR))
    assert run(store.lease_operation(LEASE)) is not None

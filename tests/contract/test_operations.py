"""Operations in a store: one per index that is not over, leases with fences, and an event for every state."""

from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.contract.given import ADMIN, ANN, SYSTEM, Given, Run, all_of
from tests.support.backends import Hand, Place
from watchword.domain.actors import ActorStatus
from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import Aspect
from watchword.domain.operations import (
    CancelAsked,
    EngineTask,
    LeaseLost,
    Operation,
    Plan,
    PostCheck,
    State,
    Strategy,
    Work,
)
from watchword.domain.ports import Store
from watchword.domain.tasks import Counters, TaskId

LEASE = 10_000


def plan(index: str = "dataset_operationaspect_v1") -> Plan:
    return Plan(Aspect("dataset", "operation"), index, 1_000, 10, 6, 4_096, Strategy.REINDEX, "a test", 1_000)


def leased(run: Run, store: Store) -> Operation:
    operation = run(store.lease_operation(LEASE))
    assert operation is not None
    return operation


def test_a_new_operation_is_planned_and_comes_back_as_it_was_asked_for(given: Given) -> None:
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    assert (added.state, added.plan, added.work) == (State.PLANNED, plan(), Work())
    assert given.run(given.store.operation(added.number)) == added
    assert given.run(given.store.operation(added.number + 1)) is None


def test_operation_with_the_names_of_earlier_versions_is_migrated(given: Given, place: Place) -> None:
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    held = leased(given.run, given.store)
    held = given.run(given.store.save_operation(replace(held, work=replace(held.work, checkpoints=(3, 4))), LEASE))
    old_names = {"plan": {"strategy": "way", "reason": "why"}, "work": {"checkpoints": "marks"}}
    sets = []
    for column, names in old_names.items():
        expression = column
        for new, old in names.items():
            expression = f"""replace({expression}, '"{new}":', '"{old}":')"""
        sets.append(f"{column} = {expression}")
    place.migrate_again("operation_names", f"UPDATE operations SET {', '.join(sets)}")
    assert given.run(given.store.operation(added.number)) == held


def test_a_second_one_on_the_same_index_is_refused_and_names_the_first(given: Given) -> None:
    first = given.run(given.store.add_operation(SYSTEM, plan()))
    given.run(given.store.add_operation(SYSTEM, plan("another_index")))
    with pytest.raises(Fault) as refused:
        given.run(given.store.add_operation(SYSTEM, plan()))
    assert refused.value.reason is Reason.OPERATION_RUNNING
    assert refused.value.details["operationId"] == f"{given.run(given.store.node_id())}:{first.number}"


def test_each_search_index_has_its_own_of_the_same_name(given: Given) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    elsewhere = replace(plan(), home="another index")
    assert given.run(given.store.add_operation(SYSTEM, elsewhere)).plan == elsewhere
    with pytest.raises(Fault) as refused:
        given.run(given.store.add_operation(SYSTEM, elsewhere))
    assert refused.value.reason is Reason.OPERATION_RUNNING


def test_an_operation_is_taken_up_only_where_its_search_index_is(given: Given, other: Store) -> None:
    given.run(given.store.add_operation(SYSTEM, replace(plan(), home="another index")))
    assert given.run(given.store.lease_operation(LEASE)) is None
    assert given.run(other.lease_operation(LEASE, "a third")) is None
    taken = given.run(other.lease_operation(LEASE, "another index"))
    assert taken is not None
    assert taken.plan.home == "another index"


def test_of_many_that_begin_together_one_does(given: Given, other: Store) -> None:
    stores = (given.store, other)
    asked = [stores[n % 2].add_operation(SYSTEM, plan()) for n in range(20)]
    outcomes = given.run(all_of(asked))
    assert sum(isinstance(outcome, Operation) for outcome in outcomes) == 1


def test_an_operation_that_is_over_makes_room_for_the_next(given: Given) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    given.run(given.store.save_operation(replace(leased(given.run, given.store), state=State.FAILED), 0))
    again = given.run(given.store.add_operation(SYSTEM, plan()))
    assert [one.number for one in given.run(given.store.operations(0, 10)).rows] == [again.number, again.number - 1]


def test_the_node_id_is_the_same_for_everybody(given: Given, other: Store) -> None:
    assert given.run(given.store.node_id()) == given.run(other.node_id())


def test_a_lease_is_held_by_one_until_it_runs_out(given: Given, other: Store, clock: Hand) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    first = leased(given.run, given.store)
    assert given.run(other.lease_operation(LEASE)) is None
    clock.now += LEASE
    second = leased(given.run, other)
    assert second.fence > first.fence


def test_whoever_lost_the_lease_writes_nothing(given: Given, other: Store, clock: Hand) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    first = leased(given.run, given.store)
    clock.now += LEASE
    second = leased(given.run, other)
    with pytest.raises(LeaseLost):
        given.run(given.store.save_operation(replace(first, state=State.RUNNING), LEASE))
    assert given.run(other.operation(second.number)) == second


def test_saving_renews_the_lease_and_zero_ends_it(given: Given, other: Store, clock: Hand) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    held = leased(given.run, given.store)
    clock.now += LEASE - 1
    held = given.run(given.store.save_operation(held, LEASE))
    clock.now += LEASE - 1
    assert given.run(other.lease_operation(LEASE)) is None
    given.run(given.store.save_operation(held, 0))
    leased(given.run, other)


def test_of_many_that_want_the_lease_one_gets_it(given: Given, other: Store) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    outcomes = given.run(all_of((given.store, other)[n % 2].lease_operation(LEASE) for n in range(20)))
    assert sum(outcome is not None for outcome in outcomes) == 1


def test_an_operation_that_is_over_is_leased_to_nobody_and_changed_by_nobody(given: Given) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    held = leased(given.run, given.store)
    over = given.run(given.store.save_operation(replace(held, state=State.DONE), 0))
    assert given.run(given.store.lease_operation(LEASE)) is None
    with pytest.raises(LeaseLost):
        given.run(given.store.save_operation(replace(over, state=State.FAILED), 0))


def test_every_state_leaves_its_event_once(given: Given, place: Place) -> None:
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    held = leased(given.run, given.store)
    for state in (State.RUNNING, State.RUNNING, State.VERIFYING, State.SWAPPING, State.DONE):
        held = given.run(given.store.save_operation(replace(held, state=state), LEASE))
    told = [(event.action, event.target) for event in place.events() if event.action.startswith("operation.")]
    target = f"{given.run(given.store.node_id())}:{added.number}"
    words = ("planned", "running", "verifying", "swapping", "done")
    assert told == [(f"operation.{word}", target) for word in words]
    assert held.started_at is not None
    assert held.finished_at is not None


def test_asking_to_cancel_is_noted_with_who_asked_and_twice_is_once(given: Given, place: Place) -> None:
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    first = given.run(given.store.ask_cancel(given.precondition(ADMIN), added.number))
    again = given.run(given.store.ask_cancel(SYSTEM, added.number))
    assert (first.cancel_asked_by, first.cancel_asked_at) == (ADMIN, again.cancel_asked_at)
    assert [event.action for event in place.events()].count("operation.cancel_asked") == 1


@pytest.mark.parametrize("state", [State.SWAPPING, State.DONE, State.FAILED, State.CANCELLED], ids=lambda s: s.value)
def test_it_is_too_late_to_cancel(given: Given, state: State) -> None:
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    given.run(given.store.save_operation(replace(leased(given.run, given.store), state=state), LEASE))
    with pytest.raises(Fault) as refused:
        given.run(given.store.ask_cancel(SYSTEM, added.number))
    assert refused.value.reason is Reason.TOO_LATE_TO_CANCEL


def test_cancelling_what_does_not_exist_is_not_found(given: Given) -> None:
    with pytest.raises(Fault) as refused:
        given.run(given.store.ask_cancel(SYSTEM, 77))
    assert refused.value.reason is Reason.OPERATION_NOT_FOUND


def test_a_swap_does_not_begin_once_somebody_asked_to_cancel(given: Given) -> None:
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    held = given.run(given.store.save_operation(replace(leased(given.run, given.store), state=State.VERIFYING), LEASE))
    given.run(given.store.ask_cancel(SYSTEM, added.number))
    with pytest.raises(CancelAsked):
        given.run(given.store.save_operation(replace(held, state=State.SWAPPING), LEASE))
    now = given.run(given.store.operation(added.number))
    assert now is not None
    assert now.state is State.VERIFYING


def test_an_operation_needs_a_warrant_that_still_holds(given: Given) -> None:
    precondition = given.precondition(ANN)
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    given.stale(given.store.add_operation(precondition, plan()))
    added = given.run(given.store.add_operation(SYSTEM, plan()))
    given.stale(given.store.ask_cancel(precondition, added.number))


def test_pages_are_newest_first(given: Given) -> None:
    numbers = [given.run(given.store.add_operation(SYSTEM, plan(f"index_{n}"))).number for n in range(5)]
    page = given.run(given.store.operations(1, 2))
    assert page.total == 5
    assert [one.number for one in page.rows] == [numbers[3], numbers[2]]


_counts = st.integers(0, 2**40)
_counters = st.builds(Counters, total=_counts, created=_counts, deleted=_counts, throttled_millis=_counts)
_tasks = st.builds(
    EngineTask, st.builds(TaskId, st.just("node"), st.integers(0, 2**63 - 1)), st.just("copy"), _counters, st.booleans()
)
_work = st.builds(
    Work,
    source=st.none() | st.text(),
    target=st.none() | st.text(),
    copied=st.booleans(),
    checkpoints=st.none() | st.lists(st.integers(-1, 2**62)).map(tuple),
    blocked_at=st.none() | _counts,
    trash=st.lists(st.text()).map(tuple),
    tasks=st.lists(_tasks).map(tuple),
    rows_done=_counts,
    error=st.none() | st.text(),
    check=st.none() | st.builds(PostCheck, _counts, _counts, st.none() | _counts),
)


@drawn(_work)
def test_work_is_unpacked_as_it_was_packed(work: Work) -> None:
    assert Work.unpacked(work.packed()) == work


def test_where_the_work_stands_is_kept(given: Given) -> None:
    given.run(given.store.add_operation(SYSTEM, plan()))
    task = EngineTask(TaskId("node", 7), "copy", Counters(total=9, created=4, requests_per_second=5.5))
    work = Work(source="s", target="t", checkpoints=(-1, 3), trash=("a", "b"), tasks=(task,), check=PostCheck(1, 2, 3))
    kept = given.run(given.store.save_operation(replace(leased(given.run, given.store), work=work), LEASE))
    found = given.run(given.store.operation(kept.number))
    assert found is not None
    assert found.work == work

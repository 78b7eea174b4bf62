"""Operations: one active per index, leases with fencing tokens, an event for every state."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.harness import ADMIN, ANN, SYSTEM, Run, StoreHarness, all_of
from tests.support.backends import SettableClock, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Fault, Reason
from watchword.index.engine import Counters, TaskId
from watchword.index.indices import Aspect
from watchword.index.lease_jobs import Lease
from watchword.index.rules import (
    CancelRequested,
    EngineTask,
    LeaseLost,
    Operation,
    OperationProgress,
    Plan,
    PostCheck,
    State,
    Strategy,
)
from watchword.stores.joined import Store

LEASE = 10_000


def plan(index: str = "dataset_operationaspect_v1") -> Plan:
    return Plan(Aspect("dataset", "operation"), index, 1_000, 10, 6, 4_096, Strategy.REINDEX, "a test", 1_000)


def leased(run: Run, store: Store) -> Operation:
    operation = run(store.lease_operation(LEASE))
    assert operation is not None
    return operation


def test_new_operation_is_planned_and_stored_unchanged(harness: StoreHarness) -> None:
    added = harness.run(harness.store.add_operation(SYSTEM, plan()))
    assert (added.state, added.plan, added.work) == (State.PLANNED, plan(), OperationProgress())
    assert harness.run(harness.store.operation(added.number)) == added
    assert harness.run(harness.store.operation(added.number + 1)) is None


def test_second_operation_on_the_same_index_is_rejected(harness: StoreHarness) -> None:
    first = harness.run(harness.store.add_operation(SYSTEM, plan()))
    harness.run(harness.store.add_operation(SYSTEM, plan("another_index")))
    with pytest.raises(Fault) as refused:
        harness.run(harness.store.add_operation(SYSTEM, plan()))
    assert refused.value.reason is Reason.OPERATION_RUNNING
    assert refused.value.details["operationId"] == f"{harness.run(harness.store.node_id())}:{first.number}"


def test_indices_of_different_engines_are_independent(harness: StoreHarness) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    elsewhere = replace(plan(), home="another index")
    assert harness.run(harness.store.add_operation(SYSTEM, elsewhere)).plan == elsewhere
    with pytest.raises(Fault) as refused:
        harness.run(harness.store.add_operation(SYSTEM, elsewhere))
    assert refused.value.reason is Reason.OPERATION_RUNNING


def test_operation_is_leased_only_by_its_engine(harness: StoreHarness, other: Store) -> None:
    harness.run(harness.store.add_operation(SYSTEM, replace(plan(), home="another index")))
    assert harness.run(harness.store.lease_operation(LEASE)) is None
    assert harness.run(other.lease_operation(LEASE, "a third")) is None
    taken = harness.run(other.lease_operation(LEASE, "another index"))
    assert taken is not None
    assert taken.plan.home == "another index"


def test_concurrent_starts_create_one_operation(harness: StoreHarness, other: Store) -> None:
    stores = (harness.store, other)
    asked = [stores[n % 2].add_operation(SYSTEM, plan()) for n in range(20)]
    outcomes = harness.run(all_of(asked))
    assert sum(isinstance(outcome, Operation) for outcome in outcomes) == 1


def test_finished_operation_frees_its_index(harness: StoreHarness) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    harness.run(harness.store.save_operation(replace(leased(harness.run, harness.store), state=State.FAILED), 0))
    again = harness.run(harness.store.add_operation(SYSTEM, plan()))
    assert [one.number for one in harness.run(harness.store.operations(0, 10)).rows] == [again.number, again.number - 1]


def test_node_id_is_shared_by_all_stores(harness: StoreHarness, other: Store) -> None:
    assert harness.run(harness.store.node_id()) == harness.run(other.node_id())


def test_lease_is_exclusive_until_it_expires(harness: StoreHarness, other: Store, clock: SettableClock) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    first = leased(harness.run, harness.store)
    assert harness.run(other.lease_operation(LEASE)) is None
    clock.now += LEASE
    second = leased(harness.run, other)
    assert second.fence > first.fence


def test_expired_lease_cannot_write(harness: StoreHarness, other: Store, clock: SettableClock) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    first = leased(harness.run, harness.store)
    clock.now += LEASE
    second = leased(harness.run, other)
    with pytest.raises(LeaseLost):
        harness.run(harness.store.save_operation(replace(first, state=State.RUNNING), LEASE))
    assert harness.run(other.operation(second.number)) == second


def test_save_renews_the_lease_and_zero_releases_it(harness: StoreHarness, other: Store, clock: SettableClock) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    held = leased(harness.run, harness.store)
    clock.now += LEASE - 1
    held = harness.run(harness.store.save_operation(held, LEASE))
    clock.now += LEASE - 1
    assert harness.run(other.lease_operation(LEASE)) is None
    harness.run(harness.store.save_operation(held, 0))
    leased(harness.run, other)


def test_concurrent_leases_grant_one(harness: StoreHarness, other: Store) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    outcomes = harness.run(all_of((harness.store, other)[n % 2].lease_operation(LEASE) for n in range(20)))
    assert sum(outcome is not None for outcome in outcomes) == 1


def test_finished_operation_cannot_be_leased_or_changed(harness: StoreHarness) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    held = leased(harness.run, harness.store)
    over = harness.run(harness.store.save_operation(replace(held, state=State.DONE), 0))
    assert harness.run(harness.store.lease_operation(LEASE)) is None
    with pytest.raises(LeaseLost):
        harness.run(harness.store.save_operation(replace(over, state=State.FAILED), 0))


def test_every_state_writes_one_event(harness: StoreHarness, location: StoreLocation) -> None:
    added = harness.run(harness.store.add_operation(SYSTEM, plan()))
    held = leased(harness.run, harness.store)
    for state in (State.RUNNING, State.RUNNING, State.VERIFYING, State.SWAPPING, State.DONE):
        held = harness.run(harness.store.save_operation(replace(held, state=state), LEASE))
    told = [(event.action, event.target) for event in location.events() if event.action.startswith("operation.")]
    target = f"{harness.run(harness.store.node_id())}:{added.number}"
    words = ("planned", "running", "verifying", "swapping", "done")
    assert told == [(f"operation.{word}", target) for word in words]
    assert held.started_at is not None
    assert held.finished_at is not None


def test_cancel_request_is_recorded_once_with_its_actor(harness: StoreHarness, location: StoreLocation) -> None:
    added = harness.run(harness.store.add_operation(SYSTEM, plan()))
    first = harness.run(harness.store.request_cancel(harness.precondition(ADMIN), added.number))
    again = harness.run(harness.store.request_cancel(SYSTEM, added.number))
    assert (first.cancel_requested_by, first.cancel_requested_at) == (ADMIN, again.cancel_requested_at)
    assert [event.action for event in location.events()].count("operation.cancel_requested") == 1


@pytest.mark.parametrize("state", [State.SWAPPING, State.DONE, State.FAILED, State.CANCELLED], ids=lambda s: s.value)
def test_cancel_is_rejected_after_the_swap_starts(harness: StoreHarness, state: State) -> None:
    added = harness.run(harness.store.add_operation(SYSTEM, plan()))
    harness.run(harness.store.save_operation(replace(leased(harness.run, harness.store), state=state), LEASE))
    with pytest.raises(Fault) as refused:
        harness.run(harness.store.request_cancel(SYSTEM, added.number))
    assert refused.value.reason is Reason.TOO_LATE_TO_CANCEL


def test_cancel_of_unknown_operation_is_not_found(harness: StoreHarness) -> None:
    with pytest.raises(Fault) as refused:
        harness.run(harness.store.request_cancel(SYSTEM, 77))
    assert refused.value.reason is Reason.OPERATION_NOT_FOUND


def test_swap_is_rejected_after_a_cancel_request(harness: StoreHarness) -> None:
    added = harness.run(harness.store.add_operation(SYSTEM, plan()))
    held = harness.run(
        harness.store.save_operation(replace(leased(harness.run, harness.store), state=State.VERIFYING), LEASE)
    )
    harness.run(harness.store.request_cancel(SYSTEM, added.number))
    with pytest.raises(CancelRequested):
        harness.run(harness.store.save_operation(replace(held, state=State.SWAPPING), LEASE))
    now = harness.run(harness.store.operation(added.number))
    assert now is not None
    assert now.state is State.VERIFYING


def test_operation_write_requires_a_valid_precondition(harness: StoreHarness) -> None:
    precondition = harness.precondition(ANN)
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    harness.assert_stale(harness.store.add_operation(precondition, plan()))
    added = harness.run(harness.store.add_operation(SYSTEM, plan()))
    harness.assert_stale(harness.store.request_cancel(precondition, added.number))


def test_operations_are_listed_newest_first(harness: StoreHarness) -> None:
    numbers = [harness.run(harness.store.add_operation(SYSTEM, plan(f"index_{n}"))).number for n in range(5)]
    page = harness.run(harness.store.operations(1, 2))
    assert page.total == 5
    assert [one.number for one in page.rows] == [numbers[3], numbers[2]]


_counts = st.integers(0, 2**40)
_counters = st.builds(Counters, total=_counts, created=_counts, deleted=_counts, throttled_millis=_counts)
_tasks = st.builds(
    EngineTask, st.builds(TaskId, st.just("node"), st.integers(0, 2**63 - 1)), st.just("copy"), _counters, st.booleans()
)
_work = st.builds(
    OperationProgress,
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


@given(_work)
def test_work_survives_packing(work: OperationProgress) -> None:
    assert OperationProgress.unpacked(work.packed()) == work


def test_work_progress_is_stored(harness: StoreHarness) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    task = EngineTask(TaskId("node", 7), "copy", Counters(total=9, created=4, requests_per_second=5.5))
    work = OperationProgress(
        source="s", target="t", checkpoints=(-1, 3), trash=("a", "b"), tasks=(task,), check=PostCheck(1, 2, 3)
    )
    kept = harness.run(harness.store.save_operation(replace(leased(harness.run, harness.store), work=work), LEASE))
    found = harness.run(harness.store.operation(kept.number))
    assert found is not None
    assert found.work == work


def test_lease_is_free_after_its_release_although_a_renewal_was_on_its_way(harness: StoreHarness) -> None:
    harness.run(harness.store.add_operation(SYSTEM, plan()))
    for _ in range(20):
        lease = Lease(harness.store, leased(harness.run, harness.store))
        harness.run(all_of([lease.save(), lease.save(), lease.release()]))

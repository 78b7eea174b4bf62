from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.contract.harness import ADMIN, ANN, BOB, EVE, OPS, SYSTEM, Run, StoreHarness, all_of, policy
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import policies
from watchword.access.actor_rules import ActorState
from watchword.access.group_rules import Group
from watchword.authority.callers import ActorStatus
from watchword.authority.policies import ROOT_POLICY, Policy, PolicySource, PolicyState, default_policies, root_policy
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import GROUP_PREFIX
from watchword.journal.events import Action, EventSearch
from watchword.stores.joined import Store


def version(harness: StoreHarness) -> int:
    return harness.run(harness.store.policies()).version


def policy_urns(harness: StoreHarness) -> list[str]:
    return [kept.urn for kept in harness.run(harness.store.policies()).policies]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies())
def test_policy_is_stored_unchanged(harness: StoreHarness, made: Policy) -> None:
    if made.urn in policy_urns(harness):
        harness.run(harness.store.delete_policy(SYSTEM, made.urn))
    harness.run(harness.store.add_policy(SYSTEM, made))
    assert made in harness.run(harness.store.policies()).policies


def test_policies_are_sorted_by_name_then_urn(harness: StoreHarness) -> None:
    for number, name in ((3, "b"), (1, "b"), (2, "B"), (4, "a")):
        harness.run(harness.store.add_policy(SYSTEM, policy(number, ANN, name=name)))
    names = [(kept.name, kept.urn) for kept in harness.run(harness.store.policies()).policies]
    assert names == sorted(names)
    assert len(names) == 5


def test_replaced_policy_is_stored(harness: StoreHarness) -> None:
    harness.run(harness.store.add_policy(SYSTEM, policy(1, ANN)))
    changed = policy(1, BOB, state=PolicyState.INACTIVE, description="changed")
    harness.run(harness.store.replace_policy(SYSTEM, changed))
    kept = {entry.urn: entry for entry in harness.run(harness.store.policies()).policies}
    assert kept[changed.urn] == changed
    assert len(kept) == 2


def test_missing_policy_is_created_if_the_caller_says_so(harness: StoreHarness) -> None:
    for made in (policy(1, ANN), policy(1, BOB)):
        harness.run(harness.store.replace_policy(SYSTEM, made, create=True))
        assert made in harness.run(harness.store.policies()).policies
    newest = harness.run(harness.store.events(EventSearch(targets=(policy(1).urn,)))).events
    assert [event.action for event in newest] == [Action.POLICY_UPDATED.value, Action.POLICY_CREATED.value]
    assert [event.detail.get("removedUsers") for event in newest] == [[ANN], None]
    mine = replace(root_policy(EVE), source=PolicySource.API)
    assert harness.fault_of(harness.store.replace_policy(SYSTEM, mine, create=True)).reason is Reason.NOT_EDITABLE


def test_deleted_policy_is_gone(harness: StoreHarness) -> None:
    harness.run(harness.store.add_policy(SYSTEM, policy(1, ANN)))
    harness.run(harness.store.delete_policy(SYSTEM, policy(1).urn))
    assert policy_urns(harness) == [ROOT_POLICY]


def test_missing_policy_cannot_be_replaced_or_deleted(harness: StoreHarness) -> None:
    assert harness.fault_of(harness.store.replace_policy(SYSTEM, policy(9))).reason is Reason.POLICY_NOT_FOUND
    assert harness.fault_of(harness.store.delete_policy(SYSTEM, policy(9).urn)).reason is Reason.POLICY_NOT_FOUND


def test_root_policy_cannot_be_replaced_or_deleted(harness: StoreHarness) -> None:
    before = harness.run(harness.store.policies())
    mine = replace(root_policy(EVE), source=PolicySource.API)
    assert harness.fault_of(harness.store.replace_policy(harness.precondition(), mine)).reason is Reason.NOT_EDITABLE
    assert (
        harness.fault_of(harness.store.delete_policy(harness.precondition(), ROOT_POLICY)).reason is Reason.NOT_EDITABLE
    )
    assert harness.run(harness.store.policies()) == before


def test_adding_an_existing_policy_is_rejected(harness: StoreHarness) -> None:
    harness.run(harness.store.add_policy(SYSTEM, policy(1, ANN)))
    before = harness.run(harness.store.policies())
    assert harness.fault_of(harness.store.add_policy(SYSTEM, policy(1, EVE))).reason is Reason.ALREADY_EXISTS
    assert harness.fault_of(harness.store.add_policy(SYSTEM, replace(root_policy(EVE)))).reason is Reason.ALREADY_EXISTS
    assert harness.run(harness.store.policies()) == before


def test_two_changes_of_one_revision_cannot_undo_each_other(
    harness: StoreHarness, run: Run, store: Store, other: Store
) -> None:
    read = policy(1, ANN, BOB)
    run(store.add_policy(SYSTEM, read))
    changes = [replace(read, users=frozenset({ANN})), replace(read, description="new")]
    both = [(store, changes[0]), (other, changes[1])]
    work = [one.replace_policy(SYSTEM, changed, revision=read.revision) for one, changed in both]
    outcomes = run(all_of(work))
    (refused,) = [found for found in outcomes if found is not None]
    assert isinstance(refused, Fault)
    assert refused.reason is Reason.POLICY_CHANGED
    kept = changes[outcomes.index(None)]
    assert kept in run(store.policies()).policies
    run(store.replace_policy(SYSTEM, changes[1], revision=kept.revision))
    run(store.replace_policy(SYSTEM, changes[0]))


def test_every_policy_or_group_change_increments_the_version(harness: StoreHarness) -> None:
    store = harness.store
    changes: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: store.add_policy(SYSTEM, policy(1, ANN)),
        lambda: store.replace_policy(SYSTEM, policy(1, BOB)),
        lambda: store.delete_policy(SYSTEM, policy(1).urn),
        lambda: store.add_group(SYSTEM, OPS),
        lambda: store.change_members(SYSTEM, OPS.urn, add=[ANN]),
        lambda: store.change_members(SYSTEM, OPS.urn, remove=[ANN]),
        lambda: store.delete_group(SYSTEM, OPS.urn),
    ]
    seen = [version(harness)]
    for change in changes:
        harness.run(change())
        seen.append(version(harness))
        assert harness.run(store.actor_snapshot(ANN)).policy_version == seen[-1]
    assert seen == sorted(set(seen))


def test_rejected_change_keeps_the_version(harness: StoreHarness) -> None:
    before = version(harness)
    harness.fault_of(harness.store.delete_policy(SYSTEM, ROOT_POLICY))
    harness.fault_of(harness.store.delete_group(SYSTEM, OPS.urn))
    assert version(harness) == before


def test_group_is_stored_with_members_and_count(harness: StoreHarness) -> None:
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[BOB, ANN, BOB]))
    assert harness.run(harness.store.groups(0, 10)) == (1, (replace(OPS, members=2),))
    assert harness.run(harness.store.members(OPS.urn, 0, 10)) == (2, (ANN, BOB))
    assert harness.run(harness.store.actor_snapshot(ANN)).groups == (OPS.urn,)


def test_adding_a_member_twice_changes_nothing_and_writes_no_event(
    harness: StoreHarness, location: StoreLocation
) -> None:
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN]))
    before = version(harness), location.events()
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN], remove=[EVE]))
    assert harness.run(harness.store.members(OPS.urn, 0, 10)) == (1, (ANN,))
    assert (version(harness), location.events()) == before
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN, BOB], remove=[EVE]))
    assert location.events()[-1].detail == {"name": OPS.name, "members": [BOB]}


def test_deleting_a_group_removes_its_memberships(harness: StoreHarness) -> None:
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN, BOB]))
    harness.run(harness.store.delete_group(SYSTEM, OPS.urn))
    assert harness.run(harness.store.actor_snapshot(ANN)).groups == ()
    harness.run(harness.store.add_group(SYSTEM, OPS))
    assert harness.run(harness.store.members(OPS.urn, 0, 10)) == (0, ())


def test_adding_an_existing_group_is_rejected(harness: StoreHarness) -> None:
    harness.run(harness.store.add_group(SYSTEM, OPS))
    again = harness.store.add_group(SYSTEM, replace(OPS, name="another"))
    assert harness.fault_of(again).reason is Reason.ALREADY_EXISTS
    assert harness.run(harness.store.groups(0, 10))[1] == (OPS,)


def test_unknown_group_is_not_found(harness: StoreHarness) -> None:
    for work in (
        harness.store.change_members(SYSTEM, OPS.urn, add=[ANN]),
        harness.store.members(OPS.urn, 0, 10),
        harness.store.delete_group(SYSTEM, OPS.urn),
    ):
        assert harness.fault_of(work).reason is Reason.GROUP_NOT_FOUND
    assert harness.run(harness.store.actor_snapshot(ANN)).groups == ()


def test_actor_can_join_many_groups(harness: StoreHarness) -> None:
    urns = [f"{GROUP_PREFIX}{n:03}" for n in range(40)]
    for urn in urns:
        harness.run(harness.store.add_group(SYSTEM, Group(urn, "group", None)))
        harness.run(harness.store.change_members(SYSTEM, urn, add=[ANN]))
    assert sorted(harness.run(harness.store.actor_snapshot(ANN)).groups) == urns


@pytest.mark.parametrize(("start", "count"), [(0, 0), (0, 2), (2, 2), (4, 10), (10, 10), (0, 1_000)])
def test_groups_and_members_are_paged(harness: StoreHarness, start: int, count: int) -> None:
    groups = [Group(f"{GROUP_PREFIX}{n}", f"name {n % 2}", None) for n in range(5)]
    for group in groups:
        harness.run(harness.store.add_group(SYSTEM, group))
    members = [f"urn:li:corpuser:{n}" for n in range(5)]
    harness.run(harness.store.change_members(SYSTEM, groups[0].urn, add=members))
    by_name = sorted((replace(g, members=5 if g is groups[0] else 0) for g in groups), key=lambda g: (g.name, g.urn))
    assert harness.run(harness.store.groups(start, count)) == (5, tuple(by_name[start : start + count]))
    page = tuple(members[start : start + count])
    assert harness.run(harness.store.members(groups[0].urn, start, count)) == (5, page)


def test_actor_is_active_by_default(harness: StoreHarness) -> None:
    assert harness.run(harness.store.actor_state(ANN)) == ActorState(ANN, ActorStatus.ACTIVE)


def test_actor_status_records_time_and_author(harness: StoreHarness) -> None:
    harness.run(harness.store.set_actor_status(harness.precondition(), ANN, ActorStatus.SUSPENDED))
    assert harness.run(harness.store.actor_state(ANN)) == ActorState(ANN, ActorStatus.SUSPENDED, NOW, ADMIN)
    assert harness.run(harness.store.actor_snapshot(ANN)).suspended
    harness.clock.now = NOW + 9
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    assert harness.run(harness.store.actor_state(ANN)) == ActorState(ANN, ActorStatus.ACTIVE, NOW + 9, SYSTEM.actor)
    assert not harness.run(harness.store.actor_snapshot(ANN)).suspended


def test_suspending_twice_changes_nothing(harness: StoreHarness, location: StoreLocation) -> None:
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    harness.clock.now = NOW + 9
    before = location.events()
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    assert harness.run(harness.store.actor_state(ANN)).changed_at == NOW
    assert location.events() == before


def test_first_start_creates_root_and_default_policies(run: Run, store: Store) -> None:
    run(store.apply_start(root_policy(ADMIN), default_policies()))
    kept = run(store.policies())
    assert set(kept.policies) == {root_policy(ADMIN), *default_policies()}


def test_deleted_default_policy_is_not_recreated(run: Run, store: Store) -> None:
    one, two = policy(1, ANN), policy(2, ANN)
    run(store.apply_start(root_policy(ADMIN), (one, two)))
    run(store.delete_policy(SYSTEM, one.urn))
    run(store.replace_policy(SYSTEM, replace(two, description="changed")))
    for _ in range(2):
        run(store.apply_start(root_policy(BOB), (one, two, policy(3, ANN))))
    assert set(run(store.policies()).policies) == {root_policy(BOB), replace(two, description="changed")}


def test_root_policy_follows_the_setting(harness: StoreHarness, location: StoreLocation) -> None:
    before = version(harness)
    harness.run(harness.store.apply_start(root_policy(EVE), ()))
    assert harness.run(harness.store.policies()).policies == (root_policy(EVE),)
    assert version(harness) > before
    detail = location.events()[-1].detail
    assert (detail["users"], detail["removedUsers"]) == ([EVE], [ADMIN])


def test_unchanged_start_writes_nothing(harness: StoreHarness, location: StoreLocation) -> None:
    before = version(harness), location.events()
    harness.run(harness.store.apply_start(root_policy(ADMIN), default_policies()))
    assert (version(harness), location.events()) == before


def test_memberships_are_of_actors_and_of_members_up_to_a_number(harness: StoreHarness) -> None:
    other = Group(GROUP_PREFIX + "other", "Other", None)
    for group, members in ((OPS, [BOB, EVE]), (other, [EVE])):
        harness.run(harness.store.add_group(SYSTEM, group))
        harness.run(harness.store.change_members(SYSTEM, group.urn, add=members))
    found = harness.run(harness.store.memberships([ANN], [OPS.urn], 10))
    assert {actor: set(groups) for actor, groups in found.items()} == {
        ANN: set(),
        BOB: {OPS.urn},
        EVE: {OPS.urn, other.urn},
    }
    assert list(harness.run(harness.store.memberships([ANN], [OPS.urn], 1))) == [ANN, BOB]

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn

from tests.contract.given import ADMIN, ANN, BOB, EVE, OPS, SYSTEM, Given, Run, policy
from tests.support.backends import NOW, Place
from tests.support.strategies import policies
from watchword.domain.actors import ActorState, ActorStatus
from watchword.domain.errors import Reason
from watchword.domain.names import GROUP_PREFIX
from watchword.domain.policies import ROOT_POLICY, Policy, PolicySource, PolicyState, default_policies, root_policy
from watchword.domain.ports import Group, Store


def version(given: Given) -> int:
    return given.run(given.store.policies()).version


def policy_urns(given: Given) -> list[str]:
    return [kept.urn for kept in given.run(given.store.policies()).policies]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@drawn(policies())
def test_a_policy_is_kept_as_it_is(given: Given, made: Policy) -> None:
    if made.urn in policy_urns(given):
        given.run(given.store.delete_policy(SYSTEM, made.urn))
    given.run(given.store.add_policy(SYSTEM, made))
    assert made in given.run(given.store.policies()).policies


def test_policies_come_by_name_then_by_urn(given: Given) -> None:
    for number, name in ((3, "b"), (1, "b"), (2, "B"), (4, "a")):
        given.run(given.store.add_policy(SYSTEM, policy(number, ANN, name=name)))
    names = [(kept.name, kept.urn) for kept in given.run(given.store.policies()).policies]
    assert names == sorted(names)
    assert len(names) == 5


def test_a_replaced_policy_grants_what_it_says_now(given: Given) -> None:
    given.run(given.store.add_policy(SYSTEM, policy(1, ANN)))
    changed = policy(1, BOB, state=PolicyState.INACTIVE, description="changed")
    given.run(given.store.replace_policy(SYSTEM, changed))
    kept = {entry.urn: entry for entry in given.run(given.store.policies()).policies}
    assert kept[changed.urn] == changed
    assert len(kept) == 2


def test_a_deleted_policy_is_gone(given: Given) -> None:
    given.run(given.store.add_policy(SYSTEM, policy(1, ANN)))
    given.run(given.store.delete_policy(SYSTEM, policy(1).urn))
    assert policy_urns(given) == [ROOT_POLICY]


def test_what_is_not_there_can_be_neither_replaced_nor_deleted(given: Given) -> None:
    assert given.refused(given.store.replace_policy(SYSTEM, policy(9))).reason is Reason.POLICY_NOT_FOUND
    assert given.refused(given.store.delete_policy(SYSTEM, policy(9).urn)).reason is Reason.POLICY_NOT_FOUND


def test_the_root_policy_can_be_neither_replaced_nor_deleted(given: Given) -> None:
    before = given.run(given.store.policies())
    mine = replace(root_policy(EVE), source=PolicySource.API)
    assert given.refused(given.store.replace_policy(given.precondition(), mine)).reason is Reason.NOT_EDITABLE
    assert given.refused(given.store.delete_policy(given.precondition(), ROOT_POLICY)).reason is Reason.NOT_EDITABLE
    assert given.run(given.store.policies()) == before


def test_a_policy_never_takes_the_place_of_another_by_being_added(given: Given) -> None:
    given.run(given.store.add_policy(SYSTEM, policy(1, ANN)))
    before = given.run(given.store.policies())
    assert given.refused(given.store.add_policy(SYSTEM, policy(1, EVE))).reason is Reason.ALREADY_EXISTS
    assert given.refused(given.store.add_policy(SYSTEM, replace(root_policy(EVE)))).reason is Reason.ALREADY_EXISTS
    assert given.run(given.store.policies()) == before


def test_every_change_of_a_policy_or_group_moves_the_version_on(given: Given) -> None:
    store = given.store
    changes: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: store.add_policy(SYSTEM, policy(1, ANN)),
        lambda: store.replace_policy(SYSTEM, policy(1, BOB)),
        lambda: store.delete_policy(SYSTEM, policy(1).urn),
        lambda: store.add_group(SYSTEM, OPS),
        lambda: store.change_members(SYSTEM, OPS.urn, add=[ANN]),
        lambda: store.change_members(SYSTEM, OPS.urn, remove=[ANN]),
        lambda: store.delete_group(SYSTEM, OPS.urn),
    ]
    seen = [version(given)]
    for change in changes:
        given.run(change())
        seen.append(version(given))
        assert given.run(store.actor_snapshot(ANN)).policy_version == seen[-1]
    assert seen == sorted(set(seen))


def test_a_refused_change_leaves_the_version_alone(given: Given) -> None:
    before = version(given)
    given.refused(given.store.delete_policy(SYSTEM, ROOT_POLICY))
    given.refused(given.store.delete_group(SYSTEM, OPS.urn))
    assert version(given) == before


def test_a_group_is_kept_with_its_members_and_their_number(given: Given) -> None:
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[BOB, ANN, BOB]))
    assert given.run(given.store.groups(0, 10)) == (1, (replace(OPS, members=2),))
    assert given.run(given.store.members(OPS.urn, 0, 10)) == (2, (ANN, BOB))
    assert given.run(given.store.actor_snapshot(ANN)).groups == (OPS.urn,)


def test_adding_a_member_twice_and_removing_a_stranger_change_nothing(given: Given) -> None:
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[ANN]))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[ANN], remove=[EVE]))
    assert given.run(given.store.members(OPS.urn, 0, 10)) == (1, (ANN,))


def test_a_group_that_is_deleted_takes_its_memberships_along(given: Given) -> None:
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[ANN, BOB]))
    given.run(given.store.delete_group(SYSTEM, OPS.urn))
    assert given.run(given.store.actor_snapshot(ANN)).groups == ()
    given.run(given.store.add_group(SYSTEM, OPS))
    assert given.run(given.store.members(OPS.urn, 0, 10)) == (0, ())


def test_a_group_is_made_once(given: Given) -> None:
    given.run(given.store.add_group(SYSTEM, OPS))
    again = given.store.add_group(SYSTEM, replace(OPS, name="another"))
    assert given.refused(again).reason is Reason.ALREADY_EXISTS
    assert given.run(given.store.groups(0, 10))[1] == (OPS,)


def test_an_unknown_group_has_no_members_to_add_or_list(given: Given) -> None:
    for work in (
        given.store.change_members(SYSTEM, OPS.urn, add=[ANN]),
        given.store.members(OPS.urn, 0, 10),
        given.store.delete_group(SYSTEM, OPS.urn),
    ):
        assert given.refused(work).reason is Reason.GROUP_NOT_FOUND
    assert given.run(given.store.actor_snapshot(ANN)).groups == ()


def test_an_actor_may_be_in_many_groups(given: Given) -> None:
    urns = [f"{GROUP_PREFIX}{n:03}" for n in range(40)]
    for urn in urns:
        given.run(given.store.add_group(SYSTEM, Group(urn, "group", None)))
        given.run(given.store.change_members(SYSTEM, urn, add=[ANN]))
    assert sorted(given.run(given.store.actor_snapshot(ANN)).groups) == urns


@pytest.mark.parametrize(("start", "count"), [(0, 0), (0, 2), (2, 2), (4, 10), (10, 10), (0, 1_000)])
def test_groups_and_members_come_in_pages(given: Given, start: int, count: int) -> None:
    groups = [Group(f"{GROUP_PREFIX}{n}", f"name {n % 2}", None) for n in range(5)]
    for group in groups:
        given.run(given.store.add_group(SYSTEM, group))
    members = [f"urn:li:corpuser:{n}" for n in range(5)]
    given.run(given.store.change_members(SYSTEM, groups[0].urn, add=members))
    by_name = sorted((replace(g, members=5 if g is groups[0] else 0) for g in groups), key=lambda g: (g.name, g.urn))
    assert given.run(given.store.groups(start, count)) == (5, tuple(by_name[start : start + count]))
    page = tuple(members[start : start + count])
    assert given.run(given.store.members(groups[0].urn, start, count)) == (5, page)


def test_an_actor_is_active_until_somebody_suspends_it(given: Given) -> None:
    assert given.run(given.store.actor_state(ANN)) == ActorState(ANN, ActorStatus.ACTIVE)


def test_who_suspended_and_resumed_an_actor_and_when_is_kept(given: Given) -> None:
    given.run(given.store.set_actor_status(given.precondition(), ANN, ActorStatus.SUSPENDED))
    assert given.run(given.store.actor_state(ANN)) == ActorState(ANN, ActorStatus.SUSPENDED, NOW, ADMIN)
    assert given.run(given.store.actor_snapshot(ANN)).suspended
    given.clock.now = NOW + 9
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    assert given.run(given.store.actor_state(ANN)) == ActorState(ANN, ActorStatus.ACTIVE, NOW + 9, SYSTEM.actor)
    assert not given.run(given.store.actor_snapshot(ANN)).suspended


def test_suspending_a_suspended_actor_changes_nothing(given: Given, place: Place) -> None:
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    given.clock.now = NOW + 9
    before = place.events()
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    assert given.run(given.store.actor_state(ANN)).changed_at == NOW
    assert place.events() == before


def test_the_first_start_makes_the_root_policy_and_the_defaults(run: Run, store: Store) -> None:
    run(store.apply_startup_policies(root_policy(ADMIN), default_policies()))
    kept = run(store.policies())
    assert set(kept.policies) == {root_policy(ADMIN), *default_policies()}


def test_a_default_policy_that_was_deleted_or_changed_is_never_made_again(run: Run, store: Store) -> None:
    one, two = policy(1, ANN), policy(2, ANN)
    run(store.apply_startup_policies(root_policy(ADMIN), (one, two)))
    run(store.delete_policy(SYSTEM, one.urn))
    run(store.replace_policy(SYSTEM, replace(two, description="changed")))
    for _ in range(2):
        run(store.apply_startup_policies(root_policy(BOB), (one, two, policy(3, ANN))))
    assert set(run(store.policies()).policies) == {root_policy(BOB), replace(two, description="changed")}


def test_the_root_policy_follows_the_setting_at_each_start(given: Given) -> None:
    before = version(given)
    given.run(given.store.apply_startup_policies(root_policy(EVE), ()))
    assert given.run(given.store.policies()).policies == (root_policy(EVE),)
    assert version(given) > before


def test_a_start_that_changes_nothing_moves_no_version_and_leaves_no_event(given: Given, place: Place) -> None:
    before = version(given), place.events()
    given.run(given.store.apply_startup_policies(root_policy(ADMIN), default_policies()))
    assert (version(given), place.events()) == before

"""Declared policies: what the file says is in force, whole or not at all; what others keep is left alone."""

from dataclasses import replace

import pytest

from tests.contract.given import ADMIN, ANN, BOB, Given, policy
from tests.support.backends import Place
from watchword.domain.errors import Reason
from watchword.domain.events import Action
from watchword.domain.policies import (
    DEFAULT_SET,
    ROOT_POLICY,
    ChangeKind,
    Policy,
    PolicyDeclaration,
    PolicyPlan,
    PolicySource,
    default_policies,
    root_policy,
)


def declared(number: int, *users: str, set_name: str = DEFAULT_SET) -> Policy:
    return policy(number, *users, source=PolicySource.FILE, set_name=set_name)


def whole(*policies: Policy, set_name: str = DEFAULT_SET) -> PolicyDeclaration:
    return PolicyDeclaration(policies, set_name)


def apply(given: Given, *policies: Policy, set_name: str = DEFAULT_SET, prune: bool = True) -> PolicyPlan:
    return given.run(given.store.apply_policies(given.precondition(), whole(*policies, set_name=set_name), prune=prune))


def kept(given: Given) -> dict[str, Policy]:
    everything = given.run(given.store.policies()).policies
    return {one.urn: one for one in everything if one.urn != ROOT_POLICY}


def version(given: Given) -> int:
    return given.run(given.store.policies()).version


def test_what_is_declared_is_made_changed_and_removed_and_the_rest_left_alone(given: Given) -> None:
    by_hand = policy(9, ANN)
    given.run(given.store.add_policy(given.precondition(), by_hand))
    apply(given, declared(1, ANN), declared(2, ANN))
    changes = apply(given, declared(2, BOB), declared(3, ANN)).changes
    assert [(change.kind, change.urn) for change in changes] == [
        (ChangeKind.UPDATE, declared(2).urn),
        (ChangeKind.CREATE, declared(3).urn),
        (ChangeKind.DELETE, declared(1).urn),
    ]
    assert kept(given) == {one.urn: one for one in (by_hand, declared(2, BOB), declared(3, ANN))}


def test_a_set_leaves_what_another_set_declared(given: Given) -> None:
    apply(given, declared(1, ANN, set_name="a"), set_name="a")
    apply(given, declared(2, BOB, set_name="b"), set_name="b")
    apply(given, set_name="b")
    assert kept(given) == {declared(1).urn: declared(1, ANN, set_name="a")}


def test_a_policy_of_another_set_is_a_conflict_and_nothing_is_changed(given: Given, place: Place) -> None:
    apply(given, declared(1, ANN, set_name="a"), set_name="a")
    before, events = kept(given), place.events()
    wanted = whole(declared(2, BOB, set_name="b"), declared(1, BOB, set_name="b"), set_name="b")
    refusal = given.refused(given.store.apply_policies(given.precondition(), wanted, prune=True))
    assert (refusal.reason, refusal.details["set"]) == (Reason.POLICY_DECLARED_ELSEWHERE, "a")
    assert (kept(given), place.events()) == (before, events)


def test_without_pruning_what_is_no_longer_declared_is_named_and_stays(given: Given, place: Place) -> None:
    apply(given, declared(1, ANN), declared(2, ANN))
    before, events = kept(given), place.events()
    assert apply(given, declared(2, ANN), prune=False) == PolicyPlan((), (declared(1, ANN),))
    assert (kept(given), place.events()) == (before, events)


def test_a_second_time_changes_nothing_and_leaves_no_event(given: Given, place: Place) -> None:
    apply(given, declared(1, ANN))
    before, events = version(given), place.events()
    assert apply(given, declared(1, ANN)) == PolicyPlan()
    assert (version(given), place.events()) == (before, events)


def test_a_policy_made_by_hand_is_taken_over_when_it_is_declared(given: Given) -> None:
    given.run(given.store.add_policy(given.precondition(), policy(1, BOB)))
    apply(given, declared(1, ANN))
    assert kept(given) == {declared(1).urn: declared(1, ANN)}
    apply(given)
    assert kept(given) == {}


def test_an_edit_by_hand_lasts_until_the_file_is_applied_again(given: Given) -> None:
    apply(given, declared(1, ANN))
    given.run(given.store.replace_policy(given.precondition(), policy(1, BOB)))
    assert kept(given) == {declared(1).urn: declared(1, BOB)}, "changed, and still the file's"
    apply(given, declared(1, ANN))
    assert kept(given) == {declared(1).urn: declared(1, ANN)}


def test_one_that_cannot_be_declared_leaves_the_others_undone(given: Given, place: Place) -> None:
    apply(given, declared(1, ANN))
    before, events, at = kept(given), place.events(), version(given)
    root = replace(root_policy(BOB), source=PolicySource.FILE)
    refusal = given.refused(given.store.apply_policies(given.precondition(), whole(declared(2, ANN), root), prune=True))
    assert refusal.reason is Reason.NOT_EDITABLE
    assert (kept(given), place.events(), version(given)) == (before, events, at)


def test_a_stale_warrant_applies_nothing(given: Given) -> None:
    precondition = given.precondition()
    given.run(given.store.add_policy(given.precondition(), policy(9, ANN)))
    given.stale(given.store.apply_policies(precondition, whole(declared(1, ANN)), prune=True))
    assert set(kept(given)) == {policy(9).urn}


def test_every_change_moves_the_version_on_and_leaves_its_event(given: Given, place: Place) -> None:
    at, seen = version(given), len(place.events())
    apply(given, declared(1, ANN))
    apply(given, declared(1, BOB))
    apply(given)
    assert version(given) >= at + 3
    told = [(event.action, event.detail.get("source"), event.detail.get("set")) for event in place.events()[seen:]]
    assert told == [
        (Action.POLICY_CREATED.value, "FILE", "default"),
        (Action.POLICY_UPDATED.value, "FILE", "default"),
        (Action.POLICY_DELETED.value, None, None),
    ]


class TestAStart:
    def test_with_a_file_puts_it_in_force(self, given: Given) -> None:
        changes = given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), whole(declared(1, ANN)))).changes
        assert [change.kind for change in changes] == [ChangeKind.CREATE]
        assert kept(given) == {declared(1).urn: declared(1, ANN)}

    def test_without_a_file_leaves_what_a_file_declared(self, given: Given) -> None:
        given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), whole(declared(1, ANN))))
        assert given.run(given.store.apply_startup_policies(root_policy(ADMIN), ())) == PolicyPlan()
        assert kept(given) == {declared(1).urn: declared(1, ANN)}

    def test_with_an_empty_file_removes_what_a_file_declared_and_nothing_else(self, given: Given) -> None:
        given.run(given.store.add_policy(given.precondition(), policy(9, BOB)))
        given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), whole(declared(1, ANN))))
        given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), whole()))
        assert kept(given) == {policy(9).urn: policy(9, BOB)}

    def test_whose_file_declares_the_root_policy_changes_nothing(self, given: Given, place: Place) -> None:
        before = place.events()
        root = replace(root_policy(BOB), source=PolicySource.FILE)
        refusal = given.refused(
            given.store.apply_startup_policies(root_policy(BOB), default_policies(), whole(declared(1, ANN), root))
        )
        assert refusal.reason is Reason.NOT_EDITABLE
        assert place.events() == before

    @pytest.mark.parametrize(
        ("now", "told"),
        [
            ({"A": "1", "B": "2"}, []),
            ({"A": "1", "B": "3"}, [("B", {"before": "2", "after": "3"})]),
            ({"A": "1"}, []),
            ({"A": "1", "B": "2", "C": "4"}, []),
            ({"A": "5", "C": "4"}, [("A", {"before": "1", "after": "5"})]),
        ],
    )
    def test_tells_which_settings_are_others_than_at_the_last(
        self, given: Given, place: Place, now: dict[str, str], told: list[tuple[str, dict[str, str | None]]]
    ) -> None:
        given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), None, {"A": "1", "B": "2"}))
        first = len(place.events())
        given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), None, now))
        assert [(event.target, event.detail) for event in place.events()[first:]] == told
        given.run(given.store.apply_startup_policies(root_policy(ADMIN), (), None, now))
        assert len(place.events()) == first + len(told)

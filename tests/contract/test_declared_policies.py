"""Declared policies are applied completely or not at all; other policies stay unchanged."""

from dataclasses import replace

import pytest

from tests.contract.harness import ADMIN, ANN, BOB, StoreHarness, policy
from tests.support.backends import StoreLocation
from watchword.authority.declared_parts import DEFAULT_SET, ChangeKind, PartPlan
from watchword.authority.policies import POLICY_PART, ROOT_POLICY, Policy, PolicySource, default_policies, root_policy
from watchword.basics.errors import Reason
from watchword.declared.rules import DeclaredSet, SetPlan
from watchword.journal.events import Action


def declared(number: int, *users: str, set_name: str = DEFAULT_SET) -> Policy:
    return policy(number, *users, source=PolicySource.FILE, set_name=set_name)


def declaration(*policies: Policy, set_name: str = DEFAULT_SET) -> DeclaredSet:
    return DeclaredSet(set_name, {POLICY_PART: policies})


def apply(harness: StoreHarness, *policies: Policy, set_name: str = DEFAULT_SET, prune: bool = True) -> SetPlan:
    return harness.run(
        harness.store.apply_set(harness.precondition(), declaration(*policies, set_name=set_name), prune=prune)
    )


def stored_policies(harness: StoreHarness) -> dict[str, Policy]:
    everything = harness.run(harness.store.policies()).policies
    return {one.urn: one for one in everything if one.urn != ROOT_POLICY}


def version(harness: StoreHarness) -> int:
    return harness.run(harness.store.policies()).version


def test_declared_policies_are_created_updated_and_deleted(harness: StoreHarness) -> None:
    by_hand = policy(9, ANN)
    harness.run(harness.store.add_policy(harness.precondition(), by_hand))
    apply(harness, declared(1, ANN), declared(2, ANN))
    changes = apply(harness, declared(2, BOB), declared(3, ANN))[POLICY_PART].changes
    assert [(change.kind, change.name) for change in changes] == [
        (ChangeKind.UPDATE, declared(2).urn),
        (ChangeKind.CREATE, declared(3).urn),
        (ChangeKind.DELETE, declared(1).urn),
    ]
    assert stored_policies(harness) == {one.urn: one for one in (by_hand, declared(2, BOB), declared(3, ANN))}


def test_other_sets_are_unchanged(harness: StoreHarness) -> None:
    apply(harness, declared(1, ANN, set_name="a"), set_name="a")
    apply(harness, declared(2, BOB, set_name="b"), set_name="b")
    apply(harness, set_name="b")
    assert stored_policies(harness) == {declared(1).urn: declared(1, ANN, set_name="a")}


def test_policy_of_another_set_is_a_conflict(harness: StoreHarness, location: StoreLocation) -> None:
    apply(harness, declared(1, ANN, set_name="a"), set_name="a")
    before, events = stored_policies(harness), location.events()
    wanted = declaration(declared(2, BOB, set_name="b"), declared(1, BOB, set_name="b"), set_name="b")
    refusal = harness.fault_of(harness.store.apply_set(harness.precondition(), wanted, prune=True))
    assert (refusal.reason, refusal.details["set"]) == (Reason.POLICY_DECLARED_ELSEWHERE, "a")
    assert (stored_policies(harness), location.events()) == (before, events)


def test_undeclared_policies_stay_without_prune(harness: StoreHarness, location: StoreLocation) -> None:
    apply(harness, declared(1, ANN), declared(2, ANN))
    before, events = stored_policies(harness), location.events()
    assert apply(harness, declared(2, ANN), prune=False) == SetPlan({POLICY_PART: PartPlan((), (declared(1, ANN),))})
    assert (stored_policies(harness), location.events()) == (before, events)


def test_applying_twice_changes_nothing(harness: StoreHarness, location: StoreLocation) -> None:
    apply(harness, declared(1, ANN))
    before, events = version(harness), location.events()
    assert apply(harness, declared(1, ANN)) == SetPlan()
    assert (version(harness), location.events()) == (before, events)


def test_declaring_a_manual_policy_adopts_it(harness: StoreHarness) -> None:
    harness.run(harness.store.add_policy(harness.precondition(), policy(1, BOB)))
    apply(harness, declared(1, ANN))
    assert stored_policies(harness) == {declared(1).urn: declared(1, ANN)}
    apply(harness)
    assert stored_policies(harness) == {}


def test_manual_edit_lasts_until_the_next_apply(harness: StoreHarness) -> None:
    apply(harness, declared(1, ANN))
    harness.run(harness.store.replace_policy(harness.precondition(), policy(1, BOB)))
    assert stored_policies(harness) == {declared(1).urn: declared(1, BOB)}, "changed, and still the file's"
    apply(harness, declared(1, ANN))
    assert stored_policies(harness) == {declared(1).urn: declared(1, ANN)}


def test_undeclarable_policy_rejects_the_whole_declaration(harness: StoreHarness, location: StoreLocation) -> None:
    apply(harness, declared(1, ANN))
    before, events, at = stored_policies(harness), location.events(), version(harness)
    root = replace(root_policy(BOB), source=PolicySource.FILE)
    refusal = harness.fault_of(
        harness.store.apply_set(harness.precondition(), declaration(declared(2, ANN), root), prune=True)
    )
    assert refusal.reason is Reason.NOT_EDITABLE
    assert (stored_policies(harness), location.events(), version(harness)) == (before, events, at)


def test_stale_precondition_applies_nothing(harness: StoreHarness) -> None:
    precondition = harness.precondition()
    harness.run(harness.store.add_policy(harness.precondition(), policy(9, ANN)))
    harness.assert_stale(harness.store.apply_set(precondition, declaration(declared(1, ANN)), prune=True))
    assert set(stored_policies(harness)) == {policy(9).urn}


def test_every_policy_change_increments_the_version_and_writes_an_event(
    harness: StoreHarness, location: StoreLocation
) -> None:
    at, seen = version(harness), len(location.events())
    apply(harness, declared(1, ANN))
    apply(harness, declared(1, BOB))
    apply(harness)
    assert version(harness) >= at + 3
    fields = ("source", "set", "removedUsers")
    told = [(event.action, *map(event.detail.get, fields)) for event in location.events()[seen:]]
    assert told == [
        (Action.POLICY_CREATED.value, "FILE", "default", None),
        (Action.POLICY_UPDATED.value, "FILE", "default", [ANN]),
        (Action.POLICY_DELETED.value, None, None, None),
    ]


class TestStart:
    def test_start_applies_the_policy_file(self, harness: StoreHarness) -> None:
        changes = harness.run(harness.store.apply_start(root_policy(ADMIN), (), declaration(declared(1, ANN))))[
            POLICY_PART
        ].changes
        assert [change.kind for change in changes] == [ChangeKind.CREATE]
        assert stored_policies(harness) == {declared(1).urn: declared(1, ANN)}

    def test_start_without_a_file_keeps_declared_policies(self, harness: StoreHarness) -> None:
        harness.run(harness.store.apply_start(root_policy(ADMIN), (), declaration(declared(1, ANN))))
        assert harness.run(harness.store.apply_start(root_policy(ADMIN), ())) == SetPlan()
        assert stored_policies(harness) == {declared(1).urn: declared(1, ANN)}

    def test_start_with_an_empty_file_removes_only_declared_policies(self, harness: StoreHarness) -> None:
        harness.run(harness.store.add_policy(harness.precondition(), policy(9, BOB)))
        harness.run(harness.store.apply_start(root_policy(ADMIN), (), declaration(declared(1, ANN))))
        harness.run(harness.store.apply_start(root_policy(ADMIN), (), declaration()))
        assert stored_policies(harness) == {policy(9).urn: policy(9, BOB)}

    def test_start_with_the_root_policy_in_the_file_changes_nothing(
        self, harness: StoreHarness, location: StoreLocation
    ) -> None:
        before = location.events()
        root = replace(root_policy(BOB), source=PolicySource.FILE)
        refusal = harness.fault_of(
            harness.store.apply_start(root_policy(BOB), default_policies(), declaration(declared(1, ANN), root))
        )
        assert refusal.reason is Reason.NOT_EDITABLE
        assert location.events() == before

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
    def test_start_reports_changed_settings(
        self,
        harness: StoreHarness,
        location: StoreLocation,
        now: dict[str, str],
        told: list[tuple[str, dict[str, str | None]]],
    ) -> None:
        harness.run(harness.store.apply_start(root_policy(ADMIN), (), None, {"A": "1", "B": "2"}))
        first = len(location.events())
        harness.run(harness.store.apply_start(root_policy(ADMIN), (), None, now))
        assert [(event.target, event.detail) for event in location.events()[first:]] == told
        harness.run(harness.store.apply_start(root_policy(ADMIN), (), None, now))
        assert len(location.events()) == first + len(told)

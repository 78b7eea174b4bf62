"""Declared policies: reconciling changes only the policies of the declared set."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import policies, written_policy
from watchword.authority.declared_parts import DEFAULT_SET, Change, ChangeKind, PartPlan, summary
from watchword.authority.policies import POLICY_PART, ROOT_POLICY, Policy, PolicySource, root_policy
from watchword.basics.errors import Fault, Reason
from watchword.declared.rules import parse_set

BY_URN = st.lists(policies(), max_size=8, unique_by=lambda policy: policy.urn)
KEEPERS = st.sampled_from(((PolicySource.API, None), (PolicySource.FILE, DEFAULT_SET)))
OTHERS = st.sampled_from(((PolicySource.API, None), (PolicySource.FILE, "other")))


@st.composite
def current_policies(draw: st.DrawFn) -> list[Policy]:
    found = [root_policy("urn:li:corpuser:admin")]
    for policy in draw(BY_URN):
        source, set_name = draw(KEEPERS)
        found.append(replace(policy, source=source, set_name=set_name))
    return found


def check_declared(policies: list[Policy]) -> tuple[Policy, ...]:
    return parse_set({"policies": [written_policy(policy) for policy in policies]})[POLICY_PART]


def reconcile(current: Iterable[Policy], declared: tuple[Policy, ...], *, prune: bool) -> PartPlan[Policy]:
    return POLICY_PART.plan(current, declared, DEFAULT_SET, prune=prune)


def apply_changes(current: list[Policy], changes: tuple[Change[Policy], ...]) -> dict[str, Policy]:
    result = {policy.urn: policy for policy in current}
    for change in changes:
        assert result.pop(change.name, None) == change.before
        if change.after is not None:
            result[change.name] = change.after
    return result


@given(current_policies(), BY_URN)
def test_reconcile_yields_the_declared_policies_and_keeps_others(current: list[Policy], wanted: list[Policy]) -> None:
    declared = check_declared(wanted)
    result = apply_changes(current, reconcile(current, declared, prune=True).changes)
    names = {policy.urn for policy in declared}
    assert [result[policy.urn] for policy in declared] == list(declared)
    others = {policy.urn: policy for policy in current if policy.urn not in names}
    left = {urn: policy for urn, policy in result.items() if urn not in names}
    assert left == {urn: policy for urn, policy in others.items() if policy.source is not PolicySource.FILE}


@given(current_policies(), BY_URN)
def test_second_reconcile_changes_nothing(current: list[Policy], wanted: list[Policy]) -> None:
    declared = check_declared(wanted)
    result = apply_changes(current, reconcile(current, declared, prune=True).changes)
    assert reconcile(result.values(), declared, prune=True) == PartPlan()


@given(current_policies(), BY_URN)
def test_reconcile_without_prune_removes_nothing_and_lists_undeclared(
    current: list[Policy], wanted: list[Policy]
) -> None:
    declared = check_declared(wanted)
    plan, pruned = (reconcile(current, declared, prune=prune) for prune in (False, True))
    removed = [change.before for change in pruned.changes if change.kind is ChangeKind.DELETE]
    assert plan.changes == tuple(change for change in pruned.changes if change.kind is not ChangeKind.DELETE)
    assert (list(plan.undeclared), pruned.undeclared) == (removed, ())


@given(BY_URN, BY_URN, OTHERS)
def test_reconcile_keeps_other_sets_and_rejects_their_policies(
    others: list[Policy], wanted: list[Policy], keeper: tuple[PolicySource, str | None]
) -> None:
    current = [replace(policy, source=keeper[0], set_name=keeper[1]) for policy in others]
    declared = check_declared(wanted)
    shared = {policy.urn for policy in current} & {policy.urn for policy in declared}
    if shared and keeper[1]:
        with pytest.raises(Fault) as caught:
            reconcile(current, declared, prune=True)
        assert (caught.value.reason, caught.value.details["set"]) == (Reason.POLICY_DECLARED_ELSEWHERE, "other")
    else:
        changes = reconcile(current, declared, prune=True).changes
        assert ChangeKind.DELETE not in {change.kind for change in changes}


def test_system_policy_cannot_be_declared() -> None:
    root = root_policy("urn:li:corpuser:admin")
    with pytest.raises(Fault) as caught:
        check_declared([replace(root, users=frozenset())])
    assert caught.value.details["field"] == "policies[0].id"
    with pytest.raises(Fault) as caught:
        reconcile([root], (replace(root, users=frozenset()),), prune=True)
    assert caught.value.reason is Reason.NOT_EDITABLE
    assert ROOT_POLICY in caught.value.message


def test_summary_counts_each_kind_of_change() -> None:
    one = root_policy("urn:li:corpuser:admin")
    changes = [Change("urn", one, None), Change("urn", None, one), Change("urn", None, one)]
    assert summary(changes) == "2 created, 1 removed"
    assert summary([]) == "nothing to change"

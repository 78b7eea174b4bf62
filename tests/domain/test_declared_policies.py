"""Declared policies: reconciling changes only the policies of the declared set."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import policies
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import (
    DEFAULT_SET,
    ROOT_POLICY,
    ChangeKind,
    Policy,
    PolicyChange,
    PolicyDeclaration,
    PolicyPlan,
    PolicySource,
    check_declared,
    reconcile,
    root_policy,
    summary,
)

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


def apply_changes(current: list[Policy], changes: tuple[PolicyChange, ...]) -> dict[str, Policy]:
    result = {policy.urn: policy for policy in current}
    for change in changes:
        assert result.pop(change.urn, None) == change.before
        if change.after is not None:
            result[change.urn] = change.after
    return result


@given(current_policies(), BY_URN)
def test_reconcile_yields_the_declared_policies_and_keeps_others(current: list[Policy], wanted: list[Policy]) -> None:
    declared = check_declared(wanted)
    result = apply_changes(current, reconcile(current, declared, prune=True).changes)
    names = {policy.urn for policy in declared.policies}
    assert [result[policy.urn] for policy in declared.policies] == list(declared.policies)
    others = {policy.urn: policy for policy in current if policy.urn not in names}
    left = {urn: policy for urn, policy in result.items() if urn not in names}
    assert left == {urn: policy for urn, policy in others.items() if policy.source is not PolicySource.FILE}


@given(current_policies(), BY_URN)
def test_second_reconcile_changes_nothing(current: list[Policy], wanted: list[Policy]) -> None:
    declared = check_declared(wanted)
    result = apply_changes(current, reconcile(current, declared, prune=True).changes)
    assert reconcile(result.values(), declared, prune=True) == PolicyPlan()


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
    shared = {policy.urn for policy in current} & {policy.urn for policy in declared.policies}
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
        reconcile([root], PolicyDeclaration((replace(root, users=frozenset()),)), prune=True)
    assert caught.value.reason is Reason.NOT_EDITABLE
    assert ROOT_POLICY in caught.value.message


def test_summary_counts_each_kind_of_change() -> None:
    kinds = [ChangeKind.DELETE, ChangeKind.CREATE, ChangeKind.CREATE]
    assert summary(PolicyChange(kind, "urn", None, None) for kind in kinds) == "2 created, 1 removed"
    assert summary([]) == "nothing to change"

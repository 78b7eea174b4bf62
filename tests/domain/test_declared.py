"""Declared policies: the changes lead from what is to what is declared, and touch nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import policies
from watchword.domain.declared import ChangeKind, PolicyChange, check_declared, reconcile, summary
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import ROOT_POLICY, Policy, PolicySource, root_policy

BY_URN = st.lists(policies(), max_size=8, unique_by=lambda policy: policy.urn)
KEEPERS = st.sampled_from((PolicySource.API, PolicySource.FILE))


@st.composite
def current_policies(draw: st.DrawFn) -> list[Policy]:
    return [root_policy("urn:li:corpuser:admin"), *(replace(p, source=draw(KEEPERS)) for p in draw(BY_URN))]


def applied(current: list[Policy], changes: tuple[PolicyChange, ...]) -> dict[str, Policy]:
    result = {policy.urn: policy for policy in current}
    for change in changes:
        assert result.pop(change.urn, None) == change.before
        if change.after is not None:
            result[change.urn] = change.after
    return result


@given(current_policies(), BY_URN)
def test_the_changes_lead_to_just_what_is_declared_and_leave_the_rest(
    current: list[Policy], wanted: list[Policy]
) -> None:
    declared = check_declared(wanted)
    result = applied(current, reconcile(current, declared))
    names = {policy.urn for policy in declared}
    assert [result[policy.urn] for policy in declared] == list(declared)
    others = {policy.urn: policy for policy in current if policy.urn not in names}
    left = {urn: policy for urn, policy in result.items() if urn not in names}
    assert left == {urn: policy for urn, policy in others.items() if policy.source is not PolicySource.FILE}


@given(current_policies(), BY_URN)
def test_a_second_time_there_is_nothing_to_change(current: list[Policy], wanted: list[Policy]) -> None:
    declared = check_declared(wanted)
    result = applied(current, reconcile(current, declared))
    assert reconcile(result.values(), declared) == ()


def test_a_policy_of_the_service_cannot_be_declared() -> None:
    root = root_policy("urn:li:corpuser:admin")
    with pytest.raises(Fault) as caught:
        check_declared([replace(root, users=frozenset())])
    assert caught.value.details["field"] == "policies[0].id"
    with pytest.raises(Fault) as caught:
        reconcile([root], [replace(root, users=frozenset())])
    assert caught.value.reason is Reason.NOT_EDITABLE
    assert ROOT_POLICY in caught.value.message


def test_the_summary_counts_each_kind() -> None:
    kinds = [ChangeKind.DELETE, ChangeKind.CREATE, ChangeKind.CREATE]
    assert summary(PolicyChange(kind, "urn", None, None) for kind in kinds) == "2 created, 1 removed"
    assert summary([]) == "nothing to change"

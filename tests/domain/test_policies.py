from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import ACTORS, GROUPS, policies
from watchword.authority.policies import Policy, PolicyState, check_policy, default_policies, root_policy
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import EVERYTHING, Privilege, denied, privilege_of
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import POLICY_PREFIX

sets = st.lists(policies(), max_size=8)
actors = st.sampled_from(ACTORS)
memberships = st.sets(st.sampled_from(GROUPS))

IMPLIED = {
    "MANAGE_ACCESS_TOKENS": {"GENERATE_PERSONAL_ACCESS_TOKENS"},
    "MANAGE_POLICIES": {"VIEW_POLICIES"},
    "MANAGE_SYSTEM_OPERATIONS": {
        "GET_ES_TASK_STATUS_PRIVILEGE",
        "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE",
        "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE",
    },
}
SOUND = Policy(POLICY_PREFIX + "x", "x", privileges=frozenset({Privilege.VIEW_AUDIT_LOG}))


def granted(held: list[Policy], actor: str, groups: set[str]) -> frozenset[Privilege]:
    return PolicySet(1, tuple(held)).granted(actor, groups)


def expected_privileges(held: list[Policy], actor: str, groups: set[str]) -> set[str]:
    """The decision as a plain loop over policies."""
    names: set[str] = set()
    for policy in held:
        applies = policy.all_users or actor in policy.users or any(group in policy.groups for group in groups)
        if policy.state.value == "ACTIVE" and applies:
            for privilege in policy.privileges:
                names |= {privilege.name} | IMPLIED.get(privilege.name, set())
    return names


@given(sets, actors, memberships)
def test_granted_privileges_match_the_reference(held: list[Policy], actor: str, groups: set[str]) -> None:
    assert {privilege.name for privilege in granted(held, actor, groups)} == expected_privileges(held, actor, groups)


@given(actors, memberships)
def test_no_policy_grants_nothing(actor: str, groups: set[str]) -> None:
    assert granted([], actor, groups) == frozenset()


@settings(max_examples=50)
@given(sets, sets, actors, memberships)
def test_policy_sets_grant_their_union(one: list[Policy], other: list[Policy], actor: str, groups: set[str]) -> None:
    assert granted(one + other, actor, groups) == granted(one, actor, groups) | granted(other, actor, groups)


@given(sets, policies(), actors, memberships)
def test_adding_a_policy_never_removes_a_privilege(
    held: list[Policy], more: Policy, actor: str, groups: set[str]
) -> None:
    assert granted(held, actor, groups) <= granted([*held, more], actor, groups)


@given(sets, actors, memberships, st.sampled_from(GROUPS))
def test_adding_a_membership_never_removes_a_privilege(
    held: list[Policy], actor: str, groups: set[str], more: str
) -> None:
    assert granted(held, actor, groups) <= granted(held, actor, groups | {more})


@given(sets, actors, memberships)
def test_inactive_policies_grant_nothing(held: list[Policy], actor: str, groups: set[str]) -> None:
    active = [policy for policy in held if policy.state is PolicyState.ACTIVE]
    assert granted(held, actor, groups) == granted(active, actor, groups)
    assert granted([replace(p, state=PolicyState.INACTIVE) for p in held], actor, groups) == frozenset()


@given(policies(), memberships)
def test_unnamed_actor_gets_nothing(policy: Policy, groups: set[str]) -> None:
    stranger = "urn:li:corpuser:stranger"
    assert granted([replace(policy, all_users=False)], stranger, groups - policy.groups) == frozenset()


def test_user_and_group_names_are_distinct() -> None:
    policy = replace(SOUND, users=frozenset({"urn:li:corpuser:ann"}))
    assert granted([policy], "urn:li:corpuser:bob", {"urn:li:corpGroup:ann"}) == frozenset()


@pytest.mark.parametrize("word", sorted(IMPLIED))
def test_privilege_includes_its_implied_privileges(word: str) -> None:
    policy = replace(SOUND, privileges=frozenset({Privilege[word]}), all_users=True)
    assert {privilege.name for privilege in granted([policy], "urn:li:corpuser:ann", set())} == {word} | IMPLIED[word]


def test_only_the_root_actor_gets_everything_by_root_policy() -> None:
    root = root_policy("urn:li:corpuser:root")
    assert granted([root], "urn:li:corpuser:root", set()) == EVERYTHING
    assert granted([root], "urn:li:corpuser:ann", set(GROUPS)) == frozenset()
    assert not root.editable


def test_default_policies_grant_only_task_status() -> None:
    held = granted(list(default_policies()), "urn:li:corpuser:ann", set())
    assert {privilege.name for privilege in held} == {"GET_ES_TASK_STATUS_PRIVILEGE"}


def test_denial_names_the_missing_privilege() -> None:
    for privilege in Privilege:
        fault = denied(privilege)
        assert fault.kind.code == 403
        assert privilege.display_name in fault.message
        assert fault.details == {"privilege": privilege.name}


def naming(users: int = 0, groups: int = 0) -> Policy:
    return replace(
        SOUND,
        users=frozenset(f"urn:li:corpuser:{n}" for n in range(users)),
        groups=frozenset(f"urn:li:corpGroup:{n}" for n in range(groups)),
    )


@given(policies())
def test_valid_policy_is_accepted(policy: Policy) -> None:
    assert check_policy(policy) is policy


def test_policy_may_name_a_thousand_users_and_groups() -> None:
    policy = naming(users=999, groups=1)
    assert check_policy(policy) is policy


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (replace(SOUND, urn="urn:li:corpuser:x"), "urn"),
        (replace(SOUND, urn="x"), "urn"),
        (replace(SOUND, name=""), "name"),
        (replace(SOUND, name="x" * 201), "name"),
        (replace(SOUND, description="x" * 1_001), "description"),
        (replace(SOUND, privileges=frozenset()), "privileges"),
        (replace(SOUND, users=frozenset({"ann"})), "actors.users"),
        (replace(SOUND, users=frozenset({"urn:li:corpGroup:ops"})), "actors.users"),
        (replace(SOUND, users=frozenset({"urn:li:corpuser:__system"})), "actors.users"),
        (replace(SOUND, groups=frozenset({"urn:li:corpuser:ann"})), "actors.groups"),
        (naming(users=1_001), "actors"),
        (naming(users=1_000, groups=1), "actors"),
    ],
)
def test_invalid_policy_is_rejected_with_its_field(changed: Policy, field: str) -> None:
    with pytest.raises(Fault) as caught:
        check_policy(changed)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.details == {"field": field}


def test_unknown_privilege_is_rejected() -> None:
    with pytest.raises(Fault) as caught:
        privilege_of("EDIT_EVERYTHING", "privileges")
    assert caught.value.details == {"field": "privileges"}
    assert all(privilege.name in caught.value.message for privilege in Privilege)

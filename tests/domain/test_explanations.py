from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import ACTORS, GROUPS, policies
from watchword.domain.policies import GrantedVia, Policy, PolicySet, Privilege, grants_of

sets = st.lists(policies(), max_size=8)
actors = st.sampled_from(ACTORS)
memberships = st.sets(st.sampled_from(GROUPS))
privileges = st.sampled_from(Privilege)


@given(sets, actors, memberships, privileges)
def test_grounds_exist_only_for_granted_privileges(
    held: list[Policy], actor: str, groups: set[str], privilege: Privilege
) -> None:
    granted = privilege in PolicySet(1, tuple(held)).granted(actor, groups)
    assert bool(grants_of(held, actor, groups, privilege)) is granted


@given(sets, actors, memberships, privileges)
def test_each_ground_grants_the_privilege_alone(
    held: list[Policy], actor: str, groups: set[str], privilege: Privilege
) -> None:
    for match in grants_of(held, actor, groups, privilege):
        mine = set() if match.group is None else {match.group}
        assert privilege in PolicySet(1, (match.policy,)).granted(actor, mine)
        assert (match.via is GrantedVia.GROUP) is bool(mine)
        assert match.right in match.policy.privileges

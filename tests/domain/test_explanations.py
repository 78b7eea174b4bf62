from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import ACTORS, GROUPS, policies
from watchword.access.explanations import GrantedVia, Holder, grants_of, page_of_holders
from watchword.authority.policies import Policy
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import Privilege

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


@given(sets, st.dictionaries(actors, memberships.map(tuple)), privileges, st.integers(0, 12), st.integers(0, 12))
def test_a_page_of_holders_is_a_part_of_all_holders(
    held: list[Policy], known: dict[str, tuple[str, ...]], privilege: Privilege, start: int, count: int
) -> None:
    everyone = [Holder(None, match) for match in grants_of(held, "", (), privilege)]
    of_actors = [
        Holder(actor, match)
        for actor, groups in sorted(known.items())
        for match in grants_of(held, actor, groups, privilege)
        if match.via is not GrantedVia.ALL_USERS
    ]
    expected = (*everyone, *of_actors)
    assert page_of_holders(held, privilege, known, start, count) == (len(expected), expected[start : start + count])

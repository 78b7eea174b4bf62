"""A grant is valid only for the privileges it was authorized for."""

import pytest

from watchword.authority.callers import ActorSnapshot, Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault

CALLER = Caller("urn:li:corpuser:ann", ActorSnapshot(False, (), 1), None, "127.0.0.1", "r")
MANAGE, VIEW, TOKENS = Privilege.MANAGE_POLICIES, Privilege.VIEW_AUDIT_LOG, Privilege.MANAGE_ACCESS_TOKENS


def test_grant_is_accepted_for_the_privileges_it_was_authorized_for() -> None:
    Grant(CALLER, frozenset({MANAGE}), (MANAGE,)).expect(MANAGE)
    Grant(CALLER, frozenset({VIEW}), (MANAGE, VIEW)).expect(MANAGE, VIEW)


@pytest.mark.parametrize("required", [(), (VIEW,), (MANAGE, VIEW)])
def test_grant_for_other_privileges_is_rejected(
    required: tuple[Privilege, ...],
) -> None:
    with pytest.raises(AssertionError, match="authorized for"):
        Grant(CALLER, frozenset(Privilege), required).expect(MANAGE)


def test_grant_for_less_than_the_whole_requirement_is_rejected() -> None:
    Grant(CALLER, frozenset({MANAGE, VIEW}), (MANAGE,), (VIEW,)).expect(MANAGE, also=(VIEW,))
    Grant(CALLER, frozenset({MANAGE, VIEW}), (MANAGE,), (VIEW,)).expect(MANAGE)
    with pytest.raises(AssertionError, match="authorized for"):
        Grant(CALLER, frozenset(Privilege), (MANAGE,)).expect(MANAGE, also=(VIEW,))


@pytest.mark.parametrize(("held", "missing"), [(VIEW, MANAGE), (MANAGE, VIEW)])
def test_denial_names_the_privilege_that_is_missing(held: Privilege, missing: Privilege) -> None:
    grant = Grant(CALLER, frozenset({held}))
    with pytest.raises(Fault, match=missing.name):
        grant.requiring(MANAGE, also=(VIEW,))


def test_requirements_for_another_action_are_added() -> None:
    grant = Grant(CALLER, frozenset(Privilege), (MANAGE,), (VIEW,)).requiring(TOKENS, also=(MANAGE,))
    assert (grant.required, grant.also) == ((TOKENS,), (VIEW, MANAGE))

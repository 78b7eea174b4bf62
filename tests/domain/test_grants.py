"""A grant is valid only for the privileges it was authorized for."""

import pytest

from watchword.domain.actors import ActorSnapshot, Caller, Grant
from watchword.domain.policies import Privilege

CALLER = Caller("urn:li:corpuser:ann", ActorSnapshot(False, (), 1), None, "127.0.0.1", "r")
MANAGE, VIEW = Privilege.MANAGE_POLICIES, Privilege.VIEW_AUDIT_LOG


def test_grant_is_accepted_for_the_privileges_it_was_authorized_for() -> None:
    Grant(CALLER, frozenset({MANAGE}), (MANAGE,)).expect(MANAGE)
    Grant(CALLER, frozenset({VIEW}), (MANAGE, VIEW)).expect(MANAGE, VIEW)


@pytest.mark.parametrize("required", [(), (VIEW,), (MANAGE, VIEW)])
def test_grant_for_other_privileges_is_rejected(
    required: tuple[Privilege, ...],
) -> None:
    with pytest.raises(AssertionError, match="authorized for"):
        Grant(CALLER, frozenset(Privilege), required).expect(MANAGE)

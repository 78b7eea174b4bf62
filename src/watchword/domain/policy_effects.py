"""What a change of a policy gives and takes, and who holds a privilege or scope."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from watchword.domain.policies import (
    GrantedVia,
    Policy,
    PolicyMatch,
    PolicySet,
    PolicyState,
    Privilege,
    Right,
    granting,
    grants_of,
    included,
)

MAX_ACTORS = 5_000
"""Whose privileges are compared before and after a change, and who are listed as holders."""
MAX_NAMED = 20

Memberships = Mapping[str, tuple[str, ...]]
"""The groups of each actor."""


class RightChange(NamedTuple):
    right: Right
    gained: bool
    actors: tuple[str, ...] | None  # None: all users, except those to whom other policies grant it


class PolicyEffect(NamedTuple):
    applies_to: int | None  # as of the function
    changes: tuple[RightChange, ...]
    complete: bool  # False: it names more than MAX_ACTORS, and only so many were compared


class Holder(NamedTuple):
    """One way in which an actor, or with None every user, holds a privilege or scope."""

    actor: str | None
    match: PolicyMatch


def applies_to(policy: Policy | None, memberships: Memberships) -> int | None:
    """How many of these actors the policy names, alone or by a group; None: it is for all users."""
    if policy is None:
        return 0
    named = (actor in policy.users or policy.groups.intersection(groups) for actor, groups in memberships.items())
    return None if policy.all_users else sum(map(bool, named))


def right_changes(
    policies: PolicySet, before: Policy | None, after: Policy | None, memberships: Memberships
) -> tuple[RightChange, ...]:
    """What these actors, and all users, gain and lose if one policy becomes another. Gains first, then by right."""
    others = tuple(policy for policy in policies.policies if policy != before)
    then = PolicySet(policies.version, others if after is None else (*others, after))
    rights = list(_rights(policy for policy in (before, after) if policy is not None))
    of_all = dict(_moves(policies, then, "", (), rights))
    moved: dict[tuple[Right, bool], list[str]] = {}
    for actor, groups in sorted(memberships.items()):
        for right, gained in _moves(policies, then, actor, groups, rights):
            if right not in of_all:
                moved.setdefault((right, gained), []).append(actor)
    changes = [RightChange(right, gained, None) for right, gained in of_all.items()]
    changes += [RightChange(right, gained, tuple(actors)) for (right, gained), actors in moved.items()]
    return tuple(sorted(changes, key=lambda change: (not change.gained, rights.index(change.right))))


def _moves(
    was: PolicySet, then: PolicySet, actor: str, groups: Iterable[str], rights: Iterable[Right]
) -> Iterator[tuple[Right, bool]]:
    """The rights that an actor gains (True) or loses."""
    held, will_hold = ((policies.granted(actor, groups), policies.scopes(actor, groups)) for policies in (was, then))
    if held == will_hold:
        return
    for right in rights:
        before, after = (granting(*some, right) is not None for some in (held, will_hold))
        if before != after:
            yield right, after


def _rights(policies: Iterable[Policy]) -> Iterator[Right]:
    given = list(policies)
    privileges = included(privilege for policy in given for privilege in policy.privileges)
    yield from (privilege for privilege in Privilege if privilege in privileges)
    yield from sorted({scope for policy in given for scope in policy.scopes})


def granting_policies(policies: Iterable[Policy], right: Right) -> tuple[Policy, ...]:
    return tuple(
        policy
        for policy in policies
        if policy.state is PolicyState.ACTIVE and granting(policy.privileges, policy.scopes, right) is not None
    )


def holders_of(policies: Iterable[Policy], right: Right, memberships: Memberships) -> tuple[Holder, ...]:
    """All users first, then these actors by urn."""
    some = tuple(policies)
    everyone = [Holder(None, match) for match in grants_of(some, "", (), right)]
    return (
        *everyone,
        *(
            Holder(actor, match)
            for actor, groups in sorted(memberships.items())
            for match in grants_of(some, actor, groups, right)
            if match.via is not GrantedVia.ALL_USERS
        ),
    )

"""Why an actor has a privilege or scope, who has it, and what a change of a policy gives and takes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from watchword.authority.policies import Policy, PolicyState
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import Privilege, Right, granting, included
from watchword.basics.errors import Fault

MOST_NAMED = 3


class GrantedVia(Enum):
    USER = "USER"
    GROUP = "GROUP"
    ALL_USERS = "ALL_USERS"


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    policy: Policy
    via: GrantedVia
    right: Right  # in the policy: the requested one, a privilege that includes it or a wildcard that covers it
    group: str | None = None

    def __str__(self) -> str:
        to = {
            GrantedVia.USER: "names the actor",
            GrantedVia.ALL_USERS: "is for all users",
            GrantedVia.GROUP: f"names {self.group}",
        }
        return f"{self.policy.name!r} ({self.policy.urn}), which {to[self.via]}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether an actor has a privilege or scope, and which policies grant it."""

    actor: str
    right: Right
    suspended: bool
    grants: tuple[PolicyMatch, ...]
    refusal: Fault | None  # the error that the actor would get; None: it has the right

    @property
    def explanation(self) -> str:
        if self.refusal is not None:
            return self.refusal.message
        named = "; by ".join(str(match) for match in self.grants[:MOST_NAMED])
        more = len(self.grants) - MOST_NAMED
        return f"Allowed by {named}{f'; and {more} more' if more > 0 else ''}."


def grants_of(policies: Iterable[Policy], actor: str, groups: Iterable[str], right: Right) -> tuple[PolicyMatch, ...]:
    """Every ACTIVE policy that grants the privilege or scope, once for each way it includes the actor."""
    mine = sorted(groups)
    found: list[PolicyMatch] = []
    for policy in policies:
        named = granting(policy.privileges, policy.scopes, right)
        if named is None or policy.state is not PolicyState.ACTIVE:
            continue
        if actor in policy.users:
            found.append(PolicyMatch(policy, GrantedVia.USER, named))
        found += [PolicyMatch(policy, GrantedVia.GROUP, named, group) for group in mine if group in policy.groups]
        if policy.all_users:
            found.append(PolicyMatch(policy, GrantedVia.ALL_USERS, named))
    return tuple(found)


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
    complete: bool  # False: it names more than MAX_ACTORS, and only MAX_ACTORS were compared


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
    of_all = dict(_changed_rights(policies, then, "", (), rights))
    moved: dict[tuple[Right, bool], list[str]] = {}
    for actor, groups in sorted(memberships.items()):
        for right, gained in _changed_rights(policies, then, actor, groups, rights):
            if right not in of_all:
                moved.setdefault((right, gained), []).append(actor)
    changes = [RightChange(right, gained, None) for right, gained in of_all.items()]
    changes += [RightChange(right, gained, tuple(actors)) for (right, gained), actors in moved.items()]
    return tuple(sorted(changes, key=lambda change: (not change.gained, rights.index(change.right))))


def _changed_rights(
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


def page_of_holders(
    policies: Iterable[Policy], right: Right, memberships: Memberships, start: int, count: int
) -> tuple[int, tuple[Holder, ...]]:
    """How many holders there are, and some of them: all users first, then these actors by urn. Only those are built:
    there may be as many as policies times actors.
    """
    some = granting_policies(policies, right)
    ways = Counter(chain.from_iterable(chain(policy.users, policy.groups) for policy in some))
    found = [Holder(None, match) for match in grants_of(some, "", (), right)]
    total, found = len(found), found[start : start + count]
    for actor, groups in sorted(memberships.items()):
        number = ways[actor] + sum(map(ways.__getitem__, groups))
        if total < start + count and total + number > start:
            mine = [policy for policy in some if actor in policy.users or not policy.groups.isdisjoint(groups)]
            matches = [m for m in grants_of(mine, actor, groups, right) if m.via is not GrantedVia.ALL_USERS]
            found += [Holder(actor, match) for match in matches[max(0, start - total) : start + count - total]]
        total += number
    return total, tuple(found)

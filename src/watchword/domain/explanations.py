"""Explanations: whether an actor may do something, by which policies, and what it would be told.

The grounds are those that the decision itself rests on: there is one just where `PolicySet.granted` grants it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from watchword.domain.errors import Fault
from watchword.domain.policies import Policy, PolicyState, Privilege, included

MOST_NAMED = 3


class Way(Enum):
    """How a policy reaches an actor."""

    USER = "USER"
    GROUP = "GROUP"
    ALL_USERS = "ALL_USERS"


@dataclass(frozen=True, slots=True)
class Ground:
    policy: Policy
    way: Way
    privilege: Privilege
    """What the policy names: the one in question, or one that includes it."""
    group: str | None = None

    def __str__(self) -> str:
        to = {Way.USER: "names the actor", Way.ALL_USERS: "is for all users", Way.GROUP: f"names {self.group}"}
        return f"{self.policy.name!r} ({self.policy.urn}), which {to[self.way]}"


@dataclass(frozen=True, slots=True)
class Explanation:
    actor: str
    privilege: Privilege
    suspended: bool
    grounds: tuple[Ground, ...]
    refusal: Fault | None
    """What the actor would be told; None: it may."""

    @property
    def sentence(self) -> str:
        if self.refusal is not None:
            return self.refusal.message
        named = "; by ".join(str(ground) for ground in self.grounds[:MOST_NAMED])
        more = len(self.grounds) - MOST_NAMED
        return f"Allowed by {named}{f'; and {more} more' if more > 0 else ''}."


def grounds(policies: Iterable[Policy], actor: str, groups: Iterable[str], privilege: Privilege) -> tuple[Ground, ...]:
    """Every policy that grants it, and every way by which it does."""
    mine = sorted(groups)
    found: list[Ground] = []
    for policy in policies:
        named = _naming(policy, privilege)
        if named is None or policy.state is not PolicyState.ACTIVE:
            continue
        if actor in policy.users:
            found.append(Ground(policy, Way.USER, named))
        found += [Ground(policy, Way.GROUP, named, group) for group in mine if group in policy.groups]
        if policy.all_users:
            found.append(Ground(policy, Way.ALL_USERS, named))
    return tuple(found)


def _naming(policy: Policy, privilege: Privilege) -> Privilege | None:
    if privilege in policy.privileges:
        return privilege
    return next((one for one in Privilege if one in policy.privileges and privilege in included([one])), None)

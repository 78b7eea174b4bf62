"""What policies grant. Deny by default; only ACTIVE policies grant, and no policy denies.

An actor's privileges and scopes are the union of what every ACTIVE policy grants to it by name, by group or as one of
all users, plus the privileges that those include.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from watchword.authority.policies import Policy, PolicyState
from watchword.authority.privileges import Privilege, Right, included, right_of
from watchword.basics.errors import Fault, Reason
from watchword.basics.scopes import NO_SCOPES, covering, united

if TYPE_CHECKING:
    from watchword.authority.resources import Resource


@dataclass
class PolicySet:
    """All policies and resources at one version. Every change of a policy, group or resource increases the version."""

    version: int
    policies: tuple[Policy, ...]
    resources: "tuple[Resource, ...]" = ()

    def __post_init__(self) -> None:
        self.resource_ids = {one.name: one.id for one in self.resources}
        """By name."""
        self._everyone: frozenset[Privilege] = frozenset()
        self._by_name: dict[str, frozenset[Privilege]] = {}
        self._scopes_of_everyone = NO_SCOPES
        scopes: dict[str, set[str]] = {}
        for policy in self.policies:
            if policy.state is not PolicyState.ACTIVE:
                continue
            grants = included(policy.privileges)
            if policy.all_users:
                self._everyone |= grants
                self._scopes_of_everyone = united(self._scopes_of_everyone, policy.scopes)
            for name in policy.users | policy.groups:
                self._by_name[name] = self._by_name.get(name, frozenset()) | grants
                if policy.scopes:
                    scopes.setdefault(name, set()).update(policy.scopes)
        everyones = self._scopes_of_everyone
        self._scopes_by_name = {name: united(frozenset(own), everyones) for name, own in scopes.items()}

    def find(self, urn: str) -> Policy | None:
        return next((policy for policy in self.policies if policy.urn == urn), None)

    def granted(self, actor: str, groups: Iterable[str]) -> frozenset[Privilege]:
        granted = self._everyone | self._by_name.get(actor, frozenset())
        for group in groups:
            granted |= self._by_name.get(group, frozenset())
        return granted

    def scopes(self, actor: str, groups: Iterable[str]) -> frozenset[str]:
        """The scopes of other services that the actor is granted. Every verification reads them."""
        by_name = self._scopes_by_name
        granted = by_name.get(actor, self._scopes_of_everyone)
        for group in groups:
            if group in by_name:
                granted = united(granted, by_name[group])
        return granted

    def holds(self, actor: str, groups: Iterable[str], right: Right) -> bool:
        if isinstance(right, str):
            return covering(self.scopes(actor, groups), right) is not None
        return right in self.granted(actor, groups)

    def require_scopes(self, actor: str, groups: Iterable[str], scopes: Iterable[str] | None) -> None:
        """Every scope that a new token names must be granted to its actor."""
        for scope in scopes or ():
            if not self.holds(actor, groups, right_of(scope, "scopes")):
                message = f"No policy grants the scope {scope} to {actor}. Ask someone who manages policies."
                raise Fault(Reason.MISSING_SCOPE, message, scope=scope)

"""Policy sets: a policy file declares the policies of one named set.

Applying a set creates or updates its policies; a policy that was made by the API joins the set. Policies that the set
no longer declares are deleted only with pruning. Policies of other sets and of the API stay unchanged; declaring a
policy of another set is a conflict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.policies import ROOT_POLICY, Policy, PolicySource, check_policy
from watchword.domain.urns import POLICY_PREFIX, check_short_id

MAX_DECLARED = 1_000
DEFAULT_SET = "default"


class ChangeKind(Enum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class PolicyChange:
    kind: ChangeKind
    urn: str
    before: Policy | None
    after: Policy | None


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    """All policies of one set."""

    policies: tuple[Policy, ...]
    set_name: str = DEFAULT_SET


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The changes to make, and the policies of the set that are no longer declared and not deleted."""

    changes: tuple[PolicyChange, ...] = ()
    undeclared: tuple[Policy, ...] = ()


def check_declared(policies: Sequence[Policy], set_name: str = DEFAULT_SET) -> PolicyDeclaration:
    """Validate the policies of a set; the fault names the policy and the field."""
    check_short_id(set_name, "set")
    if len(policies) > MAX_DECLARED:
        raise invalid("policies", f"policies may have at most {MAX_DECLARED:,} entries.")
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        where = f"policies[{index}]"
        check_short_id(policy.urn.removeprefix(POLICY_PREFIX), f"{where}.id")
        if policy.urn == ROOT_POLICY:
            raise invalid(f"{where}.id", f"{where}.id must not be root: the service manages that policy itself.")
        if policy.urn in seen:
            raise invalid(f"{where}.id", f"{where}.id is declared twice; ids must be unique.")
        seen.add(policy.urn)
        try:
            check_policy(policy)
        except Fault as fault:
            raise invalid(f"{where}.{fault.details['field']}", f"{where}.{fault.message}") from None
    kept = tuple(replace(policy, source=PolicySource.FILE, set_name=set_name) for policy in policies)
    return PolicyDeclaration(kept, set_name)


def reconcile(current: Iterable[Policy], declared: PolicyDeclaration, *, prune: bool) -> PolicyPlan:
    """The plan that turns the current policies into the declared ones."""
    kept = {policy.urn: policy for policy in current}
    changes: list[PolicyChange] = []
    for policy in declared.policies:
        before = kept.pop(policy.urn, None)
        if before is None:
            changes.append(PolicyChange(ChangeKind.CREATE, policy.urn, None, policy))
        elif not before.editable:
            raise Fault(Reason.NOT_EDITABLE, f"{policy.urn} is managed by the service itself and cannot be declared.")
        elif before.set_name not in (None, declared.set_name):
            raise Fault(
                Reason.POLICY_DECLARED_ELSEWHERE,
                f"{policy.urn} belongs to the policy set {before.set_name!r}; this is the set {declared.set_name!r}. "
                "Nothing was changed. Choose another id, or remove it from that set first.",
                set=before.set_name,
            )
        elif before != policy:
            changes.append(PolicyChange(ChangeKind.UPDATE, policy.urn, before, policy))
    undeclared = tuple(policy for policy in kept.values() if policy.set_name == declared.set_name)
    if not prune:
        return PolicyPlan(tuple(changes), undeclared)
    return PolicyPlan((*changes, *(PolicyChange(ChangeKind.DELETE, gone.urn, gone, None) for gone in undeclared)))


def summary(changes: Iterable[PolicyChange]) -> str:
    """For example: 2 created, 1 removed."""
    kinds = [change.kind for change in changes]
    words = {ChangeKind.CREATE: "created", ChangeKind.UPDATE: "updated", ChangeKind.DELETE: "removed"}
    counts = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    return ", ".join(counts) or "nothing to change"

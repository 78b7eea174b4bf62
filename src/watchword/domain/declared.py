"""Declared policies: what a policy file says is in force, no more and no less of what it keeps.

What is declared is made or set right, and kept by the file from then on, also where it was made by hand before. What
the file kept and no longer declares is removed. What others keep and no file declares is left alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.policies import ROOT_POLICY, Policy, PolicySource, check_policy
from watchword.domain.urns import POLICY_PREFIX, check_short_id

MAX_DECLARED = 1_000


class ChangeKind(Enum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One step from what is to what is declared."""

    kind: ChangeKind
    urn: str
    before: Policy | None
    after: Policy | None


def check_declared(policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """Policies that may be declared together, kept by the file; or the fault that names which is wrong, and how."""
    if len(policies) > MAX_DECLARED:
        raise invalid("policies", f"policies may have at most {MAX_DECLARED:,} entries.")
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        where = f"policies[{index}]"
        check_short_id(policy.urn.removeprefix(POLICY_PREFIX), f"{where}.id")
        if policy.urn == ROOT_POLICY:
            raise invalid(f"{where}.id", f"{where}.id must not be root: that policy is kept by the service itself.")
        if policy.urn in seen:
            raise invalid(f"{where}.id", f"{where}.id is declared twice; each policy needs an id of its own.")
        seen.add(policy.urn)
        try:
            check_policy(policy)
        except Fault as fault:
            raise invalid(f"{where}.{fault.details['field']}", f"{where}.{fault.message}") from None
    return tuple(replace(policy, source=PolicySource.FILE) for policy in policies)


def reconcile(current: Iterable[Policy], declared: Sequence[Policy]) -> tuple[PolicyChange, ...]:
    """The changes that lead from the current policies to the declared ones."""
    kept = {policy.urn: policy for policy in current}
    changes: list[PolicyChange] = []
    for policy in declared:
        before = kept.pop(policy.urn, None)
        if before is None:
            changes.append(PolicyChange(ChangeKind.CREATE, policy.urn, None, policy))
        elif not before.editable:
            raise Fault(Reason.NOT_EDITABLE, f"{policy.urn} is kept by the service itself and cannot be declared.")
        elif before != policy:
            changes.append(PolicyChange(ChangeKind.UPDATE, policy.urn, before, policy))
    gone = (policy for policy in kept.values() if policy.source is PolicySource.FILE)
    return (*changes, *(PolicyChange(ChangeKind.DELETE, policy.urn, policy, None) for policy in gone))


def summary(changes: Iterable[PolicyChange]) -> str:
    """How many policies were made, set right and removed, in words."""
    kinds = [change.kind for change in changes]
    words = {ChangeKind.CREATE: "created", ChangeKind.UPDATE: "updated", ChangeKind.DELETE: "removed"}
    told = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    return ", ".join(told) or "nothing to change"

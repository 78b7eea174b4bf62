"""Declared sets: everything that a policy file, or the input of `applyPolicies`, declares for one set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from watchword.accounts.declared_rules import ENTITY_PART
from watchword.authority.declared_parts import DATAHUB_SET, DEFAULT_SET, Change, Declarable, Json, Part, PartPlan
from watchword.authority.policies import POLICY_PART
from watchword.authority.resources import RESOURCE_PART
from watchword.basics.errors import invalid
from watchword.basics.names import check_short_id
from watchword.notices.webhook_rules import WEBHOOK_PART
from watchword.retention.rules import RULE_PART

T = TypeVar("T", bound=Declarable)

PARTS: tuple[Part[Any], ...] = (POLICY_PART, ENTITY_PART, RULE_PART, WEBHOOK_PART, RESOURCE_PART)
"""Everything that a set can declare."""
LISTS = {name: fields for part in PARTS for name, fields in part.lists.items()}


@dataclass(frozen=True, slots=True)
class DeclaredSet:
    set_name: str = DEFAULT_SET
    parts: Mapping[Part[Any], tuple[Any, ...]] = field(default_factory=dict)

    def __getitem__(self, part: Part[T]) -> tuple[T, ...]:
        return self.parts.get(part, ())


@dataclass(frozen=True, slots=True)
class SetPlan:
    """What applying a set changes, and what it leaves. Parts without either are absent."""

    parts: Mapping[Part[Any], PartPlan[Any]] = field(default_factory=dict)

    def __getitem__(self, part: Part[T]) -> PartPlan[T]:
        return self.parts.get(part, PartPlan())

    @property
    def changes(self) -> list[Change[Any]]:
        return [change for part in self.parts.values() for change in part.changes]

    def unchanged(self, declared: DeclaredSet) -> int:
        """How much of what is declared did not change."""
        return sum(
            len({part.key(one) for one in declared[part]} - {part.key(one.newest) for one in self[part].changes})
            for part in PARTS
        )


def parse_set(content: Json) -> DeclaredSet:
    """Validate a set: its name under `set`, and its lists. A fault names the entry and the field."""
    set_name = content.get("set")
    set_name = DEFAULT_SET if set_name is None else check_short_id(set_name, "set")
    if set_name == DATAHUB_SET:
        raise invalid("set", f"set must not be {DATAHUB_SET}: that set holds imports from DataHub.")
    lists = {name: content.get(name) or () for name in LISTS}
    parsed = {part: part.parse(lists, set_name) for part in PARTS}
    return DeclaredSet(set_name, {part: found for part, found in parsed.items() if found})


def plan_set(stored: Mapping[Part[Any], Iterable[Any]], declared: DeclaredSet, *, prune: bool) -> SetPlan:
    """The plan that turns what is stored into what the set declares. `stored` has all that the set has or declares."""
    plans = {part: part.plan(found, declared[part], declared.set_name, prune=prune) for part, found in stored.items()}
    return SetPlan({part: plan for part, plan in plans.items() if plan != PartPlan()})

"""Filters of policy lists: `orFilters` as DataHub's clients send them, on `state` and `editable`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from watchword.domain.errors import invalid
from watchword.domain.filters import Condition
from watchword.domain.policies import Policy, PolicyState

MAX_FILTERS = 20
FIELDS = {"state": tuple(state.value for state in PolicyState), "editable": ("true", "false")}
_CONDITIONS = (None, Condition.EQUAL.value, Condition.IN.value)


class _Term(NamedTuple):
    field: str
    words: frozenset[str]
    negated: bool

    def matches(self, policy: Policy) -> bool:
        value = policy.state.value if self.field == "state" else str(policy.editable).lower()
        return (value in self.words) is not self.negated


class PolicyFilter(NamedTuple):
    """The groups are ORed, the terms of a group ANDed; without a group, all policies match."""

    groups: tuple[tuple[_Term, ...], ...] = ()

    def matches(self, policy: Policy) -> bool:
        return not self.groups or any(all(term.matches(policy) for term in group) for group in self.groups)


def parse_policy_filter(asked: Sequence[Mapping[str, Any]] | None) -> PolicyFilter:
    groups = [group.get("and") or () for group in asked or ()]
    if len(groups) + sum(map(len, groups)) > MAX_FILTERS:
        raise invalid("orFilters", f"orFilters may have at most {MAX_FILTERS} filters.")
    return PolicyFilter(tuple(tuple(map(_term, group)) for group in groups))


def _term(asked: Mapping[str, Any]) -> _Term:
    field = asked["field"]
    if field not in FIELDS:
        raise invalid("orFilters.field", f"orFilters.field must be one of: {', '.join(FIELDS)}.")
    if asked.get("condition") not in _CONDITIONS:
        raise invalid("orFilters.condition", "orFilters.condition must be EQUAL or IN.")
    words = {*(asked.get("values") or ()), *([] if asked.get("value") is None else [asked["value"]])}
    if not words or not words.issubset(FIELDS[field]):
        raise invalid("orFilters.values", f"orFilters.values of {field} must be among: {', '.join(FIELDS[field])}.")
    return _Term(field, frozenset(words), bool(asked.get("negated")))

"""Filters of the list of policies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from watchword.authority.policies import Policy, PolicyState
from watchword.basics.errors import invalid

MAX_FILTERS = 20
_FIELDS = {"state": tuple(state.value for state in PolicyState), "editable": ("true", "false")}

PolicyFilter = Callable[[Policy], bool]
"""Whether a policy is listed."""


def parse_policy_filter(filters: Sequence[Mapping[str, Any]] | None) -> PolicyFilter:
    """The groups are ORed, the terms of a group ANDed; without a group, all policies match."""
    given = [group.get("and") or () for group in filters or ()]
    if len(given) + sum(map(len, given)) > MAX_FILTERS:
        raise invalid("orFilters", f"orFilters may have at most {MAX_FILTERS} filters.")
    groups = [[_term(fields) for fields in group] for group in given]
    return lambda policy: not groups or any(all(term(policy) for term in group) for group in groups)


def _term(fields: Mapping[str, Any]) -> PolicyFilter:
    field, negated = fields["field"], bool(fields.get("negated"))
    if field not in _FIELDS:
        raise invalid("orFilters.field", f"orFilters.field must be one of: {', '.join(_FIELDS)}.")
    if fields.get("condition") not in (None, "EQUAL", "IN"):
        raise invalid("orFilters.condition", "orFilters.condition must be EQUAL or IN.")
    words = {*(fields.get("values") or ()), *([] if fields.get("value") is None else [fields["value"]])}
    if not words or not words.issubset(_FIELDS[field]):
        raise invalid("orFilters.values", f"orFilters.values of {field} must be among: {', '.join(_FIELDS[field])}.")
    if field == "state":
        return lambda policy: (policy.state.value in words) is not negated
    return lambda policy: (str(policy.editable).lower() in words) is not negated

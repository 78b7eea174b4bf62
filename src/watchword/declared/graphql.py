"""GraphQL resolver that applies a declared set."""

from collections.abc import Callable
from functools import partial
from typing import Any

from watchword.access.policy_graphql import check_supported, part_json, policy_json, users_of
from watchword.accounts.declared_rules import ENTITY_PART
from watchword.authority.declared_parts import Change, Part
from watchword.authority.policies import POLICY_PART
from watchword.authority.resources import RESOURCE_PART
from watchword.declared.rules import parse_set
from watchword.declared.service import DeclaredSets
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json
from watchword.notices.webhook_rules import WEBHOOK_PART
from watchword.retention.rules import RULE_PART

_PARTS: tuple[tuple[str, str, str, Part[Any]], ...] = (
    ("entities", "undeclaredEntities", "urn", ENTITY_PART),
    ("retention", "undeclaredRetention", "series", RULE_PART),
    ("webhooks", "undeclaredWebhooks", "id", WEBHOOK_PART),
    ("resources", "undeclaredResources", "name", RESOURCE_PART),
)
"""The fields of changes, of what is not declared and of the name, of all but policies."""


async def apply_policies(_: Any, info: Info, input: Json) -> Json:
    dry_run, sets = bool(input.get("dryRun")), info.context.of(DeclaredSets)
    grant = await sets.authorize(info.context.caller, dry_run=dry_run)
    for index, one in enumerate(input.get("policies") or ()):
        check_supported(one, f"policies[{index}].")
    declared = parse_set(input)
    plan = await (sets.preview if dry_run else sets.apply)(grant, declared, prune=bool(input.get("prune")))
    changes, undeclared = plan[POLICY_PART]
    named = [one for change in changes for one in (change.before, change.after) if one is not None]
    shown = await info.context.users(users_of([*named, *undeclared]))
    answer: Json = {
        "set": declared.set_name,
        "dryRun": dry_run,
        "changes": [_change_json(change, "urn", partial(policy_json, shown=shown)) for change in changes],
        "unchanged": plan.unchanged(declared),
        "undeclared": [policy_json(policy, shown) for policy in undeclared],
    }
    for changed, left, name, part in _PARTS:
        answer[changed] = [_change_json(change, name, partial(part_json, part)) for change in plan[part].changes]
        answer[left] = [part.name(one) for one in plan[part].undeclared]
    return answer


def _change_json(change: Change[Any], name: str, shown: Callable[[Any], Json]) -> Json:
    """From one state to another, either of which may be None."""
    before, after = (None if state is None else shown(state) for state in (change.before, change.after))
    return {"change": change.kind.value, name: change.name, "before": before, "after": after}

"""Retention rules from a recipe of `datahub-gc`, the ingestion source with which DataHub truncates time series."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from watchword.domain.errors import invalid
from watchword.domain.indices import DATAHUB_GC_SERIES
from watchword.domain.retention import RetentionRule, parse_rule

SOURCE = "datahub-gc"
DEFAULT_DAYS = 30
_MAX_DAYS = 36_500
_USED = ("truncate_indices", "truncate_index_older_than_days")
_NOTES = {
    "dry_run": "is not needed: datahub-gc truncates in a dry run too, while a rule removes nothing in the mode report",
    "cleanup_expired_tokens": "is not needed: expired tokens are purged after WATCHWORD_DEAD_TOKEN_DAYS",
    "truncation_watch_until": "is not needed: no program waits for a run",
    "truncation_sleep_between_seconds": "is not needed: no program waits for a run",
}


class Converted(NamedTuple):
    rules: tuple[RetentionRule, ...]
    warnings: tuple[str, ...]


def rules_of_recipe(recipe: Any) -> Converted:
    """The rules that remove what the recipe removes. They only report until someone sets another mode."""
    source = _mapping(_mapping(recipe, "the recipe").get("source"), "source")
    if source.get("type") != SOURCE:
        raise invalid("source.type", f"source.type must be {SOURCE}.")
    config = _mapping(source.get("config"), "source.config")
    days = config.get("truncate_index_older_than_days", DEFAULT_DAYS)
    if isinstance(days, bool) or not isinstance(days, int) or not 0 <= days <= _MAX_DAYS:
        where = "source.config.truncate_index_older_than_days"
        raise invalid(where, f"{where} must be a whole number from 0 to {_MAX_DAYS:,}.")
    warnings = [
        f"{name} {_NOTES.get(name, 'has no counterpart here. Leave it to datahub-gc')}."
        for name in config
        if name not in _USED
    ]
    if config.get("truncate_indices") is False:
        return Converted((), (*warnings, "truncate_indices is false, so there is no rule to write."))
    schedule = _mapping(recipe.get("schedule"), "schedule")
    timing = {"schedule": schedule.get("interval"), "timeZone": schedule.get("timezone")}
    rules = [parse_rule({"series": series, "keep": f"P{days}D", **timing}) for series in DATAHUB_GC_SERIES]
    return Converted(tuple(rules), tuple(warnings))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None and where != "the recipe":
        return {}
    if not isinstance(value, Mapping):
        raise invalid(where, f"{where} must be a mapping, as in an ingestion recipe.")
    return {str(name): one for name, one in value.items()}

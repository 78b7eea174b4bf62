"""Retention rules made from a recipe of `datahub-gc`, the ingestion source with which DataHub truncates time series."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from watchword.basics.errors import check_whole, invalid
from watchword.index.indices import DATAHUB_GC_SERIES
from watchword.retention.rules import RetentionRule, parse_rule

DATAHUB_GC = "datahub-gc"
_GC_DAYS = 30
_GC_MAX_DAYS = 36_500
_GC_USED = ("truncate_indices", "truncate_index_older_than_days")
_GC_NOTES = {
    "dry_run": "is not needed: datahub-gc truncates in a dry run too, while a rule removes nothing in the mode report",
    "cleanup_expired_tokens": "is not needed: expired tokens are purged after WATCHWORD_DEAD_TOKEN_DAYS",
    "truncation_watch_until": "is not needed: no program waits for a run",
    "truncation_sleep_between_seconds": "is not needed: no program waits for a run",
}


class ConvertedRecipe(NamedTuple):
    rules: tuple[RetentionRule, ...]
    warnings: tuple[str, ...]


def rules_of_recipe(recipe: Any) -> ConvertedRecipe:
    """The rules that remove what the recipe removes. They only report until someone sets another mode."""
    source = _mapping(_mapping(recipe, "the recipe").get("source"), "source")
    if source.get("type") != DATAHUB_GC:
        raise invalid("source.type", f"source.type must be {DATAHUB_GC}.")
    config = _mapping(source.get("config"), "source.config")
    days = config.get("truncate_index_older_than_days", _GC_DAYS)
    check_whole(days, "source.config.truncate_index_older_than_days", 0, _GC_MAX_DAYS)
    warnings = [
        f"{name} {_GC_NOTES.get(name, 'has no counterpart here. Leave it to datahub-gc')}."
        for name in config
        if name not in _GC_USED
    ]
    if config.get("truncate_indices") is False:
        return ConvertedRecipe((), (*warnings, "truncate_indices is false, so there is no rule to write."))
    schedule = _mapping(recipe.get("schedule"), "schedule")
    timing = {"schedule": schedule.get("interval"), "timeZone": schedule.get("timezone")}
    rules = [parse_rule({"series": series, "keep": f"P{days}D", **timing}) for series in DATAHUB_GC_SERIES]
    return ConvertedRecipe(tuple(rules), tuple(warnings))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None and where != "the recipe":
        return {}
    if not isinstance(value, Mapping):
        raise invalid(where, f"{where} must be a mapping, as in an ingestion recipe.")
    return {str(name): one for name, one in value.items()}

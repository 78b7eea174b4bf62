"""What an index is made of, and what leads to it: settings, mappings, aliases."""

from typing import Any

from watchword.domain.indices import TIME

Action = dict[str, Any]

# What the cluster sets itself when an index is made, or what must not go over to a copy.
_LEFT_OUT = (
    "blocks",
    "creation_date",
    "final_pipeline",  # it would run over every copied row; the copy gets it when it takes its source's place
    "provided_name",
    "remote_store",
    "resize",
    "uuid",
    "verified_before_close",
    "version",
)

# Of a time series: milliseconds as numbers, whatever else stands there is kept and counts as no time.
SERIES: dict[str, Any] = {
    "settings": {"number_of_shards": 1},
    "mappings": {
        "properties": {
            "urn": {"type": "keyword"},
            TIME: {"type": "date", "format": "epoch_millis", "ignore_malformed": True},
        }
    },
}


def settings_for_copy(settings: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in settings.items() if name not in _LEFT_OUT}
    allocation = kept.get("routing", {}).get("allocation", {})
    if "initial_recovery" in allocation:  # where a shrunk or cloned index was made
        others = {name: value for name, value in allocation.items() if name != "initial_recovery"}
        kept["routing"] = {**kept["routing"], "allocation": others}
    return kept


def lags_behind(settings: dict[str, Any]) -> bool:
    """Whether a replica may answer without rows that a refresh has made readable on the primary."""
    by_segments = bool(settings.get("replication", {}).get("type") == "SEGMENT")
    return by_segments and str(settings.get("number_of_replicas", "0")) != "0"


def moves(name: str, source: str, target: str, aliases: dict[str, Any], inlet: str) -> list[Action]:
    """Every alias of the source, and `name`, to the target, in one step; what the copy was filled by goes."""
    away = [{"remove_index": {"index": source}}] if name == source else [removal(source, alias) for alias in aliases]
    wanted = {**aliases, name: {}} if name == source else aliases
    there = [{"add": {"index": target, "alias": alias, **how}} for alias, how in wanted.items()]
    return [*away, *there, removal(target, inlet)]


def removal(index: str, alias: str) -> Action:
    # Without must_exist an alias that somebody else has moved meanwhile would be passed over in silence.
    return {"remove": {"index": index, "alias": alias, "must_exist": True}}

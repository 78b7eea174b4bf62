"""Which rows are old, which stay, and which came after a mark, in the words of the cluster.

A row is old only by a field that the cluster itself reads as a number or a date. Where it is mapped as text, letters
would be compared instead: there nothing is old.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from watchword.domain.indices import TIME

Query = dict[str, Any]

NUMBERS = frozenset(
    {"long", "integer", "short", "byte", "unsigned_long", "double", "float", "half_float", "scaled_float"}
)
DATES = frozenset({"date", "date_nanos"})
NOTHING: Query = {"match_none": {}}
_LAST_NANOS = 9_223_372_036_853
"""Milliseconds; a date_nanos field refuses what is later."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds(kind: str | None, **limits: int) -> Query:
    """Rows whose time is within these limits (lte, lt, gte)."""
    if kind in NUMBERS:
        return {"range": {TIME: limits}}
    if kind not in DATES:
        return NOTHING
    if kind == "date_nanos":
        if min(limits.values()) < 0:
            return NOTHING  # it holds nothing from before 1970
        limits = {word: min(limit, _LAST_NANOS) for word, limit in limits.items()}
    # The format of the field itself may read four digits as a year.
    if min(limits.values()) >= 0:
        return {"range": {TIME: {**limits, "format": "epoch_millis"}}}
    try:
        # Elasticsearch 7 takes no negative milliseconds.
        texts = {word: _written(limit) for word, limit in limits.items()}
    except OverflowError:
        return NOTHING
    return {"range": {TIME: {**texts, "format": "strict_date_optional_time"}}}


def _written(millis: int) -> str:
    return (_EPOCH + timedelta(milliseconds=millis)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def old(kind: str | None, until: int) -> Query:
    return bounds(kind, lte=until)


def staying(kind: str | None, until: int, *and_also: Query) -> Query:
    """What is not old, rows without a time among it."""
    return {"bool": {"must_not": [old(kind, until)], "filter": list(and_also)}}


def after(mark: int) -> Query:
    return {"range": {"_seq_no": {"gt": mark}}}


UNTIMED: Query = {"bool": {"must_not": [{"exists": {"field": TIME}}]}}

"""Truncations as they are asked for: which rows of which aspect, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watchword.domain.engine import DEFAULT_BATCH
from watchword.domain.errors import invalid
from watchword.domain.indices import Aspect, check_word
from watchword.domain.operations import Plan, choose_strategy

MAX_BATCH = 10_000
MAX_TIMEOUT = 7 * 24 * 3_600
FIELDS = (
    "entityType", "aspect", "endTimeMillis", "dryRun", "batchSize", "timeoutSeconds", "forceDeleteByQuery",
    "forceReindex",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a caller wants gone."""

    aspect: Aspect
    until: int
    dry_run: bool = True
    batch_size: int = DEFAULT_BATCH
    timeout_seconds: int | None = None
    force_delete: bool = False
    force_copy: bool = False

    def plan(self, aspect: Aspect, index: str, rows: int, old: int, size_bytes: int) -> Plan:
        strategy, reason = choose_strategy(rows, old, force_delete=self.force_delete, force_copy=self.force_copy)
        return Plan(
            aspect=aspect,
            index=index,
            until=self.until,
            rows=rows,
            rows_to_delete=old,
            size_bytes=size_bytes,
            strategy=strategy,
            reason=reason,
            batch_size=self.batch_size,
            timeout_seconds=self.timeout_seconds,
        )


def asked_aspect(asked: Mapping[str, Any]) -> Aspect:
    return Aspect(check_word(asked.get("entityType"), "entityType"), check_word(asked.get("aspect"), "aspect"))


def parse_truncation(asked: Mapping[str, Any], now: int) -> Truncation:
    """From the body of a request. What it does not know it refuses: a misspelt dryRun must not be a real run."""
    for name in asked:
        if name not in FIELDS:
            raise invalid(name[:80], f"There is no field {name[:80]!r}; there are: {', '.join(FIELDS)}.")
    aspect = asked_aspect(asked)
    until = _whole(asked, "endTimeMillis", 0, now, f"milliseconds since 1970, not in the future ({now})")
    if until is None:
        raise invalid("endTimeMillis", "endTimeMillis must be given: rows up to this moment go.")
    batch = _whole(asked, "batchSize", 1, MAX_BATCH, f"a whole number from 1 to {MAX_BATCH:,}")
    timeout = _whole(asked, "timeoutSeconds", 1, MAX_TIMEOUT, f"a whole number from 1 to {MAX_TIMEOUT:,}")
    force_delete, force_copy = _switch(asked, "forceDeleteByQuery"), _switch(asked, "forceReindex")
    if force_delete and force_copy:
        raise invalid("forceReindex", "forceDeleteByQuery and forceReindex must not both be true.")
    return Truncation(
        aspect=aspect,
        until=until,
        dry_run=_switch(asked, "dryRun", default=True),
        batch_size=DEFAULT_BATCH if batch is None else batch,
        timeout_seconds=timeout,
        force_delete=force_delete,
        force_copy=force_copy,
    )


def _whole(asked: Mapping[str, Any], name: str, least: int, most: int, allowed: str) -> int | None:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(name, f"{name} must be {allowed}.")
    return value


def _switch(asked: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = asked.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(name, f"{name} must be true or false.")
    return value

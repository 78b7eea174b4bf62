"""Reference implementation of searches over Python lists. Every store is compared with it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from watchword.basics.names import token_urn
from watchword.journal.events import EventSearch, KeptEvent
from watchword.tokens.filters import Condition, Field, Filter, Search, Value
from watchword.tokens.rules import SUSPENDED, TokenRecord, TokenStatus


def ordered(records: Iterable[TokenRecord], search: Search, now: int) -> list[TokenRecord]:
    """Sorted by the field, missing values last, ties by id."""
    field = search.sort.field.value
    by_id = sorted(records, key=lambda record: record.id, reverse=field.word == "id" and search.sort.descending)
    present = [record for record in by_id if value_of(record, field, now) is not None]
    absent = [record for record in by_id if value_of(record, field, now) is None]
    return sorted(present, key=lambda r: value_of(r, field, now), reverse=search.sort.descending) + absent  # type: ignore[arg-type,return-value]


def listed(records: Iterable[TokenRecord], search: Search, now: int) -> tuple[int, tuple[TokenRecord, ...]]:
    """The total and the page of the search."""
    found = ordered((record for record in records if matches(search, record, now)), search, now)
    return len(found), tuple(found[search.start : search.start + search.count])


def value_of(record: TokenRecord, field: Field, now: int) -> Value | None:
    match field:
        case Field.URN:
            return token_urn(record.id)
        case Field.TOKEN_TYPE:
            return record.type.value
        case Field.STATUS:
            return record.status(now).value
        case Field.EFFECTIVE_STATUS:
            return (
                SUSPENDED if record.suspended and record.status(now) is TokenStatus.ACTIVE else record.status(now).value
            )
        case Field.SCOPE:
            return None if record.limits.scopes is None else "\n".join(record.limits.scopes)
        case Field.TEXT:
            texts = (record.name, record.description, record.id, record.actor_urn, record.owner_urn)
            return "\n".join([*filter(None, texts), record.actor_name or "", record.owner_name or ""])
        case Field.LAST_ACTIVITY_AT:
            return record.created_at if record.last_used_at is None else record.last_used_at
        case _:
            value: Value | None = getattr(record, field.name.lower())
            return value


_TESTS: dict[Condition, Callable[..., bool]] = {
    Condition.EQUAL: lambda found, value: found == value,
    Condition.IN: lambda found, value: found == value,
    Condition.IEQUAL: lambda found, value: found.lower() == value.lower(),
    Condition.CONTAIN: lambda found, value: value in found,
    Condition.START_WITH: lambda found, value: found.startswith(value),
    Condition.END_WITH: lambda found, value: found.endswith(value),
    Condition.GREATER_THAN: lambda found, value: found > value,
    Condition.GREATER_THAN_OR_EQUAL_TO: lambda found, value: found >= value,
    Condition.LESS_THAN: lambda found, value: found < value,
    Condition.LESS_THAN_OR_EQUAL_TO: lambda found, value: found <= value,
}
_FIELD_TESTS: dict[Field, Callable[..., bool]] = {
    Field.SCOPE: lambda found, value: value in found.split("\n"),
    Field.TEXT: lambda found, value: any(value.lower() in text.lower() for text in found.split("\n")),
}


def matches(asked: Filter | Search, record: TokenRecord, now: int) -> bool:
    """The rule that the SQL implements."""
    if isinstance(asked, Filter):
        found = value_of(record, asked.field, now)
        if asked.condition is Condition.EXISTS:
            return (found is not None) != asked.negated
        if found is None:
            return False
        test = _FIELD_TESTS.get(asked.field) or _TESTS[asked.condition]
        return any(test(found, value) for value in asked.values) != asked.negated
    if asked.own is not None and value_of(record, asked.own[0], now) != asked.own[1]:
        return False
    if record.revoked_at is not None and not asked.shows_revoked:
        return False
    return all(matches(f, record, now) for f in asked.filters)


def event_matches(search: EventSearch, event: KeptEvent) -> bool:
    return (
        (search.after is None or (event.at, event.seq) < search.after)
        and (not search.actors or event.actor in search.actors)
        and (not search.actions or event.action in search.actions)
        and (not search.targets or event.target in search.targets)
        and (search.since is None or event.at >= search.since)
        and (search.until is None or event.at < search.until)
        and (not search.about or any(urn == event.target or _names(event.detail, urn) for urn in search.about))
    )


def _names(detail: Mapping[str, Any], urn: str) -> bool:
    return any(value == urn or (isinstance(value, list) and urn in value) for value in detail.values())

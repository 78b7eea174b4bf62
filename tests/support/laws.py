"""The laws of lists, said plainly over Python lists: what every store's answer is compared with."""

from collections.abc import Iterable

from watchword.domain.filters import Search, value_of
from watchword.domain.tokens import TokenRecord


def ordered(records: Iterable[TokenRecord], search: Search, now: int) -> list[TokenRecord]:
    """By the chosen field, missing values last whichever the direction; equal ones by id, ascending."""
    field = search.sort.field.value
    by_id = sorted(records, key=lambda record: record.id, reverse=field.word == "id" and search.sort.descending)
    present = [record for record in by_id if value_of(record, field, now) is not None]
    absent = [record for record in by_id if value_of(record, field, now) is None]
    return sorted(present, key=lambda r: value_of(r, field, now), reverse=search.sort.descending) + absent  # type: ignore[arg-type,return-value]


def listed(records: Iterable[TokenRecord], search: Search, now: int) -> tuple[int, tuple[TokenRecord, ...]]:
    """The total and the page that this search finds among the records."""
    found = ordered((record for record in records if search.matches(record, now)), search, now)
    return len(found), tuple(found[search.start : search.start + search.count])

"""Counting: which searches are answered by a total that is kept ready."""

from watchword.domain.filters import Condition, Field, Filter, Search

_KINDS = {Field.ACTOR_URN: "actor", Field.OWNER_URN: "owner"}


def held(search: Search) -> tuple[Filter, ...]:
    """The filters, with the constraint to the caller's own tokens among them, said once."""
    if search.own is None:
        return search.filters
    field, owner = search.own
    own = Filter(field, Condition.EQUAL, (owner,))
    return (own, *(f for f in search.filters if not f.pins(field, owner)))


def ready_total(filters: tuple[Filter, ...]) -> tuple[str, str] | None:
    """Kind and urn of the total of tokens that are not revoked which answers these filters, if one does."""
    if not filters:
        return ("all", "")
    if len(filters) == 1:
        (only,) = filters
        kind = _KINDS.get(only.field)
        value = only.values[0] if len(only.values) == 1 else None
        if kind is not None and isinstance(value, str) and only.pins(only.field, value):
            return (kind, value)
    return None

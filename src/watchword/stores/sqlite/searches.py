"""Searches: the law of `domain.filters` in SQL. The text is put together from literal pieces; values are bound."""

from dataclasses import dataclass
from typing import Any

import orjson

from watchword.domain.filters import BY_END, Condition, Field, Filter, Search, SortField
from watchword.domain.urns import TOKEN_PREFIX
from watchword.stores.counting import held, ready_total

INLINE_ROWS = 200

# Columns are named with their table: json_each, which unfolds a filter's values, has an id and a type of its own.
_STATUS = (
    "CASE WHEN tokens.revoked_at IS NOT NULL THEN 'REVOKED'"
    " WHEN tokens.expires_at IS NOT NULL AND tokens.expires_at <= :now THEN 'EXPIRED' ELSE 'ACTIVE' END"
)
_COLUMNS: dict[Field, str] = {
    Field.ID: "tokens.id",
    Field.URN: f"('{TOKEN_PREFIX}' || tokens.id)",
    Field.NAME: "tokens.name",
    Field.DESCRIPTION: "tokens.description",
    Field.ACTOR_URN: "tokens.actor_urn",
    Field.OWNER_URN: "tokens.owner_urn",
    Field.TOKEN_TYPE: "tokens.type",
    Field.STATUS: _STATUS,
    Field.PARENT: "tokens.parent",
    Field.MINTED_WITH: "tokens.minted_with",
    Field.CREATED_AT: "tokens.created_at",
    Field.EXPIRES_AT: "tokens.expires_at",
    Field.LAST_USED_AT: "tokens.last_used_at",
    Field.LAST_ACTIVITY_AT: "coalesce(tokens.last_used_at, tokens.created_at)",
    Field.REVOKED_AT: "tokens.revoked_at",
    Field.USE_COUNT: "tokens.use_count",
    Field.LAST_NETWORK: "tokens.last_network",
}
_TESTS: dict[Condition, str] = {
    Condition.EQUAL: "{column} = {value}",
    Condition.IN: "{column} = {value}",
    Condition.IEQUAL: "lower({column}) = lower({value})",
    Condition.CONTAIN: "instr({column}, {value}) > 0",
    Condition.START_WITH: "substr({column}, 1, length({value})) = {value}",
    Condition.END_WITH: (
        "(length({column}) >= length({value}) AND substr({column}, length({column}) - length({value}) + 1) = {value})"
    ),
    Condition.GREATER_THAN: "{column} > {value}",
    Condition.GREATER_THAN_OR_EQUAL_TO: "{column} >= {value}",
    Condition.LESS_THAN: "{column} < {value}",
    Condition.LESS_THAN_OR_EQUAL_TO: "{column} <= {value}",
}


@dataclass(frozen=True, slots=True)
class Statement:
    where: str
    order: str
    bound: dict[str, Any]
    counted: tuple[str, str] | None
    """The ready total that answers this search, if one does."""
    inline: bool
    """Whether the page costs the same at any size, so that no thread is needed."""


def translate(search: Search, now: int) -> Statement:
    filters = held(search)
    bound: dict[str, Any] = {"now": now}
    terms = [] if search.shows_revoked else ["tokens.revoked_at IS NULL"]
    terms += [_term(index, f, bound) for index, f in enumerate(filters)]
    counted = ready_total(filters)
    return Statement(
        where=" AND ".join(terms) or "true",
        order=_order(search),
        bound=bound,
        counted=counted,
        inline=counted is not None and search.sort == BY_END and search.start + search.count <= INLINE_ROWS,
    )


def _term(index: int, f: Filter, bound: dict[str, Any]) -> str:
    column = _COLUMNS[f.field]
    if f.condition is Condition.EXISTS:
        return f"{column} IS {'' if f.negated else 'NOT '}NULL"
    name = f"v{index}"
    if len(f.values) == 1:
        bound[name] = f.values[0]
        test = _TESTS[f.condition].format(column=column, value=f":{name}")
    elif f.condition in (Condition.EQUAL, Condition.IN):
        bound[name] = orjson.dumps(f.values).decode()
        test = f"{column} IN (SELECT value FROM json_each(:{name}))"  # noqa: S608 - literal pieces
    else:
        bound[name] = orjson.dumps(f.values).decode()
        test = _TESTS[f.condition].format(column=column, value="json_each.value")
        test = f"EXISTS (SELECT 1 FROM json_each(:{name}) WHERE {test})"  # noqa: S608
    # NULL in SQL is neither true nor false: a missing value matches neither the test nor its negation. Only
    # EXISTS over a list turns it into false, so the negation says it again.
    return f"({column} IS NOT NULL AND NOT ({test}))" if f.negated else test


def _order(search: Search) -> str:
    sort = search.sort
    column = _COLUMNS[sort.field.value]
    direction = "DESC" if sort.descending else "ASC NULLS LAST"
    if sort.field is SortField.ID:
        return f"id {'DESC' if sort.descending else 'ASC'}"
    return f"{column} {direction}, id"

"""Searches: the law of `domain.filters` in SQL. The text is put together from literal pieces; values are bound."""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import orjson

from watchword.domain.filters import BY_END, Condition, Field, Search, Sort, SortField
from watchword.domain.urns import TOKEN_PREFIX
from watchword.stores.counting import held, ready_total
from watchword.stores.sqlite.connections import folded

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
    Condition.IEQUAL: "{column} = {value}",
    Condition.CONTAIN: "instr({column}, {value}) > 0",
    Condition.START_WITH: "instr({column}, {value}) = 1",
    # By bytes, which are not counted anew for each token as characters are; what ends with them ends with the text. The
    # last so many, or all there are where that is fewer; where that is none, whatever text there is.
    Condition.END_WITH: (
        "CASE {value} WHEN '' THEN {column} IS NOT NULL"
        " ELSE substr(CAST({column} AS BLOB), -octet_length({value})) = CAST({value} AS BLOB) END"
    ),
    Condition.GREATER_THAN: "{column} > {value}",
    Condition.GREATER_THAN_OR_EQUAL_TO: "{column} >= {value}",
    Condition.LESS_THAN: "{column} < {value}",
    Condition.LESS_THAN_OR_EQUAL_TO: "{column} <= {value}",
}


Wording = tuple[Field, Condition, bool, bool]
"""Of a filter: all but its values, of which it only matters whether there is just one."""


class Statement(NamedTuple):
    where: str
    order: str
    bound: dict[str, Any]
    counted: tuple[str, str] | None
    """The ready total that answers this search, if one does."""
    inline: bool
    """Whether the page costs the same at any size, so that no thread is needed."""


def translate(search: Search, now: int) -> Statement:
    filters = held(search)
    counted = ready_total(filters)
    bound: dict[str, Any] = {"now": now}
    for index, f in enumerate(filters):
        if f.values:
            values = [str(value).lower() for value in f.values] if f.condition is Condition.IEQUAL else f.values
            bound[f"v{index}"] = values[0] if len(values) == 1 else orjson.dumps(values).decode()
    wordings = tuple([(f.field, f.condition, f.negated, len(f.values) == 1) for f in filters])
    return Statement(
        where=_where(wordings, search.shows_revoked),
        order=_order(search.sort),
        bound=bound,
        counted=counted,
        inline=counted is not None and search.sort == BY_END and search.start + search.count <= INLINE_ROWS,
    )


@lru_cache(256)
def _where(wordings: tuple[Wording, ...], shows_revoked: bool) -> str:
    terms = [] if shows_revoked else ["tokens.revoked_at IS NULL"]
    terms += [_term(f":v{index}", *wording) for index, wording in enumerate(wordings)]
    return " AND ".join(terms) or "true"


def _term(value: str, field: Field, condition: Condition, negated: bool, single: bool) -> str:
    column = _COLUMNS[field]
    if condition is Condition.EXISTS:
        return f"{column} IS {'' if negated else 'NOT '}NULL"
    tested = folded(column) if condition is Condition.IEQUAL else column
    if single:
        test = _TESTS[condition].format(column=tested, value=value)
    elif condition in (Condition.EQUAL, Condition.IN, Condition.IEQUAL):
        test = f"{tested} IN (SELECT value FROM json_each({value}))"  # noqa: S608 - literal pieces
    else:
        test = _TESTS[condition].format(column=column, value="json_each.value")
        test = f"EXISTS (SELECT 1 FROM json_each({value}) WHERE {test})"  # noqa: S608
    # NULL in SQL is neither true nor false: a missing value matches neither the test nor its negation. Only
    # EXISTS over a list turns it into false, so the negation says it again.
    return f"({column} IS NOT NULL AND NOT ({test}))" if negated else test


@cache
def _order(sort: Sort) -> str:
    column = _COLUMNS[sort.field.value]
    direction = "DESC" if sort.descending else "ASC NULLS LAST"
    if sort.field is SortField.ID:
        return f"id {'DESC' if sort.descending else 'ASC'}"
    return f"{column} {direction}, id"

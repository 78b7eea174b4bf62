"""Searches for tokens: the rules of `filters.py` in SQL. Literal pieces are joined; values are bound."""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import orjson

from watchword.basics.names import TOKEN_PREFIX
from watchword.database import rows
from watchword.database.transaction import Dialect
from watchword.tokens.bulk_revocation import Selection
from watchword.tokens.filters import BY_END, Condition, Field, Filter, JsonRows, Page, Search, Sort, SortField, Value
from watchword.tokens.rows import token_reader

INLINE_ROWS = 200

_ENDED = (
    "WHEN tokens.revoked_at IS NOT NULL THEN 'REVOKED' WHEN tokens.expires_at IS NOT NULL"
    " AND tokens.expires_at <= (SELECT now_ms()) THEN 'EXPIRED'"
)
_SUSPENDED = "EXISTS (SELECT 1 FROM actors WHERE actors.urn = tokens.actor_urn AND actors.status = 'SUSPENDED')"
# Columns are named with their table: SQLite's json_each has an id and a type too.
_COLUMNS = {field: f"tokens.{field.name.lower()}" for field in Field} | {
    Field.URN: f"('{TOKEN_PREFIX}' || tokens.id)",
    Field.TOKEN_TYPE: "tokens.type",
    Field.STATUS: f"(CASE {_ENDED} ELSE 'ACTIVE' END)",
    Field.EFFECTIVE_STATUS: f"(CASE {_ENDED} WHEN {_SUSPENDED} THEN 'SUSPENDED' ELSE 'ACTIVE' END)",
    Field.CREATED_WITH: "tokens.created_with",
    Field.LAST_ACTIVITY_AT: "coalesce(tokens.last_used_at, tokens.created_at)",
}
_TEXTS = ("tokens.name", "tokens.description", "tokens.id", "tokens.actor_urn", "tokens.owner_urn")
_ACTOR_NAMES = {"actors": "display_name", "service_accounts": "name"}
_COMPARISONS: dict[Condition, str] = {
    Condition.EQUAL: "=",
    Condition.IN: "=",
    Condition.IEQUAL: "=",
    Condition.GREATER_THAN: ">",
    Condition.GREATER_THAN_OR_EQUAL_TO: ">=",
    Condition.LESS_THAN: "<",
    Condition.LESS_THAN_OR_EQUAL_TO: "<=",
}
_COUNTED = {Field.ACTOR_URN: "actor", Field.OWNER_URN: "owner"}

Wording = tuple[Field, Condition, bool, int]
"""A filter without its values: of these only their number matters (none, one, or a list)."""


class SearchStatement(NamedTuple):
    sql: str
    bound: list[Any]
    inline: bool
    """Whether the page costs the same at any size, so that it needs no deadline of its own."""


def search_sql(search: Search, dialect: Dialect) -> SearchStatement:
    """A statement that returns one row, from one snapshot: the total, the number of rows of the page, and these rows as
    JSON.
    """
    filters = _with_own(search)
    counted = stored_total(filters)
    bound, wordings = _values(filters)
    page = (search.count, search.start) if search.count else ()
    if counted is not None and not page:  # only the stored total is read
        bound, wordings = [], ()
    order = search.sort if page else None
    selected = search.record_fields if search.json_fields is None else search.json_fields
    sql = _search_sql(wordings, search.shows_revoked, order, counted is not None, selected, dialect)
    inline = counted is not None and search.sort == BY_END and search.start + search.count <= INLINE_ROWS
    return SearchStatement(sql, [*bound, *(counted or ()), *page], inline)


def page_of(row: rows.Row, search: Search, clock: Callable[[], float], began: float) -> Page:
    """The page from the row of `search_sql`, which was begun at this time by this clock."""
    total, number, found = row
    if search.json_fields is not None:
        return Page(total, (), clock() - began, JsonRows(number, found))
    _, make = token_reader(search.record_fields)
    records = tuple(map(make, orjson.loads(found)))
    return Page(total, records, clock() - began)


@lru_cache(512)
def _search_sql(
    wordings: tuple[Wording, ...],
    shows_revoked: bool,
    sort: Sort | None,
    is_counted: bool,
    selected: frozenset[str] | tuple[Field, ...] | None,
    dialect: Dialect,
) -> str:
    where = _where(wordings, shows_revoked, dialect) or "true"
    number = sum(values > 0 for *_, values in wordings)
    total = f"(SELECT count(*) FROM tokens WHERE {where})"
    if is_counted:
        total = dialect.stored_total(f"${number + 1}::text", f"${number + 2}::text")
        number += 2
    if sort is None:
        return f"SELECT {total}, 0, '[]'"
    if isinstance(selected, tuple):
        columns = ", ".join(f'{_COLUMNS[field]} AS "{field.word}"' for field in selected)
        found = dialect.json_objects([field.word for field in selected])
    else:
        columns, _ = token_reader(selected)
        found = dialect.json_rows(columns)
    return (
        f"SELECT {total}, count(*), {found} FROM (SELECT {columns} FROM tokens WHERE {where}"
        f" ORDER BY {_order(sort)} LIMIT ${number + 1}::bigint OFFSET ${number + 2}::bigint) AS page"
    )


def chosen(selection: Selection, dialect: Dialect) -> tuple[str, list[Any]]:
    """The condition of the selected tokens, and its parameters."""
    bound, wordings = _values(selection.seeds)
    where = _where(wordings, selection.follows_dead, dialect)
    terms = [where] if where else []
    if selection.ids is not None:
        bound.append(list(selection.ids))
        terms.append(f"tokens.id {dialect.any_of(f'${len(bound)}')}")
    if selection.visibility is not None:
        bound.append(selection.visibility.actor)
        actor = f"${len(bound)}::text"
        created = f" OR owner_urn = {actor}" if selection.visibility.created else ""
        accounts = " OR tokens.type = 'SERVICE_ACCOUNT'" if selection.visibility.accounts else ""
        terms.append(f"(actor_urn = {actor}{created}{accounts})")
    return " AND ".join(terms) or "true", bound


def stored_total(filters: tuple[Filter, ...]) -> tuple[str, str] | None:
    """Kind and urn of the stored total of tokens that are not revoked which answers these filters, if one does."""
    if not filters:
        return ("all", "")
    if len(filters) == 1:
        (only,) = filters
        kind = _COUNTED.get(only.field)
        value = only.values[0] if len(only.values) == 1 else None
        if kind is not None and isinstance(value, str) and only.pins(only.field, value):
            return (kind, value)
    return None


def _with_own(search: Search) -> tuple[Filter, ...]:
    """The filters, with the restriction to the caller's own tokens among them, once."""
    if search.own is None:
        return search.filters
    field, owner = search.own
    own = Filter(field, Condition.EQUAL, (owner,))
    return (own, *(f for f in search.filters if not f.pins(field, owner)))


def _values(filters: tuple[Filter, ...]) -> tuple[list[Any], tuple[Wording, ...]]:
    """The values to bind, and the filters without them."""
    bound: list[Any] = []
    for f in filters:
        if f.values:
            values = [_bound(f, value) for value in f.values]
            bound.append(values[0] if len(values) == 1 else values)
    return bound, tuple([(f.field, f.condition, f.negated, min(len(f.values), 2)) for f in filters])


def _bound(f: Filter, value: Value) -> Value:
    if f.condition is Condition.IEQUAL or f.field is Field.TEXT:
        return str(value).lower()
    return f'"{value}"' if f.field is Field.SCOPE else value


@lru_cache(512)
def _where(wordings: tuple[Wording, ...], shows_revoked: bool, dialect: Dialect) -> str:
    # In the words of the partial indexes.
    terms = [] if shows_revoked else ["tokens.revoked_at IS NULL"]
    number = 0
    for wording in wordings:
        number += wording[3] > 0
        terms.append(_term(f"${number}", wording, dialect))
    return " AND ".join(terms)


def _term(parameter: str, wording: Wording, dialect: Dialect) -> str:
    field, condition, negated, values = wording
    if field is Field.TEXT:
        return f"{'NOT ' if negated else ''}({_text_test(parameter, values > 1, dialect)})"
    column = _COLUMNS[field]
    if field is Field.SCOPE:  # a JSON text, in which the quoted scope is found
        column = dialect.json_member("tokens.limits", "scopes")
        condition = condition if condition is Condition.EXISTS else Condition.CONTAIN
    if condition is Condition.EXISTS:
        return f"{column} IS {'' if negated else 'NOT '}NULL"
    tested = dialect.folded(column) if condition is Condition.IEQUAL else column
    numeric = field.kind.numeric
    if values > 1 and _COMPARISONS.get(condition) == "=":
        test = f"{tested} {dialect.any_number(parameter) if numeric else dialect.any_of(parameter)}"
    else:
        test = _compared(condition, tested, parameter, values > 1, dialect, numeric=numeric)
    # NULL is neither true nor false in SQL: a missing value matches neither the test nor its negation.
    return f"({column} IS NOT NULL AND NOT ({test}))" if negated else test


def _text_test(parameter: str, several: bool, dialect: Dialect) -> str:
    """Whether one of the texts of a token contains the value, or the name of its actor or owner does: these are looked
    up once for all tokens.
    """

    def contains(column: str) -> str:
        text = f"coalesce({dialect.folded(column)}, '')"
        return _compared(Condition.CONTAIN, text, parameter, several, dialect)

    named = " UNION ALL ".join(
        f"SELECT {table}.urn FROM {table} WHERE {contains(f'{table}.{column}')}"
        for table, column in _ACTOR_NAMES.items()
    )
    people = [f"{urn} IN ({named})" for urn in ("tokens.actor_urn", "tokens.owner_urn")]
    return " OR ".join([*map(contains, _TEXTS), *people])


def _compared(
    condition: Condition, column: str, parameter: str, several: bool, dialect: Dialect, *, numeric: bool = False
) -> str:
    """The column is compared with the value, or with each of several."""
    kind = "bigint" if numeric else "text"
    if not several:
        value = f"{parameter}::bigint" if numeric else f'{parameter}::text COLLATE "C"'
        return _test(condition, column, value, dialect)
    test = _test(condition, column, "each_of.value", dialect)
    return f"({column} IS NOT NULL AND EXISTS (SELECT 1 FROM {dialect.each_of(parameter, kind)} WHERE {test}))"


def _test(condition: Condition, column: str, value: str, dialect: Dialect) -> str:
    if condition is Condition.CONTAIN:
        return f"{dialect.position(column, value)} > 0"
    if condition is Condition.START_WITH:
        return f"{dialect.position(column, value)} = 1"
    if condition is Condition.END_WITH:
        return dialect.ends_with(column, value)
    return f"{column} {_COMPARISONS[condition]} {value}"


@cache
def _order(sort: Sort) -> str:
    direction = "DESC" if sort.descending else "ASC"
    if sort.field is SortField.ID:
        return f"id {direction}"
    return f"{_COLUMNS[sort.field.value]} {direction} NULLS LAST, id"

"""Searches: the law of `domain.filters` in SQL. The text is put together from literal pieces; values are bound.

Total and rows come from one statement, so from one state of the database.
"""

from dataclasses import dataclass, field
from typing import Any

from watchword.domain.bulk_revocation import Selection
from watchword.domain.filters import BY_END, Condition, Field, Filter, Search, SortField
from watchword.domain.urns import TOKEN_PREFIX
from watchword.stores import rows
from watchword.stores.counting import held, ready_total

INLINE_ROWS = 200

_STATUS = (
    "CASE WHEN revoked_at IS NOT NULL THEN 'REVOKED'"
    " WHEN expires_at IS NOT NULL AND expires_at <= (SELECT now_ms()) THEN 'EXPIRED' ELSE 'ACTIVE' END"
)
_COLUMNS: dict[Field, str] = {
    Field.ID: "id",
    Field.URN: f"('{TOKEN_PREFIX}' || id)",
    Field.NAME: "name",
    Field.DESCRIPTION: "description",
    Field.ACTOR_URN: "actor_urn",
    Field.OWNER_URN: "owner_urn",
    Field.TOKEN_TYPE: "type",
    Field.STATUS: f"({_STATUS})",
    Field.PARENT: "parent",
    Field.MINTED_WITH: "minted_with",
    Field.CREATED_AT: "created_at",
    Field.EXPIRES_AT: "expires_at",
    Field.LAST_USED_AT: "last_used_at",
    Field.LAST_ACTIVITY_AT: "coalesce(last_used_at, created_at)",
    Field.REVOKED_AT: "revoked_at",
    Field.USE_COUNT: "use_count",
    Field.LAST_NETWORK: "last_network",
}
# lower() of a column in the C collation knows ASCII only, whatever the database's locale; what else there is to fold
# was folded when it was kept.
_FOLDED: dict[Field, str] = {
    Field.NAME: "coalesce(name_folded, lower(name))",
    Field.DESCRIPTION: "coalesce(description_folded, lower(description))",
}
_TESTS: dict[Condition, str] = {
    Condition.EQUAL: "{column} = {value}",
    Condition.IN: "{column} = {value}",
    Condition.IEQUAL: "{column} = {value}",
    Condition.CONTAIN: "strpos({column}, {value}) > 0",
    Condition.START_WITH: "left({column}, length({value})) = {value}",
    Condition.END_WITH: "right({column}, length({value})) = {value}",
    Condition.GREATER_THAN: "{column} > {value}",
    Condition.GREATER_THAN_OR_EQUAL_TO: "{column} >= {value}",
    Condition.LESS_THAN: "{column} < {value}",
    Condition.LESS_THAN_OR_EQUAL_TO: "{column} <= {value}",
}


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    bound: tuple[Any, ...]
    inline: bool
    """Whether the page costs the same at any size, so that it needs no deadline of its own."""


@dataclass(slots=True)
class Bound:
    values: list[Any] = field(default_factory=list)

    def add(self, value: Any, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"


def folded(text: str | None) -> str | None:
    """In small letters, where the database could not say it itself."""
    return None if text is None or text.isascii() else text.lower()


def translate(search: Search) -> Statement:
    filters = held(search)
    bound = Bound()
    terms = [] if search.shows_revoked else ["revoked_at IS NULL"]
    terms += [_term(f, bound) for f in filters]
    where = " AND ".join(terms) or "true"
    counted = ready_total(filters)
    if counted is not None:
        # A query of its own, which is run once: the function alone would be called again for every row of the page.
        total = f"(SELECT total_of({bound.add(counted[0], 'text')}, {bound.add(counted[1], 'text')}))"
    else:
        total = f"(SELECT count(*) FROM tokens WHERE {where})"  # noqa: S608 - literal pieces; values are bound
    key, order = _COLUMNS[search.sort.field.value], _order(search)
    count, start = bound.add(search.count, "bigint"), bound.add(search.start, "bigint")
    columns, _ = rows.token_reader(search.record_fields)
    text = (
        f"SELECT counted.total, {columns} FROM (SELECT {total} AS total) AS counted LEFT JOIN ("  # noqa: S608
        f"SELECT {columns}, {key} AS sorted_by FROM tokens WHERE {where} ORDER BY {key} {order}"
        f" LIMIT {count} OFFSET {start}) AS page ON true ORDER BY sorted_by {order}"
    )
    inline = counted is not None and search.sort == BY_END and search.start + search.count <= INLINE_ROWS
    return Statement(text, tuple(bound.values), inline)


def chosen(selection: Selection) -> tuple[str, Bound]:
    """The condition of those that are meant, and what is bound in it."""
    bound = Bound()
    # Said once more in the words of the indexes.
    terms = [*([] if selection.follows_dead else ["revoked_at IS NULL"]), *(_term(f, bound) for f in selection.seeds)]
    if selection.ids is not None:
        terms.append(f"id = ANY ({bound.add(list(selection.ids), 'text[]')})")
    if selection.visibility is not None:
        actor = bound.add(selection.visibility.actor, 'text COLLATE "C"')
        accounts = " OR type = 'SERVICE_ACCOUNT'" if selection.visibility.accounts else ""
        created = f" OR owner_urn = {actor}" if selection.visibility.created else ""
        terms.append(f"(actor_urn = {actor}{created}{accounts})")
    return " AND ".join(terms), bound


def _term(f: Filter, bound: Bound) -> str:
    column = _COLUMNS[f.field]
    if f.condition is Condition.EXISTS:
        return f"{column} IS {'' if f.negated else 'NOT '}NULL"
    values = list(f.values)
    if f.condition is Condition.IEQUAL:
        column = _FOLDED.get(f.field, f"lower({column})")
        values = [str(value).lower() for value in values]
    kind = "bigint" if f.field.kind.numeric else 'text COLLATE "C"'
    if len(values) == 1:
        value = bound.add(values[0], kind)
        test = _TESTS[f.condition].format(column=column, value=value)
    else:
        those = bound.add(values, "bigint[]" if f.field.kind.numeric else "text[]")
        if f.condition in (Condition.EQUAL, Condition.IN, Condition.IEQUAL):
            test = f"{column} = ANY ({those})"
        else:
            one = "v.value" if f.field.kind.numeric else 'v.value COLLATE "C"'
            test = _TESTS[f.condition].format(column=column, value=one)
            test = f"({column} IS NOT NULL AND EXISTS (SELECT 1 FROM unnest({those}) AS v (value) WHERE {test}))"  # noqa: S608
    # NULL in SQL is neither true nor false: a missing value matches neither the test nor its negation.
    return f"({column} IS NOT NULL AND NOT ({test}))" if f.negated else test


def _order(search: Search) -> str:
    sort = search.sort
    direction = "DESC" if sort.descending else "ASC"
    return direction if sort.field is SortField.ID else f"{direction} NULLS LAST, id"

"""What PostgreSQL says in its own words."""

from collections.abc import Sequence
from functools import cache

from watchword.database.transaction import Dialect

_FOLDED = {
    # What lower() in the C collation cannot fold is stored folded.
    "tokens.name": "coalesce(tokens.name_folded, lower(tokens.name))",
    "tokens.description": "coalesce(tokens.description_folded, lower(tokens.description))",
}
_NAMES_OF_ACTORS = ("actors.display_name", "service_accounts.name")
LAST_CASED = 0x20000  # no character from here on has a case


def _lowered(text: str) -> str:
    """SQL that lowers the case: of ASCII letters, and in names of actors of all letters."""
    if text not in _NAMES_OF_ACTORS:
        return f'lower({text} COLLATE "C")'
    upper, lower = _letters()
    return (
        f"CASE WHEN octet_length({text}) = length({text}) THEN lower({text})"
        f" ELSE translate({text}, '{upper}', '{lower}') END"
    )


@cache
def _letters() -> tuple[str, str]:
    """All capital letters, and the small one of each."""
    pairs = [(one, one.lower()) for one in map(chr, range(LAST_CASED)) if len(one.lower()) == 1 and one.lower() != one]
    return "".join(one for one, _ in pairs), "".join(small for _, small in pairs)


def _each_row(names: Sequence[str], first: int) -> str:
    lists = ", ".join(f"${number}::text[]" for number, _ in enumerate(names, first))
    return f"unnest({lists}) WITH ORDINALITY AS wanted ({', '.join(names)}, n)"


def folded(text: str | None) -> str | None:
    """In lower case, where the database's lower() for ASCII would not do."""
    return None if text is None or text.isascii() else text.lower()


DIALECT = Dialect(
    for_update="FOR UPDATE",
    skip_locked="FOR UPDATE SKIP LOCKED",
    # A number that is never used twice, not even by a standby that took over without the last ones: an instance that
    # has read a version has read its policies.
    next_policy_version="""
    UPDATE state SET policy_version = greatest(policy_version + 1, now_ms() * 1000 + floor(random() * 1000)::bigint)""",
    policy_users=""", LATERAL (SELECT user_urn COLLATE "C" AS value
        FROM json_array_elements_text(policies.users::json) AS user_urn) AS named""",
    any_of=lambda parameter: f"= ANY ({parameter}::text[])",
    any_number=lambda parameter: f"= ANY ({parameter}::bigint[])",
    each_of=lambda parameter, kind: f"unnest({parameter}::{kind}[]) AS each_of (value)",
    stored_folded=folded,
    each_row=_each_row,
    left_lookup=lambda table, condition: (
        f"LEFT JOIN LATERAL (SELECT * FROM {table} WHERE {condition} LIMIT 1) AS found ON true"
    ),
    folded=lambda text: _FOLDED.get(text) or _lowered(text),
    position=lambda text, part: f"strpos({text}, {part})",
    ends_with=lambda text, part: f"right({text}, length({part})) = {part}",
    json_member=lambda column, name: f"({column}::json ->> '{name}')",
    json_array=lambda column, source: f"array_to_json(ARRAY(SELECT {column} FROM {source}))::text",
    json_rows=lambda columns: f"coalesce(json_agg(json_build_array({columns})), '[]')::text",
    json_objects=lambda _: "coalesce(json_agg(page), '[]')::text",
    # As a subquery it is called once, not for each row.
    stored_total=lambda kind, urn: f"(SELECT total_of({kind}, {urn}))",
    one_process="SET LOCAL max_parallel_workers_per_gather = 0",
    # An INSERT takes this lock before it takes a number. The transaction keeps it until its rows can be seen.
    by_index=lambda _: "",
    event_writers="""
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND relation = 'events'::regclass AND mode = 'RowExclusiveLock'
      AND pid IS DISTINCT FROM pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

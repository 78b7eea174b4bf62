"""Both databases have the same tables and columns: they are translated from one source."""

from contextlib import closing

import apsw

from tests.postgres.test_lost_answers import store_url
from tests.support.postgres import Home
from tests.support.waiting import SECONDS
from watchword.database.migrations import migrations
from watchword.stores import prepare

_COLUMNS = """
SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'NO'
FROM information_schema.columns WHERE table_schema = %s"""
_OF_SQLITE = """
SELECT t.name, c.name, c.type, c."notnull" OR c.pk > 0 FROM pragma_table_list AS t, pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"""
TYPES = {"text": "TEXT", "bytea": "BLOB", "bigint": "INTEGER", "integer": "INTEGER"}
ONLY_POSTGRES = {
    *(("tokens", "name_folded"), ("tokens", "description_folded"), ("token_totals", "slot")),
    *(("commit_marks", "mark"), ("commit_marks", "at")),
    *(("migrations", "number"), ("migrations", "name"), ("migrations", "applied_at")),
}


def test_both_databases_have_the_same_tables_and_columns(database: Home) -> None:
    prepare(store_url(database, database.address.port, SECONDS))
    postgres = {row[:2]: (TYPES[row[2]], bool(row[3])) for row in database.look(_COLUMNS, database.schema)}
    with closing(apsw.Connection(":memory:")) as file:
        for migration in migrations("sqlite"):
            file.execute(migration.sql)
        sqlite = {row[:2]: (row[2], bool(row[3])) for row in file.execute(_OF_SQLITE)}
    assert set(postgres) - set(sqlite) == ONLY_POSTGRES
    assert sqlite == {column: kind for column, kind in postgres.items() if column in sqlite}

"""Digests of the tables of a store, read without our code."""

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support.postgres import Home

Ask = Callable[[str], list[Any]]

KEYS = {
    "tokens": "id",
    "service_accounts": "urn",
    "retries": "actor, digest",
    "policies": "urn",
    "groups": "urn",
    "group_members": "actor_urn, group_urn",
    "identities": "issuer, subject",
    "actors": "urn",
    "keys": "seq",
    "next_key": "one",
    "events": "seq",
    "operations": "number",
}
# Columns that differ between stores or are derived.
LEFT_OUT = {"name_folded", "description_folded"}


def of_file(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as file:

        def ask(query: str) -> list[Any]:
            return file.execute(query).fetchall()

        return _export(ask, lambda table: [row[1] for row in ask(f"PRAGMA table_info({table})")])


def of_home(home: Home) -> dict[str, str]:
    columns = f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{home.schema}' AND table_name"
    with home.connect() as connection:

        def ask(query: str) -> list[Any]:
            return connection.execute(query.encode()).fetchall()

        return _export(ask, lambda table: [row[0] for row in ask(f"{columns} = '{table}'")])


def _export(ask: Ask, columns_of: Callable[[str], list[str]]) -> dict[str, str]:
    made = {}
    for table, key in {"state": "one", **KEYS}.items():
        columns = ", ".join(sorted(set(columns_of(table)) - LEFT_OUT))
        digest = hashlib.sha256(columns.encode())
        for row in ask(f"SELECT {columns} FROM {table} ORDER BY {key}"):
            digest.update(repr(tuple(row)).encode())
        made[table] = digest.hexdigest()
    return made

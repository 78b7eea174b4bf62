"""Statements made from lists of columns, and the columns that several modules read or write. JSON is stored as text."""

from collections.abc import Sequence
from typing import Any

import orjson

ACCOUNT = "urn, name, description, created_at, created_by, deleted_at, set_name"
SESSION = "id, actor_urn, token_id, created_at, ends_at, seen_at, peer, issuer, subject, sid"
GROUP = "urn, name, description, members, set_name"
RESOURCE = "name, id, set_name"
ACTOR = "urn, status, changed_at, changed_by, display_name, email"
EVENT = "at, actor, bearer_id, action, target, peer, request_id, detail"

Row = Sequence[Any]


def columns(table: str, names: str) -> str:
    """The columns with the name of their table, for a join."""
    return ", ".join(f"{table}.{name}" for name in names.split(", "))


def insert(table: str, names: str) -> str:
    parameters = ", ".join(f"${number}" for number, _ in enumerate(names.split(", "), 1))
    return f"INSERT INTO {table} ({names}) VALUES ({parameters})"


def put(table: str, names: str, key: str, changed: str | None = None) -> str:
    """The same. Of a row that has this key already, it changes the other columns, or just these."""
    others = (changed or names.removeprefix(f"{key}, ")).split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"{insert(table, names)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def json_text(value: Any) -> str:
    return orjson.dumps(value).decode()

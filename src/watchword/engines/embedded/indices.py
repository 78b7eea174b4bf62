"""Indices and aliases: a name is the one or the other, never both, and an alias leads to one index.

Every function runs inside the caller's transaction, so that what it found is so when it changes something.
"""

from typing import NamedTuple

import apsw

from watchword.domain.errors import Fault, Reason
from watchword.domain.indices import IndexSize, Resolved
from watchword.engines.embedded.file import refusal


class Index(NamedTuple):
    number: int
    name: str
    uuid: str
    blocked: bool
    rows: int
    bytes: int
    last: int


_COLUMNS = "number, name, uuid, blocked, rows, bytes, last"


def find(connection: apsw.Connection, name: str) -> Index | None:
    """By its own name, never by an alias."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM indices WHERE name = ?", (name,)).fetchone()  # noqa: S608 - literal
    return None if row is None else Index(*row)


def named(connection: apsw.Connection, name: str) -> Index:
    index = find(connection, name)
    if index is None:
        _refuse_alias(connection, name)
        raise refusal(f"There is no index {name}.")
    return index


def writable(connection: apsw.Connection, name: str) -> Index:
    index = named(connection, name)
    if index.blocked:
        sentence = f"Writes to the index {name} are held back for a moment. Try again."
        raise Fault(Reason.INDEX_BLOCKED, sentence, why=sentence)
    return index


def resolve(connection: apsw.Connection, name: str) -> Resolved | None:
    row = connection.execute(
        """SELECT name, uuid, 0 FROM indices WHERE name = :name UNION ALL
           SELECT i.name, i.uuid, 1 FROM aliases a JOIN indices i ON i.number = a.index_number WHERE a.name = :name""",
        {"name": name},
    ).fetchone()
    return None if row is None else Resolved(row[0], row[1], bool(row[2]))


def sizes(connection: apsw.Connection, head: str, ending: str) -> tuple[IndexSize, ...]:
    def fits(name: str) -> bool:
        return len(name) >= len(head) + len(ending) and name.startswith(head) and name.endswith(ending)

    by_alias = connection.execute("SELECT index_number, name FROM aliases ORDER BY name DESC")
    aliases = {number: name for number, name in by_alias if fits(name)}  # the first of several
    found = [
        IndexSize(shown, size, rows)
        for number, name, rows, size in connection.execute(
            "SELECT number, name, rows, bytes FROM indices WHERE name IS NOT NULL"
        )
        if fits(shown := aliases.get(number, name))
    ]
    return tuple(sorted(found, key=lambda size: size.name))


def make(connection: apsw.Connection, name: str, uuid: str) -> None:
    _refuse_alias(connection, name)
    connection.execute("INSERT INTO indices (name, uuid) VALUES (?, ?)", (name, uuid))


def block(connection: apsw.Connection, name: str, *, on: bool) -> None:
    connection.execute("UPDATE indices SET blocked = ? WHERE number = ?", (on, named(connection, name).number))


def drop(connection: apsw.Connection, name: str) -> None:
    index = find(connection, name)
    if index is None:
        _refuse_alias(connection, name)
        return
    connection.execute("DELETE FROM aliases WHERE index_number = ?", (index.number,))
    connection.execute("UPDATE indices SET name = NULL WHERE number = ?", (index.number,))


def swap(connection: apsw.Connection, name: str, source: str, target: str) -> Index:
    """Returns the target."""
    old, new = named(connection, source), named(connection, target)
    if old.number == new.number or name == target:
        raise refusal(f"{name} can lead from one index to another alone, and {target} is the same.")
    if new.blocked:
        raise refusal(f"{target} takes no writes, or was withdrawn.")
    held = connection.execute("SELECT index_number FROM aliases WHERE name = ?", (name,)).get
    if held not in (None, old.number, new.number) or (name != source and find(connection, name) is not None):
        raise refusal(f"{name} does not lead to the index {source}.")
    connection.execute("UPDATE aliases SET index_number = ? WHERE index_number = ?", (new.number, old.number))
    if name == source:
        drop(connection, source)
    connection.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?)", (name, new.number))
    return new


def withdraw(connection: apsw.Connection, target: str) -> bool:
    """By a block of its own, which a swap minds."""
    index = find(connection, target)
    if index is None:
        return True
    if connection.execute("SELECT 1 FROM aliases WHERE index_number = ?", (index.number,)).get is not None:
        return False
    block(connection, target, on=True)
    return True


def _refuse_alias(connection: apsw.Connection, name: str) -> None:
    if connection.execute("SELECT 1 FROM aliases WHERE name = ?", (name,)).get is not None:
        raise refusal(f"{name} is an alias; name the index that it leads to.")

"""Migrations: numbered SQL files, each applied once, in order, whole or not at all."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    folder = files("watchword.stores") / "sql" / dialect
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(Migration(int(name[:4]), name[5:-4], (folder / name).read_text(encoding="utf-8")) for name in found)


def latest(dialect: str) -> int:
    return migrations(dialect)[-1].number

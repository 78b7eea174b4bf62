"""Time series in a server's index: rows of known ages, put there by the command that users have."""

import itertools
import json
import time
from collections.abc import Iterable

from tests.support.server import Server

DAY = 86_400_000
_numbers = itertools.count()


def new_aspect() -> str:
    """An aspect that no other test of this process uses."""
    return f"series{next(_numbers)}"


def now() -> int:
    return time.time_ns() // 1_000_000


def lines(ages: Iterable[float]) -> str:
    """A row for each age in days."""
    moment = now()
    return "".join(
        json.dumps({"_id": str(number), "timestampMillis": moment - int(age * DAY), "n": number}) + "\n"
        for number, age in enumerate(ages)
    )


def fill(server: Server, aspect: str, *, old: int, young: int) -> str:
    """An index of `dataset` with so many rows of forty days and of one day; returns its name."""
    rows = lines([40.0] * old + [1.0] * young)
    ran = server.command_line("index", "load", f"dataset.{aspect}", "-", stdin=rows)
    assert ran.returncode == 0, ran.stderr
    return f"dataset_{aspect}aspect_v1"


def rows_of(server: Server, index: str) -> int:
    found = server.ask("{ indexSizes { indexName rows } }", actor="urn:li:corpuser:admin")["indexSizes"]
    rows: int = {one["indexName"]: one["rows"] for one in found}[index]
    return rows

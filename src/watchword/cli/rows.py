"""Rows for an index from lines of JSON: each is checked before it is taken, and no line is read that has no end."""

import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from watchword.cli.text import one_line
from watchword.domain.indices import TIME, Row

LONGEST_LINE = 1024 * 1024
LONGEST_ID = 512


class BadLine(Exception):
    """A line that is no row: its number and what is wrong with it."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(problem)
        self.number = number
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Read:
    """A row, how far into the input it ends, and whether a truncation can ever find it old."""

    row: Row
    end: int
    timed: bool


def read_rows(lines: BinaryIO) -> Iterator[Read]:
    number, end = 0, 0
    while line := _next(lines, number + 1):
        number += 1
        end += len(line)
        content = (line.removeprefix(BOM_UTF8) if number == 1 else line).strip()
        if len(line.rstrip(b"\r\n")) > LONGEST_LINE:
            raise BadLine(number, f"it has more than {LONGEST_LINE:,} bytes")
        if content:
            row, timed = _row(content, number)
            yield Read(row, end, timed)


def _next(lines: BinaryIO, number: int) -> bytes:
    try:
        return lines.readline(LONGEST_LINE + 2)
    except OSError as error:
        raise BadLine(number, f"it cannot be read ({error.strerror})") from None


def _row(line: bytes, number: int) -> tuple[Row, bool]:
    try:
        content = _decoder.decode(line.decode())
    except UnicodeDecodeError:
        raise BadLine(number, "it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise BadLine(number, f"it is not JSON: {error.msg}, at character {error.pos + 1}") from None
    except ValueError as error:
        raise BadLine(number, str(error)) from None
    except RecursionError:
        raise BadLine(number, "it is nested too deeply") from None
    if not isinstance(content, dict):
        raise BadLine(number, "it is not a JSON object")
    at = content.get(TIME)
    timed = isinstance(at, int | float) and not isinstance(at, bool)
    if "_id" not in content:
        return Row(line, hashlib.sha256(line).hexdigest()), timed
    row_id = content.pop("_id")
    if not isinstance(row_id, str) or not 1 <= len(row_id.encode("utf-8", "replace")) <= LONGEST_ID or _broken(row_id):
        raise BadLine(number, f"its _id must be a string of 1 to {LONGEST_ID} bytes")
    return Row(json.dumps(content, separators=(",", ":")).encode(), row_id), timed


def _broken(text: str) -> bool:
    """Half of a character that is written as two."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has the member {one_line(twice[:80])!r} twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("it has a number that is too large")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_number, parse_float=_finite)

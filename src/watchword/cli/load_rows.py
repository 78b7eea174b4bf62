"""Rows for `watchword index load`: from lines of JSON, or as samples."""

import hashlib
import json
import random
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import count
from typing import Any, BinaryIO

from watchword.index.indices import TIME, Aspect, Row

MAX_LINE_BYTES = 1024 * 1024
MAX_ID_BYTES = 512


class InvalidLine(Exception):
    """The number of a line, and what is wrong with it."""


def read_rows(lines: BinaryIO) -> Iterator[tuple[Row, bool, int]]:
    """Each row, whether it has a time that a truncation can compare, and where its line ends in the input."""
    end = 0
    for number in count(1):
        try:
            line = lines.readline(MAX_LINE_BYTES + 2)
            end += len(line)
            found = _row(line.removeprefix(BOM_UTF8) if number == 1 else line)
        except OSError as error:
            raise InvalidLine(f"line {number}: it cannot be read ({error.strerror})") from None
        except ValueError as error:
            raise InvalidLine(f"line {number}: {error}") from None
        if found is not None:
            yield *found, end
        elif not line:
            return


def _row(line: bytes) -> tuple[Row, bool] | None:
    """The row and whether it has a time; None for an empty line."""
    if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
        raise ValueError(f"it has more than {MAX_LINE_BYTES:,} bytes")
    if not (line := line.strip()):
        return None
    try:
        content = _decoder.decode(line.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - of the input, not of the program
    at = content.get(TIME)
    timed = isinstance(at, int | float) and not isinstance(at, bool)
    if "_id" not in content:
        return Row(line, hashlib.sha256(line).hexdigest()), timed
    row_id = content.pop("_id")
    # Without lone surrogates, which have no UTF-8.
    encoded = row_id.encode("utf-8", "ignore") if isinstance(row_id, str) else b""
    if not 1 <= len(encoded) <= MAX_ID_BYTES or encoded.decode() != row_id:
        raise ValueError(f"its _id must be a string of 1 to {MAX_ID_BYTES} bytes")
    return Row(json.dumps(content, separators=(",", ":")).encode(), row_id), timed


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has the member {twice[:80]!r} twice")
    return found


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("it has a number that is too large")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_no_repeats, parse_constant=_reject_constant, parse_float=_finite)


# Sample rows: the same row for the same aspect and time, whenever they are created. Times are on a grid that reaches
# back ninety days, so creating samples again later only moves its end.

WINDOW = 90 * 86_400_000
_THINGS = ("orders", "payments", "customers", "stock", "visits", "refunds", "prices", "shipments")
_PEOPLE = ("alice", "bob", "carol", "dave", "erin", "frank", "grace")
_OPERATIONS = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER")


def sample_rows(aspect: Aspect, rows: int, now: int) -> Iterator[Row]:
    step = WINDOW // rows
    last = now // step
    for tick in range(last - rows + 1, last + 1):
        at = tick * step
        chance = random.Random(f"{aspect}@{at}")  # noqa: S311 - sample data, not a secret
        content = {
            TIME: at,
            "@timestamp": at,
            "urn": _sample_urn(aspect, chance),
            **_sample_members(aspect, at, chance),
        }
        yield Row(json.dumps(content, separators=(",", ":")).encode(), f"demo-{at}")


def _sample_urn(aspect: Aspect, chance: random.Random) -> str:
    thing = f"{chance.choice(_THINGS)}_{chance.randrange(1, 13):02}"
    if aspect.entity.lower() == "dataset":
        return f"urn:li:dataset:(urn:li:dataPlatform:hive,demo.{thing},PROD)"
    return f"urn:li:{aspect.entity}:(demo,{thing})"


def _sample_members(aspect: Aspect, at: int, chance: random.Random) -> dict[str, object]:
    who = f"urn:li:corpuser:{chance.choice(_PEOPLE)}"
    if aspect.name.lower() == "operation":
        return {
            "actor": who,
            "operationType": chance.choice(_OPERATIONS),
            "numAffectedRows": chance.randrange(1, 100_000),
            "lastUpdatedTimestamp": at - chance.randrange(60_000),
        }
    return {
        "eventGranularity": '{"unit":"DAY","multiple":1}',
        "uniqueUserCount": chance.randrange(1, len(_PEOPLE) + 1),
        "totalSqlQueries" if aspect.entity.lower() in ("dataset", "query") else "viewsCount": chance.randrange(1, 500),
        "topUser": who,
    }

"""`watchword index load`: write rows into the index that the settings name, from lines of JSON or as samples.

Every line is checked before its row is written. The first invalid line ends the load: rows before it are loaded, rows
after it are not. Loading the same file again changes nothing.
"""

import asyncio
import hashlib
import json
import os
import random
import stat
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from watchword.cli.local import Wiring, need_store
from watchword.cli.options import json_flag, with_settings
from watchword.cli.output import progress, say, say_json, warn
from watchword.cli.run import Command, WrongUse
from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.indices import TIME, Aspect, Row, check_word
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.domain.engine import Engine

BATCH_ROWS = 1_000
BATCH_BYTES = 4 * 1024 * 1024
MAX_BLOCKED_SECONDS = 60.0
"""How long a truncation may block writes before the load gives up."""
BLOCKED_PAUSE = 0.2
DEMO_ROWS = 3_000
DEMO_SERIES = 5
MAX_DEMO_ROWS = 10_000_000
INDEX_FLAGS = (
    "data_dir", "index_url", "index_prefix", "index_ca_file", "index_verify_tls", "index_timeout", "known_aspects",
)  # fmt: skip


@click.command(cls=Command)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--entity", help="Entity of the rows, such as dataset.")
@click.option("--aspect", help="Aspect of the rows, such as operation.")
@click.option("--demo", is_flag=True, help="Create sample series of the first five known aspects over ninety days.")
@click.option("--rows", type=click.IntRange(1, MAX_DEMO_ROWS), help=f"Rows per sample series. [default: {DEMO_ROWS}]")
@json_flag
@with_settings(*INDEX_FLAGS)
@click.pass_obj
def load(
    wiring: Wiring,
    file: str | None,
    entity: str | None,
    aspect: str | None,
    demo: bool,
    rows: int | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Load rows into the index of an aspect from FILE, one JSON object a line; - is standard input.

    It works on the index itself, so run it where the index can be reached; it creates the index if needed. A member
    `_id` is the row's id and is not stored. Without it the id is computed from the line, so loading a file twice
    changes nothing. The first invalid line, or one over 1 MiB, ends the load: only rows before it are loaded.

    Example: watchword index load rows.ndjson --entity dataset --aspect operation
    Example: watchword index load --demo
    """
    if demo:
        if file is not None or entity is not None or aspect is not None:
            raise WrongUse("--demo creates its own rows: pass it without FILE, --entity and --aspect.")
        _load_demo(wiring, settings, rows or DEMO_ROWS, as_json=as_json)
        return
    if file is None or entity is None or aspect is None:
        raise WrongUse("Pass FILE (or -), --entity and --aspect; or --demo for sample series.")
    if rows is not None:
        raise WrongUse("--rows needs --demo.")
    try:
        series = Aspect(check_word(entity, "--entity"), check_word(aspect, "--aspect"))
    except Fault as fault:
        raise WrongUse(fault.message) from None
    _load_file(wiring, settings, file, series, as_json=as_json)


class Loader:
    """Writes rows to one index in batches. Lines are read outside the event loop, where Ctrl-C interrupts reading."""

    def __init__(self, runner: asyncio.Runner, engine: "Engine", name: str) -> None:
        self.name = name
        self.loaded = 0
        self._runner = runner
        self._engine = engine
        self._batch: list[Row] = []
        self._bytes = 0

    def add(self, row: Row) -> bool:
        """Whether it completed a batch, which was written."""
        self._batch.append(row)
        self._bytes += len(row.source)
        if len(self._batch) < BATCH_ROWS and self._bytes < BATCH_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        if self._batch:
            self._runner.run(self._write())
            self.loaded += len(self._batch)
            self._batch, self._bytes = [], 0

    async def _write(self) -> None:
        if not self.loaded:
            await self._engine.make(self.name)
        deadline = time.monotonic() + MAX_BLOCKED_SECONDS
        while True:
            try:
                # By alias: a truncation may swap the index behind it at any time.
                return await self._engine.write(self.name, self._batch)
            except Fault as fault:
                if fault.reason is not Reason.INDEX_BLOCKED or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(BLOCKED_PAUSE)

    def total(self) -> int:
        """How many rows the index has."""

        async def count() -> int:
            found = await self._engine.resolve(self.name)
            return 0 if found is None else (await self._engine.count(found.concrete, 0)).total

        return self._runner.run(count())


@contextmanager
def _opened(wiring: Wiring, settings: Settings) -> Iterator[Callable[[str], Loader]]:
    """Yields what makes a loader for the index of this name."""
    if settings.index_url is None:
        need_store(wiring, settings)

    async def open_it() -> "Engine":
        return wiring.open_index(settings)

    with asyncio.Runner() as runner:
        engine = runner.run(open_it())
        try:
            yield partial(Loader, runner, engine)
        finally:
            runner.run(engine.close())


def _load_file(wiring: Wiring, settings: Settings, file: str, aspect: Aspect, *, as_json: bool) -> None:
    names = settings.index_names
    source = "standard input" if file == "-" else file
    untimed = 0
    with ExitStack() as opened:
        # The name is opened as it was given.
        lines = sys.stdin.buffer if file == "-" else opened.enter_context(open(file, "rb"))  # noqa: PTH123
        seen = os.fstat(lines.fileno())
        loader = opened.enter_context(_opened(wiring, settings))(names.index_of(names.written(aspect)))
        size = seen.st_size if stat.S_ISREG(seen.st_mode) else None
        with _reporting(loader, source), _row_progress(size) as update:
            try:
                for row, timed, end in read_rows(lines):
                    untimed += not timed
                    if loader.add(row):
                        update(loader.loaded, end)
            except InvalidLine as bad:
                loader.flush()
                raise OperatorError(
                    f"{source}, {bad}. {loader.loaded:,} rows before it were loaded, and nothing after it. "
                    "Correct it and load the file again; rows already loaded do not change."
                ) from None
            loader.flush()
        if as_json:
            rows = loader.total() if loader.loaded else 0
            say_json({"index": loader.name, "loaded": loader.loaded, "withoutTime": untimed, "rows": rows})
            return
        if not loader.loaded:
            say(f"{source} has no rows. Nothing was loaded.")
            return
        total = loader.total()
    say(f"Loaded {loader.loaded:,} rows into {loader.name}, which now has {total:,}.")
    if untimed:
        say(f"{untimed:,} of them have no numeric timestampMillis, so no truncation ever deletes them.")
    say("To see the indices: watchword index sizes")


def _load_demo(wiring: Wiring, settings: Settings, rows: int, *, as_json: bool) -> None:
    names, aspects, now = settings.index_names, settings.known_aspects[:DEMO_SERIES], time.time_ns() // 1_000_000
    if not aspects:
        raise OperatorError("WATCHWORD_KNOWN_ASPECTS names no aspect to create samples for. Unset it.")
    totals: dict[str, int] = {}
    with _opened(wiring, settings) as open_loader, _row_progress(rows * len(aspects)) as update:
        for aspect in aspects:
            loader, before = open_loader(names.index_of(aspect)), rows * len(totals)
            with _reporting(loader, "the sample series"):
                for row in sample_rows(aspect, rows, now):
                    if loader.add(row):
                        update(before + loader.loaded, before + loader.loaded)
                loader.flush()
                totals[loader.name] = loader.total()
    if as_json:
        say_json([{"index": name, "loaded": rows, "rows": total} for name, total in totals.items()])
        return
    width = max(map(len, totals))
    for name, total in totals.items():
        say(f"{name:<{width}}  {total:,} rows")
    say(f"Created sample series of {rows:,} rows each over the last ninety days.")
    first = aspects[0]
    command = f"watchword index truncate {first.entity} {first.name} --older-than 30d --dry-run"
    say(f"With the service running, try: {command} --as {settings.root_actor}")


@contextmanager
def _reporting(loader: Loader, source: str) -> Iterator[None]:
    """Report how many rows were loaded when the load fails or is interrupted."""
    again = "Load it again; rows already loaded do not change."
    try:
        yield
    except KeyboardInterrupt:
        warn(f"{loader.loaded:,} rows were loaded into {loader.name}. {again}")
        raise
    except Fault as fault:
        cause = f" {fault.cause[:500].rstrip('.')}." if fault.cause else ""
        raise OperatorError(
            f"{fault.message}{cause} At least {loader.loaded:,} rows of {source} are in {loader.name}. {again}"
        ) from fault


@contextmanager
def _row_progress(total: int | None) -> Iterator[Callable[[int, int], None]]:
    """Called with the rows loaded and how much of the total they are."""
    began = time.monotonic()
    with progress() as update:

        def show(rows: int, done: int) -> None:
            rate = rows / max(time.monotonic() - began, 0.001)
            update(f"{rows:,} rows, {rate:,.0f} rows/s", done, total)

        yield show


# Rows from lines of JSON.

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

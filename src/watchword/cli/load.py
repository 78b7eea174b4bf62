"""`watchword index load`: write rows into the index that the settings name, from lines of JSON or as samples.

Every line is checked before its row is written. The first invalid line ends the load: rows before it are loaded, rows
after it are not. Loading the same file again changes nothing.
"""

import asyncio
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.cli import output as out
from watchword.cli.load_rows import InvalidLine, read_rows, sample_rows
from watchword.cli.local import need_store, wiring
from watchword.cli.options import format_flags, series, with_settings
from watchword.cli.run import Command, WrongUse
from watchword.index.indices import Aspect, Row
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.index.engine import Engine

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
@click.argument("series", metavar="[ENTITY.ASPECT]", type=series, required=False)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--demo", is_flag=True, help="Create sample series of the first five known aspects over ninety days.")
@click.option("--rows", type=click.IntRange(1, MAX_DEMO_ROWS), help=f"Rows per sample series. [default: {DEMO_ROWS}]")
@format_flags
@with_settings(*INDEX_FLAGS)
def load(series: Aspect | None, file: str | None, demo: bool, rows: int | None, settings: Settings) -> None:
    """It works on the index itself, so run it where the index can be reached; it creates the index if needed. A member
    `_id` is the row's id and is not stored. Without it the id is computed from the line, so loading a file twice
    changes nothing. The first invalid line, or one over 1 MiB, ends the load: only rows before it are loaded.

    Example: watchword index load dataset.operation rows.ndjson
    Example: watchword index load --demo
    """
    if demo:
        if series is not None:
            raise WrongUse("--demo creates its own rows: pass it without ENTITY.ASPECT and FILE.")
        _load_demo(settings, rows or DEMO_ROWS)
        return
    if series is None or file is None:
        raise WrongUse("Pass ENTITY.ASPECT and FILE (or -), or --demo for sample series.")
    if rows is not None:
        raise WrongUse("--rows needs --demo.")
    _load_file(settings, file, series)


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
def _opened(settings: Settings) -> Iterator[Callable[[str], Loader]]:
    """Yields what makes a loader for the index of this name."""
    if settings.index_url is None:
        need_store(settings)

    async def open_it() -> "Engine":
        return wiring.open_index(settings)

    with asyncio.Runner() as runner:
        engine = runner.run(open_it())
        try:
            yield partial(Loader, runner, engine)
        finally:
            runner.run(engine.close())


def _load_file(settings: Settings, file: str, aspect: Aspect) -> None:
    names = settings.index_names
    source = "standard input" if file == "-" else file
    untimed = 0
    with ExitStack() as opened:
        # The name is opened as it was given.
        lines = sys.stdin.buffer if file == "-" else opened.enter_context(open(file, "rb"))  # noqa: PTH123
        seen = os.fstat(lines.fileno())
        loader = opened.enter_context(_opened(settings))(names.index_of(names.written(aspect)))
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
        total = loader.total() if loader.loaded else 0
        out.say_data({"index": loader.name, "loaded": loader.loaded, "withoutTime": untimed, "rows": total})
        if not loader.loaded:
            out.say(f"{source} has no rows. Nothing was loaded.")
            return
    out.say(f"Loaded {loader.loaded:,} rows into {loader.name}, which now has {total:,}.")
    if untimed:
        out.say(f"{untimed:,} of them have no numeric timestampMillis, so no truncation ever deletes them.")
    out.say("To see the indices: watchword index sizes")


def _load_demo(settings: Settings, rows: int) -> None:
    names, aspects, now = settings.index_names, settings.known_aspects[:DEMO_SERIES], time.time_ns() // 1_000_000
    if not aspects:
        raise OperatorError("WATCHWORD_KNOWN_ASPECTS names no aspect to create samples for. Unset it.")
    totals: dict[str, int] = {}
    with _opened(settings) as open_loader, _row_progress(rows * len(aspects)) as update:
        for aspect in aspects:
            loader, before = open_loader(names.index_of(aspect)), rows * len(totals)
            with _reporting(loader, "the sample series"):
                for row in sample_rows(aspect, rows, now):
                    if loader.add(row):
                        update(before + loader.loaded, before + loader.loaded)
                loader.flush()
                totals[loader.name] = loader.total()
    out.say_data([{"index": name, "loaded": rows, "rows": total} for name, total in totals.items()])
    width = max(map(len, totals))
    for name, total in totals.items():
        out.say(f"{name:<{width}}  {total:,} rows")
    out.say(f"Created sample series of {rows:,} rows each over the last ninety days.")
    first = aspects[0]
    command = f"watchword index truncate {first} --older-than 30d --dry-run"
    out.say(f"With the service running, try: {command} --as {settings.root_actor}")


@contextmanager
def _reporting(loader: Loader, source: str) -> Iterator[None]:
    """Report how many rows were loaded when the load fails or is interrupted."""
    again = "Load it again; rows already loaded do not change."
    try:
        yield
    except KeyboardInterrupt:
        out.warn(f"{loader.loaded:,} rows were loaded into {loader.name}. {again}")
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
    with out.progress() as update:

        def show(rows: int, done: int) -> None:
            rate = rows / max(time.monotonic() - began, 0.001)
            update(f"{rows:,} rows, {rate:,.0f} rows/s", done, total)

        yield show

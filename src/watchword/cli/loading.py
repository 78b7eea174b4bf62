"""`watchword index load`: rows into the index that the settings name, on a machine that can reach it.

What cannot be taken ends it: everything before is in the index, nothing after. To load the same again changes nothing.
"""

import asyncio
import os
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

import click

from watchword.cli.backstage import Backstage
from watchword.cli.common import need_store, with_settings
from watchword.cli.rows import BadLine, read_rows
from watchword.cli.samples import sample_rows
from watchword.cli.show import console, say
from watchword.cli.streams import WrongUse
from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.domain.indices import Aspect, Row, check_word
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.domain.engine import Engine

T = TypeVar("T")
BATCH_ROWS = 1_000
BATCH_BYTES = 4 * 1024 * 1024
HELD_BACK_SECONDS = 60.0
"""How long a truncation may hold writes back before the load gives up."""
HELD_BACK_PAUSE = 0.2
DEMO_ROWS = 3_000
MOST_DEMO_ROWS = 10_000_000
INDEX_FLAGS = (
    "data_dir", "index_url", "index_prefix", "index_ca_file", "index_verify_tls", "index_timeout", "known_aspects",
)  # fmt: skip


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--entity", default=None, help="The entity whose aspect the rows are of, such as dataset.")
@click.option("--aspect", default=None, help="The aspect they are of, such as operation.")
@click.option(
    "--demo", is_flag=True, help="Make sample series of each known aspect over ninety days, to try things on."
)
@click.option(
    "--rows", type=click.IntRange(1, MOST_DEMO_ROWS), default=None, help=f"Rows of each series. [default: {DEMO_ROWS}]"
)
@with_settings(*INDEX_FLAGS)
@click.pass_obj
def load(
    backstage: Backstage,
    file: str | None,
    entity: str | None,
    aspect: str | None,
    demo: bool,
    rows: int | None,
    settings: Settings,
) -> None:
    """Put rows into the index of an aspect, from a FILE with a JSON object a line; - is standard input.

    It works on the index itself, on the server's machine or wherever the index can be reached, and makes it where there
    is none. A member `_id` is the row's id, and is not stored with it. Otherwise the id is made from the line, so that
    the same line is the same row: loading a file twice changes nothing. A line that is no row (or has more than 1 MiB)
    ends it: what stands before is loaded, what comes after is not.

    \b
    Example: watchword index load rows.ndjson --entity dataset --aspect operation
    Example: watchword index load --demo
    """
    if demo:
        if file is not None or entity is not None or aspect is not None:
            raise WrongUse("--demo makes rows of its own: give it without FILE, --entity and --aspect.")
        _load_demo(backstage, settings, rows or DEMO_ROWS)
        return
    if file is None or entity is None or aspect is None:
        raise WrongUse("Give FILE (or -), --entity and --aspect; or --demo for sample series.")
    if rows is not None:
        raise WrongUse("--rows goes with --demo.")
    _load_file(backstage, settings, file, Aspect(_word(entity, "--entity"), _word(aspect, "--aspect")))


def _word(value: str, flag: str) -> str:
    try:
        return check_word(value, flag)
    except Fault as fault:
        raise WrongUse(fault.message) from None


class Loader:
    """Fills one index, batch by batch."""

    def __init__(self, index: "OpenIndex", name: str) -> None:
        self.name = name
        self.loaded = 0
        self._index = index
        self._batch: list[Row] = []
        self._bytes = 0

    def add(self, row: Row) -> bool:
        """Whether a batch went in with it."""
        self._batch.append(row)
        self._bytes += len(row.source)
        if len(self._batch) < BATCH_ROWS and self._bytes < BATCH_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        if self._batch:
            self._index.run(self._write())
            self.loaded += len(self._batch)
            self._batch, self._bytes = [], 0

    async def _write(self) -> None:
        engine = self._index.engine
        if not self.loaded:
            await engine.make(self.name)
        held_back_until = time.monotonic() + HELD_BACK_SECONDS
        while True:
            try:
                # By name: a truncation may put another index behind it at any time.
                return await engine.write(self.name, self._batch)
            except Fault as fault:
                if fault.reason is not Reason.INDEX_BLOCKED or time.monotonic() > held_back_until:
                    raise
            await asyncio.sleep(HELD_BACK_PAUSE)

    def total(self) -> int:
        """How many rows the index has now."""

        async def count() -> int:
            found = await self._index.engine.resolve(self.name)
            return 0 if found is None else (await self._index.engine.count(found.concrete, 0)).total

        return self._index.run(count())


class OpenIndex:
    def __init__(self, engine: "Engine", run: "Runs") -> None:
        self.engine = engine
        self.run = run


class Runs(Protocol):
    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


@contextmanager
def _opened(backstage: Backstage, settings: Settings) -> Iterator[OpenIndex]:
    """Lines are read outside of the event loop, where Ctrl-C ends the waiting for one."""
    if settings.index_url is None:
        need_store(backstage, settings)

    async def open_it() -> "Engine":
        return backstage.open_index(settings)

    with asyncio.Runner() as runner:
        engine = runner.run(open_it())
        try:
            yield OpenIndex(engine, runner.run)
        finally:
            runner.run(engine.close())


def _load_file(backstage: Backstage, settings: Settings, file: str, aspect: Aspect) -> None:
    names = backstage.index_names(settings)
    source = "standard input" if file == "-" else file
    untimed = 0
    with _lines(file) as lines, _opened(backstage, settings) as index:
        loader = Loader(index, names.index_of(names.written(aspect)))
        with _telling(loader, source), _progress(_size(lines)) as told:
            try:
                for read in read_rows(lines):
                    untimed += not read.timed
                    if loader.add(read.row):
                        told(loader.loaded, read.end)
            except BadLine as bad:
                loader.flush()
                raise OperatorError(
                    f"{source}, line {bad.number}: {bad.problem}. {loader.loaded:,} rows before it were loaded, and "
                    "nothing after it. Correct it and load the file again: what is there already stays as it is."
                ) from None
            loader.flush()
        if not loader.loaded:
            say(f"There are no rows in {source}: nothing was loaded.")
            return
        total = loader.total()
    say(f"Loaded {loader.loaded:,} rows into {loader.name}, which has {total:,} now.")
    if untimed:
        say(f"{untimed:,} of them have no number as timestampMillis: no truncation will ever remove those.")
    say("See what is there: watchword index sizes")


def _load_demo(backstage: Backstage, settings: Settings, rows: int) -> None:
    names = backstage.index_names(settings)
    aspects, now, before = settings.known_aspects, time.time_ns() // 1_000_000, 0
    if not aspects:
        raise OperatorError("WATCHWORD_KNOWN_ASPECTS names no aspect to make samples of. Leave it unset.")
    made: list[tuple[str, int]] = []
    with _opened(backstage, settings) as index, _progress(rows * len(aspects)) as told:
        for aspect in aspects:
            loader = Loader(index, names.index_of(aspect))
            with _telling(loader, "the sample series"):
                for row in sample_rows(aspect, rows, now):
                    if loader.add(row):
                        told(before + loader.loaded, before + loader.loaded)
                loader.flush()
                made.append((loader.name, loader.total()))
            before += loader.loaded
    width = max(len(name) for name, _ in made)
    for name, total in made:
        say(f"{name:<{width}}  {total:,} rows")
    say(f"Made sample series over ninety days: {rows:,} rows each, up to now.")
    first = aspects[0]
    command = f"watchword index truncate {first.entity} {first.name} --older-than 30d --dry-run"
    say(f"With the service running, try: {command} --as {settings.root_actor}")


@contextmanager
def _telling(loader: Loader, source: str) -> Iterator[None]:
    """How far it came, when it does not come to its end."""
    again = "Load it again: what is there already stays as it is."
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"watchword: {loader.loaded:,} rows were loaded into {loader.name}. {again}\n")
        raise
    except Fault as fault:
        why = f" {fault.why[:500].rstrip('.')}." if fault.why else ""
        raise OperatorError(
            f"{fault.message}{why} At least {loader.loaded:,} rows of {source} are in {loader.name}. {again}"
        ) from fault


@contextmanager
def _lines(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
    else:
        with open(file, "rb") as opened:  # noqa: PTH123 - a name as it was given
            yield opened


def _size(lines: BinaryIO) -> int | None:
    """How many bytes there are to read, where that can be known."""
    seen = os.fstat(lines.fileno())
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int, int], None]]:
    """On a terminal, how far it is and how fast; elsewhere nothing. It is told of rows and of how far that is."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[told]}", markup=False)
    drawn, began = console(stderr=True), time.monotonic()
    with Progress(*columns, console=drawn, transient=True, disable=not drawn.is_terminal) as shown:
        task = shown.add_task("", total=total, told="")

        def told(rows: int, far: int) -> None:
            rate = rows / max(time.monotonic() - began, 0.001)
            shown.update(task, completed=far, told=f"{rows:,} rows, {rate:,.0f} rows/s")

        yield told

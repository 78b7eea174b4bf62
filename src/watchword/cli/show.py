"""What commands print.

On a terminal: tables fitted to its width, with times as people say them. In a pipe: aligned columns, whole, without
colour, with times as ISO 8601. As JSON: GraphQL's names, ISO times, the same wherever it goes.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from io import TextIOWrapper
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from watchword.cli.text import as_json, one_line
from watchword.domain.lifetimes import iso as moment_iso

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

T = TypeVar("T")
NOTHING = "-"
GAP, LEAST_FREE = 2, 8
_UNITS = (("year", 365 * 86_400), ("month", 30 * 86_400), ("day", 86_400), ("hour", 3_600), ("minute", 60))
_STYLES = {
    **dict.fromkeys(("ACTIVE", "DONE"), "green"),
    **dict.fromkeys(("EXPIRED", "INACTIVE", "CANCELLED"), "yellow"),
    **dict.fromkeys(("REVOKED", "SUSPENDED", "FAILED"), "red"),
}


@dataclass(frozen=True, slots=True)
class When:
    """A moment in milliseconds; `absent` is said where there is none."""

    at: int | None
    absent: str = NOTHING

    @property
    def iso(self) -> str:
        return self.absent if self.at is None else iso(self.at)

    @property
    def human(self) -> str:
        return self.absent if self.at is None else human(self.at - time.time_ns() // 1_000_000)


Cell = str | int | bool | None | When | Sequence[str]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """On a narrow terminal `free` is shortened; the rest is shown whole or not at all, for other commands take it.
    Where these take also what stands after a prefix, a table does without it, under another title: `terse` has both.
    """

    title: str
    value: Callable[[T], Cell]
    free: bool = False
    terse: tuple[str, str] | None = None

    @property
    def short(self) -> str:
        return self.title if self.terse is None else self.terse[0]

    def cell(self, row: T) -> "Text":
        value = self.value(row)
        if self.terse is not None and isinstance(value, str):
            value = value.removeprefix(self.terse[1])
        return _cell(value)


@overload
def iso(milliseconds: int) -> str: ...
@overload
def iso(milliseconds: int | None) -> str | None: ...
def iso(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else moment_iso(milliseconds)


def human(milliseconds: int) -> str:
    """How far away a moment is: `in 3 days`, `2 hours ago`."""
    seconds = abs(milliseconds) // 1000
    for unit, length in _UNITS:
        if seconds >= length:
            number = seconds // length
            span = f"{number} {unit}{'s' if number > 1 else ''}"
            return f"in {span}" if milliseconds > 0 else f"{span} ago"
    return "in a moment" if milliseconds > 0 else "just now"


def sized(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB" if size >= 100_000 else f"{size:,} bytes"


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> "Console":
    """For what is drawn. Text is taken as it is, and where no colour is wanted there is none, nor anything bold."""
    from rich.console import Console

    _escape_what_cannot_be_encoded()
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if made.no_color:
        return Console(stderr=stderr, highlight=False, markup=False, emoji=False, color_system=None)
    return made


def first(rows: Iterable[T], limit: int | None) -> Iterable[T]:
    """So many of them; all for None or 0."""
    return islice(rows, min(limit, sys.maxsize) if limit else None)


def show_list(rows: Iterable[T], columns: Sequence[Column[T]], *, json: bool, empty: str) -> None:
    """A listing, in the form that fits where it goes."""
    if json:
        _json_list(rows)
        return
    found = list(rows)
    if on_terminal():
        if found:
            _table(found, columns)
        else:
            say(empty)
        return
    lines = [[column.title for column in columns], *([_piped(c.value(row)) for c in columns] for row in found)]
    _aligned(lines)


def show_one(pairs: Mapping[str, Cell], record: Any, *, json: bool) -> None:
    """One thing: a line a property."""
    if json:
        say(as_json(named(record)))
        return
    terminal = on_terminal()
    width = max(map(len, pairs))
    for title, value in pairs.items():
        shown = _said(value) if terminal else _piped(value)
        say(f"{title:<{width}}  {shown}")


def say(line: str) -> None:
    """A line on standard output, whatever characters its encoding lacks."""
    _escape_what_cannot_be_encoded()
    sys.stdout.write(line + "\n")


@cache
def _escape_what_cannot_be_encoded() -> None:
    """Once, for it flushes."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def named(value: Any) -> Any:
    """A record as JSON has it: GraphQL's names, times as ISO 8601."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(f.name): _named_value(f.name, getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: named(one) for name, one in value.items()}
    return [named(one) for one in value] if isinstance(value, tuple | list) else value


def _named_value(name: str, value: Any) -> Any:
    return iso(value) if isinstance(value, int) and "at" in name.split("_") else named(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json_list(rows: Iterable[Any]) -> None:
    """As they come, one a line; nothing at all is printed if even the first cannot be had."""
    held: str | None = None
    for row in rows:
        if held is not None:
            say(held + ",")
        held = ("[" if held is None else "") + as_json(named(row))
    say("[]" if held is None else held + "]")


def _piped(value: Cell) -> str:
    if isinstance(value, When):
        return value.iso
    if value is None or value in ("", (), []):
        return NOTHING
    return one_line(str(value) if isinstance(value, str | int) else ",".join(value))


def _said(value: Cell) -> str:
    if isinstance(value, When):
        return value.human if value.at is None else f"{value.human} ({value.iso})"
    return _piped(value) if isinstance(value, str | int | None) else one_line(", ".join(value)) or NOTHING


def _aligned(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
        say("  ".join(cells).rstrip())


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _table(rows: Sequence[T], columns: Sequence[Column[T]]) -> None:
    from rich.table import Table
    from rich.text import Text

    drawn = console()
    lines = [[column.cell(row) for column in columns] for row in rows]
    widths = _widths(columns, lines, drawn.width)
    if not widths:
        _records(drawn, columns, lines)
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for index, width in widths.items():
        table.add_column(Text(columns[index].short), overflow="ellipsis", no_wrap=True, width=width)
    for line in lines:
        table.add_row(*(line[index] for index in widths))
    drawn.print(table)
    _tell_of_others([column.short for index, column in enumerate(columns) if index not in widths])


def _tell_of_others(titles: Sequence[str]) -> None:
    if titles and sys.stderr.isatty():
        sys.stdout.flush()
        sys.stderr.write(f"No room for {', '.join(titles)}: a wider terminal, a pipe or --json has all.\n")


def _widths(columns: Sequence[Column[T]], lines: "Sequence[Sequence[Text]]", room: int) -> dict[int, int]:
    """Which columns there is room for, and how wide each is to be; none where not even the first has room. A row takes
    one line. Columns stand in the order of what they tell, so that one has room before those after it.
    """
    widths: dict[int, int] = {}
    most: dict[int, int] = {}
    for index, column in enumerate(columns):
        widest = max(len(column.short), *(line[index].cell_len for line in lines))
        least = min(widest, max(LEAST_FREE, len(column.short))) if column.free else widest
        gap = GAP if widths else 0
        if gap + least > room:
            if not widths:
                return {}
            continue
        widths[index], most[index] = least, widest
        room -= gap + least
    while room and widths != most:  # a character at a time, to each that can use it
        index = min((i for i in widths if widths[i] < most[i]), key=lambda i: widths[i])
        widths[index] += 1
        room -= 1
    return widths


def _records(console: "Console", columns: Sequence[Column[T]], lines: "Sequence[Sequence[Text]]") -> None:
    """A line a property, which the terminal breaks where it must: nothing is left out."""
    for number, line in enumerate(lines):
        if number:
            console.print()
        for column, cell in zip(columns, line, strict=True):
            console.print(f"{column.short}: ", cell, sep="", soft_wrap=True)


def _cell(value: Cell) -> "Text":
    from rich.text import Text

    said = value.human if isinstance(value, When) else _said(value)
    return Text(said, style=_STYLES.get(str(value), ""))

"""Print what commands found.

On a terminal: tables fitted to its width, with relative times. In a pipe: complete aligned columns without colour, with
ISO 8601 times. As JSON, YAML or CSV: GraphQL's names and ISO times. Text from elsewhere is escaped, so that it cannot
act on the terminal, nor in CSV on a spreadsheet.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from watchword.basics.names import ACTING, SHOWN_TOKEN
from watchword.basics.times import iso as iso_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NOTHING = "-"
GAP, MIN_SHORTENED = 2, 8
# Control characters, line separators, marks that turn the direction of writing, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNITS = (("year", 365 * 86_400), ("month", 30 * 86_400), ("day", 86_400), ("hour", 3_600), ("minute", 60))
# A spreadsheet takes a cell that begins with one of these signs for a formula, some of them after blanks, quotes and in
# full width. Where its separator is another than ours, a cell may begin within a text.
_FORMULA = re.compile(r'(?:^|(?<=[;,\t\r\n]))(?=(?:[^\S\t\r\n]|")*[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r\n])')
_TOKEN_ID = re.compile(r"[A-Za-z0-9+/]{43}=")  # may begin with a plus, and is no formula
_BARS = "▁▂▃▄▅▆▇█"
_STYLES = {
    **dict.fromkeys(("ACTIVE", "DONE"), "green"),
    **dict.fromkeys(("EXPIRED", "INACTIVE", "CANCELLED"), "yellow"),
    **dict.fromkeys(("REVOKED", "SUSPENDED", "FAILED"), "red"),
}


def flag(name: str) -> Any:
    """The value of a flag that many commands have, by the name of its parameter; None where this one has it not."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"watchword.{name}")


def is_data() -> bool:
    """Whether the command is to print data for programs: JSON, YAML or CSV."""
    return flag("output") in {"json", "yaml", "csv"}


def one_line(text: str) -> str:
    """The text with every unsafe character shown as an escape."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def without_tokens(text: str) -> str:
    """A token typed in the wrong place must not end up in a log."""
    return SHOWN_TOKEN.sub("…", text)


def is_token(word: str) -> bool:
    return SHOWN_TOKEN.fullmatch(word) is not None and word.count(".") == 2


def json_text(value: Any) -> str:
    """JSON that is readable and harmless on a terminal."""
    import json

    return ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(json_value(value), ensure_ascii=False))


def json_value(value: Any) -> Any:
    """A record with GraphQL's names and ISO 8601 times."""
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_json_field(field, getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return {name: json_value(one) for name, one in value.items()}
    return [json_value(one) for one in value] if isinstance(value, tuple | list) else value


def _json_field(field: Field[Any], value: Any) -> tuple[str, Any]:
    from watchword.client.records import graphql_name

    name = graphql_name(field)
    if isinstance(value, timedelta):
        return name, value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return name, _millis(value) if name.endswith("Millis") else iso(value)
    return name, json_value(value)


@dataclass(frozen=True, slots=True)
class TimeCell:
    """A time; `absent` is printed where there is none."""

    at: datetime | int | None
    absent: str = NOTHING

    @property
    def iso(self) -> str:
        return self.absent if self.at is None else iso(self.at)

    @property
    def relative(self) -> str:
        return self.absent if self.at is None else relative(_millis(self.at) - time.time_ns() // 1_000_000)


Cell = str | int | bool | datetime | TimeCell | Sequence[str] | None
Reader = str | Callable[[Any], Cell]
"""The name of an attribute, or what computes a value."""


@dataclass(frozen=True, slots=True)
class Column:
    """`free` columns are shortened on a narrow terminal. The others hold what other commands take as input, so they are
    shown complete or not at all. `terse` is the title and the prefix to drop where commands accept the rest alone.
    `name` is what a terminal shows instead of the urn of an actor, where there is one and --urns is not given.
    """

    title: str
    value: Reader
    free: bool = False
    terse: tuple[str, str] | None = None
    name: Reader | None = None

    @property
    def short(self) -> str:
        return self.title if self.terse is None else self.terse[0]

    def cell(self, row: Any) -> "Text":
        from rich.text import Text

        name = None if self.name is None or flag("urns") else _read(self.name, row)
        value = name or _read(self.value, row)
        if self.terse is not None and isinstance(value, str):
            value = value.removeprefix(self.terse[1])
        shown = value.relative if isinstance(value, TimeCell) else _terminal_cell(value)
        return Text(shown, style=_STYLES.get(str(value), ""))


def _read(value: Reader, row: Any) -> Cell:
    found: Cell = attrgetter(value)(row) if isinstance(value, str) else value(row)
    return TimeCell(found) if isinstance(found, datetime) else found


def columns(*shown: str | Column) -> list[Column]:
    """Columns, written out or as words, such as `id, NAME=display_name*`: the attribute that a column shows, before it
    a title that is not its name, after it a star where it is free.
    """
    found: list[Column] = []
    for one in shown:
        titled = map(_titled, one.split(", ")) if isinstance(one, str) else ()
        found += [Column(title.upper(), name.rstrip("*"), free=name.endswith("*")) for title, name in titled]
        found += [one] if isinstance(one, Column) else []
    return found


def attributes(record: Any, shown: str) -> dict[str, Cell]:
    """Lines for `show_one`, as words such as `id, Name=display_name`."""
    return {title: attrgetter(name)(record) for title, name in map(_titled, shown.split(", "))}


def _titled(shown: str) -> tuple[str, str]:
    title, _, name = shown.rpartition("=")
    return title or ("URN" if name == "urn" else name.rstrip("*").replace("_", " ").capitalize()), name


def with_name(urn: str, name: str | None) -> str:
    """An actor, for one record: its urn, and its name if it has one."""
    return urn if name is None else f"{urn} ({name})"


def iso(when: datetime | int) -> str:
    return iso_time(_millis(when))


def _millis(when: datetime | int) -> int:
    return when if isinstance(when, int) else round(when.timestamp() * 1000)


def relative(milliseconds: int) -> str:
    """`in 3 days`, `2 hours ago`."""
    seconds = abs(milliseconds) // 1000
    for unit, length in _UNITS:
        if seconds >= length:
            span = plural(seconds // length, unit)
            return f"in {span}" if milliseconds > 0 else f"{span} ago"
    return "in a moment" if milliseconds > 0 else "just now"


def plural(count: int, noun: str) -> str:
    """`1 token`, `1,200 tokens`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sparkline(counts: Sequence[int]) -> str:
    """A bar for each count, and a dot for none."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-len(_BARS) * count // most) - 1] if count else "·" for count in counts)


def byte_size(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB" if size >= 100_000 else f"{size:,} bytes"


def on_terminal() -> bool:
    return sys.stdout.isatty()


def say(line: str) -> None:
    """Print one line on standard output, for people: nothing where data is wanted."""
    if not is_data():
        _print(line)


def say_data(value: Any) -> None:
    """Print a record, or a list of them, where data is wanted."""
    if flag("output") == "json":
        _print(json_text(value))
    elif isinstance(value, list | tuple):
        show_stream(value)
    elif flag("output") == "yaml":
        _print_yaml(value)
    elif value is not None:
        show_stream([value])


def show_stream(rows: Iterable[Any], line: Callable[[Any], str] | None = None) -> None:
    """Print records as they arrive: as JSON an object a line, as YAML items of a list, as CSV lines below a header. For
    people, print a line for each, where there is one.
    """
    names: list[str] | None = None
    for row in rows:
        match flag("output"):
            case "json":
                _print(json_text(row))
            case "yaml":
                _print_yaml([row])
            case "csv":
                record = json_value(row)
                if names is None:
                    names = list(record)
                    _print(_csv_line(names))
                _print(_csv_line([record.get(name) for name in names]))
            case _ if line is not None:
                _print(line(row))


def _print_yaml(value: Any) -> None:
    from watchword.declared.policy_file import yaml_text

    sys.stdout.write(yaml_text(json_value(value)))


def _csv_line(cells: Sequence[Any]) -> str:
    import csv
    import io

    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(_csv_cell, cells))
    return line.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None or isinstance(value, int | float):
        return "" if value is None else json_text(value)
    text = value if isinstance(value, str) else json_text(value)
    return text if _TOKEN_ID.fullmatch(text) else _FORMULA.sub("'", text)


def _print(line: str) -> None:
    sys.stdout.write(one_line(line) + "\n")


def show_result(sentence: str, record: Any) -> None:
    """Print what a command did: a sentence, or a record of it."""
    say(sentence)
    say_data(record)


def undone_by_file(group: str, set_name: str, fix: str) -> str:
    """What a policy file does to a change of the members of a group that it declares."""
    return (
        f"The policy set {set_name} declares {group}. "
        f"If its file lists the group's members, the next apply undoes this. {fix}"
    )


def warn(line: str) -> None:
    """Print one line on standard error, after what was printed before."""
    sys.stdout.flush()
    sys.stderr.write(f"watchword: {one_line(line)}\n")


def show_list(rows: Iterable[Any], columns: Sequence[Column], empty: str, *, own: bool = False) -> None:
    """Print a listing in the form that fits where it goes, up to --limit. If it is `own`, say so."""
    limit, rows = flag("limit"), iter(rows)
    shown = islice(rows, min(limit, sys.maxsize) if limit else None)
    if flag("output") == "json":
        _print_json_list(shown)
    elif is_data():
        show_stream(shown)
    else:
        show_table(list(shown), columns, empty)
    if limit and any(True for _ in rows):
        warn("There are more. To see all, pass --all.")
    if own:
        warn("Only yours. To see everyone's, pass --all-actors.")


def show_table(found: Sequence[Any], columns: Sequence[Column], empty: str = "") -> None:
    """Print rows, for people or for a pipe."""
    if is_data():
        return
    if not on_terminal():
        lines = [
            [column.title for column in columns],
            *([_pipe_cell(_read(c.value, row)) for c in columns] for row in found),
        ]
        _print_aligned(lines)
    elif found:
        _print_table(found, columns)
    else:
        say(empty)


def show_one(record: Any, pairs: Mapping[str, Cell]) -> None:
    """Print one record, a line for each property."""
    say_data(record)
    show_pairs(pairs)


def show_pairs(pairs: Mapping[str, Cell]) -> None:
    cell = _terminal_cell if on_terminal() else _pipe_cell
    width = max(map(len, pairs))
    for title, value in pairs.items():
        say(f"{title:<{width}}  {cell(value)}")


def _print_json_list(rows: Iterable[Any]) -> None:
    """One row a line, as they arrive; nothing is printed if the first cannot be fetched."""
    held: str | None = None
    for row in rows:
        if held is not None:
            _print(held + ",")
        held = ("[" if held is None else "") + json_text(row)
    _print("[]" if held is None else held + "]")


def _pipe_cell(value: Cell) -> str:
    if isinstance(value, TimeCell | datetime):
        return value.iso if isinstance(value, TimeCell) else iso(value)
    if value is None or value in ("", (), []):
        return NOTHING
    return one_line(str(value) if isinstance(value, str | int) else ",".join(value))


def _terminal_cell(value: Cell) -> str:
    if isinstance(value, datetime):
        value = TimeCell(value)
    if isinstance(value, TimeCell):
        return value.relative if value.at is None else f"{value.relative} ({value.iso})"
    return _pipe_cell(value) if isinstance(value, str | int | None) else one_line(", ".join(value)) or NOTHING


def _print_aligned(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
        say("  ".join(cells).rstrip())


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _print_table(rows: Sequence[Any], columns: Sequence[Column]) -> None:
    from rich.table import Table
    from rich.text import Text

    terminal = console()
    lines = [[column.cell(row) for column in columns] for row in rows]
    widths = _column_widths(columns, lines, terminal.width - GAP)  # rich pads the last column too
    if not widths:
        _print_records(terminal, columns, lines)
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for index, width in widths.items():
        table.add_column(Text(columns[index].short), overflow="ellipsis", no_wrap=True, width=width)
    for line in lines:
        table.add_row(*(line[index] for index in widths))
    terminal.print(table)
    hidden = [column.short for index, column in enumerate(columns) if index not in widths]
    if hidden and sys.stderr.isatty():
        sys.stdout.flush()
        sys.stderr.write(f"Hidden columns: {', '.join(hidden)}. Use a wider terminal or --json.\n")


def _column_widths(columns: Sequence[Column], lines: "Sequence[Sequence[Text]]", room: int) -> dict[int, int]:
    """The columns that fit, and their widths; none where not even the first fits. Earlier ones come first."""
    widths: dict[int, int] = {}
    most: dict[int, int] = {}
    for index, column in enumerate(columns):
        widest = max(len(column.short), *(line[index].cell_len for line in lines))
        least = min(widest, max(MIN_SHORTENED, len(column.short))) if column.free else widest
        gap = GAP if widths else 0
        if gap + least > room:
            if not widths:
                return {}
            continue
        widths[index], most[index] = least, widest
        room -= gap + least
    while room and widths != most:  # give each shortened column one more character in turn
        index = min((i for i in widths if widths[i] < most[i]), key=lambda i: widths[i])
        widths[index] += 1
        room -= 1
    return widths


def _print_records(terminal: "Console", columns: Sequence[Column], lines: "Sequence[Sequence[Text]]") -> None:
    """A line for each property, for terminals too narrow for a table."""
    for number, line in enumerate(lines):
        if number:
            terminal.print()
        for column, cell in zip(columns, line, strict=True):
            terminal.print(f"{column.short}: ", cell, sep="", soft_wrap=True)


def console(*, stderr: bool = False) -> "Console":
    """A rich console that takes text literally; without colour it prints nothing bold either."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if made.no_color:
        return Console(stderr=stderr, highlight=False, markup=False, emoji=False, color_system=None)
    return made


@contextmanager
def progress(description: str = "", *, bar: bool = True) -> "Iterator[Callable[..., None]]":
    """Show progress on standard error while it is a terminal; `update(text, done, total)` moves it."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), TaskProgressColumn(), text) if bar else (SpinnerColumn(), text)
    terminal = console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as shown:
        task = shown.add_task(description, total=None)

        def update(description: str, done: float | None = None, total: float | None = None) -> None:
            shown.update(task, description=description, completed=done, total=total)

        yield update

"""Flags that many commands share: settings, durations and times, listings, output."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click

from watchword.cli.run import plain_errors
from watchword.domain.errors import Fault
from watchword.domain.lifetimes import Duration, parse_iso
from watchword.settings import TABLE, Setting, load

_BY_NAME = {setting.name: setting for setting in TABLE}
STORE_FLAGS = ("data_dir", "database_url", "database_schema", "master_key_file")

Command = Callable[..., Any]

yes_flag = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def json_flag(command: Command) -> Command:
    """Add --json and -o; the command gets `as_json`."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(("text", "json"), case_sensitive=False),
        help="Output format; -o json is --json.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(command)
    def run(*args: Any, as_json: bool, output: str | None, **flags: Any) -> Any:
        return command(*args, as_json=as_json or output == "json", **flags)

    return run


def list_flags(default: int = 0) -> Callable[[Command], Command]:
    """Add --limit, --json and -o; the command gets `limit`, where 0 is no limit, and `as_json`."""
    return lambda command: click.option(
        "--limit",
        type=click.IntRange(0),
        default=default,
        show_default=True,
        help="Show at most this many; 0 shows all.",
    )(json_flag(command))


def page_size(limit: int) -> int:
    """How many rows to ask the server for at a time."""
    return min(1_000, (limit or 1_000) + 1)


_SPAN = re.compile(r"(?:\d{1,9}[wdhms])+", re.ASCII)
_MILLIS = {"w": 7 * 86_400_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
SPAN_FORMS = "30d, 12h, P30D or ONE_DAY"


def parse_span(text: str) -> int | None:
    """The milliseconds of `90d`, `1d12h`, `P90D` or `ONE_DAY` in any case; None where it is none of these."""
    word = text.strip()
    if _SPAN.fullmatch(word.lower()):
        return sum(int(part[:-1]) * _MILLIS[part[-1]] for part in re.findall(r"\d+[wdhms]", word.lower()))
    if word.upper() in Duration.__members__:
        milliseconds: int | None = Duration[word.upper()].value
        return milliseconds
    try:
        return parse_iso(word.upper())
    except Fault:
        return None


class Span(click.ParamType[int]):
    """A duration, in milliseconds."""

    name = "span"

    def __init__(self, *, bare_seconds: bool = False) -> None:
        self._bare_seconds = bare_seconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        span = parse_span(f"{value}s" if self._bare_seconds and value.isdecimal() else value)
        if span is None:
            self.fail(f"must be a duration such as {SPAN_FORMS}.", param, ctx)
        return span


class TokenLifetime(click.ParamType[str]):
    """A duration as the API takes it: a name such as ONE_DAY, or ISO 8601."""

    name = "lifetime"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.upper() in Duration.__members__:
            return str(value.upper())
        span = parse_span(value)
        if span is None:
            self.fail(f"must be a duration such as {SPAN_FORMS}.", param, ctx)
        return f"PT{span // 1000}S"


class Moment(click.ParamType[int]):
    """A date, a time or a duration, as milliseconds since 1970."""

    name = "moment"

    def __init__(self, *, ago: bool) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        span = parse_span(value)
        if span is not None:
            return time.time_ns() // 1_000_000 + (-span if self._ago else span)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                "must be a date (2026-12-31), a time (2026-12-31T18:00Z, UTC) or a duration (7d, P7D).", param, ctx
            )
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Add these settings as flags; the command gets all `settings`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **flags: Any) -> Any:
            chosen = {name: flags.pop(name, None) for name in names}
            with plain_errors():
                return command(*args, settings=load(chosen), **flags)

        return setting_flags(*names)(run)

    return decorate


def setting_flags(*names: str) -> Callable[[Command], Command]:
    """Add these settings as flags; the command gets each by its name, None where it was not given."""

    def decorate(command: Command) -> Command:
        for setting in [_BY_NAME[name] for name in reversed(names)]:
            if not setting.no_flag:
                command = _setting_option(setting)(command)
        return command

    return decorate


def _setting_option(setting: Setting) -> Callable[[Command], Command]:
    default = setting.default or "none"
    without = " Without a password: set that in the variable." if setting.secret else ""
    text = f"{setting.help}{without} [{setting.variable}; default: {default}]"
    return click.option(setting.flag, setting.name, default=None, help=text, metavar="TEXT")

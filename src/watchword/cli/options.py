"""Flags that many commands share: settings, durations and times, listings, output."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce, wraps
from typing import Any

import click

from watchword.cli.run import WrongUse
from watchword.domain.errors import Fault
from watchword.domain.lifetimes import SPAN_FORMS, Duration, parse_span
from watchword.domain.names import USER_PREFIX, check_urn
from watchword.files import trust_group
from watchword.settings import TABLE, Setting, load

_BY_NAME = {setting.name: setting for setting in TABLE}
STORE_FLAGS = ("data_dir", "database_url", "database_schema", "master_key_file")

CommandFunction = Callable[..., Any]
Decorator = Callable[[CommandFunction], CommandFunction]


def add_options(*options: Decorator) -> Decorator:
    """One decorator for several."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


_FORMAT = click.Choice(("text", "json"), case_sensitive=False)
urns_flag = click.option("--urns", is_flag=True, help="On a terminal, show actors by URN instead of by name.")
yes_flag = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def json_flag(command: CommandFunction) -> CommandFunction:
    """Add --json and -o; the command gets `as_json`."""

    @click.option("-o", "--output", type=_FORMAT, help="Output format; -o json is --json.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(command)
    def run(*args: Any, as_json: bool, output: str | None, **flags: Any) -> Any:
        return command(*args, as_json=as_json or output == "json", **flags)

    return run


def limit_flag(default: int = 0) -> Decorator:
    """Add --limit; the command gets `limit`, where 0 is no limit."""
    text = "Show at most this many; 0 shows all."
    return click.option("--limit", type=click.IntRange(0), default=default, show_default=True, help=text)


def repeatable(flag: str, name: str, metavar: str, text: str, **how: Any) -> Decorator:
    """An option that may be given several times."""
    return click.option(flag, name, multiple=True, metavar=metavar, help=text.replace(".", "; repeatable.", 1), **how)


def need_change(values: Mapping[str, Any]) -> None:
    """Fail where an update was called without a flag that changes something."""
    if all(value in (None, ()) for value in values.values()):
        raise WrongUse("Pass what to change, such as --name.")


def page_size(limit: int) -> int:
    """How many rows to ask the server for at a time."""
    return min(1_000, (limit or 1_000) + 1)


def full_urn(word: str, prefix: str) -> str:
    return word if word.startswith("urn:") else prefix + word


class ActorParam(click.ParamType[str]):
    """An actor: its URN, or a name for urn:li:corpuser:NAME. With `may_be_empty`, an empty word removes what is set."""

    name = "actor"

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self._may_be_empty = may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value and self._may_be_empty:
            return ""
        try:
            return check_urn(full_urn(value, USER_PREFIX) if value else value, "it")
        except Fault:
            self.fail("must be a user name such as alice, or a URN such as urn:li:corpuser:alice.", param, ctx)


class DurationParam(click.ParamType[int]):
    """A duration, in milliseconds. With `seconds`, it is in seconds, and a bare number is too."""

    name = "duration"

    def __init__(self, *, seconds: bool = False) -> None:
        self._seconds = seconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        span = parse_span(f"{value}s" if self._seconds and value.isdecimal() else value)
        if span is None:
            self.fail(f"must be a duration such as {SPAN_FORMS}.", param, ctx)
        return span // 1000 if self._seconds else span


class LifetimeParam(click.ParamType[str]):
    """A duration as the API takes it: a name such as ONE_DAY, or ISO 8601."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.upper() in Duration.__members__:
            return str(value.upper())
        return f"PT{DurationParam().convert(value, param, ctx) // 1000}S"


class TimeParam(click.ParamType[datetime]):
    """A date, a time or a duration from or before now."""

    name = "time"

    def __init__(self, *, ago: bool) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from watchword.client.records import from_millis  # a server does not load the client

        if (span := parse_span(value)) is not None:
            return from_millis(time.time_ns() // 1_000_000 + (-span if self._ago else span))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                "must be a date (2026-12-31), a time (2026-12-31T18:00Z, UTC) or a duration (7d, P7D).", param, ctx
            )
        return from_millis(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def with_settings(*names: str) -> Decorator:
    """Add these settings as flags; the command gets all `settings`."""

    def decorate(command: CommandFunction) -> CommandFunction:
        @wraps(command)
        def run(*args: Any, **flags: Any) -> Any:
            chosen = {name: flags.pop(name, None) for name in names}
            settings = load(chosen)
            trust_group(settings.trusted_group)
            return command(*args, settings=settings, **flags)

        return setting_flags(*names)(run)

    return decorate


def setting_flags(*names: str) -> Decorator:
    """Add these settings as flags; the command gets each by its name, None where it was not given."""
    return add_options(*(_setting_option(_BY_NAME[name]) for name in names if not _BY_NAME[name].no_flag))


def _setting_option(setting: Setting) -> Decorator:
    default = setting.default or "none"
    without = " Without a password: set that in the variable." if setting.secret else ""
    text = f"{setting.help}{without} [{setting.variable}; default: {default}]"
    return click.option(setting.flag, setting.name, help=text)

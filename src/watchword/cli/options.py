"""Flags that many commands share: settings, durations and times, listings, output."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce, wraps
from typing import Any

import click
from click.core import ParameterSource

from watchword.basics.errors import Fault
from watchword.basics.files import trust_group
from watchword.basics.names import USER_PREFIX, check_urn
from watchword.basics.times import SPAN_FORMS, Duration, parse_span
from watchword.cli.output import flag
from watchword.cli.run import GlobalOption, WrongUse, global_words
from watchword.index.indices import Aspect, parse_aspect
from watchword.settings import TABLE, Setting, Settings, load

_BY_NAME = {setting.name: setting for setting in TABLE}
STORE_FLAGS = ("data_dir", "database_url", "database_schema", "master_key_file")

CommandFunction = Callable[..., Any]
Decorator = Callable[[CommandFunction], CommandFunction]


def add_options(*options: Decorator) -> Decorator:
    """One decorator for several."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def _keep(means: tuple[str, Any] | None = None) -> dict[str, Any]:
    """For a flag whose value `output.flag` returns; the command does not get it. One that `means` a value of another
    flag sets that; of two, the last one given counts.
    """

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        name, kept = means or (parameter.name, value)
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
            context.meta[f"watchword.{name}"] = kept
        elif means is None:
            context.meta.setdefault(f"watchword.{name}", value)

    return {"expose_value": False, "callback": keep}


def global_flag(name: str, **more: Any) -> Decorator:
    words, how = global_words(name)
    return click.option(*words, cls=GlobalOption, **how | more)


urns_flag = click.option(
    "--urns", is_flag=True, help="On a terminal, show actors by URN instead of by name.", **_keep()
)
yes_flag = click.option("--yes", is_flag=True, help="Do not ask for confirmation.", **_keep())
format_flags = add_options(global_flag("output", **_keep()), global_flag("as_json", **_keep(("output", "json"))))
limit_flags = add_options(
    click.option(
        "--limit", type=click.IntRange(1), default=100, help="Show at most this many. [default: 100]", **_keep()
    ),
    click.option("--all", is_flag=True, help="Show all.", **_keep(("limit", None))),
)
all_actors_flag = click.option("--all-actors", is_flag=True, help="Those of every user, not only your own.")
wait_flag = click.option("--wait/--no-wait", default=True, help="Whether to wait until it ends. [default: wait]")


def repeatable(flag: str, name: str, metavar: str, text: str, **how: Any) -> Decorator:
    """An option that may be given several times."""
    return click.option(flag, name, multiple=True, metavar=metavar, help=text.replace(".", "; repeatable.", 1), **how)


def need_change(values: Mapping[str, Any]) -> None:
    """Fail where an update was called without a flag that changes something."""
    if all(value in (None, ()) for value in values.values()):
        raise WrongUse("Pass what to change, such as --name.")


def page_size() -> int:
    """How many rows to ask the server for at a time: no more than --limit needs."""
    return min(1_000, (flag("limit") or 1_000) + 1)


def full_urn(word: str, prefix: str) -> str:
    return word if word.startswith("urn:") else prefix + word


# Types of values: functions, which raise what is wrong with a value.


def actor_urn(word: str) -> str:
    """An actor: its URN, or a name for urn:li:corpuser:NAME."""
    try:
        return check_urn(full_urn(word, USER_PREFIX) if word else word, "it")
    except Fault:
        expected = "must be a user name such as alice, or a URN such as urn:li:corpuser:alice."
        raise click.BadParameter(expected) from None


def actor_or_empty(word: str) -> str:
    """An actor, or an empty word, which removes what is set."""
    return word and actor_urn(word)


def series_name(word: str) -> str:
    return word.replace("/", ".", 1)  # people write ENTITY/ASPECT too


def series(word: str) -> Aspect:
    """A time series: an aspect of an entity."""
    try:
        return parse_aspect(series_name(word))
    except ValueError:
        raise click.BadParameter("must be ENTITY.ASPECT, such as dataset.operation.") from None


def percent(word: str) -> int:
    """A share, in percent."""
    number = word.removesuffix("%")
    if number == word or not number.isdecimal() or int(number) > 100:
        raise click.BadParameter("must be a percentage from 0% to 100%, such as 5%.")
    return int(number)


def duration(word: str) -> int:
    """A duration, in milliseconds."""
    span = parse_span(word)
    if span is None:
        raise click.BadParameter(f"must be a duration such as {SPAN_FORMS}.")
    return span


def seconds(word: str) -> int:
    """A duration, in seconds, as a bare number is too."""
    return duration(f"{word}s" if word.isdecimal() else word) // 1000


def lifetime(word: str) -> str:
    """A duration as the API takes it: a name such as ONE_DAY, or ISO 8601."""
    return word.upper() if word.upper() in Duration.__members__ else f"PT{duration(word) // 1000}S"


def time_ago(word: str) -> datetime:
    """A date, a time or a duration before now."""
    return _time(word, -1)


def time_ahead(word: str) -> datetime:
    """A date, a time or a duration from now."""
    return _time(word, 1)


def _time(word: str, direction: int) -> datetime:
    from watchword.client.records import from_millis  # a server does not load the client

    if (span := parse_span(word)) is not None:
        return from_millis(time.time_ns() // 1_000_000 + direction * span)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        expected = "must be a date (2026-12-31), a time (2026-12-31T18:00Z, UTC) or a duration (7d, P7D)."
        raise click.BadParameter(expected) from None
    return from_millis(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


# How help calls their values.
actor_urn.__name__ = "actor"
seconds.__name__ = lifetime.__name__ = "duration"
time_ago.__name__ = time_ahead.__name__ = "time"


def load_settings(flags: dict[str, Any]) -> Settings:
    """For a command on this machine, which may read the files that the service may read."""
    settings = load(flags)
    trust_group(settings.trusted_group)
    return settings


def with_settings(*names: str) -> Decorator:
    """Add these settings as flags; the command gets all `settings`."""

    def decorate(command: CommandFunction) -> CommandFunction:
        @wraps(command)
        def run(*args: Any, **flags: Any) -> Any:
            settings = load_settings({name: flags.pop(name, None) for name in names})
            return command(*args, settings=settings, **flags)

        return setting_flags(*names)(run)

    return decorate


def setting_flags(*names: str) -> Decorator:
    """Add these settings as flags; the command gets each by its name, None where it was not given."""
    return add_options(*(_setting_option(_BY_NAME[name], flag) for name in names if (flag := _BY_NAME[name].flag)))


def _setting_option(setting: Setting, flag: str) -> Decorator:
    default = setting.default or "none"
    without = " Without a password: set that in the variable." if setting.secret else ""
    text = f"{setting.help}{without} [{setting.variable}; default: {default}]"
    return click.option(flag, setting.name, help=text)

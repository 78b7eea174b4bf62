"""What all commands share: the settings as flags, and the store that is there."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.outcome import plain_errors
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import SqliteUrl
from watchword.settings import DEFAULT_URL, TABLE, Setting, Settings, load, server_url

if TYPE_CHECKING:
    from watchword.cli.backstage import Backstage, LocalService

_BY_NAME = {setting.name: setting for setting in TABLE}
STORE_FLAGS = ("data_dir", "database_url", "database_schema", "master_key_file")

Command = Callable[..., Any]

json_flag = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Give the command these settings as flags, and hand it the settings as a whole."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **flags: Any) -> Any:
            chosen = {name: flags.pop(name, None) for name in names}
            with plain_errors():
                return command(*args, settings=load(chosen), **flags)

        return flags_of(*names)(run)

    return decorate


def flags_of(*names: str) -> Callable[[Command], Command]:
    """Give the command these settings as flags, each by its name and None where it was not given."""

    def decorate(command: Command) -> Command:
        for setting in [_BY_NAME[name] for name in reversed(names)]:
            if not setting.no_flag:
                command = _option(setting)(command)
        return command

    return decorate


def _option(setting: Setting) -> Callable[[Command], Command]:
    default = setting.default or "none"
    without = " Without a password: set that in the variable." if setting.secret else ""
    text = f"{setting.help}{without} [{setting.variable}; default: {default}]"
    return click.option(setting.flag, setting.name, default=None, help=text, metavar="TEXT")


def need_store(backstage: "Backstage", settings: Settings) -> None:
    """For commands that work on a store: a mistyped folder must not become a new, empty one."""
    if not backstage.has_store(settings):
        raise OperatorError(" ".join(_about_missing(backstage, settings)))


def _about_missing(backstage: "Backstage", settings: Settings) -> Iterator[str]:
    """Where it was looked for, and whether there is a service on another store, which is probably meant."""
    url = settings.store_url
    if isinstance(url, SqliteUrl):
        yield f"There is no store at {url.path.absolute()}."
        fix = "Name the folder of the service with --data-dir or WATCHWORD_DATA_DIR."
    else:
        yield f"There is no store at {url}, schema {settings.database_schema}."
        fix = "Give the settings of the service, WATCHWORD_DATABASE_URL and WATCHWORD_DATABASE_SCHEMA."
    server = server_url() or DEFAULT_URL
    if backstage.server_version(server) is None:
        yield f"{fix} To make a new one there: watchword db migrate"
    else:
        yield f"The server at {server} uses another. {fix}"


@asynccontextmanager
async def open_existing(backstage: "Backstage", settings: Settings) -> "AsyncIterator[LocalService]":
    """The service on a store that is there and of this version: only `serve` and `db migrate` migrate."""
    import asyncio

    def prepare() -> None:
        need_store(backstage, settings)
        backstage.prepare_store(settings, may_migrate=False)

    await asyncio.to_thread(prepare)
    async with backstage.open_local(settings) as service:
        yield service

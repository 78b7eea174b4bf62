"""What all commands share: the settings as flags, and the store that is there."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.domain.errors import OperatorError
from watchword.doors.cli.outcome import plain_errors
from watchword.settings import Settings, load
from watchword.settings_table import TABLE, Setting

if TYPE_CHECKING:
    from watchword.doors.cli.backstage import Backstage, LocalService

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
            if not setting.flagless:
                command = _option(setting)(command)
        return command

    return decorate


def _option(setting: Setting) -> Callable[[Command], Command]:
    default = setting.default or "none"
    without = " Without a password, which belongs into the variable." if setting.secret else ""
    text = f"{setting.help}{without} [{setting.variable}; default: {default}]"
    return click.option(setting.flag, setting.name, default=None, help=text, metavar="TEXT")


def need_store(backstage: "Backstage", settings: Settings) -> None:
    """For commands that work on a store: a mistyped folder must not become a new, empty one."""
    if not backstage.has_store(settings):
        where = f"{settings.place}, schema {settings.database_schema}" if settings.is_shared else str(settings.place)
        raise OperatorError(f"There is no store at {where}. Make it with: watchword db migrate")


@asynccontextmanager
async def open_existing(backstage: "Backstage", settings: Settings) -> "AsyncIterator[LocalService]":
    """The service on a store that is there and of this version: only `serve` and `db migrate` migrate."""
    import asyncio

    def prepare() -> None:
        need_store(backstage, settings)
        backstage.prepare_store(settings, may_migrate=False)

    await asyncio.to_thread(prepare)
    async with backstage.open_service(settings) as service:
        yield service

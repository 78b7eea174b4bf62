"""What all commands share: the settings as flags, one line for an error, exit codes 0, 1 and 2."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import click

from watchword.domain.errors import Fault, OperatorError
from watchword.doors.cli.backstage import Backstage, LocalService
from watchword.settings import TABLE, Setting, Settings, SettingsError, load

_BY_NAME = {setting.name: setting for setting in TABLE}
STORE_FLAGS = ("data_dir", "database_url", "master_key_file")

Command = Callable[..., Any]


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Give the command these settings as flags, and hand it the settings as a whole."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **flags: Any) -> Any:
            chosen = {name: flags.pop(name) for name in names}
            with plain_errors():
                return command(*args, settings=load(chosen), **flags)

        with_flags: Command = run
        for name in reversed(names):
            with_flags = _option(_BY_NAME[name])(with_flags)
        return with_flags

    return decorate


def _option(setting: Setting) -> Callable[[Command], Command]:
    default = setting.default or "none"
    text = f"{setting.help} [{setting.variable}; default: {default}]"
    return click.option(setting.flag, setting.name, default=None, help=text, metavar="TEXT")


def need_store(settings: Settings) -> None:
    """For commands that work on a store: a mistyped folder must not become a new, empty one."""
    if not settings.store_path.exists():
        raise OperatorError(f"There is no store at {settings.store_path}. Make it with: watchword db migrate")


@asynccontextmanager
async def open_existing(backstage: Backstage, settings: Settings) -> AsyncIterator[LocalService]:
    """The service on a store that is there, brought to this version."""
    need_store(settings)
    backstage.prepare_store(settings)
    async with backstage.open_service(settings) as service:
        yield service


class plain_errors:  # noqa: N801 - reads as a word in `with`
    """An error is one line on standard error and exit code 1 (2 for wrong use), never a traceback."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SettingsError):
            raise SystemExit(_say(str(error), 2)) from None
        if isinstance(error, Fault):
            raise SystemExit(_say(error.message, 1)) from None
        if isinstance(error, OperatorError):
            raise SystemExit(_say(str(error), 1)) from None
        if isinstance(error, OSError):
            raise SystemExit(_say(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)) from None


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"watchword: {message}\n")
    return code
